"""The wiki environment: read pages, follow links, save evidence, submit an answer.

Invariants: a state is an immutable value, so a fork shares it; observations come from the backend and the replies only;
a missing page or line is an answer, a backend that fails raises.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, Args, Grammar, Verb, render
from agent_envs.core import BackendUnavailable, Drill, Exercise, Outcome, SettingsError, Task, TaskSet, TextEnv
from agent_envs.oracle import chance
from agent_envs.tool_env import ToolEnv, ToolState
from agent_envs.wiki import arguments, replies
from agent_envs.wiki.backend import Hit, Page, WikiBackend
from agent_envs.wiki.config import Corpus, OutcomeScore, WikiConfig
from agent_envs.wiki.corpus import backend_of, tasks_of
from agent_envs.wiki.expert import Situation, expert_turn
from agent_envs.wiki.names import parts
from agent_envs.wiki.own.facts import sayable
from agent_envs.wiki.own.stored import check_own, own_tasks
from agent_envs.wiki.places import Place
from agent_envs.wiki.relations import RELATIONS
from agent_envs.wiki.reward import reward, score
from agent_envs.wiki.tasks import Gold
from agent_envs.wiki.tokens import fold

_MAX_FOUND = 5


@dataclass(frozen=True)
class View:
    """What is open: a page from some line on, or a list of search results."""

    title: str | None
    """Title of the page; None for search results."""
    first: int = 1
    """First line shown."""
    query: str = ""
    """What was searched for."""
    number: int = 1
    """Which page of results."""


@dataclass(frozen=True)
class WikiState(ToolState):
    """All that an episode changes."""

    views: tuple[View, ...] = ()
    """The open view and those behind it, oldest first."""
    saved: tuple[tuple[str, int], ...] = ()
    """Saved (title, line id), in the order of saving, each once."""
    found: int = 0
    """Line after which FIND(text, next) goes on."""
    answer: str | None = None
    """The submitted answer."""


class WikiEnv(ToolEnv):
    """Answer multi-hop questions with the pages of a wiki. The reward comes with SUBMIT."""

    name: ClassVar[str] = "wiki"
    Config: ClassVar[type[Any]] = WikiConfig
    config: WikiConfig
    grammar: ClassVar[Grammar] = Grammar(
        Verb("NAVIGATE", "title[#section]", aliases={"zh": "打开"}, usages={"zh": "标题[#节]"}),
        Verb("SEARCH", "query[, page=n]", aliases={"zh": "搜索"}, usages={"zh": "词语[, page=n]"}),
        Verb("CLICK", "n or link text", aliases={"zh": "点击"}, usages={"zh": "n 或链接文字"}),
        Verb("FIND", "text[, next]", aliases={"zh": "查找"}, usages={"zh": "文字[, next]"}),
        Verb("SAVE_LINE_IDS", "17-19, 108-145", aliases={"zh": "保存行"}),
        Verb("BACK", "", Args.NONE, aliases={"zh": "返回"}),
        Verb("SUBMIT", "answer", aliases={"zh": "提交"}, usages={"zh": "答案"}),
    )

    tools: ClassVar[Mapping[str, frozenset[str]]] = {"wiki": frozenset({"NAVIGATE", "SEARCH", "CLICK", "FIND"})}

    _rest: str = "rest"
    """The reply that says how to read on."""

    def __init__(self, config: WikiConfig | None = None, backend: WikiBackend | None = None) -> None:
        """Without a `backend` that of the settings is opened (and built the first time) when a turn needs it."""
        super().__init__(config)
        self._given = backend
        self._opened = backend

    @property
    def backend(self) -> WikiBackend:
        if self._opened is None:
            self._opened = backend_of(self.config)
        return self._opened

    def prepare(self) -> None:
        self.backend.prepare(self.config.languages)
        if self.config.crawl:
            check_own(self.config, self.backend)

    def __getstate__(self) -> dict[str, Any]:
        # A pickle may travel to another machine: it finds the corpus there by the settings, not by our path.
        return {**self.__dict__, "_opened": self._given}

    def tasks(self, split: str) -> TaskSet:
        if self.config.crawl:
            return own_tasks(self.config, self.backend, split)
        return tasks_of(self.config, split)

    def instructions(self, language: str) -> str:
        return "阅读维基，回答问题。" if language == "zh" else "Answer the question by reading the wiki."

    def _begin(self, task: Task) -> WikiState:
        return WikiState()

    def _copy_state(self, state: WikiState) -> WikiState:
        return state

    @property
    def _gold(self) -> Gold:
        gold = self.task.data
        assert isinstance(gold, Gold)
        return gold

    @property
    def _pays_form(self) -> bool:
        return self.config.outcome is OutcomeScore.HIERARCHICAL

    def _submitted(self) -> tuple[str | None, Sequence[str]]:
        return self._state.answer, self._gold.accepted

    def _act(self, action: Action) -> Outcome:
        # Every action is carried out by the method of its name.
        outcome: Outcome = getattr(self, f"_{action.name.lower()}")(action.args)
        return outcome

    def _page(self, title: str) -> Page:
        page = self.backend.page(title, self._gold.partition)
        if page is None:
            raise BackendUnavailable(f"the wiki lost the page {title!r}")
        return page

    def _say(self, key: str, **values: object) -> Outcome:
        return Outcome(replies.say(key, self.task.language, **values))

    def _open(self, view: View) -> Outcome:
        """Show a view and put it on top of those behind it."""
        text = self._show(view)
        self._state = replace(self._state, views=(*self._state.views, view), found=0)
        return Outcome(text)

    def _show(self, view: View) -> str:
        config, language = self.config, self.task.language
        if view.title is not None:
            page = self._page(view.title)
            return replies.show_page(page, view.first, language, config.max_lines, config.max_chars, self._rest)
        hits = self._hits(view)
        more = view.number + 1 if len(hits) > config.hits else None
        return replies.show_hits(hits[: config.hits], (view.number - 1) * config.hits, more, language)

    def _hits(self, view: View) -> list[Hit]:
        """The search results of a view, and one more where there are more."""
        most = self.config.hits
        return self.backend.search(view.query, self._gold.partition, most + 1, (view.number - 1) * most)

    def _navigate(self, args: str) -> Outcome:
        title, section = self.backend.resolve(args, self._gold.partition), ""
        if title is None and "#" in args:
            name, _, section = args.rpartition("#")
            title = self.backend.resolve(name, self._gold.partition)
        if title is None:
            similar = self.backend.similar(args, self._gold.partition, self.config.hits)
            return self._say("similar", titles="; ".join(similar)) if similar else self._say("missing")
        if not section.strip():
            return self._open(View(title))
        page = self._page(title)
        headings = {fold(line.text): at for at, line in reversed(list(enumerate(page.lines, 1))) if line.level}
        first = headings.get(fold(section)) or arguments.number(section)
        if first is None or not 1 <= first <= len(page.lines):
            return self._say("section", titles="; ".join(line.text for line in page.lines if line.level) or "-")
        return self._open(View(title, first))

    def _search(self, args: str) -> Outcome:
        query, number = arguments.page_option(args)
        return self._open(View(None, query=query, number=number))

    def _click(self, args: str) -> Outcome:
        if not self._state.views:
            return self._say("nopage")
        view = self._state.views[-1]
        if view.title is None:
            links = [(hit.title, hit.title) for hit in self._hits(view)[: self.config.hits]]
        else:
            text = self._page(view.title)
            links = [(row.text[link.start : link.end], link.title) for row in text.lines for link in row.links]
        number = arguments.number(args)
        if number is None:
            wanted = fold(args)
            target = next((title for text, title in links if wanted in (fold(text), fold(title))), None)
        else:
            target = links[number - 1][1] if 1 <= number <= len(links) else None
        if target is None:
            return self._say("links", links=len(links)) if links else self._say("nolink")
        return self._navigate(target)

    def _find(self, args: str) -> Outcome:
        if not self._state.views or self._state.views[-1].title is None:
            return self._say("nopage")
        wanted, onward = arguments.next_option(args)
        after = self._state.found if onward else 0
        page, needle = self._page(self._state.views[-1].title), fold(wanted)
        found = [at for at, line in enumerate(page.lines, 1) if at > after and needle and needle in fold(line.text)]
        if not found:
            return self._say("notfound")
        rows = [page.shown[at - 1] for at in found[:_MAX_FOUND]]
        if len(found) > _MAX_FOUND:
            rows.append(replies.say("further", self.task.language, left=len(found) - _MAX_FOUND))
        self._state = replace(self._state, found=found[:_MAX_FOUND][-1])
        return Outcome("\n".join(rows))

    def _save_line_ids(self, args: str) -> Outcome:
        ranges = arguments.line_ranges(args)
        if not self._state.views or self._state.views[-1].title is None:
            return self._say("nopage")
        title = self._state.views[-1].title
        lines = len(self._page(title).lines)
        rows, saved = [], dict.fromkeys(self._state.saved)
        for first, last in ranges:
            ids, row = replies.saved_range(first, last, lines, self.task.language)
            rows.append(row)
            saved |= dict.fromkeys((title, id) for id in ids)
        self._state = replace(self._state, saved=tuple(saved))
        return Outcome("\n".join(rows))

    def _back(self, args: str) -> Outcome:
        if len(self._state.views) < 2:
            return self._say("back")
        text = self._show(self._state.views[-2])
        self._state = replace(self._state, views=self._state.views[:-1], found=0)
        return Outcome(text)

    def _submit(self, args: str) -> Outcome:
        self._state = replace(self._state, answer=args)
        scores = score(self._gold, args, self._state.saved)
        earned = reward(scores, self.config.outcome, self.config.evidence, self.config.evidence_beta)
        return Outcome("", earned, terminated=True, success=scores.em == 1)

    def _invalid_reward(self) -> float:
        return 0.0 - self.config.invalid_penalty

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        metrics = {"saved": float(len(self._state.saved))}
        return metrics | asdict(score(self._gold, self._state.answer, self._state.saved)) if over else metrics

    def offline(self) -> TextEnv:
        if self._given is not None or self.config.source or self.config.crawl or self.config.place() == Place():
            return self
        here = {field.name: getattr(Place, field.name) for field in fields(Place)}
        return type(self)(replace(self.config, **here))

    def lexicon(self) -> Sequence[str]:
        if self.config.corpus != Corpus.WORLD or self.config.source or self.config.crawl:
            return ()
        (first_en, second_en), (first_zh, second_zh) = parts("en"), parts("zh")
        return [*(f"{part} " for part in first_en), *second_en, *first_zh, *second_zh, *RELATIONS, *RELATIONS.values()]

    def drill(self, task: Task, rng: np.random.Generator) -> Drill | None:
        """Quoting the facts of a random page in random order; of a page of the task, where a crawl found it."""
        gold: Gold = task.data
        hop = gold.hops[int(rng.integers(len(gold.hops)))] if self.config.crawl else None
        title = self.backend.random(rng, gold.partition) if hop is None else hop.title
        page = self.backend.page(title, gold.partition)
        limits = (task.language, self.config.max_lines, self.config.max_chars)
        seen = page.lines[: replies.last_shown(page, 1, *limits)] if page else ()
        facts = [i for i, line in enumerate(seen) if ": " in line.text and sayable(line.text)]
        if page is None or not facts:
            return None
        exercises = []
        for i in rng.permutation(facts):
            quote = page.shown[i].partition(" ")[2]
            turn = render("SAVE_LINE_IDS", str(i + 1), f"{quote} [{i + 1}]")
            given = turn[: turn.index(": ")]
            exercises.append(Exercise(given, turn.removeprefix(given)))
        text = replies.show_page(page, 1, *limits)
        return text, exercises

    @property
    def has_expert(self) -> bool:
        return not self.config.source

    def oracle(self) -> float | None:
        """The chance of the agent that `agent_envs.oracle` describes, as skilled as the settings say."""
        if not self.has_expert:
            return None
        return chance(self._expert_steps(), self.max_turns - self.turn, self.config.skill)

    def _expert_steps(self) -> list[bool]:
        """The turns of an expert with time to spare, from here to the answer: True where it only saves evidence.

        Ends early where more must be done than there are turns left.
        """
        ghost = copy.copy(self)
        ghost.turn, ghost.max_turns = 0, 10_000
        saves: list[bool] = []
        while ghost._state.answer is None and saves.count(False) <= self.max_turns - self.turn:
            action = ghost.grammar.parse(ghost.expert())
            ghost._act(action)
            saves.append(action.name == "SAVE_LINE_IDS")
        return saves

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        return expert_turn(self._situation(), flaw, rng)

    def _situation(self) -> Situation:
        """Raises SettingsError where there is no expert."""
        if not self.has_expert:
            raise SettingsError(f"{self.name}: questions of a source have no scripted expert")
        return Situation(
            self._gold,
            self.task.language,
            [view.title for view in self._state.views],
            self._state.saved,
            self.max_turns - self.turn,
            self.config.evidence > 0,
            self._page,
            bool(self.config.crawl),
        )
