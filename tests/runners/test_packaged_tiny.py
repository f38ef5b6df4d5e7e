"""The tiny models that come with the package: that they are those of the present defaults, and when one is used."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from agent_envs import registry
from agent_envs.core import SettingsError
from agent_envs.corridor.config import CorridorConfig
from agent_envs.identity.env import IdentityEnv
from agents.text.settings import ChatSettings, Tools
from agents.tiny.settings import TinySettings
from runners.cloning import tiny_model
from runners.cloning.packaged import PLACE, packaged
from runners.cloning.settings import PretrainSettings
from runners.cloning.tiny_model import _made_from, ensure_tiny
from runners.command_line.outputs import Saved, save
from runners.loading.base_model import BaseSpec, load_base

NAMES = ("corridor", "math", "puzzle", "wiki")


def test_these_are_there() -> None:
    assert sorted(folder.name for folder in PLACE.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_they_are_those_of_the_defaults(name: str) -> None:
    """Else a default run would make a model again: scripts/package_tiny.py."""
    usual = _made_from([registry.make(name)], PretrainSettings(), Tools.OFF)
    assert packaged(name, usual) == PLACE / name
    assert packaged(name, usual | {"texts": "others"}) is None
    assert packaged(name, _made_from([registry.make(name)], PretrainSettings(flaw=0.5), Tools.OFF)) is None


@pytest.mark.parametrize("name", NAMES)
def test_they_load(name: str) -> None:
    base = load_base(BaseSpec(str(PLACE / name), "cpu", "float32", ChatSettings()))
    weights = list(base.model.parameters())
    assert {weight.dtype for weight in weights} == {torch.float32}
    assert sum(weight.numel() for weight in weights) < 700_000
    assert sum(file.stat().st_size for file in (PLACE / name).iterdir()) < 1_300_000


def test_when_one_is_used(monkeypatch: pytest.MonkeyPatch, own_cache: None) -> None:
    made: list[Path] = []
    monkeypatch.setattr(tiny_model, "_make", lambda envs, settings, console, folder, tools: made.append(folder))

    def say(env: str, config: object = None, **settings: object) -> tuple[Path, str]:
        out = io.StringIO()
        usual = replace(PretrainSettings(), **settings)  # type: ignore[arg-type]
        return ensure_tiny([registry.make(env, config)], usual, Console(file=out, width=200)), out.getvalue()

    folder, said = say("corridor")
    assert folder == PLACE / "corridor" and not made
    assert said == "tiny model: of the package, for corridor (--pretrain.fresh makes one here)\n"
    fresh, said = say("corridor", fresh=True)
    assert PLACE not in fresh.parents and "behaviour cloning" in said and len(made) == 1
    assert say("corridor", fresh=True)[0] == fresh and len(made) == 1, "then it is in the cache"
    assert say("corridor", CorridorConfig(doors=11))[0] != folder and len(made) == 2
    assert say("corridor", steps=10)[0] != fresh and len(made) == 3
    assert PLACE not in say("identity")[0].parents and len(made) == 4
    assert IdentityEnv.name not in NAMES


@pytest.mark.parametrize(("taken", "fits"), [(1_000_000, []), (600_000, ["Qwen3ForCausalLM"])])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, taken: int, fits: list[str]
) -> None:
    saved: list[str] = []

    def told(one: Saved, folder: Path) -> None:
        save(one, folder)
        saved.append(type(one).__name__)

    monkeypatch.setenv("TURNWISE_CACHE", str(small_disk))
    monkeypatch.setattr(tiny_model, "save", told)
    (small_disk / "mine").write_bytes(bytes(taken))
    small = replace(PretrainSettings(), demonstrations=50, steps=2, shape=TinySettings(width=64, mlp=128))
    with pytest.raises(SettingsError, match=r"cannot write the cache .*No space left on device") as caught:
        ensure_tiny([IdentityEnv()], small, Console(file=io.StringIO()))
    assert "\n" not in str(caught.value) and saved == fits
    assert [path.name for path in small_disk.rglob("*") if path.is_file() and path.suffix != ".lock"] == ["mine"]
