"""What environments need is built in a process of its own, beside whatever their user does."""

import time
from functools import partial
from pathlib import Path
from subprocess import Popen

import pytest
from broken_env import BrokenEnv
from host_cases import ended, open_files

from agent_envs.cache import build_once
from agent_envs.core import TextEnv
from agent_envs.isolation import preparing as module
from agent_envs.isolation.child import Child
from agent_envs.isolation.preparing import prepare, preparing
from agent_envs.wiki import corpus
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one."""
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that prepare."""
    pids: list[int] = []

    class Noted(Child):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            pids.append(self.pid)

    monkeypatch.setattr(module, "Child", Noted)
    return pids


def built(cache: Path) -> list[Path]:
    """The wikis that are complete."""
    return [place for place in cache.glob("wiki/world-*") if place.is_dir() and ".tmp-" not in place.name]


def waits_for_a_wiki(cache: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not built(cache) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(built(cache))


def test_a_wiki_is_built_meanwhile(
    small: WikiConfig, cache: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = open_files()
    with preparing([partial(BrokenEnv, cache / "now"), partial(WikiEnv, small)]):
        assert waits_for_a_wiki(cache, 30)
    assert len(started) == 1 and ended(started, 5) and open_files() == files

    def never(*_: object) -> None:
        raise AssertionError("it was built again")

    monkeypatch.setattr(corpus.store, "write", never)
    env = WikiEnv(small)
    env.reset(seed=0)
    env.step(env.expert())


def test_control_without_it_nothing_is_built(cache: Path) -> None:
    with preparing([]):
        assert not waits_for_a_wiki(cache, 2)


def test_who_leaves_early_ends_it(small: WikiConfig, cache: Path, started: list[int]) -> None:
    """What was not built yet is built by the one who needs it."""
    with pytest.raises(KeyError), preparing([partial(WikiEnv, small)]):
        raise KeyError
    assert ended(started, 5)
    env = WikiEnv(small)
    env.prepare()
    assert len(built(cache)) == 1


def forever(place: Path) -> TextEnv:
    """It builds for longer than anybody waits."""

    def build(folder: Path) -> None:
        (folder / "begun").touch()
        time.sleep(60)

    build_once(place, build)
    raise AssertionError


@pytest.mark.parametrize("killed", [False, True])
def test_half_of_a_cache_does_not_stay_behind(
    cache: Path, started: list[int], monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """As control, it does where the process has no time to clear it away."""
    if killed:
        monkeypatch.setattr(module, "GRACE", 0.0)
        monkeypatch.setattr(Popen, "terminate", Popen.kill)
    with preparing([partial(forever, cache / "slow")]):
        deadline = time.monotonic() + 30
        while not list(cache.glob("slow.tmp-*/begun")) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert ended(started, 5)
    assert bool(list(cache.glob("slow.tmp-*"))) is killed


def test_what_cannot_be_sent_is_left_to_its_user(started: list[int]) -> None:
    with preparing([lambda: WikiEnv()]):
        pass
    assert not started


def test_one_that_breaks_does_not_keep_the_others_waiting(small: WikiConfig, cache: Path) -> None:
    def broken() -> WikiEnv:
        raise OSError("no room")

    prepare([broken, partial(WikiEnv, small)])
    assert len(built(cache)) == 1
