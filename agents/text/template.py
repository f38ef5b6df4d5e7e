"""The fixed text of a chat template, read off by comparing renderings.

Invariant: nothing of a conversation's past depends on what follows, because each part is what one more message adds to
a rendering. Where a template would render the past in another way once more is known, the past stays as it was written,
and a note says so.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from transformers import PreTrainedTokenizerBase

from agents.text.errors import ChatError
from agents.text.messages import ANSWER, ASKED, SEEN, SYSTEM, USER, Message, Messages, Render, said
from agents.text.settings import ChatSettings, Thinking
from agents.text.tool_calls import Format
from agents.text.tool_template import CALL_ID, CallFrame, read_calls

Part = TypeVar("Part")


class Frame(NamedTuple, Generic[Part]):
    """The template's own text around the contents of a conversation: texts, and then their ids."""

    before_system: Part
    before_user: Part
    open_assistant: Part
    """From the end of a user message to the start of the answer."""
    before_tool: Part
    """From the end of an answer to the start of an observation; begins with the end token."""
    reopen_assistant: Part
    before_critic: Part
    """From the end of an answer to the start of what the critic is asked; begins with a control token."""
    open_critic: Part


@dataclass(frozen=True)
class Layout:
    """What was read off a template."""

    frame: Frame[str]
    system_in_user: bool
    """The system text opens the first user message."""
    trimmed: frozenset[str]
    """Those of "system", "user" and "tool" whose contents lose white space at both ends."""
    header: str
    """What every answer is opened with beyond what the template writes to open one."""
    notes: tuple[str, ...]
    """One line for each thing that is not as the template or the settings would have it."""
    format: Format | None = None
    """How calls of tools are written; None where it was read without tools."""


def rendering(
    tokenizer: PreTrainedTokenizerBase,
    settings: ChatSettings,
    day: date | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> Render:
    """The template with the run's own date and switches. Raises ChatError for a switch that changes nothing."""
    day = day or date.fromisoformat(settings.date)
    switches: dict[str, Any] = {"strftime_now": lambda form: day.strftime(form)}
    if tools:
        switches["tools"] = list(tools)

    def render(messages: Messages) -> str | None:
        # Templates refuse roles by raising from inside Jinja; which exception differs between versions.
        try:
            return tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **switches)
        except Exception:
            return None

    if settings.thinking is not Thinking.DEFAULT:
        texts = []
        for switches["enable_thinking"] in (True, False):
            texts.append(render([said("user", USER)]))
        if texts[0] == texts[1]:
            raise ChatError("the chat template has no switch for thinking: leave --chat.thinking out")
        switches["enable_thinking"] = settings.thinking is Thinking.ON
    return render


def read_layout(
    tokenizer: PreTrainedTokenizerBase, settings: ChatSettings, tools: Sequence[Mapping[str, Any]] = ()
) -> Layout:
    """Reads a tokenizer's template, with ``tools`` where there are any. Raises ChatError where it has no place for a
    system message, an observation, …"""
    render = rendering(tokenizer, settings, tools=tools)
    start, in_user = _start(render)
    head, opened = (render(start) or "").split(USER)
    if any(tool["function"]["name"] not in head for tool in tools):
        raise ChatError("the chat template has no place for tools: leave out --chat.tools")
    before_system, before_user = ("", head) if in_user else tuple(head.split(SYSTEM))
    answer, text = said("assistant", ANSWER), ANSWER
    roles = (settings.tool_role, "user")
    if (tool := _after(render, [*start, answer], roles, SEEN)) is None:
        raise ChatError("the chat template has no way to show an observation after an answer")
    # The critic calls nothing: with tools, some templates would show them again in front of what it is asked.
    bare = rendering(tokenizer, settings)
    critic = _after(bare, [*start, answer], ("user", *roles) if in_user else ("system", "user", *roles), ASKED)
    assert critic is not None, "what may be observed may be asked"
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    header = _header(tool.lead, opened, special)
    calls = None
    if tools:
        added = [token.content for token in tokenizer.added_tokens_decoder.values()]
        usual = [token for token in added if tool.before.startswith(token)]  # most close a call as any answer
        calls = read_calls(render, start, opened, [*usual, *added], roles)
        tool, answer, text = _Added(calls.role, tool.lead, calls.before, calls.after), calls.message, calls.text
    seen = calls.result if calls else partial(said, tool.role)
    frame = Frame(
        before_system,
        before_user,
        opened + header,
        tool.before,
        tool.after + header,
        critic.before,
        critic.after + header,
    )
    places: dict[str, tuple[Messages, Callable[[str], Message], Messages]]
    places = {"user": (start[:-1], partial(said, "user"), []), "tool": ([*start, answer], seen, [])}
    if not in_user:
        places["system"] = [], partial(said, "system"), start[-1:]
    trimmed = frozenset(place for place, around in places.items() if _trims(render, *around))
    notes = [*_notes(settings, tool, header, calls)]
    if render(start) != rendering(tokenizer, settings, date(2000, 2, 3), tools)(start):
        notes.append(f"the chat template writes the date: it is {settings.date} in this run (--chat.date)")
    if (render([*start, answer, seen(SEEN), answer, seen(SEEN)]) or "") + header != _composed(frame, in_user, text):
        notes.append(
            "the chat template renders earlier turns in another way than they were written (it may drop thoughts); "
            "they stay as they were sampled"
        )
    return Layout(frame, in_user, trimmed, header, tuple(notes), calls.format if calls else None)


