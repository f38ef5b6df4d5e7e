"""What every test shares."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

LONG = ("test_documented_commands.py", "test_wrong_inputs.py", "test_wheel.py", "test_cli.py", "test_programs.py")
"""Files of few tests that take long: they begin first, so that no worker waits for them in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests of this process cache: tiny models are made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Of torch, and of what is compiled in C until a run says otherwise."""
    import torch

    from agents.compiled.threads import allowing

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with allowing(0):
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def own_cache(cache: Path, one_thread: None) -> Iterator[None]:
    """A cache that is not the user's, and one thread of torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_CACHE", str(cache))
        yield


@pytest.fixture
def by_mkl() -> Iterator[None]:
    """MKL multiplies, also on processors that gain by oneDNN or by our C."""
    from agents.compiled import adapted
    from agents.model import compiled_linear
    from agents.model.attention import onednn_linear

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onednn_linear, "able", lambda: False)
        for module in (adapted, compiled_linear):
            patch.setattr(module, "pays", lambda: False)
        onednn_linear.usable.cache_clear()
        yield
    onednn_linear.usable.cache_clear()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"mounting a small disk needs root: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)
