"""Judges in whole runs: what is asked, what becomes of the answers, and what is said where there is no judge."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from judge_server import Answer, Asked, judge_server, judgments, praise
from rich.console import Console
from run_cases import SMALL, fingerprint, rows, training

from runners.command_line.errors import UserError
from runners.run_folder.folder import hold
from runners.train import begin

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]
ORACLE = ("--algo", "adca", "--judge.kind", "oracle")
KEY = "sk-1234-secret-5678"


def endpoint(url: str, *more: str) -> tuple[str, ...]:
    return ("--algo", "adca", "--judge.kind", "endpoint", "--judge.model", "m", "--judge.base-url", url, *more)


def finished(folder: Path, *argv: str, text: str = SMALL) -> list[dict[str, Any]]:
    """The rows of the updates of a run."""
    with training(folder, *argv, text=text) as run:
        run.run()
    return [row for row in rows(folder) if row["kind"] == "update"]


def labels_of(folder: Path) -> list[list[bool | None]]:
    lines = (folder / "episodes.jsonl").read_text().splitlines()
    return [[turn.get("label") for turn in json.loads(line)["turns"]] for line in lines]


# -- an endpoint, end to end ---------------------------------------------------------------------------------------


def test_an_endpoint_judges_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_KEY_127_0_0_1", KEY)

    def last_is_bad(asked: Asked, before: int) -> Answer:
        if not asked.steps:
            return Answer("ready")
        if before == 0 and len(server.asked) % 5 == 0:
            return Answer(status=500)
        return Answer(judgments(*["GOOD"] * (asked.steps - 1), "BAD", first=1))

    with judge_server(last_is_bad) as server:
        more = ("--judge.log-dir", str(tmp_path / "log"), "--judge.price-prompt", "1")
        found = finished(tmp_path / "run", *endpoint(server.url, *more), "--updates", "2")
    assert all(row["judge_parsed"] == 1 and row["judge_asked"] == 16 and row["unjudged"] == 0 for row in found)
    assert sum(row["judge_calls"] for row in found) == len(server.asked) - 1
    assert sum(row["judge_retries"] for row in found) == len(server.asked) - 1 - 32 > 0
    assert found[0]["judge_prompt_tokens"] == 1600 and found[0]["judge_cost"] == pytest.approx(1600 / 1e6)
    for row in found:
        shares = [row[f"judge_{outcome}_{label}"] for outcome in ("pos", "neg") for label in ("good", "bad")]
        assert sum(shares) == pytest.approx(1) and row["judge_good"] == pytest.approx(shares[0] + shares[2])
        assert row["judge_steps_p95"] >= row["judge_steps_mean"] > 1
    assert labels_of(tmp_path / "run") == [[*[True] * (len(said) - 1), False] for said in labels_of(tmp_path / "run")]
    assert len((tmp_path / "log" / "judge.jsonl").read_text().splitlines()) == 32
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10 and not any(KEY.encode() in path.read_bytes() for path in files)
    assert any(asked.headers["Authorization"] == f"Bearer {KEY}" for asked in server.asked), "it was sent"


def test_what_cannot_be_read_is_counted_and_teaches_nothing(tmp_path: Path) -> None:
    """Unreadable judges leave the outcome alone, all of them the same bits; a readable one does not."""
    plain = tmp_path / "adca-I cannot tell."
    for reply, same in (("I cannot tell.", True), ("", True), (None, False)):
        folder = tmp_path / f"adca-{reply}"
        script = praise if reply is None else (lambda asked, _, reply=reply: Answer(reply))
        if reply is None:
            script = lambda asked, _: Answer(judgments(*(["GOOD", "BAD"] * 9)[: asked.steps]))  # noqa: E731
        with judge_server(script) as server:
            found = finished(folder, *endpoint(server.url))
        assert [row["judge_unparsed"] for row in found] == [16.0 if same else 0.0] * 4
        assert ("judge_good" in found[0]) is not same and found[0]["unjudged"] == float(same)
        assert (fingerprint(folder) == fingerprint(plain)) is same


def test_switched_off_it_is_grpo_bit_for_bit_and_needs_no_judge(tmp_path: Path) -> None:
    finished(tmp_path / "grpo", "--algo", "grpo")
    found = finished(tmp_path / "off", "--algo", "adca", "--adca.no-enable")
    assert fingerprint(tmp_path / "off") == fingerprint(tmp_path / "grpo")
    assert not any(key.startswith("judge") for row in found for key in row)
    finished(tmp_path / "on", *ORACLE)
    assert fingerprint(tmp_path / "on") != fingerprint(tmp_path / "grpo"), "the control"


# -- who is asked about --------------------------------------------------------------------------------------------


def test_only_the_first_passes_are_judged(tmp_path: Path) -> None:
    """Two of fifteen tasks an update: the first pass ends within the eighth."""
    text = SMALL.replace("env: identity", "env: identity\nidentity: {words: [a, b, c, d, e], length: 2, max_turns: 3}")
    with judge_server() as server:
        argv = (*endpoint(server.url), "--adca.prm-epoch", "1", "--updates", "9", "--eval-every", "0")
        with training(tmp_path / "run", *argv, "--test-tasks", "0", text=text) as run:
            tasks = len(run.stream.streams["identity"].tasks)
            run.run()
    found = [row for row in rows(tmp_path / "run") if row["kind"] == "update"]
    asked = [row["judge_asked"] for row in found]
    assert tasks == 15 and asked == [16.0] * 7 + [8.0, 0.0]
    assert len(server.questions) == sum(asked) and found[-1]["judge_skipped"] == 16


@pytest.mark.parametrize("skip_type", ["skip_all_neg", "skip_small_adv", "none"])
def test_nobody_is_asked_about_what_is_skipped(tmp_path: Path, skip_type: str) -> None:
    with judge_server() as server:
        found = finished(tmp_path / "run", *endpoint(server.url), "--adca.skip-type", skip_type, "--updates", "2")
    played = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    groups: dict[Any, set[float]] = {}
    for e in played:
        groups.setdefault((e["update"], e["task"]), set()).add(round(e["reward"], 6))
    skips = {
        "none": lambda e: False,
        "skip_all_neg": lambda e: e["reward"] <= 0,
        "skip_small_adv": lambda e: len(groups[e["update"], e["task"]]) == 1,
    }[skip_type]
    skipped = [e for e in played if skips(e)]
    assert sum(row["judge_skipped"] for row in found) >= len(skipped)
    if skip_type != "skip_small_adv":  # there, also a return that is its group's mean has no advantage
        assert sum(row["judge_skipped"] for row in found) == len(skipped)
    assert len(server.questions) == len(played) - sum(row["judge_skipped"] for row in found)
    for e in skipped:
        assert all(turn.get("label") is None for turn in e["turns"])


@pytest.mark.parametrize("source", ["token_level_rewards", "advantages"])
def test_what_the_judge_is_told_of_the_outcome(tmp_path: Path, source: str) -> None:
    with judge_server() as server:
        finished(tmp_path / "run", *endpoint(server.url), "--adca.overall-score-source", source, "--updates", "1")
    told = sorted(float(asked.user.split("PERFORMANCE SCORE ")[1].split(" ")[0]) for asked in server.questions)
    played = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    if source == "token_level_rewards":
        assert told == pytest.approx(sorted(2 * e["reward"] - 1 for e in played), abs=1e-4)
    else:
        assert abs(sum(told)) < 1e-2 and max(told) > 0.3, "centred in every group"


# -- the other judges ----------------------------------------------------------------------------------------------


def test_the_oracle_judges_with_noise(tmp_path: Path) -> None:
    said = {}
    for noise in ("0.0", "0.3"):
        found = finished(tmp_path / noise, *ORACLE, "--judge.noise", noise, "--updates", "1", "--workers", "1")
        assert found[0]["judge_parsed"] == 1
        said[noise] = labels_of(tmp_path / noise)
    right, wrong = ([label for labels in said[noise] for label in labels] for noise in said)
    share = sum(a != b for a, b in zip(right, wrong, strict=True)) / len(right)
    assert 0.1 < share < 0.5


def test_a_run_with_a_judge_resumes_to_the_same_bits(tmp_path: Path) -> None:
    argv = (*ORACLE, "--judge.noise", "0.2", "--updates", "3", "--save-every", "1")
    whole = finished(tmp_path / "whole", *argv)
    with training(tmp_path / "cut", *argv) as run:
        run.next_update()
        run.save()
    with begin(["--resume", str(tmp_path / "cut")], Console(file=io.StringIO())) as run:
        run.run()
    assert fingerprint(tmp_path / "cut") == fingerprint(tmp_path / "whole")
    assert [row for row in rows(tmp_path / "cut") if row["kind"] == "update"] == whole


def test_the_policy_judges_itself(tmp_path: Path) -> None:
    """So small a model says nothing readable: that is counted, and what is learned is what any silent judge leaves."""
    argv = ("--updates", "2", "--judge.max-reply-tokens", "8", "--judge.concurrent", "16")
    found = finished(tmp_path / "self", "--algo", "adca", "--judge.kind", "policy", *argv)
    for row in found:
        assert row["judge_asked"] == row["judge_calls"] + row["judge_too_long"] == 16 and row["judge_calls"] > 0
        assert row["judge_completion_tokens"] <= 8 * row["judge_calls"] and row["judge_prompt_tokens"] > 1000
        assert row["judge_unparsed"] == 16 and row["unjudged"] == 1
    with training(tmp_path / "said", "--algo", "adca", "--judge.kind", "policy", *argv) as run:
        run.next_update()
        assert "judge" in run.advisor.given
    with judge_server(lambda asked, _: Answer("")) as server:
        finished(tmp_path / "silent", *endpoint(server.url), "--updates", "2")
    assert fingerprint(tmp_path / "self") == fingerprint(tmp_path / "silent")
    finished(tmp_path / "off", "--algo", "adca", "--adca.no-enable", "--updates", "2")
    assert fingerprint(tmp_path / "self") != fingerprint(tmp_path / "off"), "the control: GRPO has another deviation"


def test_an_earlier_runs_critic_judges(tmp_path: Path) -> None:
    finished(tmp_path / "selfac", "--algo", "selfac")
    critic = ("--algo", "adca", "--judge.kind", "critic", "--judge.run")
    found = finished(tmp_path / "adca", *critic, str(tmp_path / "selfac"), "--updates", "2")
    assert all(row["judge_parsed"] == 1 and 0 < row["judge_good"] < 1 for row in found)
    with pytest.raises(UserError, match="trained no critic of states: name a run of selfac") as refused:
        training(tmp_path / "again", *critic, str(tmp_path / "adca"), "--workers", "1")
    hold(tmp_path / "again").close()  # it raises where the lock is still held
    assert refused.traceback, "what was begun is closed while the refusal, and with it the run, is still there"
    with pytest.raises(UserError, match="is not a run folder"):
        training(tmp_path / "none", *critic, str(tmp_path))
    other = SMALL.replace("env: identity", "env: identity\nidentity: {words: [one, two, three, four, five, six]}")
    with pytest.raises(UserError, match="has another tokenizer or chat template than this run"):
        training(tmp_path / "other", *critic, str(tmp_path / "selfac"), text=other)


# -- where there is no judge ---------------------------------------------------------------------------------------


def test_a_run_without_its_judge_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"adca needs a judge: --judge\.kind critic, endpoint, .*--adca\.no-enable"):
        training(tmp_path / "a", "--algo", "adca")
    with pytest.raises(UserError, match=r"answered none of 16 requests.*continue with --resume") as raised:
        script = lambda asked, _: Answer(status=500) if asked.steps else Answer("ready")  # noqa: E731
        with judge_server(script) as server:
            finished(tmp_path / "b", *endpoint(server.url), "--judge.api-max-retries", "0")
    assert "\n" not in str(raised.value)


def test_a_run_goes_on_when_its_judge_is_back(tmp_path: Path) -> None:
    there = [True]
    script = lambda asked, n: praise(asked, n) if there[0] or not asked.steps else Answer(status=503)  # noqa: E731
    with judge_server(script) as server:
        argv = (*endpoint(server.url), "--judge.api-max-retries", "0", "--updates", "3")
        whole = finished(tmp_path / "whole", *argv)
        with training(tmp_path / "cut", *argv) as run:
            run.evaluate()
            run.next_update()
            there[0] = False
            with pytest.raises(UserError, match="answered none"):
                run.next_update()
        there[0] = True
        with begin(["--resume", str(tmp_path / "cut")], Console(file=io.StringIO())) as run:
            run.run()
    assert [row for row in rows(tmp_path / "cut") if row["kind"] == "update"] == whole
    assert fingerprint(tmp_path / "cut") == fingerprint(tmp_path / "whole")


def test_an_unreachable_judge_is_one_line_before_anything_is_sampled(tmp_path: Path) -> None:
    argv = ["--env", "identity", *endpoint("http://127.0.0.1:9/v1"), "--out", str(tmp_path / "run")]
    train = Path(__file__).parents[2] / "runners" / "train.py"
    done = subprocess.run([sys.executable, str(train), *argv], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: the judge at http://127.0.0.1:9/v1 cannot be reached (ConnectError")
    assert not (tmp_path / "run" / "episodes.jsonl").exists() and not (tmp_path / "run" / "checkpoints").exists()


# -- a real task ---------------------------------------------------------------------------------------------------

WIKI = """
env: wiki
updates: 2
episodes: 16
minibatches: 2
eval_every: 0
test_tasks: 0
wiki: {train_worlds: 4, valid_worlds: 2, test_worlds: 2, pages: 20, questions: 4, languages: [en], max_turns: 4}
react: {max_action_tokens: 32, max_tokens: 1024}
envs: {processes: 1}
pretrain: {demonstrations: 40, steps: 30, shape: {width: 64, mlp: 128}}
"""


def test_an_endpoint_judges_the_wiki(tmp_path: Path) -> None:
    def by_what_was_seen(asked: Asked, before: int) -> Answer:
        steps = asked.user.split(">>> EVAL-STEP ")[1:]
        return Answer(judgments(*["BAD" if "error" in step.casefold() else "GOOD" for step in steps]) or "ready")

    with judge_server(by_what_was_seen) as server:
        found = finished(tmp_path / "run", *endpoint(server.url), text=WIKI)
    assert [row["judge_parsed"] for row in found] == [1.0, 1.0] and len(server.questions) == 32
    assert all(asked.user.startswith("### TASK DESCRIPTION\n") for asked in server.questions)
    played = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    shown = {asked.user for asked in server.questions}
    for e in played:
        assert any(e["user"] in user and f"(total {len(e['turns'])} steps)" in user for user in shown)
        assert all(turn["label"] in (True, False) for turn in e["turns"])
