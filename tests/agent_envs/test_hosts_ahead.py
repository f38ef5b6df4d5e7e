"""Steps that a process begins on before anybody waits for their answers."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from broken_env import BrokenEnv, EchoEnv
from host_cases import ONE, Group

from agent_envs.identity.env import IdentityEnv
from agent_envs.isolation.faults import EnvFault, FaultKind, HostLost
from agent_envs.isolation.host_process import AHEAD, HostSettings
from agent_envs.isolation.hosts import EnvHosts, RemoteEnv

RED = "SAY(red)"


def three(hosts: EnvHosts) -> list[RemoteEnv]:
    """Environments at the begin of an episode, each of another seed."""
    envs = [hosts.make() for _ in range(3)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    return envs


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_steps_that_were_not_begun(seed: int) -> None:
    rng = Random(seed)
    with EnvHosts(IdentityEnv, HostSettings(processes=1 + seed % 2)) as hosts:
        begun, plain = three(hosts), three(hosts)
        for _ in range(3):
            says = [f"SAY({rng.choice(IdentityEnv().config.words)})" for _ in begun]
            some = [rng.random() < 0.7 for _ in begun]
            for env, text, ahead in zip(begun, says, some, strict=True):
                if ahead:
                    env.begin_step(text)
            answers = {}
            for place in rng.sample(range(3), 3):  # whoever waits first, its answer may come last
                answers[place] = begun[place].step(says[place])
            wanted = [env.step(text) for env, text in zip(plain, says, strict=True)]
            assert [answers[place] for place in range(3)] == wanted


def took(call: Callable[[], object]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started


def test_the_process_works_meanwhile(tmp_path: Path) -> None:
    with EnvHosts(partial(BrokenEnv, tmp_path / "now"), ONE) as hosts:
        env = three(hosts)[0]
        (tmp_path / "now").write_text("slow:1@step")
        assert took(lambda: env.begin_step(RED)) < 0.5
        time.sleep(1.2)
        assert took(lambda: env.step(RED)) < 0.5
        assert took(lambda: env.step(RED)) > 0.9  # one that was not begun is waited for


def test_long_actions_wait_for_their_turn() -> None:
    long = "é" * AHEAD
    with EnvHosts(EchoEnv, ONE) as hosts:
        envs = three(hosts)
        texts = ["a", long, "b"]
        for env, text in zip(envs, texts, strict=True):
            env.begin_step(text)
        assert len(envs[0]._host._sent) == 2  # all but the long one
        assert [env.step(text)[0] for env, text in zip(envs, texts, strict=True)] == texts


def test_many_answers_that_fill_the_connection() -> None:
    text = "x" * (AHEAD // 16)
    with EnvHosts(EchoEnv, ONE) as hosts:
        envs = [hosts.make() for _ in range(64)]
        for again in range(5):
            for env in envs:
                env.begin_step(f"{again} {text}")
            assert {env.step(f"{again} {text}")[0] for env in reversed(envs)} == {f"{again} {text}"}


def test_a_step_that_was_begun_has_to_be_taken() -> None:
    with EnvHosts(IdentityEnv, ONE) as hosts:
        env, other = three(hosts)[:2]
        env.begin_step(RED)
        with pytest.raises(RuntimeError, match="has begun on 'SAY"):
            env.step("SAY(blue)")
        with pytest.raises(RuntimeError, match="has begun on"):
            env.reset(seed=1)
        assert env.step(RED)[2] is False
        env.begin_step(RED)
        env.close()
        assert other.step(RED)
        with pytest.raises(RuntimeError, match="must not be used again"):
            env.begin_step(RED)


@pytest.mark.walls
@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize(("how", "kind"), [("hang", FaultKind.HUNG), ("exit", FaultKind.EXITED), ("memory", "memory")])
def test_who_is_served_is_to_blame_whoever_waits_first(how: str, kind: FaultKind, first: int, tmp_path: Path) -> None:
    settings = HostSettings(processes=1, step_seconds=2, memory_mb=256)
    group = Group(tmp_path / "now", settings)
    with group.hosts:
        envs = three(group.hosts)
        group.when.write_text(f"{how}@step")
        for env in envs:
            env.begin_step(RED)
        came = {}
        for place in sorted(range(3), key=lambda place: place != first):
            with pytest.raises((EnvFault, HostLost)) as caught:
                envs[place].step(RED)
            came[place] = caught.value
        group.when.unlink()
        assert isinstance(came[0], EnvFault) and came[0].kind == kind
        assert isinstance(came[1], HostLost) and isinstance(came[2], HostLost)
        assert group.fresh_one_works()


@pytest.mark.walls
def test_what_only_raises_harms_no_other(tmp_path: Path) -> None:
    group = Group(tmp_path / "now")
    with group.hosts:
        envs = three(group.hosts)
        group.when.write_text("raise@step")
        envs[0].begin_step(RED)
        time.sleep(0.3)
        group.when.unlink()
        envs[1].begin_step(RED)
        assert envs[1].step(RED)
        with pytest.raises(EnvFault, match="step: raised: ValueError: no way"):
            envs[0].step(RED)
        assert envs[2].step(RED)


@pytest.mark.walls
def test_the_deadline_counts_no_waiting_for_those_before(tmp_path: Path) -> None:
    (tmp_path / "now").write_text("slow:0.5@step")
    with EnvHosts(partial(BrokenEnv, tmp_path / "now"), HostSettings(processes=1, step_seconds=1.2)) as hosts:
        envs = three(hosts)
        for env in envs:
            env.begin_step(RED)
        # Read at once, the last answer comes after more than a deadline of its own.
        assert took(lambda: [env.step(RED) for env in reversed(envs)]) > 1.2


@pytest.mark.walls
def test_a_process_that_was_killed_begins_on_nothing(tmp_path: Path) -> None:
    with EnvHosts(IdentityEnv, ONE) as hosts:
        envs = three(hosts)
        assert not envs[0].gone
        envs[0].begin_step(RED)
        envs[0]._host.kill()
        assert envs[0].gone
        envs[1].begin_step(RED)
        for env in envs[:2]:
            with pytest.raises(HostLost):
                env.step(RED)
