"""Settings of judges: what acts, what is refused, and the settings block of ADCA-GRPO's source, as it stands there."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from judge_server import judge_server
from run_cases import SMALL, rows, training

from agents.judge import JudgeKind, JudgeSettings
from algorithms import ALGORITHMS
from algorithms.adca import ADCA
from runners.command_line.errors import UserError
from runners.command_line.parse import parse
from runners.command_line.plain import dump
from runners.settings.run_settings import parts_of
from runners.settings.train_settings import Train

BLOCK = """\
# Semantic evaluation & ADCA-GRPO
attribution_driven_credit_assignment:
  # 1. Master switch
  enable: true

  # 2. LLM Attribution Service settings
  evaluation_type: "api"
  model: "qwen-plus"                # Recommend using a powerful model
  concurrent: 10                    # Adjust based on your API QPS limits
  api_max_retries: 200
  llm_evaluation_log_dir: "/path/to/your/logs" # Strongly recommended for debugging

  # 3. ADCA-GRPO Core Algorithm settings
  adca_grpo:
    # Must be "decouple" for the most stable and validated scheme
    prm_scheme: "decouple"
    
    # Must be true to ensure signal scale consistency and training stability
    do_batch_norm: true
    
    # Generally recommended to be true to ensure equal contribution from each trajectory
    equal_trajectory_weight: true
    
    # Base value for GOOD/BAD labels under the "decouple" scheme
    fix_base: 0.2
    
    # Key hyperparameter to tune; start with a small value (e.g., 0.05 ~ 0.2)
    alpha: 0.1 # This corresponds to 'α' in the paper
    
    # Beta is implicitly 1.0 in the code and fixed in experiments
    # beta: 1.0
    
    # Recommended to be "last_step" as it is more intuitive
    orm_distribution: "last_step"
    
    # Balance effectiveness and API cost; enables attribution for the first 20 epochs
    prm_epoch: 20
    
    # Recommended to save API costs by not evaluating low-value trajectories
    skip_type: "skip_small_adv"
    
    # Recommended to be true to monitor the attribution module's internal state
    enable_adca_metric: true
    
    # Default is false; can be enabled for tasks with high variance in trajectory length
    enable_length_normalization: false
