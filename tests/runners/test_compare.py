"""A whole comparison on the identity environment: what is written, what is kept, and a page that a person can read."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from browser import Browser, chromium
from rich.console import Console

from runners.command_line.errors import UserError
from runners.comparison.comparison_settings import ComparisonPlan, read_plan
from runners.comparison.program import compare
from runners.comparison.runs import result_file

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]
HERE = Path(__file__).resolve().parents[2]
STUDY = """
env: identity
env_steps: 120
seeds: 2
test_tasks: 6
pass_samples: 4
pass_tasks: 3
credit_episodes: 16
credit_group: 4
credit_continuations: 2
continued_episodes: 8
jobs: 2
episodes: 16
minibatches: 2
eval_every: 1
eval_tasks: 4
react: {max_action_tokens: 16, max_tokens: 256}
envs: {processes: 1}
pretrain:
  {flaw: 0.5, demonstrations: 60, steps: 40, shape: {width: 64, mlp: 128}}
baseline: grpo
entrants:
  grpo: {algo: grpo}
  自评: {algo: selfac}
claims:
  - {text: "<b>更好</b>", measure: auc, entrant: 自评, against: grpo, at_least: 0.5, source: 笔记 & more}
"""


def study(folder: Path, *argv: str, **values: Any) -> ComparisonPlan:
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(STUDY) | values, allow_unicode=True))
    return read_plan(["--config", str(file), "--out", str(folder / "out"), *argv])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """A finished comparison."""
    folder: Path = tmp_path_factory.mktemp("study")
    compare(study(folder), Console(file=io.StringIO()))
    return folder / "out"


def table(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_everyone_played_the_same_and_all_of_it_is_written(done: Path) -> None:
    runs = table(done / "runs.csv")
    assert [(row["entrant"], row["algo"], row["seed"]) for row in runs] == [
        ("grpo", "grpo", "0"), ("自评", "selfac", "0"), ("grpo", "grpo", "1"), ("自评", "selfac", "1"),
    ]  # fmt: skip
    result = json.loads((done / "result.json").read_text("utf-8"))
    for key in ("auc", "auc_valid", "auc_seconds", "final_sampled", "final_greedy", "pass@2", "pass@4", "busy_seconds"):
        mean = sum(float(row[key]) for row in runs if row["entrant"] == "grpo") / 2
        assert result["means"][key]["grpo"]["mean"] == pytest.approx(mean)
        other = sum(float(row[key]) for row in runs if row["entrant"] == "自评") / 2
        assert result["differences"][key]["自评"]["mean"] == pytest.approx(other - mean)
    for credit in (result["credit"], result["credit_played"]):
        assert set(credit) == {"base", "trained"} and set(credit["base"]["auc"]) == {"grpo", "自评"}
    truths = [json.loads((done / place / "0" / "credit.json").read_text()) for place in ("credit", "credit-played")]
    assert [(one["settings"]["continuations"], one["base"]["counts"]["episodes"]) for one in truths] == [
        (0, 16),
        (2, 8),
    ]
    assert truths[0]["base"]["error"] is None and truths[1]["base"]["error"] >= 0
    assert result["claims"][0]["verdict"] == "undecided", "two seeds decide nothing"
    curves = table(done / "curves.csv")
    last = {}
    for row in curves:
        if row["of"] == "training batch":
            last[row["entrant"], row["seed"]] = int(row["env_steps"])
    assert len(last) == 4 and all(120 <= steps < 120 + 16 * 5 for steps in last.values())
    tasks = {json.loads(file.read_text())["tasks"][-1] for file in (done / "runs").glob("*.test.json")}
    assert len(tasks) == 1
    text = (done / "report.md").read_text("utf-8")
    assert "| area under the curve |" in text and r"\<b\>更好\</b\>" in text and "## Credit accuracy\n" in text
    assert "## Credit accuracy by the policy's own values\n" in text
    listed = text.partition("## Checklist\n")[2].partition("\n## ")[0]
    assert re.search(r"\| 1\* \| .* \| identity-\w+, [\d,]+ parameters, fingerprint \w{16} \|", listed)
    assert "\n| 自评 | turn | temporal difference | values, in the same pass | " in listed
    assert "missing" in listed and result["checklist"]["entrants"]["grpo"]["episodes"]["turns"]["low"] >= 1
    short = text.partition("## In short\n")[2].partition("\n##")[0]
    assert "\n| grpo | 0." in short and "\n| 自评 | " in short


def test_what_is_finished_is_not_done_again(done: Path) -> None:
    files = sorted(path for path in (done / "runs").rglob("*") if path.is_file())
    before = {path: path.stat().st_mtime_ns for path in files}
    screen = io.StringIO()
    compare(study(done.parent), Console(file=screen, width=200))
    assert {path: path.stat().st_mtime_ns for path in files} == before
    assert "report:" in screen.getvalue()
    with pytest.raises(UserError, match="was run with other settings"):
        compare(study(done.parent, "--lr", "1e-4"), Console(file=io.StringIO()))


def test_runs_from_other_weights_are_not_compared(done: Path) -> None:
    base = done / "runs" / "grpo-1" / "base.json"
    text = base.read_text()
    base.write_text(json.dumps(json.loads(text) | {"fingerprint": "0" * 64}))
    try:
        with pytest.raises(UserError, match=r"grpo-1 was trained on: its weights differ: name another folder"):
            compare(study(done.parent), Console(quiet=True))
    finally:
        base.write_text(text)


def test_a_run_that_broke_off_goes_on_and_one_that_cannot_leaves_its_seed_out(done: Path) -> None:
    plan = study(done.parent)
    run = plan.entrants(Console(file=io.StringIO()))["grpo"].run(done / "runs", 1)
    whole = (run.folder / "metrics.jsonl").read_bytes()
    (run.folder / "summary.json").unlink()
    with pytest.raises(UserError, match="grpo-1 failed"):  # of two seeds one is not enough
        (run.folder / "metrics.jsonl").write_bytes(whole[:-5])
        compare(plan, Console(file=io.StringIO()))
    (run.folder / "metrics.jsonl").write_bytes(whole)
    compare(plan, Console(file=io.StringIO()))
    assert (run.folder / "summary.json").exists() and result_file(run).exists()
    log = (done / "logs" / "grpo-1.log").read_text("utf-8")
    assert "resuming from" in log and "metrics.jsonl was changed" in log


def test_the_page_is_read_by_a_person(done: Path) -> None:
    program = chromium()
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium on this machine: install the package chromium")
        pytest.skip("no Chromium on this machine")
    with Browser(program) as browser:
        for width in (1280, 390):
            browser.show(width, 900)
            browser.open(done / "report.html")
            assert browser("document.documentElement.scrollWidth") <= width, "nothing sticks out"
            text = browser("document.body.innerText")
            for said in (
                "Claims",
                "undecided",
                "Success along the way",
                "pass@k",
                "Credit accuracy",
                "自评",
                "笔记 & more",
            ):
                assert said in text
            assert "<b>更好</b>" in text, "what a file says is text"
            assert browser("Array.from(document.images).filter(one => one.naturalWidth > 300).length") >= 10
            assert browser("document.querySelectorAll('script, b').length") == 0
        assert browser.problems == []
        fetched = (url for url in browser.requests if not url.startswith(("about:", "data:")))
        assert {url.rpartition("/")[2] for url in fetched} == {"report.html"}


def test_the_program_tells_a_mistake_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "runners" / "compare.py"), "--env", "identity", "--seeds", "1"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert said.returncode == 2 and not any(tmp_path.iterdir())
    assert said.stderr == "error: --seeds must be at least 2, not 1: a single run shows no spread\n"


def test_a_comparison_whose_judge_is_an_earlier_run_goes_on(done: Path, tmp_path: Path) -> None:
    """A run names the checkpoint that it was judged by; the comparison names the run."""
    critic = {"kind": "critic", "run": str(done / "runs" / "自评-0")}
    entrants = {"grpo": {"algo": "grpo"}, "adca": {"algo": "adca", "judge": critic}}
    short = {"entrants": entrants, "claims": [], "env_steps": 40, "credit_episodes": 0, "pass_samples": 0}
    plan = study(tmp_path, **short)
    compare(plan, Console(file=io.StringIO()))
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("metrics.jsonl")}
    compare(plan, Console(file=io.StringIO()))
    assert len(before) == 4 and all(file.stat().st_mtime_ns == when for file, when in before.items())
    other = study(tmp_path, **short | {"entrants": entrants | {"adca": {"algo": "adca", "judge": {"kind": "oracle"}}}})
    with pytest.raises(UserError, match="was run with other settings"):
        compare(other, Console(file=io.StringIO()))
