"""The base of text games that list what can be done: an action is one of these commands, word for word.

Anything else is refused before the game sees it. Success is the game's own verdict. The flawed expert goes wrong with
the chance that it is given.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from agent_envs.actions import Action, ActionError, render
from agent_envs.adapters.adapted import AdaptedEnv, Game, take
from agent_envs.core import Outcome


class ListedEnv(AdaptedEnv):
    """A game whose `action_names` are the commands that are possible now.

    A concrete one writes `score` and `advised`.
    """

    @property
    def limited(self) -> bool:
        # Such a game is hardly ever lost otherwise, and a critic values a cut episode by its last state.
        return True

    @abstractmethod
    def score(self, game: Game) -> float:
        """Points so far, as a share of all there are."""

    @abstractmethod
    def advised(self) -> str:
        """The command that the expert takes now."""

    def misled(self, command: str, rng: np.random.Generator) -> str:
        """What the flawed expert does instead."""
        return mistaken(command, self.action_names(self._state.env), rng)

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        command = self.advised()
        if rng is not None and rng.random() < flaw:
            command = self.misled(command, rng)
        return render("ACT", command)

    def offered(self, game: Game) -> Sequence[str]:
        """What a refusal names of the commands that are possible."""
        return self.action_names(game.env)

    def instructions(self, language: str) -> str:
        return "You play a text game. An action is one of those that are possible now, word for word."

    def valid_turns(self) -> Sequence[str]:
        return [render("ACT", name) for name in self.action_names(self._state.env)]

    def _act(self, action: Action) -> Outcome:
        game: Game = self._state
        known = {one.casefold(): one for one in self.action_names(game.env)}
        wanted = known.get(" ".join(action.args.casefold().split()))
        if wanted is None:
            raise ActionError(f"that cannot be done now; what can is {', '.join(self.offered(game))}")
        reward, over, info = take(game, wanted)
        success = over and self.succeeded(game, info)
        return Outcome(self.shown(game), self.paid(reward, success), terminated=over, success=success)

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        return {"score": self.score(self._state)} if over else {}


def mistaken(command: str, commands: Sequence[str], rng: np.random.Generator) -> str:
    """What the flawed demonstrator does instead: it walks past what it should open, take, put or use.

    Where there is no way out it does something else there.
    """
    if command.startswith("go "):
        return command
    others = [one for one in commands if one.startswith("go ")] or [one for one in commands if one != command]
    return others[int(rng.integers(len(others)))] if others else command
