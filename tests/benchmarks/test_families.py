"""All families side by side: what is paired with what, and that the recorded file is up to date."""

import json
from pathlib import Path

import pytest

from benchmarks.families import gain, gains
from runners.command_line.plain import dump_json

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_recorded_file_is_what_the_studies_say() -> None:
    recorded = json.loads((ROOT / "benchmarks" / "results" / "families.json").read_text("utf-8"))["gains"]
    fresh = json.loads(dump_json(gains(ROOT / "benchmarks" / "results")))
    assert {measure: list(methods) for measure, methods in fresh.items()} == {k: list(v) for k, v in recorded.items()}
    for measure, method, family in ((a, b, c) for a, x in fresh.items() for b, y in x.items() for c in y):
        told, now = recorded[measure][method][family], fresh[measure][method][family]
        assert told["pairs"] == now["pairs"] and told["interval"] == pytest.approx(now["interval"], abs=1e-6)


def study(folder: Path, **areas: dict[int, float]) -> Path:
    folder.mkdir()
    rows = [f"{name},x,{seed},{area}" for name, of in areas.items() for seed, area in of.items()]
    (folder / "runs.csv").write_text("\n".join(["entrant,algo,seed,auc", *rows]))
    return folder


def test_runs_are_paired_within_their_study(tmp_path: Path) -> None:
    one = study(tmp_path / "one", reinforce={0: 0.1, 1: 0.5}, late={0: 0.3, 1: 0.7}, early={0: 0.9, 1: 0.9})
    two = study(tmp_path / "two", reinforce={0: 0.6, 1: 0.2, 2: 0.0}, early={0: 0.8, 1: 0.4})
    found = gain([one, two], ("late", "early"), "auc")
    assert found is not None and found.pairs == 4
    assert (found.interval.low, found.interval.high) == pytest.approx((0.2, 0.2)), "one differs by 0.2 wherever it is"
    assert found.interval.mean == pytest.approx(0.2)
    assert gain([one], ("nobody",), "auc") is None
    assert gain([study(tmp_path / "three", reinforce={0: 0.1}, late={0: 0.2})], ("late",), "auc") is None


def test_a_pair_that_two_studies_share_counts_once(tmp_path: Path) -> None:
    one = study(tmp_path / "one", reinforce={0: 0.1, 1: 0.5}, grpo={0: 0.3, 1: 0.7})
    more = study(tmp_path / "more", reinforce={0: 0.1, 1: 0.5, 2: 0.4}, grpo={0: 0.3, 1: 0.8, 2: 0.5})
    found = gain([one, more], ("grpo",), "auc")
    assert found is not None and found.pairs == 4, "seed 1 was another run"
    assert found.interval.mean == pytest.approx((0.2 + 0.2 + 0.3 + 0.1) / 4)
