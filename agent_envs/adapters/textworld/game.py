"""A game of TextWorld: where it stands, and what can be done there.

Invariant: a game is its seed and the commands that were taken, so that it is pickled as these and copied without being
played again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import gymnasium

from agent_envs.adapters.textworld.config import Name, Objective
from agent_envs.adapters.textworld.generate import generated

_IDLE = ("examine ", "inventory", "look")
"""Commands that change nothing: what they would tell is in the view."""


@dataclass(frozen=True)
class Place:
    """What is seen in a room."""

    room: str
    carried: tuple[str, ...]
    """Names of the things in the inventory, sorted."""
    commands: tuple[str, ...]
    """What can be done, sorted."""


class TextGame(gymnasium.Env[str, str]):
    """One game at a time. Use `reset` first."""

    def __init__(self, name: Name, level: int, objective: Objective) -> None:
        self.kind = (name, level, objective)
        self._seed: int | None = None
        self._taken: tuple[str, ...] = ()
        self._game: Any = None
        self._progress: Any = None
        self._actions: dict[str, Any] = {}
        self._names: dict[str, str] = {}

    @property
    def objective(self) -> str:
        """What is to be done, in TextWorld's words, on one line."""
        return " ".join(str(self._game.objective).split())

    @property
    def place(self) -> Place:
        """Where the player is."""
        facts, names = self._progress.state.facts, self._names
        room = next(one.arguments[1].name for one in facts if one.name == "at" and one.arguments[0].type == "P")
        held = sorted(
            names[one.arguments[0].name] for one in facts if one.name == "in" and one.arguments[1].type == "I"
        )
        return Place(names[room], tuple(held), tuple(self._actions))

    @property
    def policy(self) -> tuple[str, ...]:
        """The commands that win from here, as TextWorld tracks them; none where the game is over."""
        return tuple(one.format_command(self._names) for one in self._progress.winning_policy or ())

    @property
    def score(self) -> float:
        """Points, as a share of all there are."""
        return float(self._progress.score / self._game.max_score)

    @property
    def won(self) -> bool:
        return bool(self._progress.completed)

    @property
    def begun(self) -> bool:
        """Whether a command was taken."""
        return bool(self._taken)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begins the game of a seed. Raises SettingsError."""
        assert seed is not None
        self._game = generated(*self.kind, seed)
        from textworld.generator.game import GameProgression

        self._seed, self._taken = seed, ()
        self._progress = GameProgression(self._game)
        self._names = {key: str(info.name) for key, info in self._game.infos.items()}
        self._look_around()
        return self.place.room, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes one of the commands that are possible."""
        before = self.score
        self._progress.update(self._actions[action])
        self._taken += (action,)
        self._look_around()
        return self.place.room, self.score - before, self.won or bool(self._progress.failed), False, {}

    def _look_around(self) -> None:
        # Sorted by their texts: facts are sets, and the order of the actions has to be the same in every process.
        found = {(one.format_command(self._names), str(one)): one for one in self._progress.valid_actions}
        self._actions = {}
        for command, text in sorted(found):
            if not command.startswith(_IDLE):
                self._actions.setdefault(command, found[command, text])

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = type(self)(*self.kind)
        twin._seed, twin._taken, twin._game = self._seed, self._taken, self._game
        twin._actions, twin._names = self._actions, self._names  # replaced by a step, never changed
        twin._progress = self._progress and self._progress.copy()
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (*self.kind, self._seed, self._taken)


def restored(name: Name, level: int, objective: Objective, seed: int | None, taken: Sequence[str]) -> TextGame:
    """A game that took these commands; one that was not reset, where the seed is None."""
    made = TextGame(name, level, objective)
    if seed is not None:
        made.reset(seed=seed)
        for command in taken:
            made.step(command)
    return made
