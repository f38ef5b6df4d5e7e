"""A group that samples one prompt is under way after two steps: one reads the prompt, then all others take it over."""

import random

import pytest
from engine_cases import again, engine_of, largest_error, model, play, sessions, some

from agents.engine import Request
from agents.engine.prefixes import Match, Prefixes


def steps_until_all_are_read(group: int) -> int:
    engine = engine_of(model("llama"), slots=group)
    prompt = some(random.Random(0), 60, 60)
    for i in range(group):
        engine.submit(Request(i, prompt, 50, seed=i))
    for step in range(1, 20):
        engine.step()
        if not engine._waiting:
            return step
    raise AssertionError("a session starves")


def test_a_group_starts_in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_until_all_are_read(8) == 2
    assert steps_until_all_are_read(2) == 2
    match = Prefixes.match
    # as if a row that is being read hid those that have been read
    monkeypatch.setattr(Prefixes, "match", lambda s, p: Match(better_later=True) if s._reading else match(s, p))
    assert steps_until_all_are_read(8) > 2, "the test would notice"


def test_what_is_sampled_does_not_depend_on_who_reads_first() -> None:
    reference = model("qwen2")
    todo = sessions(8, seed=3)
    prompt = some(random.Random(1), 40, 40)
    for session in todo.values():
        session.turns[0] = Request(session.turns[0].session, prompt, 6, seed=session.turns[0].seed)
    alone = again(todo)
    play(engine_of(reference, slots=8), todo)
    play(engine_of(reference, slots=1), alone)
    assert [s.tokens for s in todo.values()] == [s.tokens for s in alone.values()]
    assert largest_error(reference, todo) <= 1e-5
