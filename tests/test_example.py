"""examples/minimal.py learns; without a learning rate it does not."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from examples.minimal import Settings, train

SHORT = Settings(updates=8)


@pytest.fixture(scope="module", autouse=True)
def own_tiny_model(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.runs
def test_it_learns_and_says_so() -> None:
    out = io.StringIO()
    before, after = train(SHORT, Console(file=out))
    assert before < 0.3 and after > before + 0.3
    assert f"{before:.2f} before, {after:.2f} after" in out.getvalue() and out.getvalue().count("\nupdate") == 8


def test_without_a_step_nothing_is_learned() -> None:
    before, after = train(replace(SHORT, updates=2, lr=0.0), Console(file=io.StringIO()))
    assert before == after


def test_it_is_short_and_uses_the_public_interface_only() -> None:
    code = (Path(__file__).parent.parent / "examples" / "minimal.py").read_text("utf-8")
    assert len(code.splitlines()) <= 150
    assert "._" not in code and "import _" not in code
