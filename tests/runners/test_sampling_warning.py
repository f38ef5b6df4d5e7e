"""Whoever trains on truncated samples is told once what that does to the ratio."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from run_cases import settings

from runners.command_line.errors import UserError
from runners.training.run import Training

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]


def trained(folder: Path, *argv: str) -> tuple[str, list[dict[str, float]]]:
    """What a run of three updates says, and its rows."""
    said = io.StringIO()
    quiet = ("--updates", "3", "--test-tasks", "0", "--eval-every", "0", "--lr", "1e-4", *argv)
    with Training(settings(folder, *quiet), folder, Console(file=said, width=500)) as run:
        run.run()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return said.getvalue(), [row for row in rows if row["kind"] == "update"]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (("--top-p", "0.7"), "top_p 0.7 bias the ratio"),
        (("--top-k", "2"), "top_k 2 bias the ratio"),
        (("--top-p", "0.9", "--top-k", "3"), "top_p 0.9 and top_k 3 bias the ratio"),
    ],
    ids=["top-p", "top-k", "both"],
)
def test_truncated_sampling_is_said_once(tmp_path: Path, argv: tuple[str, ...], line: str) -> None:
    said, rows = trained(tmp_path / "run", *argv)
    assert said.count(line) == said.count("bias the ratio") == 1
    assert "train with top_p 1 and top_k 0" in said
    assert len(rows) == 3 and all(row["mismatch_kept_mass"] < 0.995 for row in rows), "what was cut off is measured"


def test_of_whole_samples_nothing_is_said(tmp_path: Path) -> None:
    said, rows = trained(tmp_path / "run")
    assert "bias the ratio" not in said and "where 1 is right" not in said
    assert all(row["mismatch_kept_mass"] == pytest.approx(1, abs=1e-4) for row in rows)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--top-p", "0"), "--top-p must lie above 0 and up to 1, not 0.0"),
        (("--top-k", "-1"), "--top-k must not be negative, but is -1"),
        (("--temperature", "0"), "temperature must be above 0 and finite, not 0.0"),
    ],
)
def test_settings_that_cannot_be_are_one_line(tmp_path: Path, argv: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        settings(tmp_path / "run", *argv)
    assert "\n" not in str(raised.value)
