"""Steps of the critic alone, on the episodes of the last updates: what they move and keep, and a stop between them."""

import io
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from rich.console import Console
from run_cases import SMALL, played, rows, settings, training
from torch import Tensor

from agents.model.separate_critic import FILE
from agents.tree.chunked_backward import forward_parts
from runners.command_line.errors import UserError
from runners.run_folder import checkpoint
from runners.run_folder.checkpoint import OPTIMIZER
from runners.train import begin
from runners.training.replay import Kept, Replay

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]

REPLAY = ("--replay-steps", "3", "--replay-updates", "2")


def trained(folder: Path, *argv: str, updates: int = 1) -> tuple[dict[str, Tensor], list[Tensor], dict[str, float]]:
    """The policy, the critic's parameters, and the numbers of the last update."""
    with training(folder, *argv) as run:
        trees = played(run)
        for update in range(1, updates + 1):
            row = run.learner.learn(update, trees).row
        assert all(p.requires_grad for p in run.model.policy_parameters())
        return run.model.policy_state(), [p.detach().clone() for p in run.model.value_parameters()], row


@pytest.mark.parametrize("algo", ["selfac", "naive_ac", "ppo", "turn_ppo"])
def test_the_critic_learns_again_and_the_policy_does_not(tmp_path: Path, algo: str) -> None:
    policy, critic, row = trained(tmp_path / "plain", "--algo", algo)
    same, other, again = trained(tmp_path / "replay", "--algo", algo, *REPLAY)
    assert all(torch.equal(x, same[name]) for name, x in policy.items())
    moved = [not torch.equal(x, y) for x, y in zip(critic, other, strict=True)]
    assert all(moved) and "critic_replayed" in again and "critic_replayed" not in row


@pytest.mark.parametrize("algo", ["selfac", "naive_ac", "ppo", "turn_ppo"])
@pytest.mark.parametrize("replay", [(), (*REPLAY, "--replay-body")])
def test_at_first_the_critic_learns_alone(tmp_path: Path, algo: str, replay: tuple[str, ...]) -> None:
    if algo == "ppo":
        replay = replay[:-1]
    with training(tmp_path / "run", "--algo", algo, "--value-updates", "2", *replay) as run:
        trees, start = played(run), {name: x.clone() for name, x in run.model.policy_state().items()}
        before = [p.detach().clone() for p in run.model.value_parameters()]
        stats = [run.learner.learn(update, trees).row for update in (1, 2)]
        assert all(torch.equal(x, start[name]) for name, x in run.model.policy_state().items())
        assert not any(torch.equal(x, y) for x, y in zip(before, run.model.value_parameters(), strict=True))
        assert all("policy" in row and row["grad_norm"] > 0 for row in stats)
        run.learner.learn(3, trees)
        assert any(not torch.equal(x, start[name]) for name, x in run.model.policy_state().items())


def test_what_is_shared_is_moved_only_where_that_is_asked(tmp_path: Path) -> None:
    policy, _, _ = trained(tmp_path / "head", *REPLAY)
    body, _, _ = trained(tmp_path / "body", *REPLAY, "--replay-body")
    assert any(not torch.equal(x, body[name]) for name, x in policy.items())


def test_replaying_brings_the_critic_closer(tmp_path: Path) -> None:
    """Its loss on the same episodes, before the second update."""
    found = []
    for name, steps in (("plain", "0"), ("replay", "30")):
        argv = () if steps == "0" else ("--replay-steps", steps)
        found.append(trained(tmp_path / name, "--algo", "ppo", *argv, updates=2)[2]["critic"])
    assert found[1] < found[0]


