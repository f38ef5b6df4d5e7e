"""A run that was stopped anywhere ends as if it had not been: the same weights, episodes and records, bit for bit."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraModel
from rich.console import Console
from run_cases import SMALL, fingerprint, rows, training
from safetensors.torch import load_file

from agents.rollout.play import Played
from runners.command_line.errors import UserError
from runners.loading import base_model
from runners.run_folder import checkpoint
from runners.run_folder.runs import base_of, locate, read_run
from runners.train import begin
from runners.training import start
from runners.training.generators import rng_state
from runners.training.interrupts import Stopped
from runners.training.learner import Learner
from runners.training.records import episode_stats
from runners.training.run import Training
from runners.training.stream import TaskStream

HERE = Path(__file__).resolve().parents[2]
# In the fifth of six updates the training tasks are through: the second pass is drawn while the run goes on.
LONGER = SMALL.replace("updates: 4", "updates: 6").replace("episodes: 16", "episodes: 32")


pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped."""
    folder: Path = tmp_path_factory.mktemp("whole") / "run"
    with training(folder, text=LONGER) as run:
        run.run()
    return folder


def stopped(folder: Path, where: Callable[[Training], None], *argv: str) -> None:
    """The same run, stopped from inside."""
    with pytest.raises(Stopped), training(folder, *argv, text=LONGER) as run:
        where(run)
        run.run()


def in_rollout(update: int) -> Callable[[Training], None]:
    def where(run: Training) -> None:
        play = run.controller.play

        def watched(*arguments: Any, **options: Any) -> Any:
            if run.update + 1 == update and "on_end" not in options:
                os.kill(os.getpid(), signal.SIGTERM)
            return play(*arguments, **options)

        run.controller.play = watched  # type: ignore[method-assign]

    return where


def in_update(update: int) -> Callable[[Training], None]:
    def where(run: Training) -> None:
        step = run.learner.step

        def watched(loss: torch.Tensor) -> tuple[float, bool]:
            if run.update + 1 == update:
                run.learner.step = step  # type: ignore[method-assign]
                os.kill(os.getpid(), signal.SIGTERM)
            return step(loss)

        run.learner.step = watched  # type: ignore[method-assign]

    return where


def in_evaluation(update: int) -> Callable[[Training], None]:
    def where(run: Training) -> None:
        evaluation = run.report.evaluation

        def watched(step: int, *rest: Any) -> None:
            evaluation(step, *rest)
            if step == update:
                os.kill(os.getpid(), signal.SIGTERM)

        run.report.evaluation = watched  # type: ignore[method-assign]

    return where


def go_on(folder: Path) -> Training:
    return begin(["--resume", str(folder)], Console(file=io.StringIO()))


def finish(folder: Path) -> None:
    with go_on(folder) as run:
        run.run()


def everything(folder: Path) -> dict[str, Any]:
    """All that a run decides: its weights and every record, but for what the clock decides."""
    return {
        "weights": fingerprint(folder),
        "metrics": rows(folder),
        "episodes": (folder / "episodes.jsonl").read_text(),
        "ledger": (folder / "ledger.jsonl").read_text(),
        "summary": {k: v for k, v in json.loads((folder / "summary.json").read_text()).items() if k != "seconds"},
        "checkpoints": [p.name for p in checkpoint.checkpoints(folder / "checkpoints")],
    }


