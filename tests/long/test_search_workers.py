"""A run that searches plays the same searches, bit for bit, in this process and in others."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runners"))
from run_cases import fingerprint, training

TOT = ("--agent", "tot", "--tot.branch", "3", "--updates", "2", "--eval-every", "0", "--test-tasks", "4")


def test_other_processes_play_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    for workers in ("0", "1", "2"):
        with training(tmp_path / workers, *TOT, "--slots", "24", "--workers", workers) as run:
            run.run()
    here, one, two = ((tmp_path / name / "episodes.jsonl").read_text() for name in ("0", "1", "2"))
    assert here == one == two and here.count("\n") == 32
    assert fingerprint(tmp_path / "0") == fingerprint(tmp_path / "2")
    with training(tmp_path / "other", *TOT, "--seed", "1") as run:
        run.run()
    assert (tmp_path / "other" / "episodes.jsonl").read_text() != here, "the control: another seed is another run"
