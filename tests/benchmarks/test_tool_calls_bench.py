"""What the benchmark of tool calls counts, in literal figures."""

from agent_envs.core import Task
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job
from benchmarks.tool_calls import held, turns_until
from runners.evaluation.measure import PlayedTasks


def test_the_turns_until_a_success() -> None:
    rows = [{"success": s, "env_steps": 100 * n} for n, s in enumerate((0.1, 0.6, 0.6, 0.9, 0.9, 0.3), 1)]
    assert turns_until(rows, 0.69) == 400 and turns_until(rows, 0.79) == 500
    assert turns_until(rows, 0.81) is None and turns_until(rows[:2], 0.0) is None


def episode(task: int, success: bool, all_tools: float, calls: float) -> Episode:
    root = Node(Kind.STATE, (1,), success=success)
    return Episode(Job(Task(f"t{task}", "test", "")), root, metrics={"all_tools": all_tools, "tool_calls": calls})


def test_the_share_of_the_successes() -> None:
    played = [episode(0, True, 1.0, 3.0), episode(1, True, 0.0, 1.0), episode(2, False, 1.0, 8.0)]
    found = held(PlayedTasks(tuple(played), 1))
    assert found.all_tools is not None and found.calls_of_successes is not None
    assert (found.success.mean, found.all_tools.mean, found.calls.mean) == (2 / 3, 0.5, 4.0)
    assert found.calls_of_successes.mean == 2.0, "failures are not among them"
    none = held(PlayedTasks((played[2],), 1))
    assert (none.all_tools, none.calls_of_successes) == (None, None)
