"""The authors' loop, traced on a scripted engine: our plan, and our rollout, begin, fork and end the same episodes.

In a vector a turn that calls the tool is three tokens after one that says in which round it was sampled, and is
answered by one token; any other turn is two tokens and ends the episode.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import pytest
from reference_cases import Case, cases, close
from reference_deviations import deviation
from scripted_engine import FakeEngine

from agent_envs.core import Task
from agents.engine.base import Completion, Request
from agents.rollout.forking.budget import Branch, TaskBudget
from agents.rollout.forking.settings import ForkPlan, ForkPoint
from agents.rollout.play import rollout
from agents.rollout.settings import ReActSettings
from agents.text.chat import Chat
from agents.tree.episode import Job
from algorithms.arpo import ARPO

PROMPT, RESULT, END = (2, 3, 4), 9, 1
Rounds = Sequence[Sequence[dict[str, Any]]]


def settings(case: Case, **changes: Any) -> ARPO:
    case.knows(
        *("batch", "initial_rollouts_N", "budget_M", "beam_size", "branch_probability", "entropy_weight"),
        "tool_call_limit",
    )
    hyper = case.hyper
    return ARPO(
        **{
            "group": hyper["budget_M"],
            "initial_rollouts": min(hyper["initial_rollouts_N"], hyper["budget_M"]),
            "beam_size": hyper["beam_size"],
            "branch_probability": hyper["branch_probability"],
            "entropy_weight": hyper["entropy_weight"],
            "measure": "calling_turn",
            "reduce": "sum",
            "first_entropy": "own",
            "top_up": "one_by_one",
        }
        | changes
    )


class Draws(Random):
    """Gives the recorded numbers."""

    def __init__(self, numbers: Sequence[float]) -> None:
        super().__init__(0)
        self.left = deque(numbers)

    def random(self) -> float:
        return self.left.popleft()


@dataclass
class Row:
    """One trajectory of the authors' loop."""

    task: int
    response: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    calls: int = 0
    first: float | None = None

    def say(self, tokens: Sequence[int], mask: int) -> None:
        self.response += tokens
        self.mask += [mask] * len(tokens)


def trace(
    case: Case, rounds: Rounds, draws: Draws, stale: dict[int, float] | None = None
) -> tuple[list[Row], list[int], int]:
    """(rows in the order in which they began, active ones per round, calls): the loop, with our plan deciding."""
    arpo, batch = settings(case), case.hyper["batch"]
    plans = [TaskBudget(ForkPlan(arpo.sampling, arpo.branch)) for _ in range(batch)]
    rows = [Row(task) for task in range(batch) for _ in range(plans[task].made)]
    active, counts, calls = list(rows), [], 0
    for number, script in enumerate(rounds):
        assert [len(PROMPT) + len(row.response) for row in active] == [turn["prefix_len"] for turn in script]
        counts.append(len(active))
        now: dict[int, float] = {}
        going = []
        for row, turn in zip(active, script, strict=True):
            now[id(row)] = turn["entropy"]
            if row.first is None:
                row.first = turn["entropy"]
                if stale is not None:
                    row.first = stale.setdefault(rows.index(row), turn["entropy"])
            row.say([10 + number, 5, 7, 6] if turn["tool_call"] else [8, END], 1)
            if turn["tool_call"] and row.calls < case.hyper["tool_call_limit"]:
                row.calls += 1
                calls += 1
                row.say([RESULT], 0)
                going.append(row)
            elif turn["tool_call"]:
                row.say([END], 1)  # theirs: a token that nobody sampled
        forked: list[Row] = []
        begun: list[Row] = []
        for task in dict.fromkeys([*(row.task for row in going), *range(batch)]):
            mine = [row for row in going if row.task == task]
            forks, fresh = plans[task].decide(
                [Branch((now[id(row)],), (cast(float, row.first),), row.calls, draws) for row in mine]
            )
            for row, count in zip(mine, forks, strict=True):
                forked += [Row(task, [*row.response], [*row.mask], row.calls) for _ in range(count)]
            begun += [Row(task) for _ in range(fresh)]
        rows += forked + begun
        active = going + forked + begun
    assert not active
    return rows, counts, calls


@cases("arpo_branching")
def test_the_trace_is_that_of_the_authors_loop(case: Case) -> None:
    draws = Draws(case.inputs["uniform_draws"])
    rows, counts, calls = trace(case, case.inputs["scripted_rounds"], draws)
    assert not draws.left, "every number was drawn, in their order"
    assert counts == case.outputs["active_per_round"] and sum(counts) == case.outputs["engine_calls"]
    assert calls == case.outputs["total_tool_calls"]
    rows = sorted(rows, key=lambda row: row.task)
    assert [row.response for row in rows] == case.outputs["responses"]
    assert [row.mask for row in rows] == case.outputs["loss_mask"]
    assert len(rows) == case.outputs["n_out"] == case.hyper["batch"] * case.hyper["budget_M"]


def test_other_draws_leave_another_trace() -> None:
    """The negative control: what decides in the vectors are the numbers drawn."""
    differ = []
    for parameter in cases("arpo_branching").args[1]:
        (case,) = parameter.values
        draws = Draws([1 - x for x in case.inputs["uniform_draws"]] + [0.5] * 99)
        try:
            trace(case, case.inputs["scripted_rounds"], draws)
        except AssertionError:
            differ.append(case.id)
    assert differ