PLACES = {
    "the first evaluation": in_evaluation(0),
    "the first rollout": in_rollout(1),
    "an update": in_update(2),
    "an evaluation": in_evaluation(2),
    "a rollout": in_rollout(4),
    "a late update": in_update(5),
    "the last evaluation": in_evaluation(6),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_stopped_run_ends_like_one_that_was_not(tmp_path: Path, whole: Path, place: str) -> None:
    folder = tmp_path / "run"
    stopped(folder, PLACES[place])
    assert not (folder / "summary.json").exists()
    finish(folder)
    assert everything(folder) == everything(whole)


def test_stopped_again_and_again(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    stopped(folder, in_rollout(2))
    for update in (3, 3, 5):
        with pytest.raises(Stopped), go_on(folder) as run:
            in_update(update)(run) if update == 5 else in_rollout(update)(run)
            run.run()
    finish(folder)
    assert everything(folder) == everything(whole)


def test_a_group_algorithm_resumes_too(tmp_path: Path) -> None:
    folders = tmp_path / "whole", tmp_path / "stopped"
    with training(folders[0], "--algo", "grpo", text=LONGER) as run:
        run.run()
    stopped(folders[1], in_rollout(3), "--algo", "grpo")
    finish(folders[1])
    assert everything(folders[1]) == everything(folders[0])


def test_a_run_with_rollouts_in_another_process_is_the_same_run(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    stopped(folder, in_rollout(3), "--workers", "1")
    finish(folder)
    assert everything(folder) == everything(whole)


def test_a_stop_between_checkpoints_loses_nothing(tmp_path: Path, whole: Path) -> None:
    """SIGTERM saves: the checkpoint of the last finished update is there although it was not due."""
    folder = tmp_path / "run"
    stopped(folder, in_rollout(4), "--save-every", "5")
    assert [p.name for p in checkpoint.checkpoints(folder / "checkpoints")] == ["update-0", "update-3"]
    finish(folder)
    assert {k: v for k, v in everything(folder).items() if k != "checkpoints"} == {
        k: v for k, v in everything(whole).items() if k != "checkpoints"
    }


def without_optimizer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Learner, "load_tensors", lambda self, tensors: None)


def without_rng(patch: pytest.MonkeyPatch) -> None:
    load = TaskStream.load

    def forgetful(self: TaskStream, state: Mapping[str, Any]) -> None:
        load(self, {**state, "rng": self.before})

    patch.setattr(TaskStream, "load", forgetful)


def without_cursor(patch: pytest.MonkeyPatch) -> None:
    load = TaskStream.load

    def forgetful(self: TaskStream, state: Mapping[str, Any]) -> None:
        load(self, {**state, "at": 0})

    patch.setattr(TaskStream, "load", forgetful)


@pytest.mark.parametrize("forget", [without_optimizer, without_rng, without_cursor])
def test_each_part_of_the_state_is_needed(
    tmp_path: Path, whole: Path, forget: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    stopped(folder, in_rollout(6))
    forget(monkeypatch)
    finish(folder)
    assert fingerprint(folder) != fingerprint(whole)


# -- damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def halted(tmp_path: Path) -> Path:
    """A run that was stopped in its fifth update; checkpoints 3 and 4 are there, and the best, 2."""
    folder = tmp_path / "halted"
    stopped(folder, in_rollout(5))
    return folder


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_it_used(halted: Path, whole: Path) -> None:
    victim = halted / "checkpoints" / "update-4" / "optimizer.safetensors"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    said = io.StringIO()
    with begin(["--resume", str(halted)], Console(file=said, width=1000)) as run:
        assert run.update == 3
        run.run()
    assert f"{victim} was changed or cut short: that checkpoint is left out, update-3 is used" in said.getvalue()
    assert everything(halted) == everything(whole)
    assert (halted / "checkpoints" / "damaged-update-4").is_dir(), "nothing is thrown away"


def test_without_a_sound_checkpoint_nothing_is_begun_anew(halted: Path) -> None:
    before = sorted(halted.rglob("*"))
    for folder in checkpoint.checkpoints(halted / "checkpoints"):
        (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"no sound checkpoint in .*adapter_model\.safetensors was changed"):
        go_on(halted)
    assert sorted(halted.rglob("*")) == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.jsonl", "ledger.jsonl"])
def test_a_changed_record_is_refused(halted: Path, name: str) -> None:
    text = (halted / name).read_text()
    (halted / name).write_text(text.replace('"update": 1', '"update": 7', 1))
    sizes = {path: path.stat().st_size for path in halted.glob("*.jsonl")}
    with pytest.raises(UserError, match=f"{name} was changed since the checkpoint was written"):
        go_on(halted)
    assert {path: path.stat().st_size for path in halted.glob("*.jsonl")} == sizes, "no other record was cut"


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.jsonl", "ledger.jsonl"])
def test_a_record_that_cannot_be_opened_is_named(halted: Path, name: str) -> None:
    (halted / name).unlink()
    (halted / name).mkdir()
    with pytest.raises(UserError, match=rf"^cannot write .*{name}: Is a directory$"):
        go_on(halted)


def test_another_reference_model_is_refused(halted: Path) -> None:
    base = json.loads((halted / "base.json").read_text())
    (halted / "base.json").write_text(json.dumps(base | {"fingerprint": "0" * 64}))
    with pytest.raises(UserError, match="its weights differ"):
        go_on(halted)


def test_one_trainer_at_a_time(halted: Path) -> None:
    with go_on(halted), pytest.raises(UserError, match="is being trained by another process"):
        go_on(halted)


def test_a_run_that_ended_is_not_resumed(whole: Path) -> None:
    with pytest.raises(UserError, match=r"has ended.*--init-from"):
        go_on(whole)


def test_resume_stands_alone(halted: Path) -> None:
    for argv in (["--resume"], ["--resume", str(halted), "--lr", "1"], ["--seed", "3", "--resume", str(halted)]):
        with pytest.raises(UserError, match="--resume RUN stands alone"):
            begin(argv, Console(file=io.StringIO()))
    with pytest.raises(UserError, match="is not a run folder"):
        begin([f"--resume={halted / 'checkpoints'}"], Console(file=io.StringIO()))


# -- retention and a new beginning -----------------------------------------------------------------------------------


def test_the_newest_and_the_best_checkpoints_are_kept(whole: Path) -> None:
    valid = {e["update"]: e["mean"] for e in rows(whole) if e.get("split") == "valid" and e.get("mode") == "sampled"}
    assert sorted(valid) == [2, 4]
    best = max(sorted(valid), key=lambda update: valid[update])
    kept = [checkpoint.update_of(p) for p in checkpoint.checkpoints(whole / "checkpoints")]
    assert kept == sorted({best, 5, 6})


def test_a_run_can_begin_from_what_another_learned(tmp_path: Path, whole: Path) -> None:
    first = training(tmp_path / "plain", "--updates", "0")
    second = training(tmp_path / "second", "--init-from", str(whole), text=LONGER[: LONGER.index("pretrain")])
    with first, second:
        assert second.reference != first.reference, "what was learned is part of the reference"
        run, chosen = locate(whole, Console(file=io.StringIO()))
        first.model.load(chosen)
        prompt = torch.tensor([list(first.chat.prompt("a", "b"))])
        learned, merged = (t.model.causal_model(prompt).logits for t in (first, second))
        assert torch.allclose(learned, merged, atol=1e-4)
        with first.model.model.disable_adapter():  # type: ignore[operator, union-attr]
            assert not torch.allclose(first.model.causal_model(prompt).logits, merged, atol=1e-3)
        second.run()
    with pytest.raises(ValueError, match="leave model out"):
        type(run.train)(init_from=whole, model="other/model")


def test_a_merge_that_rounds_otherwise_is_the_same_base_model(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that began from another goes on, and is exported, on another kind of processor."""
    second, console = tmp_path / "second", Console(file=io.StringIO())
    text = LONGER[: LONGER.index("pretrain")]
    flags = ("--updates", "2", "--eval-every", "0", "--test-tasks", "0")
    with training(second, "--init-from", str(whole), *flags, text=text) as run:
        run.next_update()
        run.save()
    saved = read_run(second)
    merged = LoraModel.merge_and_unload

    def otherwise(self: LoraModel, *args: Any, **kwargs: Any) -> Any:
        model = merged(self, *args, **kwargs)
        for weight in model.parameters():
            weight.data.nextafter_(torch.tensor(torch.inf))
        return model

    here = saved.base(console, "cpu")
    monkeypatch.setattr(LoraModel, "merge_and_unload", otherwise)
    there = saved.base(console, "cpu")
    assert there.fingerprint == here.fingerprint
    assert not torch.equal(here.model.lm_head.weight, there.model.lm_head.weight)
    with start.resume(second, console) as run:
        run.run()
    # What earlier versions recorded was the hash of the merged weights.
    old = base_model.fingerprint(here.model.state_dict())
    (second / "base.json").write_text(json.dumps({"source": here.source, "fingerprint": old}))
    saved.check(here)
    with pytest.raises(UserError, match="its weights differ"):
        saved.check(there)
    # Another adapter is another model.
    before, after = (whole / "checkpoints" / f"update-{update}" for update in (5, 6))
    spec = base_of(saved.settings, console, "cpu")
    first, last = (replace(spec, merged=((spec.merged[0][0], str(of)),)) for of in (before, after))
    assert base_model.load_base(first).fingerprint != base_model.load_base(last).fingerprint == here.fingerprint


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("identity",), ""),
        (("identity", "--identity.length", "2"), "init-from: trained on 'identity' with other settings\n"),
        (("corridor",), "init-from: trained on 'identity', goes on with 'corridor'\n"),
    ],
)
def test_it_says_that_what_it_begins_from_was_learned_elsewhere(
    flags: tuple[str, ...], told: str, tmp_path: Path, whole: Path
) -> None:
    said = io.StringIO()
    with begin(["--env", *flags, "--init-from", str(whole), "--out", str(tmp_path / "run")], Console(file=said)):
        lines = said.getvalue().partition("run folder")[0].splitlines(keepends=True)
    assert "".join(line for line in lines if line.startswith("init-from")) == told


def test_a_stop_between_checkpoints_saves_the_generators_of_the_last_update(tmp_path: Path) -> None:
    with training(tmp_path / "run", "--save-every", "4", "--test-tasks", "0", "--eval-every", "0") as run:
        run.next_update()
        before = rng_state()
        random.random(), torch.rand(3)  # as a plug-in may, in an update that does not end
        run.save()
        kept = load_file(run.checkpoints / "update-1" / checkpoint.RNG)
    assert all(torch.equal(kept[name], before[name]) for name in before)
    assert not torch.equal(rng_state()["cpu"], before["cpu"])


def test_an_update_in_which_everything_broke_learns_nothing_and_goes_on(tmp_path: Path) -> None:
    with training(tmp_path / "run", "--algo", "grpo", "--old-logp", "engine", "--test-tasks", "0") as run:
        learned = run.learner.learn(1, [])
        played = episode_stats(Played([], []), run.group) | {"seconds_rollout": 1.0, "seconds_env": 0.0}
        run.advisor.look_at(played | learned.row)
    assert "old_logp_engine" not in learned.row and learned.credited == {}


# -- as a process ----------------------------------------------------------------------------------------------------


def test_the_program_stops_on_sigterm_and_goes_on(tmp_path: Path, whole: Path) -> None:
    program = [sys.executable, str(HERE / "runners" / "train.py")]
    folder = tmp_path / "run"
    config = tmp_path / "settings.yaml"
    config.write_text(LONGER)
    start = [*program, "--config", str(config), "--out", str(folder)]
    first = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    until = time.monotonic() + 100
    while not list(folder.glob("checkpoints/update-2")) and time.monotonic() < until and first.poll() is None:
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 143, err
    assert err.startswith("stopped by SIGTERM after update") and f"--resume {folder}" in err and err.count("\n") == 1
    checkpoint.verify(checkpoint.newest_sound(folder / "checkpoints", pytest.fail))
    done = subprocess.run(
        [*program, "--resume", str(folder)], capture_output=True, text=True, cwd=tmp_path, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert everything(folder) == everything(whole)
    again = subprocess.run(
        [*program, "--resume", str(folder)], capture_output=True, text=True, cwd=tmp_path, timeout=100
    )
    assert again.returncode == 2 and again.stderr.count("\n") == 1 and "has ended" in again.stderr


def test_a_full_disk_ends_the_run_in_one_line(tmp_path: Path, whole: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        folder = place / "run"
        run = training(folder, text=LONGER)
        with run, pytest.raises(UserError, match=r"No space left on device.*--resume") as full:
            run.run()
        assert "\n" not in str(full.value)
        sound = checkpoint.newest_sound(folder / "checkpoints", pytest.fail)
        assert checkpoint.checkpoints(folder / "checkpoints")[-1] == sound
        larger = tmp_path / "larger"
        shutil.copytree(folder, larger)
    finally:
        subprocess.run(["umount", str(place)], check=True)
    finish(larger)
    assert everything(larger) == everything(whole)
