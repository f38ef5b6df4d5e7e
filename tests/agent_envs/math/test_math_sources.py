"""Other sources: reasoning-gym, and files in the manner of GSM8K and MATH."""

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_envs.contract.check import check_text_env
from agent_envs.core import SPLITS, SettingsError
from agent_envs.math.config import MathConfig, Verifier
from agent_envs.math.env import MathEnv
from agent_envs.math.text_expert import mistaken
from agent_envs.rows import MOST_TEXT

HERE = Path(__file__).parent / "data"
GSM8K, MATH = HERE / "gsm8k.jsonl", HERE / "math"


def config(source: object, **options: Any) -> MathConfig:
    return MathConfig(
        source=str(source), verifier=Verifier.EXACT, **{"train_tasks": 40, "held_out_tasks": 10} | options
    )


@pytest.mark.parametrize("source", [GSM8K, MATH], ids=["gsm8k", "math"])
def test_contract(source: Path) -> None:
    check_text_env(lambda: MathEnv(config(source)))


def everything(env: MathEnv) -> dict[str, list[str]]:
    return {split: [task.prompt for task in env.tasks(split)] for split in SPLITS}


def test_every_question_is_in_one_split() -> None:
    found = everything(MathEnv(config(GSM8K)))
    assert sum(map(len, found.values())) == len({p for prompts in found.values() for p in prompts}) == 24
    assert all(found.values())
    folder = everything(MathEnv(config(MATH)))
    assert folder["test"] == ["What is $1+1$?", "Find $\\sqrt{16}$."], (
        "its own test split, and no duplicate of it in train"
    )
    assert not set(folder["train"]) & {*folder["valid"], *folder["test"]}


def test_answers_and_solutions_are_read() -> None:
    env = MathEnv(config(GSM8K))
    (task,) = (t for split in SPLITS for t in env.tasks(split) if t.prompt.startswith("Tom has 12"))
    assert task.data.gold == "1,020" and task.data.solution == ("12 * 85 = 1020 beans.",)
    env.reset(options={"task": task})
    assert env.expert() == "12 * 85 = 1020 beans.\n\n"
    env.step(env.expert())
    assert env.expert() == "The answer is \\boxed{1,020}."
    assert env.fork().step("\\boxed{1020}")[4]["success"] and not env.fork().step("\\boxed{1,021}")[4]["success"]
    env.step("Hm.\n\n")
    assert env.expert() == "The answer is \\boxed{1,020}."
    assert env.oracle() is None
    (chinese,) = (t for split in SPLITS for t in env.tasks(split) if "苹果" in t.prompt)
    assert chinese.language == "zh" and MathEnv(config(GSM8K, languages=("en",))).tasks("train")
    kept = everything(MathEnv(config(GSM8K, languages=("zh",))))
    assert sum(map(len, kept.values())) == 1
    levels = {t.level for split in SPLITS for t in MathEnv(config(MATH)).tasks(split)}
    assert levels == {1, 3, 5}


def test_the_expert_is_right_and_the_flawed_one_is_not() -> None:
    env, rng = MathEnv(config(GSM8K)), np.random.default_rng(0)
    for flaw, wanted in ((0.0, 1.0), (1.0, 0.0)):
        successes = []
        for task in env.tasks("train"):
            env.reset(options={"task": task})
            while True:
                _, _, terminated, truncated, info = env.step(env.expert(flaw=flaw, rng=rng))
                if terminated or truncated:
                    successes.append(info["success"])
                    break
        assert np.mean(successes) == wanted
    assert mistaken("19") == "10" and mistaken("x") == "x1" and mistaken("\\frac{1}{2}") == "\\frac{1}{3}"


