"""A run of whose episodes a fifth break, in five ways, still learns; the ledger knows what became of every one.

    python -m pytest -q tests/long/test_faulty_run.py

Not part of the default suite: it takes a minute. `.ci/run` runs it.
"""

import json
import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "runners"))
from faulty_cases import FAULTY, faulty_model
from run_cases import rows, training


def test_a_run_with_a_fifth_of_its_episodes_broken_still_learns(tmp_path: Path, own_cache: None) -> None:
    argv = ("--faulty.every", "5", "--test-tasks", "43", "--updates", "24", "--envs.step-seconds", "2")
    with faulty_model(tmp_path) as model, training(tmp_path / "faulty", "--model", model, *argv, text=FAULTY) as run:
        summary = run.run()
    assert summary["start"]["sampled"]["mean"] <= 0.5
    assert summary["final"]["sampled"]["mean"] >= 0.9
    updates = [row for row in rows(tmp_path / "faulty") if row["kind"] == "update"]
    share = sum(row["faults"] for row in updates) / (24 * 96 + sum(row["faults"] for row in updates))
    assert 0.15 <= share <= 0.3
    reasons: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for line in map(json.loads, (tmp_path / "faulty" / "ledger.jsonl").read_text().splitlines()):
        counted[line["event"]] += len(line["episodes"])
        if line["event"] == "dropped":
            reasons[line["reason"].split(" ")[0]] += 1
    assert counted["dispatched"] == counted["trained"] + counted["dropped"]
    assert set(reasons) == {"raised", "hung", "exited", "memory", "flooded"}
