"""Exercises of the tiny model: a task without one is passed over, and other exercises make another model."""

from __future__ import annotations

import numpy as np
import pytest

from agent_envs.core import Drill, Exercise, Task
from agent_envs.identity import IdentityEnv
from agents.chat import Chat
from agents.tiny.tokenizer import build_tokenizer
from runners.pretrain import PretrainSettings, _drills, _fingerprint, drill_tree


class Drilled(IdentityEnv):
    word = "red"

    def drill(self, task: Task, rng: np.random.Generator) -> Drill | None:
        return ("a text", [Exercise("say ", self.word)]) if rng.random() < 0.5 else None


def test_tasks_without_an_exercise_are_passed_over() -> None:
    assert 60 < len(list(_drills(Drilled(), PretrainSettings(), 200))) < 140
    assert list(_drills(IdentityEnv(), PretrainSettings(), 200)) == []


def test_how_many_texts_acts_on_exercises_only() -> None:
    assert PretrainSettings(drill_texts=5).drill_texts == 5
    with pytest.raises(ValueError, match="drill_texts must be at least 0, not -1"):
        PretrainSettings(drill_texts=-1)
    with pytest.raises(ValueError, match="drill_texts acts with drills above 0 only"):
        PretrainSettings(drill_texts=5, drills=0.0)


def test_other_exercises_make_another_model() -> None:
    other = Drilled()
    other.word = "blue"
    found = [_fingerprint(env) for env in (IdentityEnv(), Drilled(), Drilled(), other)]
    assert found[1] == found[2] and len(set(found)) == 3


def test_what_is_given_is_read_and_what_was_made_aside_is_forgotten() -> None:
    chat = Chat(build_tokenizer(["a text of words"]))
    turns = [
        Exercise("", "mend", aside=True),
        Exercise("a slip", "", "no"),
        Exercise("", "mend", aside=True),
    ]
    root = drill_tree(chat, ("a text", turns))
    first, slip = root.children
    (after,) = slip.children
    (second,) = after.children
    assert root.tokens == chat.observation("a text", closed=True) and after.tokens == chat.observation(
        "no", closed=True
    )
    assert first.tokens == second.tokens == (*chat.encode("mend"), chat.end_id)
    assert [slip.label, first.label, second.label] == [False, None, None]
    assert slip.tokens == (*chat.encode("a slip"), chat.end_id)


def test_of_a_beginning_nothing_is_learned() -> None:
    chat = Chat(build_tokenizer(["a text of words"]))
    root = drill_tree(chat, ("a text", [Exercise("x ", "y", aside=True), Exercise("z ", "w")]))
    for begun, rest in zip(root.children, ("y", "w"), strict=True):
        (learned,) = begun.children[0].children
        assert begun.label is False and learned.label is None and begun.children[0].tokens == ()
        assert learned.tokens == (*chat.encode(rest), chat.end_id) and learned.children[0].tokens == ()


def test_a_beginning_belongs_to_a_state_without_other_turns() -> None:
    chat = Chat(build_tokenizer(["a text of words"]))
    root = drill_tree(chat, ("a text", [Exercise("x ", "y"), Exercise("z ", "w")]))
    (first,) = root.children
    (after,) = first.children
    assert root.tokens == (*chat.observation("a text", closed=True), *chat.encode("x "))
    assert first.tokens == (*chat.encode("y"), chat.end_id)
    assert after.tokens == (*chat.observation("", closed=True), *chat.encode("z "))
    assert after.children[0].children[0].tokens == ()