class _Added(NamedTuple):
    """What one more message adds after an answer."""

    role: str
    lead: str
    """From the end of the user message to the start of the answer."""
    before: str
    after: str


def _start(render: Render) -> tuple[list[Message], bool]:
    """The first messages, and whether the system text has to be part of the user's."""
    first = [said("system", SYSTEM), said("user", USER)]
    for start in (first, first[1:]):
        text = render(start)
        if text is None or any(text.count(m["content"]) != 1 for m in start) or SYSTEM in text.split(USER)[1]:
            continue
        # Some templates move the system message into the last user message: an agent's past must stay as it is.
        if start is first and _after(render, [*start, said("assistant", ANSWER)], ("tool", "user"), SEEN) is None:
            continue
        return start, start is not first
    raise ChatError("the chat template refuses a system and user message; set tokenizer.chat_template")


def _after(render: Render, answered: Messages, roles: Sequence[str], content: str) -> _Added | None:
    """What a message with ``content`` in the first possible role adds after the answer."""
    for role in dict.fromkeys(roles):
        head, found, tail = (render([*answered, said(role, content)]) or "").partition(ANSWER)
        if found and tail.count(content) == 1 and not any(other in tail for other in (SYSTEM, USER, ANSWER)):
            return _Added(role, head.rpartition(USER)[2], *tail.split(content))
    return None


def _header(lead: str, opened: str, special: Collection[str]) -> str:
    """What an answer begins with in the past, beyond what opens it, where that holds special tokens: a header that the
    model would write itself, after messages that end as an answer does."""
    header = lead.removeprefix(opened) if lead.startswith(opened) else ""
    return header if any(token in header for token in special) else ""


def _trims(render: Render, before: Messages, say: Callable[[str], Message], after: Messages) -> bool:
    """Whether a message loses the spaces around its content; a system message is followed by the user's."""
    spaced = f" {SEEN} "
    text = render([*before, say(spaced), *after])
    return text is not None and spaced not in text


def _notes(settings: ChatSettings, tool: _Added, header: str, calls: CallFrame | None) -> Iterator[str]:
    if calls:
        yield f"actions are calls of tools, in the format that the chat template writes: {calls.format.name}"
        if CALL_ID in calls.before + calls.after:
            yield f"the chat template numbers calls in their results: the number is always {CALL_ID}"
    if tool.role != settings.tool_role:
        yield f"the chat template has no role {settings.tool_role!r} for plain text: observations are user messages"
    if header:
        yield f"the model would write {header!r} before an answer: every answer is opened with it"


def _composed(frame: Frame[str], in_user: bool, answer: str) -> str:
    """A conversation of two turns, each with ``answer``, as it is put together here."""
    head = "" if in_user else frame.before_system + SYSTEM
    turn = answer + frame.before_tool + SEEN + frame.reopen_assistant
    return head + frame.before_user + USER + frame.open_assistant + turn + turn
