"""Small corpora in a cache of the test session's own, built once."""

from collections.abc import Iterator

import pytest

from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def small() -> WikiConfig:
    """A corpus that builds in a fraction of a second."""
    return WikiConfig(train_worlds=6, valid_worlds=3, test_worlds=4, questions=12)


@pytest.fixture
def wiki(small: WikiConfig) -> WikiEnv:
    return WikiEnv(small)
