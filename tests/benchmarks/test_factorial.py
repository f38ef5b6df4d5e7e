"""The effects of a factorial study, from runs whose effects are known; and that its settings file has every entrant."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.factorial import FACTORS, cells, contrast, effects
from runners.comparison.measures import Figures

STUDY = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "studies" / "corridor-factorial.yaml"
TUNING = STUDY.parents[1] / "results" / "corridor-factorial-tuning.json"
SEEDS = range(100, 110)


def study(noise: float) -> dict[str, dict[int, Figures]]:
    """Replay gains 0.1, and 0.04 more without the prompt; nothing else does anything."""
    rng = np.random.default_rng(0)
    figures: dict[str, dict[int, Figures]] = {}
    for method, factors in FACTORS.items():
        for name, levels in cells(method).items():
            at = dict(zip(factors, levels, strict=True))
            gain = 0.1 * at["replay"] + 0.04 * at["replay"] * at.get("bare", 0)
            figures[name] = {seed: {"auc": [0.5 + gain + noise * rng.normal()]} for seed in SEEDS}
    return figures


def test_effects_that_are_known() -> None:
    found = study(0.0)
    assert contrast(found, "ppo", "auc", ["replay"]) == pytest.approx([0.1] * len(SEEDS))
    for method in ("selfac", "turn_ppo"):
        assert contrast(found, method, "auc", ["replay"]) == pytest.approx([0.12] * len(SEEDS))
        assert contrast(found, method, "auc", ["bare"]) == pytest.approx([0.02] * len(SEEDS))
        assert contrast(found, method, "auc", ["bare", "replay"]) == pytest.approx([0.02] * len(SEEDS))
        assert contrast(found, method, "auc", ["detached"]) == pytest.approx([0.0] * len(SEEDS), abs=1e-12)


def test_what_is_there_is_found_and_noise_is_not() -> None:
    found = {(e.method, e.factors): e for e in effects(study(0.02), "auc")}
    assert len(found) == 4 + 6 + 3 + 3 + 1
    assert {key for key, e in found.items() if e.chance < 0.05} >= {(m, "replay") for m in FACTORS}
    still = found["selfac", "detached"]
    assert still.value.low < 0 < still.value.high and still.chance > 0.05


def test_a_cell_without_runs_is_not_passed_over() -> None:
    figures = study(0.0)
    del figures["selfac_bare_replay"]
    with pytest.raises(KeyError, match="selfac_bare_replay"):
        contrast(figures, "selfac", "auc", ["replay"])


def test_the_studys_settings_are_those_that_the_tuning_chose() -> None:
    entrants = yaml.safe_load(STUDY.read_text("utf-8"))["entrants"]
    chosen = {t["entrant"]: t["settings"] for t in json.loads(TUNING.read_text("utf-8"))["tuning"] if t["chosen"]}
    assert len(chosen) == 9
    for name, one in entrants.items():
        tuned = chosen[name if name in chosen else next(m for m in FACTORS if name.startswith(f"{m}_"))]
        assert (float(one["lr"]), one["minibatches"]) == (float(tuned["lr"]), tuned["minibatches"]), name


def test_the_study_plays_every_cell_and_its_settings_are_those_of_its_name() -> None:
    entrants = yaml.safe_load(STUDY.read_text("utf-8"))["entrants"]
    assert entrants.keys() >= {name for method in FACTORS for name in cells(method)}
    for method, factors in FACTORS.items():
        for name, levels in cells(method).items():
            one, at = entrants[name], dict(zip(factors, levels, strict=True))
            assert one["algo"] == method and ("replay_steps" in one) == bool(at["replay"])
            critic = one.get("critic", {})
            assert ("prompt" in critic) == bool(at.get("bare")) and critic.get("prompt", "") == ""
            assert critic.get("detach_body", False) is bool(at.get("detached"))
            assert (one[method].get("td_max") == 2) is bool(at.get("td2"))
