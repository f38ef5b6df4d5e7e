"""A game of TextWorld-Express: what it shows, and where it stands.

Invariant: a game is its seed and the actions that were taken, so that it can be played again anywhere: it is pickled as
these, and goes on where somebody else used its seat meanwhile.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from agent_envs.adapters.textworld_express.config import BLOCK, Name
from agent_envs.adapters.textworld_express.server import Failed, Seat, server, talking
from agent_envs.core import SettingsError

FOLDS = ("train", "dev", "test")
"""The package's names of the splits."""
SHARING = frozenset({Name.SORTING})
"""Games of which two with the same seed share their objects: only one of them can be on the server at a time."""


@dataclass(frozen=True)
class Reply:
    """What the game says after an action."""

    text: str
    look: str
    """What is seen in the room; empty where there is none."""
    inventory: str
    valid: tuple[str, ...]
    """The actions that are possible, sorted: the game lists them in any order."""
    score: float
    success: bool
    failure: bool

    @property
    def over(self) -> bool:
        return self.success or self.failure


@dataclass(frozen=True)
class Step:
    """An action that was taken."""

    action: str
    valid: tuple[str, ...]
    """What was possible before."""
    changed: bool
    """Whether the room or the inventory was another one afterwards."""


@dataclass
class Played:
    """Where a game stands."""

    seed: int
    task: str
    """The task in the game's words."""
    reply: Reply
    steps: list[Step] = field(default_factory=list)


class TextGame(gymnasium.Env[str, str]):
    """One game at a time. Use `reset` first; `close` gives its seat back."""

    def __init__(self, game: str, params: str) -> None:
        self._seat: Seat | None = None
        self.game, self.params = game, params
        self._played: Played | None = None

    @property
    def played(self) -> Played:
        assert self._played is not None, "reset comes first"
        return self._played

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begins the game of a seed, in the fold that it belongs to. Raises SettingsError, BackendUnavailable."""
        assert seed is not None
        self._played = self._begun(seed)
        return self.played.reply.text, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes an action. Raises BackendUnavailable."""
        before = self.played.reply
        seat = self._taken()
        with seat.lock, talking(seat.server):
            if seat.owner is not self:
                self._again()
            now = reply_of(seat.interface.stepJSON(action))
        changed = (now.look, now.inventory) != (before.look, before.inventory)
        self.played.steps.append(Step(action, before.valid, changed))
        self.played.reply = now
        return now.text, now.score - before.score, now.over, False, {}

    def gold(self, seed: int) -> Sequence[str]:
        """The package's own solution of a seed. Raises BackendUnavailable."""
        self._played = self._begun(seed, gold=True)
        seat = self._taken()
        with talking(seat.server):
            return [str(action) for action in seat.interface.getGoldActionSequence()]

    def close(self) -> None:
        if self._seat is not None and self.game not in SHARING:
            self._seat.leave()
        self._seat = None

    def __del__(self) -> None:
        self.close()

    def _taken(self) -> Seat:
        if self._seat is None:
            self._seat = server().seat(self.game, self.params)
            if self.game in SHARING:
                self._seat.leave()  # for the next one as well
        return self._seat

    def _begun(self, seed: int, *, gold: bool = False) -> Played:
        seat = self._taken()
        try:
            with seat.lock, talking(seat.server):
                seat.owner = self
                reply = reply_of(seat.interface.generateNewGameJSON(seed, FOLDS[seed // BLOCK], gold))
                task = " ".join(str(seat.interface.getTaskDescription()).split())
        except Failed as error:  # parameters that do not go together, or not with this seed
            raise SettingsError(f"textworld_express: {self.game}: {self.params!r} cannot be played: {error}") from error
        if reply.text.startswith("ERROR"):
            raise SettingsError(f"textworld_express: {self.game}: {self.params!r} cannot be played: {reply.text:.200}")
        return Played(seed, task, reply)

    def _again(self) -> None:
        """Plays the game again, up to where it stands."""
        self._begun(self.played.seed)
        for step in self.played.steps:
            self._taken().interface.stepJSON(step.action)

    def __reduce__(self) -> tuple[Any, ...]:
        actions = [step.action for step in self.played.steps] if self._played else []
        return restored, (self.game, self.params, self._played and self._played.seed, actions)


def restored(game: str, params: str, seed: int | None, actions: Sequence[str]) -> TextGame:
    """A game that took these actions; one that was not reset, where the seed is None."""
    made = TextGame(game, params)
    if seed is not None:
        made.reset(seed=seed)
        for action in actions:
            made.step(action)
    return made


def reply_of(text: str) -> Reply:
    """What the server's JSON says."""
    said = json.loads(text)
    return Reply(
        text=str(said["observation"]),
        look=str(said["look"]),
        inventory=str(said["inventory"]),
        valid=tuple(sorted(map(str, said["validActions"]))),
        score=float(said["score"]),
        success=bool(said["tasksuccess"]),
        failure=bool(said["taskfailure"]),
    )