@pytest.mark.parametrize("budget", ["4000", "300"])
def test_the_steps_of_the_head_are_those_of_whole_passes(tmp_path: Path, budget: str) -> None:
    heads, passes = [], []
    for name in ("once", "whole"):
        argv = ("--replay-steps", "5", "--token-budget", budget)
        with training(tmp_path / name, "--algo", "selfac", *argv) as run:
            learner, trees = run.learner, played(run)
            batches = [learner.packed(trees[:4]).batch, learner.packed(trees[4:]).batch]
            with torch.no_grad():
                learner.model.value_head[-1].weight.normal_(generator=torch.Generator().manual_seed(0))
            reads = [forward_parts(learner.model, batch, int(budget)).read_SD for batch in batches]
            before = learner.model.counters.passes
            kept = [
                Kept(batch, read_SD if name == "once" else None) for batch, read_SD in zip(batches, reads, strict=True)
            ]
            learner.learn_again(1, kept)
            passes.append(learner.model.counters.passes - before)
            heads.append([p.detach().clone() for p in learner.model.value_parameters()])
    for one, other in zip(*heads, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert passes[0] == 0 and passes[1] >= 5


def test_the_head_reads_again_what_it_read_in_the_update(tmp_path: Path) -> None:
    """Replay encodes nothing, neither this update's episodes nor those of earlier ones."""
    passes = []
    for name, argv in (("plain", ()), ("replay", REPLAY)):
        with training(tmp_path / name, "--lr", "1e-2", "--minibatches", "1", *argv) as run:
            learner, trees = run.learner, played(run)
            batch = learner.packed(trees).batch
            now = forward_parts(learner.model, batch, run.train.token_budget).read_SD
            for update in (1, 2):
                learner.learn(update, trees)
            passes.append(learner.model.counters.passes)
            if name == "replay":
                first, second = (learner.replay.kept[update][0].read_SD for update in (1, 2))
                assert torch.equal(first, now)
                # The body moved on: in the second update it read something else.
                assert not torch.allclose(first, second, atol=1e-3)
    assert passes[0] == passes[1] > 0


def test_the_last_updates_are_kept_and_each_minibatch_is_drawn_equally_often(tmp_path: Path) -> None:
    replay = Replay(updates=2, steps=7, seed=0)
    with training(tmp_path / "run") as run:
        batches = [run.learner.packed([tree]).batch for tree in played(run)[:6]]
    for update in (1, 2, 3):
        replay.keep(update, [Kept(b, b.old_logp_T[:, None] + 1) for b in batches[2 * update - 2 : 2 * update]])
    assert list(replay.kept) == [2, 3]
    drawn = [found.batch.token_T for found in replay.drawn(3)]
    kept = [one.batch.token_T for found in replay.kept.values() for one in found]
    times = sorted(sum(x is token_T for x in drawn) for token_T in kept)
    assert len(drawn) == 7 and times == [1, 2, 2, 2]
    again, later = ([found.batch.token_T for found in replay.drawn(u)] for u in (3, 4))
    assert all(a is b for a, b in zip(drawn, again, strict=True))
    assert any(a is not b for a, b in zip(drawn, later, strict=True))

    other = Replay(updates=2, steps=7, seed=0)
    other.load(replay.tensors())
    for update, found in replay.kept.items():
        for mine, theirs in zip(found, other.kept[update], strict=True):
            assert torch.equal(mine.read_SD, theirs.read_SD)
            for column in fields(mine.batch):
                a, b = getattr(mine.batch, column.name), getattr(theirs.batch, column.name)
                # Oracles that told nothing are NaN.
                same = torch.equal(a.nan_to_num(), b.nan_to_num()) if isinstance(a, Tensor) else a == b
                assert same, column.name


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--replay-updates", "2"), "only work with replay_steps"),
        (("--replay-body",), "only work with replay_steps"),
        (("--replay-steps", "-1"), "--replay-steps must be at least 0, not -1"),
        (("--replay-steps", "1", "--replay-updates", "0"), "--replay-updates must be at least 1"),
    ],
)
def test_settings_without_effect_are_errors(tmp_path: Path, argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        settings(tmp_path / "run", *argv)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--algo", "grpo", "--replay-steps", "1"), "learn from earlier episodes; grpo has none"),
        (("--algo", "ppo", "--replay-steps", "1", "--replay-body"), "shares its body with the policy; ppo has none"),
    ],
)
def test_an_algorithm_that_cannot_replay_says_so_before_a_model_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=said):
        training(tmp_path / "run", *argv)
    assert not (tmp_path / "cache").exists()


