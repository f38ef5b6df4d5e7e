"""The base of all environments: a Gymnasium environment whose observations and actions are Unicode text.

Invariants:

- All that an episode changes is ``turn``, ``_over``, ``_state`` and ``np_random``; `TextEnv.fork` copies just these.
- A turn that breaks the grammar, or that the environment refuses, changes nothing but the turn counter.
- ``terminated`` (the task is over) differs from ``truncated`` (the turn limit was reached), and ``success`` is ``None``
  until either of them is true.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, overload

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from agent_envs.actions import Action, ActionError, Grammar
from agent_envs.spaces import AnyText
from agent_envs.tools import ONE_CALL, tools_of

SPLITS = ("train", "valid", "test")


class SettingsError(ValueError):
    """A setting that the user can fix; its text is one line that says how."""


class BackendUnavailable(RuntimeError):  # noqa: N818 (a state of the world, not a mistake of the caller)
    """Something outside the episode failed (disk, service). Never shown to the agent: the episode is void, not lost."""


@dataclass(frozen=True)
class Task:
    """One task. Everything but `data` may be shown to the agent."""

    id: str
    """Unique within the environment's settings; `TaskSet.find` turns it back into the task."""
    split: str
    """"train", "valid" or "test"."""
    prompt: str
    """The first user message."""
    language: str = "en"
    """"en" or "zh": language of the prompt and of the environment's replies."""
    level: int = 1
    """Difficulty, counted from 1 (hops of a question, steps of a puzzle)."""
    data: Any = None
    """Frozen payload of the environment: answers, gold evidence. Never shown to the agent."""


class TaskSet(Sequence[Task]):
    """A lazy, deterministic sequence of tasks: `build(i)` makes task i, `index(id)` finds the number of an id."""

    def __init__(self, size: int, build: Callable[[int], Task], number_of: Callable[[str], int | None]) -> None:
        self._size, self._build, self._number_of = size, build, number_of

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self._build(i) for i in range(*index.indices(self._size))]
        number = index + self._size if index < 0 else index
        if not 0 <= number < self._size:
            raise IndexError(f"task {index} of {self._size}")
        return self._build(number)

    def __iter__(self) -> Iterator[Task]:
        return map(self._build, range(self._size))

    def find(self, task_id: str) -> Task | None:
        """The task of that id, or None when this set has no such task."""
        number = self._number_of(task_id)
        return None if number is None or not 0 <= number < self._size else self._build(number)


def check_split(name: str, split: str) -> None:
    """Raises SettingsError when the environment ``name`` is asked for a split that there is not."""
    if split not in SPLITS:
        raise SettingsError(f"{name}: no split {split!r}: use one of {', '.join(SPLITS)}")


def number_after(prefix: str, task_id: str) -> int | None:
    """The number of the task called ``prefix`` and that number; None when the id is no such name."""
    number = task_id.removeprefix(prefix)[:9]
    # 017 and the digits of other scripts would be further names of the same task.
    return int(number) if number.isdecimal() and task_id == f"{prefix}{int(number)}" else None


@dataclass(frozen=True)
class Outcome:
    """What one valid action led to; `TextEnv._act` returns it."""

    text: str = ""
    """The tool message; empty when the episode is over."""
    reward: float = 0.0
    terminated: bool = False
    success: bool = False
    """The verdict; read only when `terminated`."""


@dataclass(frozen=True)
class Exercise:
    """A turn to be completed."""

    given: str
    """How the turn begins."""
    wanted: str
    """The rest of it, which is learned; nothing where the whole turn is given."""
    seen: str = ""
    """What is answered."""


Drill = tuple[str, Sequence[Exercise]]
"""(a text, turns about it)"""