# -- first entropies that are never forgotten ------------------------------------------------------------------------


@cases("arpo_stale_entropy")
def test_a_second_batch_is_compared_with_its_own_first_turns(case: Case) -> None:
    stale: dict[int, float] = {}
    for number in ("1", "2"):
        draws = Draws(case.inputs[f"uniform_draws_batch{number}"])
        rows, counts, _ = trace(case, case.inputs[f"scripted_rounds_batch{number}"], draws, stale)
        assert counts == case.outputs[f"active_per_round_batch{number}"] and not draws.left
        if number == "1":
            assert [row.first for row in rows] == [stale[i] for i in range(len(rows))]
    assert {str(i): first for i, first in stale.items()} == case.outputs["initial_entropy_dict_after"]
    # What is theirs in the second batch are numbers of the first one.
    assert deviation(case, "stale first entropy")
    batch2 = [turn["entropy"] for script in case.inputs["scripted_rounds_batch2"] for turn in script]
    assert all(row.first not in batch2 for row in rows)
    # Ours are those of the rows themselves: up to where the two decide differently, the trace is the same.
    draws = Draws(case.inputs["uniform_draws_batch2"] + [0.5] * 99)
    try:
        rows, _, _ = trace(case, case.inputs["scripted_rounds_batch2"], draws)
    except AssertionError:
        return
    assert all(row.first in batch2 for row in rows)


# -- entropy ---------------------------------------------------------------------------------------------------------


@cases("arpo_entropy")
def test_entropy(case: Case) -> None:
    tops, size = case.inputs["top_logprobs_first_20"], math.log(case.inputs["vocab_size"])
    assert len(tops) == min(20, case.inputs["generated_tokens"])
    each = [-sum(math.exp(x) * x for x in top) for top in tops]
    close(sum(each), case.outputs["calc_entropy"], case.tolerance)
    summed = ARPO(reduce="sum").entropy([x / size for x in each])
    close(summed, case.outputs["normalized"], case.tolerance)
    # What is the default is theirs for turns of at least 20 tokens, and not smaller for shorter ones.
    mean = ARPO().entropy([x / size for x in each])
    close(mean, summed * 20 / max(1, len(each)), case.tolerance)


# -- the whole rollout -----------------------------------------------------------------------------------------------


class Words:
    """A chat whose tokens need no text."""

    format = None

    def prompt(self, system: str, user: str, opening: str = "") -> tuple[int, ...]:
        return PROMPT

    def observation(self, text: str, *, closed: bool) -> tuple[int, ...]:
        return (RESULT,)

    def turn_text(self, tokens: Sequence[int], **_: Any) -> str:
        return "answer" if tokens[0] == 8 else "tool"


class Tool:
    """Answers every call, and ends with the answer."""

    def reset(self, **_: Any) -> tuple[str, dict[str, Any]]:
        return "task", {}

    def system_prompt(self) -> str:
        return ""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        over = action == "answer"
        return "result", float(over), over, False, {"success": over or None}

    def fork(self) -> Tool:
        return Tool()

    def close(self) -> None:
        pass


class Scripted(FakeEngine):
    """Takes the requests of a round in the order of their sessions, and says what the vector says."""

    def __init__(self, rounds: Rounds) -> None:
        super().__init__(self.say, (END,), entropy=self.unsure, vocabulary=1000)
        self.rounds: Iterator[Sequence[dict[str, Any]]] = iter(rounds)
        self.number, self.active = -1, list[int]()

    def step(self) -> list[Completion]:
        self._queue = deque(sorted(self._queue, key=lambda request: request.session))
        self.number += 1
        self.active.append(len(self._queue))
        self.script_of = iter(next(self.rounds))
        return super().step()

    def say(self, request: Request, history: tuple[int, ...]) -> Sequence[int]:
        self.turn = next(self.script_of)
        assert len(history) + len(request.tokens) == self.turn["prefix_len"]
        return (10 + self.number, 5, 7, 6) if self.turn["tool_call"] else (8, END)

    def unsure(self, request: Request, tokens: Sequence[int]) -> Sequence[float]:
        return (self.turn["entropy"] * math.log(self.vocabulary), *([0.0] * (len(tokens) - 1)))


@cases("arpo_branching")
def test_the_rollout_plays_the_same_trace(case: Case) -> None:
    if case.hyper["batch"] > 1:
        pytest.skip("the authors draw for all tasks from one generator; ours never share one")
    arpo, draws = settings(case), Draws(case.inputs["uniform_draws"])

    def rule(fork: ForkPoint, rng: Random) -> int:
        return arpo.branch(fork, draws)

    engine = Scripted(case.inputs["scripted_rounds"])
    jobs = [Job(Task("t", "train", ""), sample) for sample in range(case.hyper["budget_M"])]
    limit = ReActSettings(call_limit=case.hyper["tool_call_limit"])
    played = rollout(Tool, engine, cast(Chat, Words()), jobs, limit, plan=ForkPlan(arpo.sampling, rule))
    assert engine.active == case.outputs["active_per_round"] and not draws.left
    paths = [[t for pair in e.turns for node in pair for t in node.tokens] for e in played.episodes]
    for path, theirs, mask in zip(paths, case.outputs["responses"], case.outputs["loss_mask"], strict=True):
        ended = [*path, END] if path[-1] == 6 else path
        assert ended == theirs and len(mask) == len(theirs)
        assert path == ended or deviation(case, "forced end")