# -- a calibrated start ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["selfac", "ppo"])
def test_a_calibrated_critic_begins_at_the_mean_return(tmp_path: Path, algo: str) -> None:
    """Only before the first update, and only where that is asked."""
    for start in ("zero", "calibrated"):
        with training(tmp_path / start, "--algo", algo, "--critic.start", start, "--value-lr", "0") as run:
            trees = played(run)
            returns = [episode.reward for tree in trees for episode, _ in tree.paths]
            expected = sum(returns) / len(returns) if start == "calibrated" else 0.0
            for update in (1, 2):
                found = run.learner.learn(update, trees)
                values = [v for credited in found.credited.values() for v in credited.values]
                assert values == pytest.approx([expected] * len(values), abs=1e-6)
                for tree in trees:  # of other episodes it would be told something else
                    for action in tree.root.children:
                        action.reward += 1.0
            assert returns and min(returns) != max(returns)


# -- stop and go on --------------------------------------------------------------------------------------------------


def weights(folder: Path) -> dict[str, Tensor | bytes]:
    last = checkpoint.checkpoints(folder / "checkpoints")[-1]
    names = ("adapter_model.safetensors", "value_head.safetensors", FILE, OPTIMIZER)
    return {name: (last / name).read_bytes() for name in names if (last / name).exists()}


def resumed(whole: Path, folder: Path, update: int) -> None:
    """The run as it stood after this update, carried on."""
    shutil.copytree(whole, folder)
    (folder / "summary.json").unlink()
    for path in checkpoint.checkpoints(folder / "checkpoints"):
        if checkpoint.update_of(path) > update:
            shutil.rmtree(path)
    with begin(["--resume", str(folder)], Console(file=io.StringIO())) as run:
        assert run.update == update
        run.run()


SHOWN = ("--critic.standardize", "--critic.start", "calibrated")
RUNS = {
    "ppo": ("--algo", "ppo", *SHOWN),
    "selfac with replay": (*REPLAY, *SHOWN),
    "ppo with replay": ("--algo", "ppo", *REPLAY),
}


@pytest.fixture(scope="module", params=RUNS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped, every checkpoint kept."""
    folder: Path = tmp_path_factory.mktemp("whole") / request.param.replace(" ", "-")
    with training(folder, "--keep-last", "9", *RUNS[request.param], text=SMALL) as run:
        run.run()
    return folder


def test_a_stopped_run_ends_like_one_that_was_not(whole: Path, tmp_path: Path) -> None:
    resumed(whole, tmp_path / "run", 2)
    assert weights(tmp_path / "run") == weights(whole)
    assert rows(tmp_path / "run") == rows(whole)
    assert (tmp_path / "run" / "episodes.jsonl").read_text() == (whole / "episodes.jsonl").read_text()
    assert (FILE in weights(whole)) is ("ppo" in whole.name)


def test_each_part_of_the_critics_state_is_needed(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what a checkpoint keeps of the critic is forgotten, and the run ends differently."""
    if "replay" in whole.name:

        def nothing(self: Replay, tensors: Mapping[str, Tensor]) -> None:
            assert tensors

        monkeypatch.setattr(Replay, "load", nothing)
    else:
        monkeypatch.setattr(
            "agents.model.separate_critic.SeparateActorCritic.load_critic_state", lambda self, state: None
        )
    resumed(whole, tmp_path / "run", 2)
    assert weights(tmp_path / "run") != weights(whole)
