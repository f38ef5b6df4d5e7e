"""Exercises of the tiny model: a task without one is passed over, and other exercises make another model."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agent_envs.core import Drill, Exercise, SettingsError, Task, TextEnv
from agent_envs.identity.env import IdentityEnv
from agents.text.chat import Chat
from agents.tiny.tokenizer import build_tokenizer
from agents.tree import Batch
from agents.tree.packing import pack
from runners.cloning import maximum_likelihood
from runners.cloning.demonstrations import Demonstration, chain, drill_tree
from runners.cloning.maximum_likelihood import _texts
from runners.cloning.settings import PretrainSettings
from runners.cloning.tiny_model import _drills, _fingerprint, _make, ensure_tiny


class Drilled(IdentityEnv):
    word = "red"

    def drill(self, task: Task, rng: np.random.Generator) -> Drill | None:
        return ("a text", [Exercise("say ", self.word)]) if rng.random() < 0.5 else None


def test_tasks_without_an_exercise_are_passed_over() -> None:
    assert 60 < len(list(_drills(Drilled(), PretrainSettings(), 200))) < 140
    assert list(_drills(IdentityEnv(), PretrainSettings(), 200)) == []


def test_how_many_texts_acts_on_exercises_only() -> None:
    assert PretrainSettings(drill_texts=5).drill_texts == 5
    with pytest.raises(ValueError, match="drill_texts must be from 0 to 10000000, not -1"):
        PretrainSettings(drill_texts=-1)
    with pytest.raises(ValueError, match="drill_texts only works with drills above 0"):
        PretrainSettings(drill_texts=5, drills=0.0)


def test_to_read_acts_on_exercises_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read only works with drills above 0"):
        PretrainSettings(read=0.5, drills=0.0)
    with pytest.raises(SettingsError, match="identity has no reading exercises"):
        _make([IdentityEnv()], PretrainSettings(read=0.5, demonstrations=4, steps=1), Console(quiet=True), tmp_path)


def test_what_is_read_are_the_texts_of_exercises_without_their_first_token() -> None:
    chat = Chat(build_tokenizer(["a text of words"]))
    drill = drill_tree(chat, ("a text", [Exercise("", "mend"), Exercise("", "words")]))
    shown = chain(chat, Demonstration(("be brief", "a", ""), [("text", "of"), ("words", "")], True, [None] * 3))
    batch = pack([shown, drill, shown, drill])
    rows = _texts(batch, [shown, drill, shown, drill], [False, True, False, True])
    assert batch.token_T[rows].tolist() == 2 * list(drill.tokens[1:])
    assert (batch.action_T[rows] < 0).all() and not len(_texts(batch, [shown] * 4, [False] * 4))


def test_what_is_asked_acts_on_the_exercises_of_the_critic_only() -> None:
    assert PretrainSettings(recall=0.1, recall_prompt="").recall_prompt == ""
    assert PretrainSettings(predict=0.1, recall_prompt="").recall_prompt == ""
    with pytest.raises(ValueError, match="recall_prompt only works with recall or predict above 0"):
        PretrainSettings(recall_prompt="")
    for without in ({}, {"recall": 0.1, "recall_prompt": ""}):
        with pytest.raises(ValueError, match="recall_bare only works with recall above 0 and a recall_prompt"):
            PretrainSettings(recall_bare=True, **without)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["read", "recall", "predict"])
def test_a_weight_below_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"pretrain: {name} must be from 0 to 1000000.0, not -0.1"):
        PretrainSettings(**{name: -0.1})


def test_other_exercises_make_another_model() -> None:
    other = Drilled()
    other.word = "blue"
    found = [_fingerprint(env) for env in (IdentityEnv(), Drilled(), Drilled(), other)]
    assert found[1] == found[2] and len(set(found)) == 3


def test_what_is_given_is_read_and_not_learned() -> None:
    chat = Chat(build_tokenizer(["a text of words"]))
    root = drill_tree(chat, ("a text", [Exercise("a slip", "", "no"), Exercise("", "mend")]))
    (slip,) = root.children
    (after,) = slip.children
    (mended,) = after.children
    assert root.tokens == chat.observation("a text", closed=True)
    assert after.tokens == chat.observation("no", closed=True)
    assert slip.tokens == (*chat.encode("a slip"), chat.end_id) and slip.label is False
    assert mended.tokens == (*chat.encode("mend"), chat.end_id) and mended.label is None


def test_the_beginning_of_a_turn_belongs_to_the_state_before_it() -> None:
    chat = Chat(build_tokenizer(["a text of words"]))
    root = drill_tree(chat, ("a text", [Exercise("x ", "y"), Exercise("z ", "w")]))
    (first,) = root.children
    (after,) = first.children
    assert root.tokens == (*chat.observation("a text", closed=True), *chat.encode("x "))
    assert first.tokens == (*chat.encode("y"), chat.end_id)
    assert after.tokens == (*chat.observation("", closed=True), *chat.encode("z "))
    (second,) = after.children
    assert second.tokens == (*chat.encode("w"), chat.end_id) and second.children[0].tokens == ()


def test_only_what_has_an_expert_can_be_cloned() -> None:
    env = type("Unshown", (IdentityEnv,), {"expert": TextEnv.expert})()
    with pytest.raises(SettingsError, match="identity has no scripted expert for behaviour cloning: name a model"):
        ensure_tiny([env], PretrainSettings(), Console(file=io.StringIO()))


def test_every_other_step_recalls_without_a_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def watched(trees: Any, prompt: Any, **more: Any) -> Batch:
        seen.append(bool(prompt))
        return pack(trees, prompt, **more)

    monkeypatch.setattr(maximum_likelihood, "pack", watched)
    for bare in (True, False):
        settings = PretrainSettings(recall=0.1, recall_bare=bare, demonstrations=4, steps=4)
        _make([IdentityEnv()], settings, Console(quiet=True), tmp_path / str(bare))
    assert seen == [True, False, True, False, True, True, True, True]
