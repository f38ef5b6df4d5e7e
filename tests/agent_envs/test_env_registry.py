"""Names, Gymnasium ids, vector environments, import cost."""

import copy
import multiprocessing
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from env_packages import skip_without
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

import agent_envs
from agent_envs import SettingsError, plugins, registry
from agent_envs.registry import gym_id
from agent_envs.spaces import MOST_SHARED, AnyText
from agent_envs.wiki.config import WikiConfig


def test_unknown_names_get_one_helpful_line() -> None:
    with pytest.raises(
        SettingsError, match=r"unknown environment 'wikki'; there are .*identity.*wiki.*; did you mean wiki\?"
    ):
        agent_envs.make("wikki")
    with pytest.raises(SettingsError, match=r"unknown setting 'max_turn'; did you mean 'max_turns'"):
        gymnasium.make("agent_envs/Wiki-v0", max_turn=3)
    with pytest.raises(SettingsError, match="settings must be a IdentityConfig"):
        agent_envs.make("identity", WikiConfig())


@pytest.mark.parametrize(
    "settings",
    [
        {"pages": 3},
        {"max_hops": 9},
        {"min_hops": 3, "max_hops": 2},
        {"languages": ()},
        {"languages": ("fr",)},
        {"max_turns": 0},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"wiki: .* must be"):
        WikiConfig(**settings)  # type: ignore[arg-type]


def test_gymnasium_make_takes_settings() -> None:
    env = gymnasium.make("agent_envs/Wiki-v0", max_turns=8, train_worlds=2, valid_worlds=1, test_worlds=1)
    assert env.unwrapped.max_turns == 8  # type: ignore[attr-defined]
    prompt, info = env.reset(seed=3)
    assert prompt and info["split"] == "train"
    env.close()


SLOW = ("babyai", "reasoning_gym", "research", "tau2", "textworld", "textworld_express", "wiki_python")
"""Environments that take seconds to start in each process."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.runs] * (name in SLOW)) for name in sorted(agent_envs.ENVS)]
)
def test_vector_environments(name: str, small: WikiConfig) -> None:
    skip_without(name)
    settings = {"train_worlds": 2, "valid_worlds": 1, "test_worlds": 1} if name == "wiki" else {}
    together = gymnasium.make_vec(gym_id(name), num_envs=3, vectorization_mode="sync", **settings)
    apart = gymnasium.make_vec(
        gym_id(name), num_envs=3, vectorization_mode="async", vector_kwargs={"shared_memory": False}, **settings
    )
    usual = gymnasium.make_vec(gym_id(name), num_envs=3, vectorization_mode="async", **settings)
    try:
        assert together.reset(seed=5)[0] == apart.reset(seed=5)[0] == usual.reset(seed=5)[0]
        for turn in ("SAY(red)", "NAVIGATE(x)", "no action", "动作：提交（红）", "SUBMIT(x)", "SAY(blue)"):
            one, *others = (vector.step([turn] * 3) for vector in (together, apart, usual))
            for other in others:
                assert one[0] == other[0] and isinstance(other[0], tuple)
                assert all(np.array_equal(a, b) for a, b in zip(one[1:4], other[1:4], strict=True))
    finally:
        for vector in (together, apart, usual):
            vector.close()


def test_make_vec_takes_its_defaults_and_lists() -> None:
    vector = gymnasium.make_vec("agent_envs/Wiki-v0", num_envs=2, languages=["zh"], train_worlds=2)
    prompts, info = vector.reset(seed=[1, 2])
    assert len(prompts) == 2 and list(info["language"]) == ["zh", "zh"]
    vector.close()
    with pytest.raises(SettingsError, match=r"languages must be distinct"):
        gymnasium.make("agent_envs/Wiki-v0", languages=["fr"])


def test_texts_in_shared_memory() -> None:
    space, texts = AnyText(), ("", "a", "\ud83d é 搜索 \x00", "x" * (MOST_SHARED - 4))
    memory = create_shared_memory(space, n=len(texts), ctx=multiprocessing)
    for i, text in enumerate(texts):
        write_to_shared_memory(space, i, text, memory)
    view = read_from_shared_memory(space, memory, n=len(texts))
    assert copy.deepcopy(view) == texts and view[-1] == texts[-1] and view[1:3] == texts[1:3]
    with pytest.raises(ValueError, match="shared_memory"):
        write_to_shared_memory(space, 0, "x" * MOST_SHARED, memory)
    with pytest.raises(IndexError):
        view[4]


def test_ansi_shows_the_last_turn() -> None:
    env = gymnasium.make("agent_envs/Identity-v0", render_mode="ansi")
    prompt, _ = env.reset(seed=0)
    assert env.render() == prompt
    observation = env.step("SAY(x)")[0]
    assert env.render() == f"> SAY(x)\n{observation}"
    with pytest.raises(SettingsError, match="render_mode must be one of ansi"):
        registry.from_settings("identity", render_mode="human")
    assert registry.from_settings("identity").render() is None


def test_outside_packages_add_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "echoes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echoes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[turnwise.envs]\necho = echoes:Echo\nwiki = echoes:Echo\n")
    (tmp_path / "echoes.py").write_text(
        "from agent_envs.identity.env import IdentityEnv\nclass Echo(IdentityEnv): name = 'echo'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert agent_envs.make("echo").name == "echo" and "echo" in agent_envs.names()
    assert gym_id("echo") not in gymnasium.registry
    registry.register()  # as an import of this package does where the other one is installed
    assert gymnasium.make("agent_envs/Echo-v0").unwrapped.name == "echo"  # type: ignore[attr-defined]
    del gymnasium.registry[gym_id("echo")]
    taken = (
        r"^environment 'wiki' \(echoes:Echo of the package echoes\) has the name of a built-in environment: rename it$"
    )
    with pytest.raises(SettingsError, match=taken):
        agent_envs.env_class("wiki")
    assert agent_envs.env_class("identity").name == "identity", "the others can be used"
    listed = {line.name: line for line in registry.REGISTRY.listing()}
    assert "rename it" in listed["wiki"].error and not listed["echo"].error and listed["echo"].origin == "echoes"


def test_packages_are_read_again_only_where_one_came_or_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr(plugins, "entry_points", lambda: reads.append(1) or entry_points())
    # Not the folder of the tests, into which others write meanwhile.
    monkeypatch.setattr(sys, "path", [str(tmp_path), *map(sysconfig.get_path, ("stdlib", "purelib"))])
    for _ in range(3):
        assert "late" not in agent_envs.names()
    assert len(reads) == 1
    info = tmp_path / "late-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[turnwise.envs]\nlate = agent_envs.identity.env:IdentityEnv\n")
    assert agent_envs.make("late").name == "identity" and "late" in agent_envs.names() and len(reads) == 2
    shutil.rmtree(info)
    assert "late" not in agent_envs.names() and len(reads) == 3


def test_import_is_cheap_and_knows_no_model_library() -> None:
    code = (
        "import sys, time; began = time.perf_counter(); import agent_envs; took = time.perf_counter() - began;"
        "heavy = {'torch', 'transformers', 'tantivy', 'peft'} & set(sys.modules); print(took, heavy or '');"
        "import agent_envs.wiki.env; assert not {'torch', 'transformers', 'babel', 'pycountry'} & set(sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(out) == 1, f"import agent_envs pulls in {out[1:]}"
    assert float(out[0]) < 2.0


def test_a_choice_may_be_named_by_plain_text() -> None:
    assert registry.from_settings("puzzle", kind="game24").config.chosen_levels == (1, 2, 3)
    assert registry.from_settings("puzzle").config.chosen_levels == (1,)
    with pytest.raises(SettingsError, match=r"puzzle: kind must be one of game24, countdown, .*, not 'chess'"):
        registry.from_settings("puzzle", kind="chess")
