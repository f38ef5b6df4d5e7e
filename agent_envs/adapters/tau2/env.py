"""τ²-bench's telecom domain in solo mode (extra `tau2`): a customer's ticket, the company's tools and the telephone.

The agent has both the company's tools and the customer's telephone in hand, calls one tool a turn, and ends with
``done()``. Success is τ²'s own verdict on what it leaves behind, and 1 is its reward; to run out of turns is a failure.
The customer whom a language model plays in τ²'s other mode is not there.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, Grammar, render
from agent_envs.adapters.tau2.calls import DONE, GRAMMAR, PARAMETERS, TRANSFER, arguments, written
from agent_envs.adapters.tau2.case import Case
from agent_envs.adapters.tau2.config import Tau2Config, Tickets
from agent_envs.adapters.tau2.expert import APP, PERMISSIONS, WANTED_MODE, advice
from agent_envs.adapters.tau2.package import policy, splits, tickets, world
from agent_envs.core import Outcome, Task, TaskSet, TextEnv, check_split

SPLIT_OF = {"train": "train", "valid": "small", "test": "test"}
"""Our splits → τ²'s, none of which share a ticket."""
ROLE = (
    "You support the customers of a telephone company. You solve the ticket alone, with the company's tools and the "
    f"customer's telephone in hand, and call {DONE}() when it is solved or was transferred."
)


class Tau2Env(TextEnv):
    """Solve a ticket of τ² telecom: `toggle_roaming()`. The reward is 1 when τ² is content after `done()`."""

    name: ClassVar[str] = "tau2"
    Config: ClassVar[type[Any]] = Tau2Config
    grammar: ClassVar[Grammar] = GRAMMAR
    config: Tau2Config

    def tasks(self, split: str) -> TaskSet:
        check_split(self.name, split)
        ids = _ids(split, self.config.tickets)
        number = {name: i for i, name in enumerate(ids)}
        return TaskSet(len(ids), lambda i: _task(ids[i], split), number.get)

    def prepare(self) -> None:
        tickets()
        policy(self.config.policy)

    @property
    def task_turns(self) -> int:
        return self.max_turns

    def instructions(self, language: str) -> str:
        tools = "\n".join(f"{name}: {said}" for name, said in _descriptions().items())
        rules = policy(self.config.policy)
        return "\n".join([ROLE, *([rules] if rules else []), "Tools:", tools])

    def _begin(self, task: Task) -> Case:
        return Case(task.data)

    def _act(self, action: Action) -> Outcome:
        case: Case = self._state
        if action.name == DONE:
            success = all(case.met())
            return Outcome(reward=float(success), terminated=True, success=success)
        return Outcome(case.call(action.name, arguments(action.name, action.args)))

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        if not over:
            return {}
        met = self._state.met()
        return {"met": sum(met) / len(met)}

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        """The next call; the flawed one says too early that it is done."""
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        name, args = advice(self._state)
        return render(DONE, "") if rng is not None and rng.random() < flaw else render(name, args)

    def valid_turns(self) -> Sequence[str]:
        """Calls without arguments, and those with them that repair something."""
        ours = written("enable_roaming", **self._state.ours)
        others = {
            "set_network_mode_preference": [WANTED_MODE],
            "grant_app_permission": [f"{APP}, {one}" for one in PERMISSIONS],
            "enable_roaming": [ours],
            "resume_line": [ours],
            "refuel_data": [f"{ours}, 2.0"],
            TRANSFER: ["I cannot fix the issue."],
        }
        plain = [render(name, "") for name, wanted in PARAMETERS.items() if not wanted]
        return [*plain, render(DONE, ""), *(render(name, args) for name, texts in others.items() for args in texts)]


def _ids(split: str, which: Tickets) -> tuple[str, ...]:
    """Tickets of a split, in τ²'s order."""
    named = splits()
    if split == "train" and which is Tickets.FULL:
        held = {*named["small"], *named["test"]}
        return tuple(one for one in tickets() if one not in held)
    return named[SPLIT_OF[split]]


def _task(name: str, split: str) -> Task:
    one = tickets()[name]
    return Task(name, split, one["ticket"], level=len(one["evaluation_criteria"]["actions"]), data=name)


@lru_cache(1)
def _descriptions() -> Mapping[str, str]:
    """What τ² says of each tool, on one line; of `done`, what we say."""
    made = world()
    found = {**made.tools.get_tools(), **made.user_tools.get_tools()}
    said = {name: " ".join(f"{found[name].short_desc} {found[name].long_desc}".split()) for name in PARAMETERS}
    return {**said, DONE: "Ends your work on the ticket."}
