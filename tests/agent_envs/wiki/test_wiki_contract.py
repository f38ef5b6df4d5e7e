"""The contract of backends: the offline index, a live wiki (its twin here) and a ZIM file. `tests/mediawiki` has the
real MediaWiki."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mediawiki_twin import twin_of
from wiki_cases import PAGES
from wiki_contract import PART, BackendContract

from agent_envs.wiki import store
from agent_envs.wiki.backend import WikiBackend
from agent_envs.wiki.index import IndexBackend
from agent_envs.wiki.live.backend import LiveBackend
from agent_envs.wiki.places import Backend, Place
from agent_envs.wiki.zim import ZimBackend
from benchmarks.wiki_zim import write_zim


@pytest.fixture(scope="module", params=["offline", "live", "zim"])
def wiki(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WikiBackend]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "offline":
        store.write(folder, [(PART, iter(PAGES))])
        yield IndexBackend(folder)
    elif request.param == "zim":
        pytest.importorskip("libzim", reason="needs the extra zim")
        yield ZimBackend(Place(Backend.ZIM, str(write_zim(folder / "wiki.zim", PAGES))))
    else:
        pytest.importorskip("wikipediaapi", reason="needs the extra wikipedia")
        with twin_of(PAGES) as twin, pytest.MonkeyPatch.context() as patch:
            patch.setenv("TURNWISE_CACHE", str(folder))
            yield LiveBackend(Place(Backend.LIVE, api_url=twin.url, spacing=0))


class TestBackends(BackendContract):
    pass