"""


def read(tmp_path: Path, text: str, *argv: str) -> tuple[Train, dict[str, Any]]:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    return parse(Train, parts_of, ["--config", str(file), *argv], about="")


def changed(**keys: Any) -> str:
    """The block with other values: a dot leads into the inner one, None takes a key out."""
    values: Any = yaml.safe_load(BLOCK)
    for path, value in keys.items():
        *outer, last = path.split("__")
        place = values["attribution_driven_credit_assignment"]
        for name in outer:
            place = place[name]
        place.pop(last, None)
        if value is not None:
            place[last] = value
    return yaml.safe_dump(values)


def test_the_block_is_read_as_it_stands(tmp_path: Path) -> None:
    train, parts = read(tmp_path, BLOCK)
    assert train == Train(algo="adca")
    assert parts["adca"] == ADCA(prm_epoch=20, skip_type="skip_small_adv")
    assert parts["judge"] == JudgeSettings(
        kind=JudgeKind.ENDPOINT, model="qwen-plus", concurrent=10, log_dir=Path("/path/to/your/logs")
    )
    assert "dashscope" in parts["judge"].base_url and parts["judge"].api_max_retries == 200
    again = tmp_path / "again.yaml"
    again.write_text(dump(train, parts))
    assert parse(Train, parts_of, ["--config", str(again)], about="") == (train, parts)


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("enable", False, "adca.enable"),
        ("model", "m", "judge.model"),
        ("concurrent", 3, "judge.concurrent"),
        ("api_max_retries", 4, "judge.api_max_retries"),
        ("llm_evaluation_log_dir", "here", "judge.log_dir"),
        ("adca_grpo__prm_scheme", "allocation", "adca.prm_scheme"),
        ("adca_grpo__do_batch_norm", False, "adca.do_batch_norm"),
        ("adca_grpo__equal_trajectory_weight", False, "adca.equal_trajectory_weight"),
        ("adca_grpo__fix_base", 0.7, "adca.fix_base"),
        ("adca_grpo__alpha", 0.05, "adca.alpha"),
        ("adca_grpo__beta", 0.5, "adca.beta"),
        ("adca_grpo__orm_distribution", "all_steps", "adca.orm_distribution"),
        ("adca_grpo__prm_epoch", 7, "adca.prm_epoch"),
        ("adca_grpo__skip_type", "none", "adca.skip_type"),
        ("adca_grpo__enable_adca_metric", False, "adca.enable_adca_metric"),
        ("adca_grpo__enable_length_normalization", True, "adca.enable_length_normalization"),
    ],
)
def test_every_key_of_it_acts(tmp_path: Path, key: str, value: Any, place: str) -> None:
    _, parts = read(tmp_path, changed(**{key: value}))
    part, name = place.split(".")
    assert str(getattr(parts[part], name)) == str(value)
    assert parts != read(tmp_path, BLOCK)[1]


def test_schemes_are_read_in_any_case_as_their_authors_do(tmp_path: Path) -> None:
    text = changed(adca_grpo__prm_scheme="Allocation", adca_grpo__skip_type="SKIP_SMALL_ADV")
    adca = read(tmp_path, text)[1]["adca"]
    assert (adca.prm_scheme, adca.skip_type) == ("allocation", "skip_small_adv")
    with pytest.raises(UserError, match="allocations"):
        read(tmp_path, changed(adca_grpo__prm_scheme="Allocations"))


def test_the_documents_tables_put_two_keys_outside(tmp_path: Path) -> None:
    keys = {"skip_type": "skip_all_neg", "adca_grpo__skip_type": None, "enable_adca_metric": False}
    _, parts = read(tmp_path, changed(**keys, adca_grpo__enable_adca_metric=None))
    assert parts["adca"].skip_type == "skip_all_neg" and not parts["adca"].enable_adca_metric


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (changed(evaluation_type="local"), 'evaluation_type can be "api" only'),
        (changed(prm_steps=100), r"prm_steps does nothing here: say prm_epoch"),
        (changed(adca_grpo__prm_steps=100), r"adca_grpo\.prm_steps does nothing here: say prm_epoch"),
        (changed(adca_grpo__model_name="m"), "model_name does nothing here: say model"),
        (changed(adca_grpo__group=4), "group does nothing here: known are aggregation, alpha"),
        (changed(tempo=1), "tempo does nothing here: known are api_max_retries, concurrent, enable"),
        (changed(skip_type="none"), "skip_type is set twice, and differently"),
        (changed(adca_grpo=3), "adca_grpo must hold settings by name"),
        (changed(concurrent="many"), "'many' is not of type int"),
        (changed(concurrent=0), "judge.concurrent must be at least 1"),
        (changed(adca_grpo__skip_type="some"), "'some' is not a valid SkipType"),
        (changed(model=None), "judge.kind endpoint needs the name of a model there"),
        (BLOCK + "algo: grpo\n", "sets up the algorithm adca, and the file says algo: grpo"),
        (
            BLOCK + "adca: {alpha: 0.3}\n",
            "adca.alpha is set beside attribution_driven_credit_assignment, and differently",
        ),
        (BLOCK + "judge: {model: other}\n", "judge.model is set beside"),
        ("attribution_driven_credit_assignment: yes\n", "must hold settings by name"),
    ],
)
def test_the_rest_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        read(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_what_it_does_not_say_can_be_said_beside_it(tmp_path: Path) -> None:
    beside = "adca: {group: 4, alpha: 0.1}\njudge: {timeout: 5}\nupdates: 3\n"
    train, parts = read(tmp_path, BLOCK + beside, "--judge.concurrent", "2")
    assert (train.updates, parts["adca"].group, parts["adca"].alpha) == (3, 4, 0.1)
    assert (parts["judge"].timeout, parts["judge"].concurrent, parts["judge"].model) == (5.0, 2, "qwen-plus")


@pytest.mark.runs
@pytest.mark.usefixtures("own_cache")
def test_a_run_is_trained_with_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASHSCOPE_API_KEY", "sk-block")
    with judge_server() as server:
        flags = ("--judge.base-url", server.url, "--judge.log-dir", str(tmp_path / "logs"), "--updates", "2")
        with training(tmp_path / "run", *flags, text=SMALL + BLOCK) as run:
            run.run()
    found = [row for row in rows(tmp_path / "run") if row["kind"] == "update"]
    assert len(server.questions) == sum(row["judge_asked"] for row in found) > 0
    assert all(asked.body["model"] == "qwen-plus" for asked in server.asked)
    assert (tmp_path / "logs" / "judge.jsonl").exists() and "attr_std" in found[0]
    monkeypatch.delenv("DASHSCOPE_API_KEY")
    with pytest.raises(UserError, match="needs a key: export DASHSCOPE_API_KEY="):
        training(tmp_path / "none", text=SMALL + BLOCK)


# -- the judge's own settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"kind": "oracle", "model": "m"}, "judge.model only works with judge.kind endpoint"),
        ({"noise": 0.1}, "judge.noise only works with judge.kind oracle"),
        ({"kind": "policy", "noise": 0.1}, "judge.noise only works with judge.kind oracle"),
        ({"kind": "policy", "log_dir": Path("x")}, "judge.log_dir only works with judge.kind endpoint"),
        ({"kind": "critic", "concurrent": 3}, "judge.concurrent only works with judge.kind endpoint or policy"),
        ({"kind": "endpoint", "model": "m", "run": Path("x")}, "judge.run only works with judge.kind critic"),
        (
            {"kind": "endpoint", "model": "m", "max_prompt_tokens": 9},
            "max_prompt_tokens only works with judge.kind policy",
        ),
        ({"kind": "endpoint"}, "judge.kind endpoint needs the name of a model there: judge.model"),
        ({"kind": "critic"}, "judge.kind critic needs a run that trained a critic: judge.run"),
        ({"kind": "oracle", "noise": 1.5}, "judge.noise must be from 0 to 1"),
        ({"kind": "policy", "max_reply_tokens": 0}, "judge.max_reply_tokens must be at least 1"),
        ({"base_url": "judge"}, "judge.base_url must be an address like"),
        ({"base_url": "https://h:x/v1"}, "judge.base_url is not an address"),
        ({"base_url": "ftp://h/v1"}, "judge.base_url must be an address like"),
        ({"base_url": "https://u:secret@h/v1"}, "keys belong into the environment"),
        ({"base_url": "https://h/v1?key=secret"}, "keys belong into"),
    ],
)
def test_what_has_no_effect_or_no_sense_is_refused(told: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        JudgeSettings(**{key: JudgeKind(value) if key == "kind" else value for key, value in told.items()})
    assert "\n" not in str(raised.value) and "secret" not in str(raised.value)


def test_only_judged_algorithms_have_a_judge() -> None:
    for name, kind in ALGORITHMS.items():
        assert ("judge" in parts_of(Train(algo=name))) is kind().needs.judge
    assert ALGORITHMS["adca"]().needs.judge
    with pytest.raises(UserError, match=r"unknown flag --judge\.kind"):
        parse(Train, parts_of, ["--algo", "grpo", "--judge.kind", "oracle"], about="")


def test_answers_are_as_long_as_their_kind_allows() -> None:
    assert JudgeSettings(kind=JudgeKind.ENDPOINT, model="m").reply_tokens == 8192
    assert JudgeSettings(kind=JudgeKind.POLICY).reply_tokens == 512
    assert JudgeSettings(kind=JudgeKind.POLICY, max_reply_tokens=9).reply_tokens == 9
