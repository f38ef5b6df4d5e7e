"""The limit of calls, and what an agent is told where a tool said nothing."""

from dataclasses import replace
from typing import Any

import pytest
from rollout_cases import CHAT, engine, jobs, path

from agent_envs.identity.env import IdentityEnv
from agents.engine.base import Request
from agents.rollout.play import rollout
from agents.rollout.react import CALL_LIMIT
from agents.rollout.settings import ReActSettings
from agents.tree.episode import Episode


class Mute(IdentityEnv):
    """Says nothing in its second turn, pays for every turn, and believes in the agent."""

    def step(self, action: str) -> Any:
        seen, reward, *rest = super().step(action)
        return ("" if self.turn == 2 else seen, reward + 1, *rest)

    def oracle(self) -> float:
        return 0.5


def play(settings: ReActSettings) -> Episode:
    """An episode of three turns, in which the agent repeats the word that it was shown last."""
    made = engine()
    speak, shown = made.script, [""]

    def script(request: Request, history: tuple[int, ...]) -> Any:
        text = CHAT.decode(request.tokens)
        shown[0] = text if "word: " in text else shown[0]
        return speak(replace(request, tokens=CHAT.encode(shown[0])), history)

    made.script = script
    return rollout(Mute, made, CHAT, jobs(1), settings).episodes[0]


def test_what_is_done_beyond_the_limit_is_neither_paid_nor_shown() -> None:
    whole, cut = play(ReActSettings()), play(ReActSettings(call_limit=1))
    assert len(whole.turns) == 3 and whole.end.terminated
    assert len(cut.turns) == 2 and cut.texts[0] == whole.texts[0]
    assert cut.texts[1] == (whole.texts[1][0], CALL_LIMIT) and cut.end.tokens == ()
    assert cut.end.truncated and not cut.end.terminated and cut.success is False
    assert cut.reward == cut.turns[0][0].reward == whole.turns[0][0].reward > 0


def test_an_answer_is_no_call() -> None:
    whole, allowed = play(ReActSettings()), play(ReActSettings(call_limit=2))
    assert path(allowed) == path(whole) and allowed.end.terminated and allowed.reward == whole.reward


def test_the_oracle_knows_that_nothing_comes_after_the_limit() -> None:
    cut = play(ReActSettings(call_limit=1, oracle=True))
    assert (cut.root.oracle, cut.turns[0][1].oracle, cut.end.oracle) == (0.5, 0.5, 0.0)


def test_an_empty_answer_is_named_on_request() -> None:
    plain, named = play(ReActSettings()), play(ReActSettings(name_empty=True))
    assert plain.texts[1][1] == "" and plain.turns[1][1].anchor == ""
    assert named.texts[1][1] == "Tool(SAY) returned empty output."
    assert CHAT.decode(named.turns[1][1].tokens).count("Tool(SAY) returned empty output.") == 1
    assert named.texts[0] == plain.texts[0] and named.turns[1][1].anchor


def test_a_limit_is_no_negative_number() -> None:
    with pytest.raises(ValueError, match="call_limit must be at least 0"):
        ReActSettings(call_limit=-1)
