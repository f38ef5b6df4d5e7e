"""A seed plays the same episodes on vLLM with the project's own draws as on the default engine, and the trainer agrees
with what vLLM recorded: over turns, forks, searches, thoughts, critic prompts, temperatures and policy versions."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from play_cases import EPISODES, Both, compare, spoken
from vllm_cases import marks

from agent_envs.code.sandbox.choose import open_sandbox
from agent_envs.code.sandbox.interface import SandboxUnavailable

pytestmark = marks
MOST, MEAN = 5e-5, 1e-6
"""Bounds of |trainer - engine| for tiny models in float32."""
ENVS = {
    "identity": ("--env", "identity"),
    "corridor": ("--env", "corridor"),
    "wiki": ("--env", "wiki"),
    "math": ("--env", "math"),
    "code": ("--env", "code"),
    **{kind: ("--env", "puzzle", "--puzzle.kind", kind)
       for kind in ("game24", "countdown", "sudoku4", "queens", "blocks", "sokoban")},
}  # fmt: skip


@pytest.fixture
def both(own_cache: None) -> Iterator[Callable[..., Both]]:
    opened: list[Both] = []

    def opens(*argv: str, **vllm: object) -> Both:
        opened.append(Both.open(*argv, **vllm))
        return opened[-1]

    yield opens
    for one in opened:
        one.close()


def check(one: Both, episodes: int = EPISODES, group: int = 1, **sampling: object) -> None:
    """The same episodes, and a trainer that agrees."""
    mine, other = (one.play(episodes, engine, group, **sampling) for engine in ("vllm", "hf"))
    same, tokens, off = compare(mine, other)
    found = {"mismatch_max_abs": 0.0, "mismatch_mean_abs": 0.0}
    if not sampling.get("top_p"):  # the trainer knows no truncation
        found = one.mismatch(mine)
    said = f"{one.run.train.envs} {sampling or ''}: {same} of {len(mine)} the same, {tokens} tokens, engines {off:.1e}"
    print(f"\n{said}, trainer max {found['mismatch_max_abs']:.1e} mean {found['mismatch_mean_abs']:.1e}")
    ties = [one.border(a, b) for a, b in zip(mine, other, strict=True) if spoken(a) != spoken(b)]
    assert len(ties) == len(mine) - same <= max(1, len(mine) // 100)
    assert all(distance < 1e-5 for distance in ties), f"only a tie of floating point may part them: {ties}"
    assert tokens > 4 * len(mine) and off <= MOST
    assert found["mismatch_max_abs"] <= MOST and found["mismatch_mean_abs"] <= MEAN


@pytest.mark.parametrize("name", ENVS)
def test_every_environment_is_played_the_same(name: str, both: Callable[..., Both]) -> None:
    if name == "code":
        try:
            open_sandbox("auto", workers=1).close()
        except SandboxUnavailable as refusal:
            pytest.skip(f"no sandbox here: {refusal.reason}")
    one = both(*ENVS[name])
    one.perturb(1)
    one.load(1)
    check(one)


def test_temperatures_truncation_greed_and_versions(both: Callable[..., Both]) -> None:
    one = both("--env", "identity")
    one.model.temperature = 1.0
    check_base = one.play  # the untrained adapter is the base model
    one.load(0)
    check(one, 16)
    for version, temperature in ((1, 0.7), (2, 1.5)):
        one.perturb(version)
        one.load(version)
        one.model.temperature = temperature
        check(one, 24, temperature=temperature)
    check(one, 24, top_p=0.8)
    one.model.temperature = 1.0
    check(one, 16, greedy=True)
    stale = check_base(16, "vllm")
    one.perturb(3)
    assert one.mismatch(stale)["mismatch_max_abs"] > 0.1, "the control: a version that was not loaded is noticed"


@pytest.mark.parametrize("env", ["identity", "math"])
def test_forks(env: str, both: Callable[..., Both]) -> None:
    one = both("--env", env, "--algo", "arpo", "--arpo.group", "8", "--arpo.initial-rollouts", "3")
    one.perturb(1)
    one.load(1)
    check(one, 48, group=8)
    assert any(e.forked_from is not None for e in one.play(48, "vllm", 8)), "something must fork"


def test_a_search_with_its_critic_in_the_same_process(both: Callable[..., Both]) -> None:
    one = both("--env", "corridor", "--agent", "tot")
    one.perturb(1)
    one.load(1)
    mine, other = (one.play(12, engine) for engine in ("vllm", "hf"))
    same, _, _ = compare(mine, other)
    assert same == 12
    found = one.mismatch(mine)
    assert found["mismatch_max_abs"] <= MOST and found["mismatch_mean_abs"] <= MEAN


def test_nothing_is_left_in_the_temporary_folder(both: Callable[..., Both], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path))
        one = both("--env", "identity")
        for version in (1, 2):
            one.perturb(version)
            one.load(version)
            one.play(4, "vllm")
        one.close()
    assert [path.name for path in tmp_path.iterdir()] == []
