"""The next action on the way to a win, from wherever the agent went.

Invariant: what led off the plan is undone, the last first, as far as the game permits: a step by a step back, a thing
that was put away by taking it. What cannot be undone, such as a meal that was eaten too early, is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_envs.adapters.textworld_express.game import Step
from agent_envs.adapters.textworld_express.survey import OPPOSITE

LOOK = "look around"
"""What is done where nothing is left to do."""
_BOX = " in box"
"""Where nothing is put that does not belong there: some games are lost by it."""


@dataclass
class Progress:
    """How far a plan was followed."""

    plan: Sequence[str]
    at: int = 0
    back: list[str] = field(default_factory=list)
    """How the actions begin that lead back to the plan; the next one is the last."""
    places: dict[str, str] = field(default_factory=dict)
    """Where each thing was put last."""

    def follow(self, step: Step) -> None:
        """Takes note of an action that was taken."""
        self.drop(step.valid)
        if not self.back:
            self.at = possible(self.plan, self.at, step.valid)
        if self.back and step.action.startswith(self.back[-1]):
            self.back.pop()
        elif not self.back and self.at < len(self.plan) and step.action == self.plan[self.at]:
            self.at += 1
        elif step.changed and (way := self._undoing(step.action)):
            self.back.append(way)
        verb, _, what = step.action.partition(" ")
        if verb == "put":
            thing, _, place = what.partition(" in ")
            self.places[thing] = place

    def drop(self, valid: Sequence[str]) -> None:
        """Forgets what cannot be undone here: a thing that was taken stays in the inventory."""
        while self.back and not undoing(self.back[-1], valid):
            self.back.pop()

    def _undoing(self, action: str) -> str:
        """How an action begins that undoes another; nothing where none can, or none is needed."""
        verb, _, what = action.partition(" ")
        if verb == "move":
            return f"move {OPPOSITE[what]}"
        if verb == "close":
            return f"open {what}"
        if action in self.plan[self.at :]:
            return ""
        if verb == "take":
            return f"put {what} in {self.places.get(what, '')}"
        return f"take {what.partition(' in ')[0]}" if verb == "put" else ""


def next_action(plan: Sequence[str], steps: Sequence[Step], valid: Sequence[str]) -> str:
    """The first step back to the plan, or the next one of the plan."""
    now = Progress(plan)
    for step in steps:
        now.follow(step)
    now.drop(valid)
    if now.back:
        return undoing(now.back[-1], valid)[0]
    at = possible(plan, now.at, valid)
    return plan[at] if at < len(plan) else LOOK


def undoing(beginning: str, valid: Sequence[str]) -> list[str]:
    """The possible actions that begin like this, the exact one first."""
    found = [one for one in valid if one.startswith(beginning) and (one == beginning or not one.endswith(_BOX))]
    return sorted(found, key=len)


def possible(plan: Sequence[str], at: int, valid: Sequence[str]) -> int:
    """The first entry of the plan that can be done: one that cannot was done before, such as to open what is open."""
    return next((ahead for ahead in range(at, len(plan)) if plan[ahead] in valid), at)
