"""The base of text games that list what can be done: an action is one of these commands, word for word.

Anything else is refused before the game sees it. Success is the game's own verdict.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from agent_envs.actions import Action, ActionError, render
from agent_envs.adapters.adapted import AdaptedEnv, Game, take
from agent_envs.core import Outcome


class ListedEnv(AdaptedEnv):
    """A game whose `action_names` are the commands that are possible now. A concrete one writes `score`, too."""

    @abstractmethod
    def score(self, game: Game) -> float:
        """Points so far, as a share of all there are."""

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
