"""Environments in processes: what they answer, and whose turn it is."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broken_env import BrokenEnv, EchoEnv
from host_cases import ONE

from agent_envs import SettingsError, TextEnv
from agent_envs.identity.env import IdentityEnv
from agent_envs.isolation.host_process import HostSettings
from agent_envs.isolation.hosts import EnvHosts, RemoteEnv
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv


def replay(env: TextEnv | RemoteEnv, task: Any, actions: list[str]) -> list[Any]:
    """Everything that it says."""
    said: list[Any] = [env.reset(seed=3, options={"task": task}), env.system_prompt()]
    return said + [env.step(action) for action in actions]


def conversation(env: TextEnv, task: Any) -> list[str]:
    """What the expert would do, between actions that are wrong in some way."""
    actions = ["\ud800 <action>动作(\u0000)</action>", ""]
    env.reset(seed=3, options={"task": task})
    for action in actions:
        env.step(action)
    over = False
    while not over:
        actions.append(env.expert())
        _, _, terminated, truncated, _ = env.step(actions[-1])
        over = terminated or truncated
    return actions


@pytest.mark.parametrize("kind", ["identity", "wiki"])
def test_the_same_conversation_as_without_a_process(kind: str, small: WikiConfig) -> None:
    make = IdentityEnv if kind == "identity" else partial(WikiEnv, small)
    with EnvHosts(make, HostSettings(processes=2)) as hosts:
        remote, env = [hosts.make(), hosts.make()], make()
        for number in range(6):
            task = env.tasks("train")[number * 7]
            actions = conversation(env, task)
            assert replay(remote[number % 2], task, actions) == replay(env, task, actions)


@pytest.mark.parametrize(
    "text", ["", "\x00\r\n\x85\u2028", "\ufeff🙂 é 界", "\ud83d\ude00", "\udc80 \ud800", '"\\u0041']
)
def test_any_text_comes_back(text: str, echo: EnvHosts) -> None:
    env = echo.make()
    assert env.reset(options={"say": text}) == (text, {"said": text}) and env.system_prompt() == text
    assert env.step(text) == (text, 0.1 + 0.2, False, True, {text: [text, None, 1e-320, 2**60]})
    env.close()


@pytest.fixture(scope="module")
def echo() -> Iterator[EnvHosts]:
    with EnvHosts(EchoEnv, ONE) as hosts:
        yield hosts


def test_forks_go_their_own_way() -> None:
    with EnvHosts(IdentityEnv, ONE) as hosts:
        env, local = hosts.make(), IdentityEnv()
        task = local.tasks("train")[0]
        env.reset(options={"task": task})
        twin = env.fork()
        assert twin.system_prompt() == env.system_prompt()
        first = env.step(f"SAY({task.data[0]})")
        assert twin.step("SAY(nothing)")[1] == 0 and first[1] > 0
        env.close()
        assert twin.step(f"SAY({task.data[1]})")[1] > 0


def test_what_cannot_be_sent_harms_nobody() -> None:
    with EnvHosts(IdentityEnv, ONE) as hosts:
        env = hosts.make()
        with pytest.raises((TypeError, AttributeError), match="pickle"):
            env.reset(options={"task": lambda: None})
        assert env.reset(seed=0)
    with pytest.raises(TypeError, match=r"make_env cannot be pickled .* use a function or class of a module"):
        EnvHosts(lambda: IdentityEnv())


def test_a_factory_that_the_process_does_not_find_is_for_the_user_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EchoEnv, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "EchoEnv", EchoEnv, raising=False)
    with EnvHosts(EchoEnv, ONE) as hosts, pytest.raises(SettingsError, match="make_env cannot be used in a process"):
        hosts.make()


def test_the_deadline_counts_no_waiting_for_others(tmp_path: Path) -> None:
    (tmp_path / "now").write_text("slow:0.5@step")
    settings = HostSettings(processes=1, step_seconds=3)
    with EnvHosts(partial(BrokenEnv, tmp_path / "now"), settings) as hosts, ThreadPoolExecutor(8) as pool:
        envs = [hosts.make() for _ in range(8)]
        for env in envs:
            env.reset(seed=0)
        started = time.monotonic()
        assert len(list(pool.map(lambda env: env.step("SAY(red)"), envs))) == 8
        assert time.monotonic() - started > settings.step_seconds


def test_environments_are_spread_over_the_processes() -> None:
    with EnvHosts(IdentityEnv, HostSettings(processes=2)) as hosts, ThreadPoolExecutor(4) as pool:
        envs = list(pool.map(lambda _: hosts.make(), range(8)))
        places = [env._host for env in envs]
        assert sorted(map(places.count, set(places))) == [4, 4]
        for env, place in zip(envs, places, strict=True):
            if place is places[0]:
                env.close()
        assert [hosts.make()._host for _ in range(3)] == [places[0]] * 3


@pytest.mark.parametrize(
    "settings",
    [{"processes": 0}, {"reset_seconds": 0}, {"step_seconds": float("nan")}, {"memory_mb": 1}, {"output_kb": 0}],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        HostSettings(**settings)
