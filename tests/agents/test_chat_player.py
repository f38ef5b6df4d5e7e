"""A served model plays over messages: text actions, tool calls, thoughts; what it is told, and what rubbish becomes."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from judge_server import Answer, Asked, Script, Server, judge_server
from served_cases import KEY, call, completion, heard, say, say_by_tool, word

from agent_envs.actions import ends_thought, thoughts_of
from agent_envs.core import Task
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv
from agent_envs.isolation.faults import EnvFault, HostLost
from agent_envs.math.config import MathConfig, Verifier
from agent_envs.math.env import MathEnv
from agents.endpoint.client import EndpointError
from agents.endpoint.served import Question, ServedModel
from agents.endpoint.settings import ObservationRole, ServedSettings
from agents.rollout.chat_player import ChatPlayer, Speaker
from agents.rollout.settings import ReActSettings
from agents.tree.episode import Job, Served

ENV = IdentityEnv()
TASK = ENV.tasks("test")[0]
MATH = MathConfig(languages=("en",), max_turns=4, verifier=Verifier.EXACT)
SUM = MathEnv(MATH).tasks("test")[0]


@contextmanager
def served(script: Script, waits: list[float] | None = None, **settings: Any) -> Iterator[tuple[ServedModel, Server]]:
    with judge_server(script) as server:
        noted = [] if waits is None else waits
        model = ServedModel(server.url, "m", ServedSettings(**settings), {"TURNWISE_KEY_127_0_0_1": KEY}, noted.append)
        try:
            yield model, server
        finally:
            model.close()


def play(
    script: Script,
    make: Callable[[], Any] = IdentityEnv,
    task: Task = TASK,
    temperature: float = 0.0,
    react: ReActSettings | None = None,
    **settings: Any,
) -> tuple[Served, list[Asked]]:
    with served(script, **settings) as (model, server):
        player = ChatPlayer(make(), make, Job(task), react or ReActSettings(), Speaker(model, temperature))
        return player.play(), server.asked


def roles(asked: Asked) -> list[str]:
    return [message["role"] for message in asked.body["messages"]]


# -- text actions --------------------------------------------------------------------------------------------------


def test_an_episode_of_text_actions() -> None:
    episode, asked = play(say)
    assert episode.success and len(episode.turns) == 3 and episode.reward == pytest.approx(1) and episode.end.terminated
    assert episode.metrics["right"] == 1 and episode.invalid == 0
    assert (episode.requests, episode.prompt_tokens, episode.sampled_tokens) == (3, 30, 9)
    ENV.reset(options={"task": TASK})
    assert asked[0].body["messages"] == [
        {"role": "system", "content": ENV.system_prompt()}, {"role": "user", "content": TASK.prompt},
    ]  # fmt: skip
    assert roles(asked[2]) == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [m["content"] for m in asked[2].body["messages"][2::2]] == [text for text, _ in episode.texts[:2]]
    assert asked[0].body["max_tokens"] == 96 and "tools" not in asked[0].body
    assert len({one.body["seed"] for one in asked}) == 3, "another seed each turn"
    assert [one.body["seed"] for one in play(say)[1]] == [one.body["seed"] for one in asked], "and the same again"
    assert roles(play(say, observation_role=ObservationRole.TOOL)[1][1])[-1] == "tool"


def test_fields_of_a_request_can_be_changed() -> None:
    _, asked = play(say, body='{"seed": 7, "max_tokens": null, "max_completion_tokens": 50}')
    assert asked[0].body["seed"] == 7 and asked[0].body["max_completion_tokens"] == 50
    assert "max_tokens" not in asked[0].body
    for wrong in ("[1]", "{", '{"messages": []}', "[" * 100_000):
        with pytest.raises(ValueError, match=r"^body "):
            ServedSettings(body=wrong)


def test_the_limits_of_a_rollout_hold() -> None:

    def longer(asked: Asked, before: int) -> Answer:
        return completion(f"<action>SAY({word(asked)})</action>", prompt=5 * len(roles(asked)))

    episode, asked = play(longer, react=ReActSettings(max_tokens=15))
    assert [one.body["max_tokens"] for one in asked] == [15, 2], "13 of 15 tokens are spent"
    assert len(episode.turns) == 1 and episode.end.truncated and episode.success is False
    episode, asked = play(
        lambda asked, n: completion("<action>SAY(x)</action>", prompt=100), react=ReActSettings(max_tokens=90)
    )
    assert not episode.turns and episode.end.truncated and episode.success is False, "the prompt does not fit"
    episode, _ = play(say, react=ReActSettings(call_limit=1))
    assert len(episode.turns) == 2 and episode.end.truncated and not episode.success


def test_a_text_that_cannot_be_encoded_is_played_and_said_again() -> None:
    """Half a surrogate pair would break every later request of the episode."""
    bad = b'{"choices": [{"message": {"content": "\\ud800\\u001b[2J<action>SAY(\\udfff)</action>"}}]}'
    episode, asked = play(lambda asked, n: Answer(body=bad) if len(roles(asked)) == 2 else say(asked))
    assert len(episode.turns) == 3 and not episode.success
    assert asked[1].body["messages"][2]["content"] == "\ufffd\x1b[2J<action>SAY(\ufffd)</action>"


# -- tool calls ----------------------------------------------------------------------------------------------------


def test_an_episode_of_tool_calls() -> None:
    episode, asked = play(say_by_tool, tools=True)
    assert episode.success and episode.invalid == 0
    (tool,) = asked[0].body["tools"]
    assert tool["function"]["name"] == "SAY" and tool["function"]["parameters"]["required"] == ["word"]
    assert "<action>" not in asked[0].body["messages"][0]["content"], "nothing is said of actions as text"
    said, seen = asked[1].body["messages"][2:]
    assert said["tool_calls"][0]["function"]["name"] == "SAY" and seen["role"] == "tool"
    assert said["tool_calls"][0]["id"] == seen["tool_call_id"] != "theirs" and len(seen["tool_call_id"]) == 9
    ids = [m["tool_call_id"] for m in asked[2].body["messages"] if m["role"] == "tool"]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        ([call("SAY", "{bad")], "no action"),
        ([call("SAY", "[" * 100_000)], "no action"),
        ([call("SAY", '["red"]')], "no action"),
        ([call("SAY", '{"word": "a", "other": "b"}')], "no action"),
        ([call("SAY", '{"word": ["red"]}')], "no action"),
        ([call("FLY", '{"word": "red"}')], "unknown name"),
        ([call("SAY", '{"word": "red"}')] * 2, "more than one action"),
        ([call("SAY", '{"word": "red"}')] * 500, "more than one action"),
        ([call("SAY", '{"word": "red)</action><action>SAY(red"}')], "no action"),
    ],
)
def test_a_wrong_call_is_an_invalid_action(calls: list[Any], says: str) -> None:
    episode, asked = play(
        lambda asked, n: completion(None, calls) if len(roles(asked)) == 2 else say_by_tool(asked), tools=True
    )
    assert episode.invalid == 1 and says in episode.texts[0][1]
    said, *seen = asked[1].body["messages"][2:]
    assert len(said["tool_calls"]) == len(seen) <= 16 and all(m["content"] == episode.texts[0][1] for m in seen)
    for one in said["tool_calls"]:
        assert isinstance(json.loads(one["function"]["arguments"]), dict), "a server reads what it is told again"


@pytest.mark.parametrize(
    "calls", [{}, "x", [{"function": None}], [{}], [{"function": {"name": 3, "arguments": "{}"}}], 7]
)
def test_calls_of_no_form_are_asked_for_again(calls: Any) -> None:
    script = lambda asked, n: completion(None, calls) if not n else say_by_tool(asked)  # noqa: E731
    if calls == {}:  # none at all, as some servers write it
        script = lambda asked, n: completion("nothing", calls)  # noqa: E731
    episode, asked = play(script, tools=True)
    assert len(asked) > len(episode.turns) if calls else episode.invalid == len(episode.turns)


def test_a_text_action_beside_tools_is_read() -> None:
    episode, asked = play(say, tools=True)
    assert episode.success and roles(asked[1])[-1] == "user", "an observation that answers no call"
    assert play(say_by_tool)[0].success is False, "without the setting no call is read"


# -- thoughts ------------------------------------------------------------------------------------------------------


LONG = replace(MATH, max_turns=12)


def solution() -> str:
    env = MathEnv(LONG)
    env.reset(options={"task": SUM})
    over, said = False, ""
    while not over:
        thought = env.expert()
        said += thought
        over = any(env.step(thought)[2:4])
    return said


def test_a_message_of_thoughts() -> None:
    whole = solution()
    episode, asked = play(lambda asked, n: completion(whole), lambda: MathEnv(LONG), SUM)
    assert episode.success and len(asked) == 1 and "".join(text for text, _ in episode.texts) == whole
    assert asked[0].body["max_tokens"] == 1024 and roles(asked[0]) == ["system", "user"]
    more, _ = play(lambda asked, n: completion(f"{whole}\n\nand more"), lambda: MathEnv(LONG), SUM)
    assert not more.success and more.texts[-1][0] == "and more", "as in a rollout, the answer is the last thought"
    _, asked = play(lambda asked, n: completion(whole), lambda: MathEnv(LONG), SUM, prefill=True)
    assert asked[0].body["messages"][-1] == {"role": "assistant", "content": MathEnv.openings["en"]}
    assert asked[0].body["continue_final_message"] is True and asked[0].body["add_generation_prompt"] is False


@pytest.mark.parametrize(
    ("text", "finish", "turns", "truncated"),
    [
        ("I see.\n\nIt is \\boxed{-77}", "stop", 2, False),
        ("I see.\n\nIt is", "stop", 2, False),
        ("I see.\n\nIt is", "length", 2, True),
        ("I see.\n\n", "stop", 1, True),
        ("I see.\n\n", "length", 1, True),
        ("", "stop", 1, False),
        ("a\n\nb\n\nc\n\nd\n\ne", "stop", 4, True),
    ],
)
def test_how_a_message_ends(text: str, finish: str, turns: int, truncated: bool) -> None:
    episode, _ = play(lambda asked, n: completion(text, finish=finish), lambda: MathEnv(MATH), SUM)
    assert len(episode.turns) == turns and episode.success is False
    assert (episode.end.truncated, episode.end.terminated) == (truncated, not truncated)


@pytest.mark.parametrize("text", ["a\n\nb", "\n\n\na\n\n\n\nb\n\n \n\nc\n\n", "a", "", "\n\n", "a\n \nb\n\n\nc"])
def test_thoughts_are_cut_at_blank_lines(text: str) -> None:
    for turns in (1, 2, 9):
        pieces = thoughts_of(text, turns)
        assert "".join(pieces).rstrip() == text.rstrip() and 1 <= len(pieces) <= turns
        assert all(ends_thought(piece) for piece in pieces[:-1])


# -- servers that fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=500), Answer(status=429, headers={"Retry-After": "3"}), Answer(body=b"{"), Answer(body=b"\xff"),
        Answer(body=b'{"choices": []}'), Answer(body=b'{"choices": [{"message": {"content": 3}}]}'),
        Answer(body=b'{"choices": [{"message": null}]}'), Answer(body=b"[" * 100_000),
    ],
    ids=lambda answer: f"{answer.status}-{answer.body[:12]!r}",
)  # fmt: skip
def test_what_may_pass_is_asked_again(answer: Answer) -> None:
    waits: list[float] = []
    with served(lambda asked, n: answer if n < 2 else say(asked), waits) as (model, server):
        reply = model.reply(Question([{"role": "user", "content": "word: red"}], 9, 0.0, 1), lambda attempt: 0.5)
        assert "SAY(red)" in reply.text and len(server.asked) == model.bill.calls == 3 and model.bill.retries == 2
    assert len(waits) == 2 and (answer.status != 429 or min(waits) >= 3)


def test_what_will_never_pass_ends_it_in_one_line() -> None:
    for answer, says in (
        (Answer(status=401), r"refused the key .*TURNWISE_KEY_127_0_0_1"),
        (Answer(status=404), "knows no such model"),
        (Answer(status=400, body=b"unknown field \x1b[2Jseed"), "refuses a request .*unknown field"),
        (Answer(status=500), r"did not answer in 3 tries \(status 500"),
    ):
        with pytest.raises(EndpointError, match=says) as raised:
            play(lambda asked, n, answer=answer: answer, max_retries=2)
        assert str(raised.value).isprintable()


def test_what_the_endpoint_will_not_read_is_a_failed_episode() -> None:
    for body, why in (
        (b'{"error": {"code": "content_filter"}}', "inspected"),
        (b'{"error": {"code": "context_length_exceeded"}}', "context"),
        (b"This model's maximum context length is 400 tokens", "context"),
    ):
        script = lambda asked, n, body=body: (  # noqa: E731
            say(asked) if len(roles(asked)) == 2 else Answer(status=400, body=body)
        )
        episode, _ = play(script)
        assert episode.ended == why and len(episode.turns) == 1 and episode.end.truncated and not episode.success


def test_requests_are_paced() -> None:
    """By the clock of the waits alone: 60 requests a minute are a second apart."""
    waits: list[float] = []
    with served(say, waits, rate=60.0) as (model, _):
        question = Question([{"role": "user", "content": "word: red"}], 9, 0.0, 1)
        threads = [threading.Thread(target=model.reply, args=(question, lambda attempt: 0.0)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(waits) == 3 and [round(wait) for wait in sorted(waits)] == [1, 2, 3]


# -- environments that fail ----------------------------------------------------------------------------------------


class Lost(IdentityEnv):
    """Its process is ended in the second turn, once."""

    left = [1]  # noqa: RUF012

    def step(self, action: str) -> Any:
        if self.turn == 1 and self.left:
            self.left.pop()
            raise HostLost("another one's fault")
        return super().step(action)


def test_an_episode_goes_on_where_its_process_is_lost() -> None:
    Lost.left[:] = [1]
    episode, asked = play(say, Lost)
    assert episode.success and len(asked) == 3 and not Lost.left, "nothing is asked, or paid, twice"


def test_an_environment_that_breaks_is_a_fault() -> None:
    class Broken(IdentityEnv):
        def step(self, action: str) -> Any:
            return "", float("nan"), False, False, {}

    with pytest.raises(EnvFault, match="not a finite float32"):
        play(say, Broken)

    class Toolless(IdentityEnv):
        def reset(self, **how: Any) -> Any:
            observation, info = super().reset(**how)
            return observation, {**info, "tools": 3}

    with pytest.raises(EnvFault, match="tools must be functions"):
        play(say_by_tool, Toolless, tools=True)


def test_longer_tasks_are_heard_to_their_end() -> None:
    config = IdentityConfig(length=4)
    episode, asked = play(say, lambda: IdentityEnv(config), IdentityEnv(config).tasks("test")[3])
    assert episode.success and [word(one) for one in asked] == list(episode.job.task.data) and heard(asked[0])
    assert replace(episode.job, sample=1).seed(0) != episode.job.seed(0)