class PlayableEnv(Protocol):
    """What playing an episode needs: a `TextEnv`, or one that lives in another process."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]: ...
    def system_prompt(self) -> str: ...
    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]: ...
    def fork(self) -> Self: ...
    def close(self) -> None: ...


class TextEnv(gymnasium.Env[str, str], ABC):
    """Base of all environments: turn counting, truncation, parsing and the text that answers an invalid action.

    A concrete environment sets `name`, `Config`, `grammar` and `metadata`, and writes `tasks`, `_begin`, `_act`
    and `instructions`, and where it has them `_metrics`, `expert`, `valid_turns` and `oracle`. Its `_state` must hold
    everything that an episode changes.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Any]]
    grammar: ClassVar[Grammar]
    openings: ClassVar[Mapping[str, str]] = {}
    """Language → the words that the model's message begins with, where turns are *thought factors*: short thoughts,
    each ended by a blank line, of one message that nothing interrupts. Such an environment answers thoughts with
    nothing, has `Thoughts` for its grammar, and takes a turn without a blank line for the end of the message; its last
    turn goes on to that end. Empty: every turn is a message of its own."""
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (gymnasium's own declaration)

    def __init__(self, config: Any = None) -> None:
        if config is None:
            config = self.Config()
        if not isinstance(config, self.Config):
            raise SettingsError(f"{self.name}: settings must be a {self.Config.__name__}, not {type(config).__name__}")
        if config.max_turns < 1:
            raise SettingsError(f"{self.name}: max_turns must be at least 1, not {config.max_turns}")
        self.config = config
        self.max_turns: int = config.max_turns
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self.turn = 0
        self._rendered = ""
        self._invalid_turns = 0
        self._task: Task | None = None
        self._state: Any = None
        self._over = True
        self._tells = self._calls = False

    # ---- what an environment writes -------------------------------------------------------------------------------
    @abstractmethod
    def tasks(self, split: str) -> TaskSet:
        """The tasks of "train", "valid" or "test"; the splits share no world or entity."""

    @abstractmethod
    def _begin(self, task: Task) -> Any:
        """The first state of an episode of `task`."""

    @abstractmethod
    def _act(self, action: Action) -> Outcome:
        """Carry out an action that the grammar accepted. Raise `ActionError` before changing anything to refuse it."""

    @abstractmethod
    def instructions(self, language: str) -> str:
        """Role and goal, without the action format."""

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        """The next full turn of a scripted expert that is right from every state. Only behaviour cloning needs one.

        `flaw` is the probability, at each decision where it can be made, of the environment's systematic mistake;
        `rng` decides and is needed only when `flaw` > 0. The environment itself does not change. Raises SettingsError
        in an environment that has no expert.
        """
        raise SettingsError(f"{self.name} has no scripted expert")

    @property
    def has_expert(self) -> bool:
        """Whether `expert` is written."""
        return type(self).expert is not TextEnv.expert

    def valid_turns(self) -> Sequence[str]:
        """Every turn that would be accepted in the current state, where they can be listed; else none.

        Random agents draw from them. The environment itself does not change.
        """
        return ()

    def oracle(self) -> float | None:
        """The chance of success from the current state, for an agent of the skill that the settings name.

        It is exact for that agent, so it rises with a step forward, falls with a mistake, stays where any choice would
        have done, and is 0 where success is out of reach. The agent never sees it: it is for controls, judges and
        measures. None when the environment cannot tell. Called only while the episode runs.
        """
        return None

    @property
    def task_turns(self) -> int | None:
        """How many turns are part of the task: with the last of them the episode terminates, whatever was written.

        At most `max_turns`. None where there is no such limit, and `max_turns` truncates the episode. The difference
        matters to a critic: a truncated episode is worth its last state's value, and a failed one nothing.
        """
        return None

    def _out_of_turns(self) -> Outcome:
        """The outcome when the task's turns are used up, besides the reward of the last one: a failure by default."""
        return Outcome(terminated=True)

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        """Numbers for `info["metrics"]`; scores of the whole episode only when it is `over`."""
        return {}

    def _copy_state(self, state: Any) -> Any:
        """An independent copy of the state. Environments with immutable states return it as it is."""
        return copy.deepcopy(state)

    def prepare(self) -> None:
        """Builds what all episodes need and is not there yet; may take minutes, so that no reset or step has to.

        Nothing by default. Raises SettingsError.
        """

    def offline(self) -> "TextEnv":
        """An environment with the same tasks and texts that asks nothing outside this machine: experts show in it how
        this one is played. Itself by default."""
        return self

    def lexicon(self) -> Sequence[str]:
        """Words that a tokenizer made for this environment keeps whole, above all those that an agent must copy."""
        return ()

    def turn_kind(self) -> Callable[[str], str | None] | None:
        """What tells the kind of a turn from its text (a turn may be of none); None where turns have no kinds."""
        return None

    def drill(self, task: Task, rng: np.random.Generator) -> Drill | None:
        """A reading exercise for a model that starts from nothing.

        None when the environment has none. The environment itself does not change.
        """
        return None

    # ---- what a user calls ----------------------------------------------------------------------------------------
    @property
    def task(self) -> Task:
        """The current task; raises `ResetNeeded` before the first reset."""
        if self._task is None:
            raise ResetNeeded(f"{self.name}: call reset before asking for the task")
        return self._task

    @property
    def action_help(self) -> str:
        """The actions in one line, in the language of the current task."""
        return self.grammar.usage(self._language)

    @property
    def _language(self) -> str:
        return self._task.language if self._task is not None else "en"

    def system_prompt(self) -> str:
        """Role, format and actions in the language of the current task (English before the first reset)."""
        return f"{self.instructions(self._language)}\n{self.grammar.format(self._language)}\n{self.action_help}"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode; returns the task's prompt and `{"task": id, "split", "language", "level"}`.

        Where turns are thought factors, the info also says so, as `"thoughts": {"opening": words, "turns": at most}`.

        `options["task"]` is a `Task` or an id; without it `np_random` draws from `options["split"]` (train). With
        `options["oracle"]` every info of the episode tells, as "oracle", what `oracle` knows of the state. With
        `options["tools"]` the info holds the actions as JSON schemas ("tools", see `tools_of`; `as_turn` makes turns of
        calls) and a system prompt that says nothing of actions as text ("instructions"); refusals do not either.
        """
        super().reset(seed=seed)
        options = options or {}
        unknown = set(options) - {"task", "split", "oracle", "tools"}
        if unknown:
            raise SettingsError(
                f"{self.name}: unknown reset option {sorted(unknown)[0]!r}: use 'task', 'split', 'oracle' or 'tools'"
            )
        if options.get("tools") and not self.grammar.verbs:
            raise SettingsError(f"{self.name} has no actions that could be tools: play it without tools")
        self._task = task = self._choose(options.get("task"), options.get("split"))
        self._state = self._begin(task)
        self.turn, self._invalid_turns, self._over = 0, 0, False
        self._tells, self._calls = bool(options.get("oracle")), bool(options.get("tools"))
        info: dict[str, Any] = {"task": task.id, "split": task.split, "language": task.language, "level": task.level}
        if self.openings:
            info["thoughts"] = {"opening": self.openings[task.language], "turns": self.max_turns}
        if self._calls:
            info["tools"] = tools_of(self.grammar, task.language)
            info["instructions"] = f"{self.instructions(task.language)}\n{ONE_CALL[task.language]}"
        self._rendered = task.prompt
        return task.prompt, info | self._told(success=None)

    def _told(self, *, success: bool | None) -> dict[str, Any]:
        """What every info says beside the rest: the oracle, where it was asked for; the verdict once it is over."""
        if not self._tells:
            return {}
        return {"oracle": self.oracle() if success is None else float(success)}

    def _choose(self, wanted: Task | str | None, split: str | None) -> Task:
        if isinstance(wanted, Task):
            return wanted
        if wanted is None:
            tasks = self.tasks(split or "train")
            if not len(tasks):
                raise SettingsError(f"{self.name}: the {split or 'train'} split is empty: raise its size")
            return tasks[int(self.np_random.integers(len(tasks)))]
        for name in SPLITS if split is None else (split,):
            if (task := self.tasks(name).find(wanted)) is not None:
                return task
        raise SettingsError(f"{self.name}: no task {wanted!r} under these settings: see tasks(split)")

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one turn: `action` is the whole text of the model's turn. Returns Gymnasium's five values."""
        if self._over:
            raise ResetNeeded(f"{self.name}: the episode is over (or never began): call reset first")
        if not isinstance(action, str):
            raise TypeError(f"{self.name}: an action is a str, not {type(action).__name__}")
        self.turn += 1
        done, error = None, None
        try:
            done = self.grammar.parse(action)
            outcome = self._act(done)
        except ActionError as refusal:
            self._invalid_turns += 1
            error = refusal.text(self._language)
            refused = self.grammar.refuse(error, self._language)
            if self._calls:
                refused = refused.removesuffix(f"\n{self.action_help}")
            outcome = Outcome(refused, self._invalid_reward())
        if self.task_turns is not None and self.turn >= self.task_turns and not outcome.terminated:
            ended = self._out_of_turns()
            outcome = replace(ended, reward=outcome.reward + ended.reward)
        truncated = not outcome.terminated and self.turn >= self.max_turns
        self._over = outcome.terminated or truncated
        success = bool(outcome.terminated and outcome.success) if self._over else None
        info = {
            "success": success,
            "invalid": error is not None,
            "error": error,
            "action": None if done is None else done.name,
            "metrics": {"invalid": float(self._invalid_turns), **self._metrics(over=self._over)},
            **self._told(success=success),
        }
        self._rendered = f"> {action}\n{outcome.text}"
        return outcome.text, float(outcome.reward), outcome.terminated, truncated, info

    def render(self) -> str | None:
        """The last turn and its answer, or the task, with ``render_mode="ansi"``; else None."""
        return self._rendered if self.render_mode == "ansi" else None

    def _invalid_reward(self) -> float:
        """Reward of a turn that was refused."""
        return 0.0

    def fork(self) -> Self:
        """An independent environment at the same state, random state included; heavy read-only parts are shared."""
        twin = copy.copy(self)
        twin._np_random = copy.deepcopy(self._np_random)
        twin._state = self._copy_state(self._state)
        twin.action_space, twin.observation_space = (
            copy.deepcopy(self.action_space),
            copy.deepcopy(self.observation_space),
        )
        return twin

    def close(self) -> None:
        """Release what the environment holds. Safe to call twice."""
