"""The base of adapters: an episode of a Gymnasium environment of others, begun by a seed and played in text.

Invariants: a task is a seed, and the splits share none; a fork is a copy of the environment or, where it cannot be
copied, a new one that took the same actions and came to show the same. What the environment truncates is over.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import gymnasium
from gymnasium import spaces

from agent_envs.actions import Action, Grammar, Verb, render
from agent_envs.adapters.spaces import action_of
from agent_envs.core import SPLITS, BackendUnavailable, Outcome, Task, TaskSet, TextEnv, check_split, number_after

BLOCK = 10_000_000
"""Seeds of a split, if nothing else is said: train has those from 0, validation and test those from the next blocks."""


@dataclass
class Game:
    """Where an episode stands."""

    env: gymnasium.Env[Any, Any]
    seed: int
    seen: Any
    """The last observation."""
    total: float = 0.0
    """Sum of the environment's rewards."""
    actions: tuple[Any, ...] = ()
    advisor: Any = None
    """What an expert remembers of the episode."""


class AdaptedEnv(TextEnv):
    """An environment of others. A concrete one writes `made`, `shown`, `action_names` and `instructions`."""

    grammar: ClassVar[Grammar] = Grammar(Verb("ACT", "action"))
    block: ClassVar[int] = BLOCK

    # ---- what an adapter writes -----------------------------------------------------------------------------------
    @abstractmethod
    def made(self) -> gymnasium.Env[Any, Any]:
        """A new environment, which was not reset. Raises SettingsError."""

    @abstractmethod
    def shown(self, game: Game) -> str:
        """The text of what the agent sees now. Raises SettingsError where it cannot be written."""

    @abstractmethod
    def action_names(self, env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
        """Names of the actions in their order, where they are discrete. Raises SettingsError."""

    def succeeded(self, game: Game, info: dict[str, Any]) -> bool:
        """Whether an episode that is over is a success."""
        return game.total > 0

    def paid(self, reward: float, success: bool) -> float:
        """The reward of a turn."""
        return reward

    @property
    def limited(self) -> bool:
        """Whether `max_turns` is part of the task: to run out of turns is then a failure, and no cut."""
        return False

    # ---- what follows from it -------------------------------------------------------------------------------------
    def tasks(self, split: str) -> TaskSet:
        check_split(self.name, split)
        prefix = f"{self.named}-{split}-"
        size = self.config.train_tasks if split == "train" else self.config.held_out_tasks
        first = self.block * SPLITS.index(split)

        def build(number: int) -> Task:
            seed = first + number
            return Task(f"{prefix}{number}", split, self._prompt(seed), data=seed)

        return TaskSet(size, build, partial(number_after, prefix))

    @property
    def task_turns(self) -> int | None:
        return self.max_turns if self.limited else None

    def _out_of_turns(self) -> Outcome:
        return Outcome(self.shown(self._state), terminated=True)

    @property
    def named(self) -> str:
        """What its tasks are called."""
        return self.name

    def _prompt(self, seed: int) -> str:
        """What an episode begins with; kept, for a list of tasks is read more than once."""
        if seed not in self._prompts:
            game = begin(self.made, seed)
            self._prompts[seed] = self.shown(game)
            game.env.close()
        return self._prompts[seed]

    @cached_property
    def _prompts(self) -> dict[int, str]:
        return {}

    def _begin(self, task: Task) -> Game:
        self.close()
        return begin(self.made, task.data)

    def close(self) -> None:
        if self._state is not None:
            self._state.env.close()

    def valid_turns(self) -> Sequence[str]:
        env = self._state.env
        names = self.action_names(env) if isinstance(env.action_space, spaces.Discrete) else ()
        return [render("ACT", name) for name in names]

    def _copy_state(self, state: Game | None) -> Game | None:
        try:
            return copy.deepcopy(state)
        except Exception:  # handles and generators cannot be copied, and say so in many ways
            return state and self.replayed(state)

    def replayed(self, state: Game) -> Game:
        """A new episode that took the same actions. Raises BackendUnavailable where it came to show something else."""
        again = begin(self.made, state.seed)
        for action in state.actions:
            take(again, action)
        if self.shown(again) != self.shown(state):
            raise BackendUnavailable(f"{self.named}: the same actions led to something else: it cannot be forked")
        return again

    def _act(self, action: Action) -> Outcome:
        game, space = self._state, self._state.env.action_space
        names = self.action_names(game.env) if isinstance(space, spaces.Discrete) else ()
        reward, over, info = take(game, action_of(space, action.args, names))
        success = over and self.succeeded(game, info)
        return Outcome(self.shown(game), self.paid(reward, success), terminated=over, success=success)


def begin(made: Callable[[], gymnasium.Env[Any, Any]], seed: int) -> Game:
    """The beginning of an episode."""
    env = made()
    seen, _ = env.reset(seed=seed)
    return Game(env, seed, seen)


def take(game: Game, action: Any) -> tuple[float, bool, dict[str, Any]]:
    """Takes an action: (reward, whether the episode is over, info)."""
    game.seen, reward, terminated, truncated, info = game.env.step(action)
    game.total += float(reward)
    game.actions += (action,)
    return float(reward), bool(terminated or truncated), info