def test_parquet_is_read_as_json_lines_are(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [json.loads(line) for line in GSM8K.read_text("utf-8").splitlines()]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert everything(MathEnv(config(tmp_path / "rows.parquet"))) == everything(MathEnv(config(GSM8K)))
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(SettingsError, match="cannot be read as Parquet"):
        MathEnv(config(tmp_path / "bad.parquet")).tasks("train")


def test_a_packed_file_is_read_as_a_plain_one(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(GSM8K.read_bytes()))
    assert everything(MathEnv(config(tmp_path / "rows.jsonl.gz"))) == everything(MathEnv(config(GSM8K)))
    (tmp_path / "bad.jsonl.gz").write_text("{}")
    with pytest.raises(SettingsError, match=r"bad\.jsonl\.gz cannot be read"):
        MathEnv(config(tmp_path / "bad.jsonl.gz")).tasks("train")


def test_a_data_set_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for part in ("train", "test"):
        (tmp_path / f"{part}.jsonl").write_bytes((MATH / f"{part}.jsonl").read_bytes())
    assert everything(MathEnv(config(f"datasets:{tmp_path}"))) == everything(MathEnv(config(MATH)))
    with pytest.raises(SettingsError, match="datasets cannot load 'no/such'"):
        MathEnv(config("datasets:no/such")).tasks("train")


@pytest.mark.parametrize("family", ["chain_sum", "fraction_simplification", "simple_equations"])
def test_reasoning_gym_families_keep_the_contract_and_their_own_scores(family: str) -> None:
    pytest.importorskip("reasoning_gym")
    settings = config(f"reasoning-gym:{family}")
    if family == "chain_sum":
        check_text_env(lambda: MathEnv(settings), tasks=2)
    env = MathEnv(settings)
    found = everything(env)
    assert len({p for prompts in found.values() for p in prompts}) == 60
    task = env.tasks("train")[0]
    env.reset(options={"task": task})
    assert env.fork().step(f"\\boxed{{{task.data.gold}}}")[1] == 1
    assert env.fork().step("\\boxed{12345678}")[1] == 0, "small change for a wrong answer is no success"
    if family == "fraction_simplification":
        up, down = map(int, re.findall("[0-9]+", task.data.gold))
        wrong = task.data.gold.replace(str(up), str(2 * up)).replace(str(down), str(2 * down))
        assert env.fork().step(f"\\boxed{{{wrong}}}")[1] == 0, "what is not simplified has the value and is not right"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("no json", "line 1 is no JSON"),
        ('{"answer": "3"}', "row 1 has no question"),
        ('{"question": "3?"}', "row 1 has no answer"),
        ('{"question": "3?", "answer": "####"}', "row 1 has an empty answer"),
        ('{"problem": "3?", "solution": "it is 3"}', "row 1 has no answer"),
        (r'{"problem": "3?", "answer": "\\boxed{3"}', "row 1 has no answer"),
        ('{"question": "\\ud800", "answer": "3"}', "row 1: 'question' holds characters that no file can hold"),
        ('{"question": "3?", "answer": "\\u0000"}', "row 1: 'answer' holds characters"),
        (
            f'{{"problem": "3?", "solution": "{"a" * (MOST_TEXT + 1)}"}}',
            "row 1: 'solution' must be a text of at most 256 Ki",
        ),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "rows.jsonl").write_text(line + "\n")
    with pytest.raises(SettingsError, match=words):
        MathEnv(config(tmp_path / "rows.jsonl")).tasks("train")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("datasets", "pyarrow", "reasoning_gym"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "agent_envs.reasoning_gym.entries", raising=False)
    (tmp_path / "x.parquet").touch()
    for source, extra in (
        ("datasets:a", "datasets"),
        (tmp_path / "x.parquet", "datasets"),
        ("reasoning-gym:gcd", "reasoning-gym"),
    ):
        with pytest.raises(SettingsError, match=rf"pip install 'turnwise\[{extra}\]'"):
            MathEnv(config(source)).tasks("train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match=r"holds no train\.jsonl"):
        MathEnv(config(tmp_path / "empty")).tasks("train")
