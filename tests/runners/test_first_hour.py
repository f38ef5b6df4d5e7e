"""What a newcomer meets: sizes that do not fit, few tasks, a settings file edited."""

import io
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from rich.console import Console

from agent_envs.cache import cache_dir
from agent_envs.identity.env import IdentityEnv
from runners.command_line.errors import UserError
from runners.evaluation.tasks import pick_tasks
from runners.inference.evaluate_settings import Evaluate, elsewhere, parts_of
from runners.run_folder.checkpoint import STATE
from runners.run_folder.runs import SavedRun
from runners.settings.fitting import check_fit
from runners.settings.run_settings import RunSettings, read_settings
from runners.training.closing import draw_curve
from runners.training.generators import load_rng_state, rng_state, seed_all
from runners.training.minibatch import cut_evenly
from runners.training.report import versions
from runners.training.start import VERSIONS, other_settings, other_versions


def said(call: Any, *arguments: Any) -> tuple[Any, str]:
    screen = io.StringIO()
    return call(*arguments, Console(file=screen, width=500)), screen.getvalue()


def test_too_few_tasks_are_all_of_them_and_that_is_said() -> None:
    size = len(IdentityEnv().tasks("test"))
    tasks, note = said(pick_tasks, IdentityEnv(), "test", size + 1)
    assert len({task.id for task in tasks}) == size
    assert note == f"the test split of identity has {size} tasks, not {size + 1}: all of them are played\n"
    tasks, note = said(pick_tasks, IdentityEnv(), "test", size)
    assert len(tasks) == size and note == ""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--algo grpo --episodes 12", "--episodes 12 must be a multiple of the group of 8"),
        ("--minibatches 200", "at least one task for each of the 200 minibatches"),
        ("--algo arpo --slots 4", "--slots 4 must hold the 16 episodes of a task, which fork"),
        ("--algo grpo --replay-steps 1", "--replay-steps needs a critic"),
        ("--algo grpo --value-updates 1", "--value-updates needs a critic"),
        ("--algo grpo --value-lr 1e-2", "--value-lr needs a critic, and grpo has none"),
        ("--algo grpo --model x --value-lr 1e-3", "--value-lr needs a critic, and grpo has none"),
        ("--algo ppo --replay-steps 1 --replay-body", "--replay-body needs a critic that shares its body"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_anything_is_made(flags: str, says: str) -> None:
    settings = read_settings(["--env", "identity", *flags.split()])
    with pytest.raises(UserError, match=re.escape(says)):
        check_fit(settings)


@pytest.mark.parametrize(
    "flags", ["", "--algo grpo", "--algo grpo --model x", "--value-lr 1e-2", "--algo ppo --value-lr 1"]
)
def test_sizes_that_fit_are_taken(flags: str) -> None:
    check_fit(read_settings(["--env", "identity", *flags.split()]))


def test_a_run_that_was_begun_keeps_a_setting_that_earlier_versions_took() -> None:
    check_fit(read_settings(["--env", "identity", "--algo", "grpo", "--value-lr", "1e-2"]), begun=True)


def test_a_batch_is_cut_into_as_many_steps_as_are_asked_for() -> None:
    parts = cut_evenly(list(range(9)), 8)  # type: ignore[arg-type]
    assert [len(part) for part in parts] == [1, 1, 1, 1, 1, 1, 1, 2] or sorted(map(len, parts)) == [1] * 7 + [2]
    assert [x for part in parts for x in part] == list(range(9))


# -- what is said ----------------------------------------------------------------------------------------------------


def test_a_run_that_is_measured_elsewhere_is_said() -> None:
    run = SavedRun(Path("run"), read_settings(["--env", "wiki"]))
    other = Evaluate(env=("identity",), model="run")
    assert elsewhere(run, other, parts_of(other)) == ["run was trained on wiki; it is measured on identity"]
    same = run.settings.env
    assert elsewhere(run, Evaluate(env=("wiki",), model="run"), same) == []
    changed = read_settings(["--env", "wiki", "--wiki.max-hops", "2"]).env
    (line,) = elsewhere(run, Evaluate(env=("wiki",), model="run"), changed)
    assert line == "run was trained with other settings of wiki: max_hops 4 -> 2"


def saved(folder: Path, settings: RunSettings) -> Path:
    folder.mkdir()
    from runners.command_line.plain import dump_json

    (folder / STATE).write_text(dump_json({"settings": settings.plain()}))
    return folder


def test_an_edited_settings_file_is_noticed(tmp_path: Path) -> None:
    before = read_settings(["--env", "identity"])
    checkpoint = saved(tmp_path / "update-1", before)
    assert list(other_settings(SavedRun(tmp_path, before), checkpoint)) == [], "infinity is null in JSON, and no change"
    now = read_settings(["--env", "identity", "--lr", "1e-3", "--lora.rank", "4"])
    (line,) = other_settings(SavedRun(tmp_path, now), checkpoint)
    assert line.endswith("the run goes on with what it says now: lr 0.003 -> 0.001, lora.rank 8 -> 4")


@pytest.mark.parametrize("text", [None, "{", "[]", ""])
def test_missing_or_broken_versions_are_said(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / VERSIONS).write_text(text)
    (line,) = other_versions(tmp_path / VERSIONS)
    assert line.startswith(f"{tmp_path / VERSIONS} is missing or damaged")


def test_other_versions_are_said(tmp_path: Path) -> None:
    (tmp_path / VERSIONS).write_text(json.dumps(versions()))
    assert list(other_versions(tmp_path / VERSIONS)) == []
    (tmp_path / VERSIONS).write_text(json.dumps({**versions(), "torch": "1.0"}))
    (line,) = other_versions(tmp_path / VERSIONS)
    assert line.startswith("torch was 1.0, is ")


def test_the_curve_begins_with_the_first_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took = {"kind": "update", "success": 0.5, "seconds_rollout": 2.0, "seconds_forward": 1.0, "seconds_update": 3.0}
    lines = [json.dumps({"seconds": second, **took}) for second in (100.0, 110.0)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    drawn_at: list[list[float]] = []
    plot = Axes.plot

    def watched(axes: Axes, x: Sequence[float], *rest: Any, **options: Any) -> Any:
        drawn_at.append(list(x))
        return plot(axes, x, *rest, **options)

    monkeypatch.setattr(Axes, "plot", watched)
    draw_curve(tmp_path, "a title")
    assert drawn_at[0] == [6.0, 16.0], "94 seconds passed before the first update began"


# -- the process's own generators, and the cache ---------------------------------------------------------------------


def drawn() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.random(), np.random.normal(), float(torch.rand(()))]


def test_the_seed_seeds_every_generator_and_a_checkpoint_keeps_them() -> None:
    before = rng_state()
    try:
        seed_all(3)
        first = drawn()
        state = rng_state()
        second = drawn()
        load_rng_state(state)
        assert drawn() == second and all(a != b for a, b in zip(first, second, strict=True))
        seed_all(3)
        assert drawn() == first
        seed_all(4)
        assert all(a != b for a, b in zip(drawn(), first, strict=True))
    finally:
        load_rng_state(before)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TURNWISE_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == tmp_path / ".cache" / "turnwise"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "turnwise"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == tmp_path / ".cache" / "turnwise", "the specification has relative paths ignored"
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
