"""Append-only rendering of a conversation as token ids.

Invariant: the ids of a longer conversation begin with the ids of the shorter one, because the fixed text of the model's
chat template is read off once as id lists and contents are only ever put between them. Every text that comes from
outside (task, observation, tool output) goes through a second tokenizer that knows no added tokens, so that no text can
become a control token; what the model wrote is kept as the ids it sampled.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from agents.text.errors import ChatError
from agents.text.settings import CRITIC_TEXT, ChatSettings
from agents.text.thoughts import ThoughtEnds


@dataclass(frozen=True)
class _Frame:
    """The template's own text around the contents of a conversation."""

    before_system: str
    before_user: str
    open_assistant: str
    """From the end of a user message to the start of the answer."""
    before_tool: str
    """From the end of an answer to the start of an observation; begins with the end token."""
    reopen_assistant: str
    system_in_user: bool


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
        self.control_ids = frozenset(tokenizer.added_tokens_decoder) | frozenset(tokenizer.all_special_ids)
        """Ids that no text may become."""
        frame = self._frame()
        self._system_in_user = frame.system_in_user
        self._before_system = self._template(frame.before_system)
        self._before_user = self._template(frame.before_user)
        self._open = self._template(frame.open_assistant)
        self._before_tool = self._template(frame.before_tool)
        self._reopen = self._template(frame.reopen_assistant)
        if not self._before_tool or self._before_tool[0] not in self.control_ids:
            raise ChatError("the chat template does not close an assistant message with a special token")
        self.end_id = self._before_tool[0]
        """The token that closes the model's message."""
        ends = {self.end_id, tokenizer.eos_token_id}
        self.stop_ids = frozenset(i for i in ends if i is not None)

    # -- states ------------------------------------------------------------------------------------------------

    def prompt(self, system: str, user: str, opening: str = "") -> tuple[int, ...]:
        """The first state: system and user message and the opened answer, which begins with ``opening``."""
        begun = (*self._open, *self.encode(opening))
        if self._system_in_user:
            return (*self._before_user, *self.encode(f"{system}\n\n{user}" if system else user), *begun)
        # An empty system message is written too: the head of the conversation (its BOS token) is in front of it.
        return (*self._before_system, *self.encode(system), *self._before_user, *self.encode(user), *begun)

    def observation(self, text: str, *, closed: bool) -> tuple[int, ...]:
        """The state after an action: the observation as a tool message and the newly opened answer.

        ``closed`` says that the action's own last token was an end token; otherwise the message is closed here.
        """
        return (*(self._before_tool[1:] if closed else self._before_tool), *self.encode(text), *self._reopen)

    def critic_prompt(self, text: str = CRITIC_TEXT) -> tuple[int, ...]:
        """The shadow prompt: it closes the open answer, asks for a judgement and opens the critic's answer. Where
        nothing is asked there is none."""
        if not text:
            return ()
        head = self._before_user if self._system_in_user else self._before_system
        # A conversation may begin with a BOS token that has no place in its middle.
        if head and head[0] == self.tokenizer.bos_token_id:
            head = head[1:]
        return (self.end_id, *head, *self.encode(text), *self._open)

    # -- text --------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of untrusted text; never a control id."""
        # Half a surrogate pair is not a text that could be encoded.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
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

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of any ids, control tokens included."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False)

    @cached_property
    def thought_ends(self) -> ThoughtEnds:
        """Where a thought factor ends, by this tokenizer's tokens."""
        backend = self.tokenizer.backend_tokenizer
        return ThoughtEnds(backend.decode_batch([[i] for i in range(len(self.tokenizer))], skip_special_tokens=False))

    # -- the template ------------------------------------------------------------------------------------------

    def _template(self, text: str) -> tuple[int, ...]:
        return tuple(self._whole.encode(text, add_special_tokens=False).ids)

    def _render(self, messages: list[dict[str, str]]) -> str:
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def _frame(self) -> _Frame:
        system, user, answer, seen = ("\ue000s\ue001", "\ue000u\ue001", "\ue000a\ue001", "\ue000o\ue001")
        first = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        for start in (first, first[1:]):
            opening = self._try_render(start)
            if opening is None or any(opening.count(m["content"]) != 1 for m in start):
                continue
            in_user = start is not first
            head, opened = opening.split(user)
            if system in opened:
                continue
            before_system, before_user = ("", head) if in_user else tuple(head.split(system))
            for role in dict.fromkeys((self.settings.tool_role, "user")):
                turns = [*start, {"role": "assistant", "content": answer}, {"role": role, "content": seen}]
                _, result, after = (self._try_render(turns) or "").partition(answer)
                # Some templates move the system message into the last user message: an agent's past must stay as it is.
                if not result or after.count(seen) != 1 or any(mark in after for mark in (system, user, answer)):
                    continue
                if role != self.settings.tool_role:
                    warnings.warn(
                        f"the chat template has no role {self.settings.tool_role!r}: observations are user messages",
                        stacklevel=3,
                    )
                before_tool, reopen = after.split(seen)
                return _Frame(before_system, before_user, opened, before_tool, reopen, in_user)
            if in_user:
                raise ChatError("the chat template has no way to show an observation after an answer")
        raise ChatError("the chat template refuses a system and user message; set tokenizer.chat_template")

    def _try_render(self, messages: list[dict[str, str]]) -> str | None:
        # Templates refuse roles by raising from inside Jinja; which exception differs between versions.
        try:
            return self._render(messages)
        except Exception:
            return None


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
