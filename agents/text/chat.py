"""Append-only rendering of a conversation as token ids.

Invariant: the ids of a longer conversation begin with the ids of the shorter one, because the fixed text of the model's
chat template is read off once as id lists and contents are only ever put between them. Every text that comes from
outside (task, observation, tool output) goes through a second tokenizer that knows no added tokens, so that no text can
become a control token; what the model wrote is kept as the ids it sampled.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from agent_envs.actions import THINK
from agents.text.errors import ChatError
from agents.text.settings import CRITIC_TEXT, ChatSettings, Tools
from agents.text.template import Frame, Layout, read_layout
from agents.text.thoughts import ThoughtEnds
from agents.text.tool_calls import Format
from agents.text.tool_template import PROBE

UNUSUAL = "\u0e5b\u1c5b\ua9c5\uabcd\U00012345\U0001f9ff\U000e0041\U0010fffd\x07"
"""Characters that few vocabularies hold."""
_ONE_TABLE = Lock()
"""Since Python 3.12 a cached property by itself may be computed twice."""


class Chat:
    """Renders states and reads actions for one tokenizer. Raises ChatError for one that cannot do it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, settings: ChatSettings | None = None) -> None:
        self.settings = settings or ChatSettings()
        if not getattr(tokenizer, "is_fast", False):
            raise ChatError("the tokenizer has no fast version (tokenizer.json); convert it with transformers first")
        if not tokenizer.chat_template:
            raise ChatError("the tokenizer has no chat template; use an instruct model or set tokenizer.chat_template")
        self.tokenizer = tokenizer
        self._plain = plain_tokenizer(tokenizer)
        self._whole = _unprefixed(tokenizer, added=True)
        # Some vocabularies hold runs of blanks and line breaks as added tokens: these are text.
        added = tokenizer.added_tokens_decoder.items()
        named = {i for i, token in added if token.special or token.content.replace("▁", " ").strip()}
        self.control_ids = frozenset(named) | frozenset(tokenizer.all_special_ids)
        """Ids that no text may become."""
        self._layouts: dict[str, tuple[Layout, Frame[tuple[int, ...]]]] = {}
        self.layout, self._frame = self._layout(PROBE if self.settings.tools is Tools.ON else ())
        ends = self._frame.before_tool[:1], self._frame.before_critic[:1]
        if any(self.control_ids.isdisjoint(end) for end in ends):
            raise ChatError("the chat template does not close an assistant message with a special token")
        self.end_id = self._frame.before_tool[0]
        """The token that closes the model's message."""
        # Some models end a call and other answers by different tokens.
        stops = (
            [*map(tokenizer.get_vocab().get, self.format.stops), self._layout(())[1].before_tool[0]]
            if self.format
            else []
        )
        known = (i for i in stops if i in self.control_ids)
        self.stop_ids = frozenset(i for i in (self.end_id, tokenizer.eos_token_id, *known) if i is not None)
        if not self.control_ids.isdisjoint(self._plain.encode(UNUSUAL, add_special_tokens=False).ids):
            raise ChatError(
                "the tokenizer turns a character that it does not know into a control token; use one that writes such "
                "characters as bytes"
            )

    @property
    def format(self) -> Format | None:
        """How the model calls tools; None where actions are texts."""
        return self.layout.format

    # -- states ------------------------------------------------------------------------------------------------

    def prompt(
        self, system: str, user: str, opening: str = "", tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[int, ...]:
        """The first state: system and user message and the opened answer, which begins with ``opening``.

        ``tools`` are shown as the template shows them. Raises ChatError where one of them holds a control token.
        """
        layout, frame = self._layout(tools)
        begun = (*frame.open_assistant, *self.encode(opening))
        if layout.system_in_user:
            return (*frame.before_user, *self._content("user", f"{system}\n\n{user}" if system else user), *begun)
        # An empty system message is written too: the head of the conversation (its BOS token) is in front of it.
        head = (*frame.before_system, *self._content("system", system))
        return (*head, *frame.before_user, *self._content("user", user), *begun)

    def observation(self, text: str, *, closed: bool) -> tuple[int, ...]:
        """The state after an action: the observation as a tool message and the newly opened answer.

        ``closed`` says that the action's own last token was an end token; otherwise the message is closed here.
        """
        head = self._frame.before_tool[1:] if closed else self._frame.before_tool
        return (*head, *self._content("tool", text), *self._frame.reopen_assistant)

    def critic_prompt(self, text: str = CRITIC_TEXT) -> tuple[int, ...]:
        """The shadow prompt: it closes the open answer, asks for a judgement and opens the critic's answer. Where
        nothing is asked there is none."""
        if not text:
            return ()
        return (*self._frame.before_critic, *self.encode(text), *self._frame.open_critic)

    # -- text --------------------------------------------------------------------------------------------------

    def _content(self, place: str, text: str) -> tuple[int, ...]:
        """Ids of a message's content, without the white space around it where the template takes that away."""
        return self.encode(text.strip() if place in self.layout.trimmed else text)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of untrusted text; never a control id."""
        text = whole(text)
        out: list[int] = []
        todo = [text]
        while todo:
            text = todo.pop()
            result = self._plain.encode(text, add_special_tokens=False)
            if self.control_ids.isdisjoint(result.ids):
                out += result.ids
                continue
            # The vocabulary itself holds a control string: cut the text inside each of them, so that none stays whole.
            spans = [span for i, span in zip(result.ids, result.offsets, strict=True) if i in self.control_ids]
            cuts = [0, *((start + end) // 2 for start, end in spans), len(text)]
            if any(end - start < 2 for start, end in spans) or sorted(set(cuts)) != cuts:
                raise ChatError("the tokenizer turns plain text into a control token; it cannot be used safely")
            todo += [text[start:end] for start, end in reversed(list(pairwise(cuts)))]
        return tuple(out)

    def action_text(self, tokens: Sequence[int]) -> str:
        """The text of an action without its end token; control tokens inside it show as their names."""
        body = tokens[:-1] if tokens and tokens[-1] in self.stop_ids else tokens
        return self.decode(body)

    def turn_text(self, tokens: Sequence[int], *, first: bool, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """What an environment reads for an action: its text with the tag of a thought that the template has opened, or
        the text of the call that it is. ``first`` says that it answers the first state."""
        opened = self.layout.frame.open_assistant if first else self.layout.frame.reopen_assistant
        opened = opened[opened.rindex(THINK) :] if opened.rstrip().endswith(THINK) else ""
        text = opened + self.action_text(tokens)
        return whole(self.format.turn(text, tools)) if self.format else text

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of any ids, control tokens included."""
        # What the tokenizer's own method comes to, without the look at every id that it takes.
        return self.tokenizer.backend_tokenizer.decode(list(tokens), skip_special_tokens=False)

    @property
    def thought_ends(self) -> ThoughtEnds:
        """Where a thought factor ends, by this tokenizer's tokens: one table for all, whichever thread asks first."""
        with _ONE_TABLE:
            return self._thought_ends

    @cached_property
    def _thought_ends(self) -> ThoughtEnds:
        backend = self.tokenizer.backend_tokenizer
        return ThoughtEnds(backend.decode_batch([[i] for i in range(len(self.tokenizer))], skip_special_tokens=False))

    # -- the template ------------------------------------------------------------------------------------------

    def _layout(self, tools: Sequence[Mapping[str, Any]]) -> tuple[Layout, Frame[tuple[int, ...]]]:
        """The template as it is with these tools."""
        key = json.dumps(tools)
        if key not in self._layouts:
            layout = read_layout(self.tokenizer, self.settings, tools)
            frame = Frame(*map(self._template, layout.frame))
            if tools and tools is not PROBE:
                self._check(tools, layout, frame)
            self._layouts[key] = layout, frame
        return self._layouts[key]

    def _check(self, tools: Sequence[Mapping[str, Any]], layout: Layout, frame: Frame[tuple[int, ...]]) -> None:
        """Raises ChatError where ``tools`` hold a control token, or change what follows them."""
        names = [self.tokenizer.decode([i], skip_special_tokens=False) for i in self.control_ids]
        for text in texts_of(tools):
            if (found := next((name for name in names if name and name in text), None)) is not None:
                raise ChatError(f"a tool holds the control token {found!r}: change the action's name or its help")
        if frame[2:] != self._frame[2:] or layout.format != self.format:
            raise ChatError(
                "the chat template writes conversations in another way with these tools: use --chat.tools off"
            )

    def _template(self, text: str) -> tuple[int, ...]:
        return tuple(self._whole.encode(text, add_special_tokens=False).ids)


def whole(text: str) -> str:
    """The text with a replacement for each half of a surrogate pair, which no text that can be encoded holds."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def texts_of(value: Any) -> Iterator[str]:
    """All texts in plain values, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from texts_of([*value, *value.values()])
    elif isinstance(value, Sequence):
        for part in value:
            yield from texts_of(part)


def plain_tokenizer(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """The same tokenizer without added tokens: no string of text is special to it, and none is changed."""
    return _unprefixed(tokenizer, added=False)


def _unprefixed(tokenizer: PreTrainedTokenizerBase, *, added: bool) -> Tokenizer:
    """The same tokenizer, putting nothing in front of a text: texts are parts of a conversation, not its beginning.

    Without ``added`` it knows no added tokens.
    """
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    if not added:
        spec["added_tokens"] = []
    spec["post_processor"] = spec["truncation"] = spec["padding"] = None
    for step in ("normalizer", "pre_tokenizer"):
        spec[step] = _without_prefix(spec[step])
    return Tokenizer.from_str(json.dumps(spec))


def _without_prefix(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """A normalizer or pre-tokenizer that puts no space before a text; None where it does nothing else."""
    if part is None or part["type"] == "Prepend":
        return None
    changed = dict(part)
    if "prepend_scheme" in part:
        changed["prepend_scheme"] = "never"
    if "add_prefix_space" in part:
        changed["add_prefix_space"] = False
    for parts in ("normalizers", "pretokenizers"):
        if parts in part:
            changed[parts] = [kept for kept in map(_without_prefix, part[parts]) if kept is not None]
    return changed
