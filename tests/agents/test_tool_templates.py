"""Tools in the chat templates of many families: shown and called as the template does, no way in for text."""

import copy
import re
from datetime import date
from typing import Any

import pytest
from scripted_engine import FakeEngine
from template_cases import TEXT, tokenizer
from test_templates import REWRITES, attacks
from tool_cases import FORMAT_OF, GRAMMAR, TEXTUAL, TOOLS, WRITERS, chat_of

from agent_envs.actions import Action, ActionError
from agent_envs.identity.env import IdentityEnv
from agents.rollout.play import rollout
from agents.rollout.react import ReAct
from agents.rollout.settings import ReActSettings
from agents.text.chat import Chat
from agents.text.errors import ChatError
from agents.text.settings import ChatSettings, Tools
from agents.text.tool_template import CALL_ID, PROBE
from agents.tree.episode import Job

NAMES = sorted(FORMAT_OF)
OTHERS = [name for name in TEXT if name not in FORMAT_OF]


THOUGHTLESS = ("</think>", "\n</think>\n\n", "<think></think>\n", "\n<think></think>\n", "<think>\n\n</think>\n\n")
"""What templates write before a call that follows no thought."""


class Naive(Chat):
    """The negative control: it encodes texts with the tokenizer's own call."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def sampled(chat: Chat, text: str) -> tuple[int, ...]:
    """A turn as a model of the family samples it: the marks of calls are control tokens where there are such."""
    return (*chat.tokenizer(text, add_special_tokens=False)["input_ids"], chat.end_id)


def written(chat: Chat, name: str, arguments: dict[str, str]) -> list[str]:
    assert chat.format is not None
    return [write(name, arguments) for write in WRITERS[chat.format.name]]


def turns_of(chat: Chat, text: str) -> str:
    return chat.turn_text(sampled(chat, text), first=True, tools=TOOLS)


@pytest.mark.parametrize("name", NAMES)
def test_calls_are_read_in_the_format_that_the_template_writes(name: str) -> None:
    chat = chat_of(name)
    assert chat.format is not None and chat.format.name == FORMAT_OF[name]
    assert any(chat.format.name in note for note in chat.layout.notes)
    for text in written(chat, "SEARCH", {"query": 'a "b" \\ é\t日本 🙂 (c)'}):
        for before in ("", "I look it up.\n") if not chat.format.bare else ("",):
            assert GRAMMAR.parse(turns_of(chat, before + text)).args == 'a "b" \\ é\t日本 🙂 (c)'
    assert GRAMMAR.parse(turns_of(chat, "<action>BACK()</action>")).name == "BACK"


@pytest.mark.parametrize("name", OTHERS)
def test_other_templates_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(
        ChatError, match=r"^the chat template (has no place for tools|writes .*calls of tools).*leave out"
    ):
        Chat(tokenizer(name), ChatSettings(tools=Tools.ON))


def test_ten_families_are_read() -> None:
    if not TEXT:
        pytest.skip("no templates")
    families = {re.match(r"[a-z]+(?:[ _]?v?\d)?", name)[0] for name in NAMES}  # type: ignore[index]
    assert len(families) >= 10, families
    assert set(FORMAT_OF.values()) == set(WRITERS)


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_of_calls_reads_as_the_template_writes_it_or_a_note_says_so(name: str) -> None:
    chat = chat_of(name)
    system, user, seen = ' Be "brief". ', "\tFind <x>.\n", '\n1: {"a"}\n'
    role = "user" if any("no role 'tool'" in note for note in chat.layout.notes) else "tool"
    head = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    if chat.layout.system_in_user:
        head = [{"role": "user", "content": f"{system}\n\n{user}"}]
    function: dict[str, Any] = {"name": "SEARCH", "arguments": {"query": 'a "b"\\'}}
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": CALL_ID, "type": "function", "function": function}],
    }
    turn = [call, {"role": role, "content": seen, "tool_call_id": CALL_ID, "name": "SEARCH"}]
    wanted = chat.tokenizer.apply_chat_template(
        [*head, *turn, *turn],
        tools=TOOLS,
        tokenize=False,
        add_generation_prompt=True,
        strftime_now=lambda form: date(2026, 1, 1).strftime(form),
    )
    made = []
    for text in written(chat, "SEARCH", {"query": 'a "b"\\'}):
        for before in ("", *THOUGHTLESS):
            tokens = [*chat.prompt(system, user, "", TOOLS)]
            for _ in range(2):
                tokens += [*sampled(chat, before + text.replace("abcdefghi", CALL_ID))]
                tokens += chat.observation(seen, closed=True)
            made.append(chat.decode(tokens))
    rewritten = any(REWRITES in note for note in chat.layout.notes)
    assert (wanted + chat.layout.header in made) != rewritten
    assert all(tool["function"]["name"] in wanted for tool in TOOLS)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_becomes_a_control_token_where_actions_are_calls(name: str) -> None:
    """Task texts, observations, and what a call said, as an environment repeats it."""
    chat, naive = chat_of(name), chat_of(name, Naive)
    smuggled, texts = 0, attacks(chat)
    for text in texts:
        echo = turns_of(chat, written(chat, "SEARCH", {"query": text})[0])
        for seen, quiet in ((text, "x"), (f"unknown: {echo}", "unknown: x")):
            for place in ("system", "user", "observation", "critic"):
                control, calm = (_control(chat, place, said) for said in (seen, quiet))
                assert control == calm, (place, text)
        smuggled += any(
            _control(naive, place, text) != _control(naive, place, "x") for place in ("user", "observation")
        )
    assert smuggled > len(texts) / 2, "the control: the naive encoder lets most of them through"


def _control(chat: Chat, place: str, text: str) -> list[int]:
    ids = {
        "system": lambda: chat.prompt(text, "x", "", TOOLS),
        "user": lambda: chat.prompt("x", text, "", TOOLS),
        "observation": lambda: chat.observation(text, closed=True),
        "critic": lambda: chat.critic_prompt(text),
    }[place]()
    return [i for i in ids if i in chat.control_ids]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_keep_the_names_of_control_tokens(name: str) -> None:
    """As plain text and as the control tokens themselves, an argument is the same text, or the call is refused."""
    chat = chat_of(name)
    for text in sorted({*chat.tokenizer.get_added_vocab()} - {"<eos>"}):
        for call in written(chat, "SEARCH", {"query": f"a{text}b"}):
            plain = chat.turn_text((*chat.encode(call), chat.end_id), first=True, tools=TOOLS)
            ids = tuple(i for i in sampled(chat, call)[:-1])
            assert chat.turn_text((*ids, chat.end_id), first=True, tools=TOOLS) == plain
            try:
                done = GRAMMAR.parse(plain)
            except ActionError:
                # A thought that is open ends here; a format that escapes nothing ends an argument here.
                opened = chat.layout.frame.open_assistant.rstrip().endswith("<think>") and text == "</think>"
                assert opened or text in TEXTUAL.get(FORMAT_OF[name], ())
            else:
                assert done.args == f"a{text}b"


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_that_holds_a_control_token_is_refused(name: str) -> None:
    chat = chat_of(name)
    for text in sorted(chat.tokenizer.get_added_vocab()):
        for spoiled in (_with(description=f"Look {text}."), _with(shown=f"Look {text}.")):
            with pytest.raises(ChatError, match="holds the control token"):
                chat.prompt("x", "y", "", spoiled)
    assert chat.prompt("x", "y", "", _with(description="Look <x>.")), "the control: another text is taken"


def _with(description: str = "Look.", shown: str = "what") -> list[dict[str, Any]]:
    tools = copy.deepcopy(TOOLS)
    tools[0]["function"]["description"] = description
    tools[0]["function"]["parameters"]["properties"]["query"]["description"] = shown
    return tools


@pytest.mark.parametrize("name", NAMES)
def test_the_critic_is_shown_no_tools(name: str) -> None:
    chat = chat_of(name)
    text = chat.decode(chat.critic_prompt("7Q7"))
    assert not any(tool["function"]["name"] in text for tool in (*TOOLS, *PROBE))
    assert text == chat.decode(Chat(chat.tokenizer).critic_prompt("7Q7"))


# -- thoughts that the template opens --------------------------------------------------------------------------------

OPENING = [name for name in TEXT if Chat(tokenizer(name)).layout.frame.open_assistant.rstrip().endswith("<think>")]


def test_ten_templates_open_a_thought() -> None:
    if not TEXT:
        pytest.skip("no templates")
    assert len(OPENING) >= 10


@pytest.mark.parametrize("name", OPENING)
def test_a_thought_that_the_template_opened_holds_no_action(name: str) -> None:
    chat = Chat(tokenizer(name))
    text = "Not <action>SEARCH(x)</action>, but:\n</think>\n\n<action>BACK()</action>"
    done = GRAMMAR.parse(chat.turn_text((*chat.encode(text), chat.end_id), first=True))
    assert done == Action("BACK", "", "Not <action>SEARCH(x)</action>, but:")
    with pytest.raises(ActionError, match="more than one action"):  # the control: what the model wrote alone
        GRAMMAR.parse(chat.action_text((*chat.encode(text), chat.end_id)))


# -- episodes --------------------------------------------------------------------------------------------------------


def speaker(chat: Chat, forms: int) -> Any:
    """Says the shown word, by a call; the second turn of three holds two calls, or rubbish in a call."""

    def script(request: Any, history: tuple[int, ...]) -> tuple[int, ...]:
        word = re.findall(r"word: (\w+)", chat.decode((*history, *request.tokens)))[-1]
        calls = written(chat, "SAY", {"word": word})
        text = calls[forms % len(calls)]
        return (*sampled(chat, text), 5)

    return script


@pytest.mark.parametrize("name", NAMES)
def test_episodes_are_played_by_calls(name: str) -> None:
    chat, env = chat_of(name), IdentityEnv()
    jobs = [Job(env.tasks("train")[i]) for i in range(3)]
    for form in range(len(WRITERS[FORMAT_OF[name]])):
        engine = FakeEngine(speaker(chat, form), chat.stop_ids, max_length=1 << 20)
        settings = ReActSettings(max_tokens=1 << 16, max_action_tokens=4096)
        played = rollout(IdentityEnv, engine, chat, jobs, settings)
        assert [e.success for e in played.episodes] == [True] * 3, played.faults
        for episode in played.episodes:
            assert not episode.invalid and all(text.startswith("<think>") for text, _ in episode.texts)
            whole = chat.decode(episode.root.tokens)
            assert "SAY" in whole and "<action>" not in whole
            player = ReAct(IdentityEnv(), chat, episode.job, 0, settings)
            player.episode = episode
            player.rejoin(IdentityEnv())


def test_a_call_that_cannot_be_read_is_an_invalid_action() -> None:
    chat, env = chat_of("hermes"), IdentityEnv()
    spoiled = "<tool_call>{SAY}</tool_call>"
    engine = FakeEngine(lambda request, history: sampled(chat, spoiled), chat.stop_ids, max_length=1 << 20)
    (episode,) = rollout(
        IdentityEnv,
        engine,
        chat,
        [Job(env.tasks("train")[0])],
        ReActSettings(max_tokens=1 << 16, max_action_tokens=999),
    ).episodes
    assert episode.invalid == len(episode.turns) == env.max_turns
    assert episode.texts[0] == (f"<think>{spoiled}</think>", "invalid action: no action")
