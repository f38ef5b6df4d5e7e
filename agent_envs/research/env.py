"""The research environment: find a fact in the wiki, compute with it in Python, submit the result.

It is the wiki with a python tool, its own questions, and ARPO's tags as a second action format. Invariants: a state is
an immutable value; with the tags nothing that a tool returns closes its `<result>`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, Grammar, render
from agent_envs.code.python_tool import VERB, PythonTool, with_python
from agent_envs.core import Drill, Exercise, Outcome, Task, TaskSet
from agent_envs.research.config import Format, ResearchConfig
from agent_envs.research.expert import expert_action
from agent_envs.research.tasks import OPERATORS, research_tasks
from agent_envs.tag_grammar import TagGrammar, render_tags
from agent_envs.tool_format import TOOLS
from agent_envs.wiki import replies
from agent_envs.wiki.backend import WikiBackend
from agent_envs.wiki.env import WikiEnv, WikiState

_PAIRS = [f"{number:02}" for number in range(100)]


@dataclass(frozen=True)
class ResearchState(WikiState):
    """All that an episode changes."""

    printed: tuple[str, ...] = ()
    """What each program printed, oldest first."""


class ResearchEnv(PythonTool, WikiEnv):
    """Answer questions that need a fact of the wiki and a computation on it. The reward comes with SUBMIT."""

    name: ClassVar[str] = "research"
    Config: ClassVar[type[Any]] = ResearchConfig
    config: ResearchConfig
    grammar: ClassVar[Grammar] = with_python(WikiEnv.grammar)
    tools: ClassVar[Mapping[str, frozenset[str]]] = dict(
        zip(TOOLS, (WikiEnv.tools["wiki"], frozenset({VERB.name})), strict=True)
    )

    def __init__(self, config: ResearchConfig | None = None, backend: WikiBackend | None = None) -> None:
        super().__init__(config, backend)
        if self.config.format is Format.TAGS:
            self.grammar = TagGrammar()  # type: ignore[misc]
            self._rest = "rest_tags"

    def tasks(self, split: str) -> TaskSet:
        return super().tasks(split) if self.config.source else research_tasks(self.config, split)

    def instructions(self, language: str) -> str:
        if language == "zh":
            return "阅读维基，用Python计算，回答问题。"
        return "Answer the question: read the wiki and compute with Python."

    def _begin(self, task: Task) -> ResearchState:
        super()._begin(task)  # opens the sandbox
        return ResearchState()

    def _act(self, action: Action) -> Outcome:
        outcome = super()._act(action)
        if action.name == VERB.name:
            self._state = replace(self._state, printed=(*self._state.printed, outcome.text))
        return self._shown(outcome)

    def _search(self, args: str) -> Outcome:
        """With the tags there is no other way to a page: the one of that title is opened, else the best result."""
        if not self._tagged:
            return super()._search(args)
        partition, most = self._gold.partition, self.config.hits
        named = any(self.backend.resolve(title, partition) for title in (args, args.rpartition("#")[0]) if title)
        hits = [hit.title for hit in self.backend.search(args, partition, most)] if most > 1 or not named else []
        if not named and not hits:
            return self._navigate(args)  # which names titles that are spelled alike
        opened = self._navigate(args if named else hits[0])
        here = self._state.views[-1].title if self._state.views else None
        others = [title for title in hits if title != here][: most - 1]
        if not others:
            return opened
        return replace(opened, text=f"{opened.text}\n{self._say('also', titles='; '.join(others)).text}")

    def lexicon(self) -> Sequence[str]:
        words = super().lexicon()
        signs = [word for operator in OPERATORS.values() for word in operator.words.values()]
        # A number is always cut into the same pieces, whatever stands before it.
        return [*words, *signs, *_PAIRS] if words else ()

    def drill(self, task: Task, rng: np.random.Generator) -> Drill | None:
        """Going on from the facts of a random page, in random order: to the page that a line links, or with its number
        to Python."""
        page = self.backend.page(self.backend.random(rng, task.data.partition), task.data.partition)
        facts = [at for at, line in enumerate(page.lines) if ": " in line.text] if page else []
        if page is None or not facts:
            return None
        exercises = []
        for at in rng.permutation(facts):
            line, quote = page.lines[at], page.shown[at].partition(" ")[2]
            value = line.text.partition(": ")[2]
            link = str(1 + sum(len(row.links) for row in page.lines[:at]))
            action = Action("CLICK", link, quote) if line.links else Action(VERB.name, f"x = {value}", quote)
            turn = self._written(action, value if line.links else None)
            given = turn[: turn.index(": ")]
            exercises.append(Exercise(given, turn.removeprefix(given)))
        text = replies.show_page(page, 1, task.language, self.config.max_lines, self.config.max_chars, self._rest)
        return self._shown(Outcome(text)).text, exercises

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        action = expert_action(self._situation(), self._state.printed, WikiEnv.grammar, flaw, rng)
        return self._written(action, self._opens(action) if self._tagged else None)

    def _opens(self, action: Action) -> str | None:
        """The page that an action of the wiki's expert leads to."""
        views = self._state.views
        if action.name == "CLICK":
            assert views[-1].title is not None
            return self._page(views[-1].title).links[int(action.args) - 1].title
        return {"NAVIGATE": action.args, "BACK": views[-2].title if len(views) > 1 else None}.get(action.name)

    def _written(self, action: Action, opens: str | None) -> str:
        """The turn of an action; with the tags one that ``opens`` a page is a search for it."""
        if not self._tagged:
            return render(action.name, action.args, action.thought)
        return render_tags(action.name if opens is None else "SEARCH", opens or action.args, action.thought)
