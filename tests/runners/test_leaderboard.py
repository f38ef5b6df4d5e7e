"""The rows of docs/leaderboard.md: whole suites as they are now, with digests that belong to their results."""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from runners.benching.suites import SUITES
from runners.command_line.plain import dump_json

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "benchmarks" / "results" / "leaderboard").glob("*.json"))
PAGE = (ROOT / "docs" / "leaderboard.md").read_text("utf-8")


def digest(reproducible: Any) -> str:
    return sha256(dump_json(reproducible, indent=None).encode()).hexdigest()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_row_is_of_a_whole_suite_and_its_digest_of_its_results(file: Path) -> None:
    row = json.loads(file.read_text("utf-8"))
    played = row["reproducible"]
    assert played["whole"] and played["content"] == SUITES[played["suite"]].content
    assert row["digest"] == digest(played)
    successes = [[one["success"] for one in entry["tasks"]] for entry in played["entries"]]
    mean = sum(sum(one) / len(one) for one in successes) / len(successes)
    assert row["figures"]["success"]["mean"] == pytest.approx(mean)
    played["entries"][0]["tasks"][0]["success"] ^= True
    assert row["digest"] != digest(played), "one verdict more or less"


def test_the_page_has_every_row_and_no_other() -> None:
    rows = {json.loads(file.read_text("utf-8"))["digest"][:16] for file in FILES}
    assert set(re.findall(r"`([0-9a-f]{16})`", PAGE)) == rows and len(rows) == len(FILES) >= 8
