"""The survey's fourteen items: what is told comes from the runs, and what they lack is said to be missing."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from algorithms import ALGORITHMS, Algorithm
from runners.comparison.checklist import MISSING, Checklist, checklist
from runners.comparison.comparison_settings import read_plan
from runners.comparison.curves import History
from runners.comparison.trajectories import Lengths, read_trajectories
from runners.comparison.tuning import Tried

ROW = {"seconds_rollout": 1.0, "seconds_update": 2.0, "seconds_processor": 2.5, "success": 0.5}
BASE = {"source": "/home/me/models/mine", "fingerprint": "0123456789abcdef9", "parameters": 1234567}
EPISODE = {"task": "a", "turns": [{"tokens": [1, 2]}]}


def listed(
    folder: Path, entrants: dict[str, Any], rows: dict[str, dict[str, float]], tried: Any = (), base: Any = BASE
) -> Checklist:
    """The list of two seeds of each entrant, with these figures beside `ROW` in their one update."""
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump({"env": "identity", "seeds": 2, "env_steps": 100, "entrants": entrants}))
    plan = read_plan(["--config", str(file), "--out", str(folder / "out")])
    found = plan.entrants(Console(file=io.StringIO())).values()
    runs = [entrant.run(folder, seed) for seed in (0, 1) for entrant in found]
    for run in runs:
        run.folder.mkdir()
        (run.folder / "base.json").write_text(json.dumps(base))
        lines = [EPISODE, {"task": "b", "fault": {}}, {"task": "a", "turns": 3 * [{"tokens": [1]}]}]
        (run.folder / "episodes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    histories = {
        name: {seed: History([ROW | {"env_steps": 100.0} | rows.get(name, {})], []) for seed in (0, 1)}
        for name in entrants
    }
    played = {name: read_trajectories([folder / f"{name}-{seed}" for seed in (0, 1)]) for name in entrants}
    return checklist(plan, runs, histories, tried, played)


def test_every_item_is_told(tmp_path: Path) -> None:
    entrants = {
        "plain": {"algo": "grpo", "grpo": {"group": 1, "baseline": "none", "scale": "tokens"}},
        "critic": {"algo": "selfac"},
        "bare": {"algo": "selfac", "critic": {"prompt": ""}},
        "played": {"algo": "vineppo"},
    }
    rows = {
        "critic": {"seconds_update": 5.0},
        "played": {"continuation_steps": 75.0, "seconds_continuations": 9.0},
        "bare": {"resampled_tasks": 3.0},
    }
    tried = [Tried(name, {"lr": lr}, 0.5, lr == 1, 7200.0, 1800.0) for name in entrants for lr in (1, 2, 3)]
    found = listed(tmp_path, entrants, rows, tried)
    told = [item.answer for item in found.items]
    assert len(told) == 14 and sum(item.required for item in found.items) == 10
    assert not any(answer.startswith(MISSING) for answer in told)
    assert told[0] == "mine, 1,234,567 parameters, fingerprint 0123456789abcdef", "no folder of one machine"
    assert "2 to 2 different tasks" in told[1] and told[1].endswith("were replaced: bare") and "15,000 demon" in told[1]
    assert told[4] == "plain"
    assert told[5].startswith("100 environment steps") and "3 tries of 100 steps and 1 seed for every" in told[5]
    assert told[6].startswith("bare is critic with critic.prompt ") and told[6].count(";") == 0
    assert "500 tasks of the split test of identity" in told[7] and told[9].startswith("2 seeds, 0 to 1")
    assert told[10].startswith(f"none; hours of the processor: {8 * 2.5 / 3600:.2f}, of the tuning 6.00; ")
    rows_of = found.entrants
    assert [(one.granularity, one.methodology) for one in rows_of.values()] == [
        ("episode", "Monte Carlo"), ("turn", "temporal difference"), ("turn", "temporal difference"),
        ("turn", "Monte Carlo"),
    ]  # fmt: skip
    assert rows_of["plain"].takes == "nothing" and rows_of["critic"].takes == "values, in the same pass"
    assert rows_of["played"].takes == "3.0 steps of continuations a step", "75 of 100 steps were theirs"
    assert [rows_of[name].seconds for name in ("plain", "critic", "played")] == pytest.approx([1, 2, 4 / 0.25])
    assert rows_of["plain"].episodes.turns == Lengths(2, 1, 2, 3) and rows_of["plain"].episodes.tasks == (2, 2)
    assert str(rows_of["plain"].episodes.tokens) == "2.5 (2 / 2.5 / 3)"


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    """The control: no baseline of episodes, no ablation, and runs of an earlier version."""
    free = {"algo": "vineppo", "vineppo": {"count_continuations": False}}
    old = {"source": "a/b", "fingerprint": "f"}
    rows = {"free": {"continuation_steps": 200.0}}
    found = listed(tmp_path, {"critic": {"algo": "selfac"}, "free": free}, rows, base=old)
    told = [item.answer for item in found.items]
    assert [i for i, answer in enumerate(told, 1) if answer.startswith(MISSING)] == [5, 7]
    assert "Nothing was tuned" in told[5] and "tuning" not in told[10]
    assert found.entrants["free"].takes == "2.0 steps of continuations a step, for nothing"
    assert told[0] == "a/b, size not recorded, fingerprint f"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_of_our_algorithms_says_what_it_credits(name: str) -> None:
    assert ALGORITHMS[name]().credit_kind is not None
    assert Algorithm.credit_kind.fget(ALGORITHMS[name]()) is None  # type: ignore[attr-defined]


def test_a_switch_can_change_what_is_credited() -> None:
    for name, switch in (("adca", {"enable": False}), ("gigpo", {"omega": 0.0}), ("arpo", {"initial_rollouts": 16})):
        algorithm = ALGORITHMS[name]()
        kinds = [one.credit_kind for one in (algorithm, replace(algorithm, **switch))]  # type: ignore[type-var]
        assert [kind.granularity != "episode" for kind in kinds if kind is not None] == [True, False]
