"""Questions made of a real MediaWiki's own pages."""

from collections.abc import Iterator

import pytest
from mediawiki_cases import MediaWiki
from wiki_own_contract import OwnContract

from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.places import Backend

pytestmark = pytest.mark.mediawiki


@pytest.fixture(scope="module", autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def odd() -> bool:
    return False


@pytest.fixture(scope="module")
def own(mediawiki: MediaWiki) -> WikiConfig:
    return WikiConfig(Backend.LIVE, api_url=mediawiki.url, spacing=0, crawl=150, questions=8)


class TestMediaWikiOwn(OwnContract):
    pass
