"""The live backend on a real MediaWiki: the contract, a whole world line by line, and a wiki that is busy or dies."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from mediawiki_cases import MediaWiki, free_port, kill
from wiki_contract import PART, BackendContract

from agent_envs import BackendUnavailable
from agent_envs.core import SPLITS
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.live.backend import LiveBackend
from agent_envs.wiki.places import Backend, Place
from agent_envs.wiki.world import build_world, pages_of

pytestmark = pytest.mark.mediawiki
ONE = {"train_worlds": 1, "valid_worlds": 1, "test_worlds": 1}


def live(url: str, **settings: Any) -> LiveBackend:
    return LiveBackend(Place(Backend.LIVE, api_url=url, **{"spacing": 0, "cache_days": 0, **settings}))


@pytest.fixture(scope="module", autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def wiki(mediawiki: MediaWiki) -> LiveBackend:
    return live(mediawiki.url, cache_days=1)


class TestMediaWiki(BackendContract):
    pass


def test_a_world_is_equal_line_by_line(wiki: LiveBackend) -> None:
    compared = 0
    for partition, pages in pages_of(WikiConfig(**ONE)):
        for page in pages:
            found = wiki.page(page.title, partition)
            assert found is not None and (found.title, found.lines, found.shown) == (page.title, page.lines, page.shown)
            if compared % 10 == 0:
                assert [wiki.resolve(alias, partition) for alias in page.aliases] == [page.title]
            compared += 1
    assert compared == 120
    # Another world is another one: nothing above is equal by itself.
    other = [build_world(1, "train", 0, 40).page(at, "en") for at in range(40)]
    assert not any((found := wiki.page(page.title, PART)) and found.lines == page.lines for page in other)


def test_the_expert_sees_what_it_sees_offline(wiki: LiveBackend) -> None:
    settings = {**ONE, "evidence": 0.5}
    here, there = WikiEnv(WikiConfig(**settings)), WikiEnv(WikiConfig(**settings), wiki)
    turns, won = 0, 0
    for split in SPLITS:
        for task in here.tasks(split):
            for env in (here, there):
                env.reset(options={"task": task})
            while not here._over:
                action = here.expert()
                assert there.expert() == action
                step = here.step(action)
                assert there.step(action) == step
                turns += 1
            won += bool(step[4]["success"])
    assert won == 60 and turns >= 240


@pytest.mark.parametrize(("name", "code"), [("lag", "maxlag"), ("busy", "429")])
def test_a_busy_wiki_is_waited_for_within_a_bound(mediawiki: MediaWiki, name: str, code: str) -> None:
    mark = mediawiki.marked(name)
    for passes, patience in ((False, 2), (True, 8)):
        wiki = live(mediawiki.url, patience=patience)
        wiki.prepare([PART])
        mark.touch()
        timer = threading.Timer(0.5 if passes else 60, mark.unlink)
        timer.start()
        begin = time.monotonic()
        try:
            if passes:
                assert wiki.page("Freedonia", PART) is not None
            else:
                with pytest.raises(BackendUnavailable, match=f"answers {code}"):
                    wiki.page("Freedonia", PART)
            assert time.monotonic() - begin < patience + 1
        finally:
            timer.cancel()
            mark.unlink(missing_ok=True)
        assert wiki.page("Freedonia", PART) is not None


def test_a_killed_wiki_is_a_fault_and_is_used_again_when_it_is_back(mediawiki: MediaWiki) -> None:
    port = free_port()
    server = mediawiki.serve(port)
    wiki = live(f"http://127.0.0.1:{port}/w/api.php", patience=4)
    env = WikiEnv(WikiConfig(**ONE), wiki)
    task = next(task for task in env.tasks("test") if task.level == 4)
    env.reset(options={"task": task})
    env.step(env.expert())
    kill(server)
    state = env._state
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        env.step(env.expert())
    assert env._state is state, "the agent saw nothing of it"
    server = mediawiki.serve(port)
    try:
        env.reset(options={"task": task})
        while not env._over:
            *_, info = env.step(env.expert())
        assert info["success"]
    finally:
        kill(server)
