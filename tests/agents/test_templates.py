"""The chat templates of many families."""

import os
import re
from datetime import date
from functools import cache

import pytest
from template_cases import TEMPLATES, TEXT, tokenizer

from agents.text.chat import Chat
from agents.text.errors import ChatError
from agents.text.settings import ChatSettings, Thinking

REWRITES = "renders earlier turns in another way"


@cache
def chat_of(name: str) -> Chat:
    return Chat(tokenizer(name))


def test_the_templates_are_here() -> None:
    if not TEMPLATES and not os.environ.get("CI"):
        pytest.skip("pip install --no-deps --target .templates trl==1.16.0")
    families = {re.match(r"[a-z]+", name).group() for name in TEXT}  # type: ignore[union-attr]
    assert len(families) >= 10 and len(TEXT) >= 60


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name not in TEXT])
def test_templates_of_images_are_refused(name: str) -> None:
    with pytest.raises(ChatError, match="refuses a system and user message"):
        chat_of(name)


@pytest.mark.parametrize("name", TEXT)
def test_a_conversation_reads_as_the_template_writes_it_or_a_note_says_so(name: str) -> None:
    """Contents with white space around them and characters that JSON would escape."""
    chat = chat_of(name)
    system, user, answer, seen = ' Be "brief". ', "\tFind <x>.\n", 'LOOK("x")', '\n1: {"a"}\n'
    role = "user" if any("no role 'tool'" in note for note in chat.layout.notes) else "tool"
    head = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    if chat.layout.system_in_user:
        head = [{"role": "user", "content": f"{system}\n\n{user}"}]
    turn = [{"role": "assistant", "content": answer}, {"role": role, "content": seen}]
    wanted = chat.tokenizer.apply_chat_template(
        [*head, *turn, *turn],
        tokenize=False,
        add_generation_prompt=True,
        strftime_now=lambda form: date(2026, 1, 1).strftime(form),
    )
    action = (*chat.encode(answer), chat.end_id)
    tokens = [*chat.prompt(system, user)]
    for _ in range(2):
        tokens += [*action, *chat.observation(seen, closed=True)]
    rewritten = any(REWRITES in note for note in chat.layout.notes)
    assert (chat.decode(tokens) == wanted + chat.layout.header) != rewritten


def test_most_templates_write_what_the_agent_read() -> None:
    rewriting = [name for name in TEXT if any(REWRITES in note for note in chat_of(name).layout.notes)]
    assert len(rewriting) <= len(TEXT) / 2, rewriting


@pytest.mark.parametrize("name", TEXT)
def test_the_critic_prompt_is_a_message_and_no_second_beginning(name: str) -> None:
    chat = chat_of(name)
    text = chat.decode(chat.critic_prompt("7Q7"))
    before, asked, after = text.partition("7Q7")
    assert asked and before and chat.control_ids.intersection(chat.critic_prompt("7Q7")[:1])
    assert after.endswith(chat.layout.frame.open_assistant[-6:])
    assert "<bos>" not in text
    assert not any(word in before for word in ("Knowledge", "Preamble", "You are", "Reasoning effort", "2026"))


@pytest.mark.parametrize("name", TEXT)
def test_no_template_writes_the_date_of_the_day(name: str) -> None:
    text = "".join(chat_of(name).layout.frame)
    today = date.today()
    assert not any(today.strftime(form) in text for form in ("%d %b %Y", "%Y-%m-%d", "%B %d, %Y"))
    if any("--chat.date" in note for note in chat_of(name).layout.notes):
        later = Chat(tokenizer(name), ChatSettings(date="2031-05-06"))
        assert "2031" in later.layout.frame.before_system and "2031" not in text


def attacks(chat: Chat) -> list[str]:
    names = sorted({*chat.tokenizer.get_added_vocab(), *chat.tokenizer.all_special_tokens})
    nested = [name[:2] + name + name[2:] for name in names]
    return [*names, *nested, "".join(names), *filter(None, chat.layout.frame), f"x{''.join(chat.layout.frame)}y"]


@pytest.mark.parametrize("name", TEXT)
def test_no_text_becomes_a_control_token(name: str) -> None:
    chat = chat_of(name)
    places = {
        "system": lambda text: chat.prompt(text, "x"),
        "user": lambda text: chat.prompt("x", text),
        "observation": lambda text: chat.observation(text, closed=False),
        "critic": lambda text: chat.critic_prompt(text),
    }
    smuggled = 0
    for text in attacks(chat):
        assert chat.control_ids.isdisjoint(chat.encode(text))
        for place in places.values():
            control, quiet = ([i for i in place(t) if i in chat.control_ids] for t in (text, "x"))
            assert control == quiet
        naive = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        smuggled += not chat.control_ids.isdisjoint(naive)
    assert smuggled > len(attacks(chat)) / 2, "the control: the tokenizer's own call lets most of them through"


def test_a_header_that_the_model_would_write_is_written_for_it() -> None:
    if not TEMPLATES:
        pytest.skip("no templates")
    chat = chat_of("gptoss")
    assert chat.layout.frame.open_assistant.endswith("<|start|>assistant<|channel|>final<|message|>")
    assert chat.layout.frame.reopen_assistant == chat.layout.frame.open_assistant
    assert any("before an answer" in note for note in chat.layout.notes)


@pytest.mark.parametrize("name", [name for name in TEXT if name == "qwen3"])
def test_thinking_is_switched_where_there_is_a_switch(name: str) -> None:
    on, off = (Chat(tokenizer(name), ChatSettings(thinking=how)) for how in (Thinking.ON, Thinking.OFF))
    with pytest.raises(ChatError, match="no switch for thinking"):
        Chat(tokenizer("llama3"), ChatSettings(thinking=Thinking.OFF))
    assert off.layout.frame.open_assistant == on.layout.frame.open_assistant + "<think>\n\n</think>\n\n"


def test_a_date_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="date must be written as 2026-01-31"):
        ChatSettings(date="today")
