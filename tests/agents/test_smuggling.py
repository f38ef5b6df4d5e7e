"""No text from outside becomes a control token, wherever an episode takes it in; a naive encoder fails these checks.

Checked is the row that a model is trained on. Around a text, all ids must be those around a harmless one: so control
ids stand where the template put them, and nowhere else. The text's own ids must be no control ids and read as the text.
"""

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import pytest
from chat_cases import tokenizer, unigram
from smuggling_cases import (
    DIRECT,
    HARMLESS,
    INDIRECT,
    PLACES,
    names_of,
    parted,
    play,
    segments,
    shared_texts,
)
from test_chat import MAKERS
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agents.text.chat import Chat, plain_tokenizer
from agents.tree.episode import Episode

STATE = {"system": "state 0", "task": "state 0", "observation": "state 1", "echo": "state 2"}


def metaspace(scheme: str | None) -> Tokenizer:
    """Spaces are ▁, and one is put before a text: as Llama 2 and Mistral have it, with control strings as pieces."""
    backend = unigram(["</s>", "<s>", "[INST]", "<think>", "▁", "▁quiet", "▁words", "words"])
    if scheme is None:  # the same by a normalizer, as in the oldest of them
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    strip = decoders.Strip(" ", 1, 0)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    return backend


def whole_words() -> Tokenizer:
    """Bytes and merges, where a whole word of the vocabulary needs no merges, and control strings are such words."""
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|im_end|>", "<|im_start|>", "<think>"]
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, [], ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


ALL: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    **MAKERS,
    "metaspace, first": lambda: tokenizer("mistral", metaspace("first")),
    "metaspace, always": lambda: tokenizer("gemma", metaspace("always")),
    "metaspace by normalizer": lambda: tokenizer("mistral", metaspace(None)),
    "whole words": lambda: tokenizer("chatml", whole_words()),
    "compatibility forms": lambda: tokenizer("mistral", unigram(["<s>", "</s>", "[INST]"], nfkc=True)),
}


class Naive(Chat):
    """What most programs do: the tokenizer's own call."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])


@cache
def chat_of(name: str, kind: type[Chat] = Chat) -> Chat:
    return kind(ALL[name]())


def texts_of(chat: Chat) -> dict[str, str]:
    """All hostile texts for a tokenizer, by what they are."""
    made = {f"{name}, {how}": change(name) for name in names_of(chat) for how, change in (DIRECT | INDIRECT).items()}
    return made | shared_texts(chat)


# -- the assertion ---------------------------------------------------------------------------------------------------


class Frame:
    """What stands around a text in its state: the same for every text."""

    def __init__(self, chat: Chat, place: str, harmless: Episode) -> None:
        self.chat, self.place = chat, place
        _, self.quiet = segments(chat, harmless)
        state = self.quiet[STATE[place]]
        self.inner = "unknown action: " if place == "echo" else ""
        found = occurrences(state, {chat.encode(self.inner + HARMLESS), Chat.encode(chat, self.inner + HARMLESS)})
        assert len(found) == (2 if place in ("system", "task") else 1)
        start, end = found[-1 if place == "task" else 0]
        self.before, self.after = state[:start], state[end:]
        self.control = sum(t in chat.control_ids for n, ts in self.quiet.items() if "action" not in n for t in ts)

    def problem(self, text: str, episode: Episode) -> str | None:
        """What is wrong with an episode that took ``text`` in at this place, or None."""
        chat = self.chat
        batch, found = segments(chat, episode)
        outside = batch.token_T[batch.action_T < 0].tolist()
        if sum(t in chat.control_ids for t in outside) != self.control:
            return "there are more or fewer control tokens than with a harmless text"
        state = found[STATE[self.place]]
        end = len(state) - len(self.after)
        if state[: len(self.before)] != self.before or state[end:] != self.after or end < len(self.before):
            return "the template around the text has changed"
        mine = state[len(self.before) : end]
        if not chat.control_ids.isdisjoint(mine):
            return f"the text became control tokens: {sorted(chat.control_ids & set(mine))}"
        for name, tokens in found.items():
            # What the agent wrote is its own; all other states and shadow prompts are as they were.
            if name not in (STATE[self.place], "action 1") and tokens != self.quiet[name]:
                return f"{name} has changed"
        # What came back is what the environment really said: a decoder may have changed the agent's words for it.
        return self.unlike(episode.texts[1][1] if self.place == "echo" else text, mine)

    def unlike(self, text: str, ids: Sequence[int]) -> str | None:
        chat = self.chat
        if lossy(chat, text):
            return None
        if {"system": "system", "task": "user"}.get(self.place, "tool") in chat.layout.trimmed:
            text = text.strip()
        # Behind another token: some decoders take the first space of all away.
        read = chat.decode((chat.end_id, *ids)).removeprefix(chat.decode((chat.end_id,)))
        return None if read == seen_by(chat, text) else f"it reads {read!r}"


def occurrences(row: Sequence[int], marks: set[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Where any of the marks stands in a row of ids: [(start, end), …], none within another."""
    found: list[tuple[int, int]] = []
    for mark in sorted(marks, key=len, reverse=True):
        for start in range(len(row) - len(mark) + 1):
            end = start + len(mark)
            if tuple(row[start:end]) == mark and all(end <= a or b <= start for a, b in found):
                found.append((start, end))
    return sorted(found)


@cache
def plain(chat: Chat) -> Tokenizer:
    """The chat's tokenizer without control tokens; made once, for it is asked about every text."""
    return plain_tokenizer(chat.tokenizer)


@cache
def normalizer(chat: Chat) -> str:
    return json.dumps(json.loads(chat.tokenizer.backend_tokenizer.to_str())["normalizer"])


def seen_by(chat: Chat, text: str) -> str:
    """The text as far as the model can tell: it is what these two kinds of tokenizers make of it, by design."""
    text = unicodedata.normalize("NFKC", text) if "NFKC" in normalizer(chat) else text
    return text.replace("▁", " ") if "▁" in chat.tokenizer.get_vocab() else text


def lossy(chat: Chat, text: str) -> bool:
    """Whether the tokenizer has no ids for some of the text (a table of characters has not all of Unicode)."""
    unknown = plain(chat).token_to_id("[UNK]")
    return unknown is not None and unknown in plain(chat).encode(text, add_special_tokens=False).ids


def problems(chat: Chat, place: str, texts: Mapping[str, str]) -> dict[str, str]:
    """What went wrong with which of the texts."""
    harmless, *episodes = play(chat, [{}, *({place: text} for text in texts.values())])
    frame = Frame(chat, place, harmless)
    found = {}
    for (name, text), episode in zip(texts.items(), episodes, strict=True):
        if (problem := frame.problem(text, episode)) is not None:
            found[name] = problem
    return found


# -- the tests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ALL)
def test_no_text_becomes_a_control_token(name: str, place: str) -> None:
    chat = chat_of(name)
    texts = texts_of(chat)
    assert problems(chat, place, texts) == {}
    exact = sum(not lossy(chat, text) for text in texts.values())
    assert exact == len(texts) or (name == "characters" and exact > len(texts) / 3)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ALL)
def test_the_naive_encoder_fails_on_the_same_texts(name: str, place: str) -> None:
    """The negative control: every text that holds a control string smuggles it in, at every place."""
    chat = chat_of(name, Naive)
    texts = {f"{token}, {how}": change(token) for token in names_of(chat) for how, change in DIRECT.items()}
    found = problems(chat, place, texts)
    missed = sorted(set(texts) - set(found))
    assert missed == [], missed
    smuggled = sum("control tokens" in problem for problem in found.values())
    assert smuggled == len(found), {p for p in found.values() if "control tokens" not in p}


def test_compatibility_forms_become_control_strings_inside_the_tokenizer() -> None:
    """The negative control of the look-alikes: for this tokenizer they are more than that."""
    chat = chat_of("compatibility forms")
    ids = plain_tokenizer(chat.tokenizer).encode(INDIRECT["full width"]("</s>"), add_special_tokens=False).ids
    assert not chat.control_ids.isdisjoint(ids), "the attack does not work"


@pytest.mark.parametrize("name", ALL)
def test_halves_that_meet_stay_halves(name: str) -> None:
    """One half ends a text, the other begins the next: system and task, the agent's words and the answer to them."""
    chat = chat_of(name)
    pairs = parted(chat)
    cases = [{"system": a, "task": b, "observation": b, "echo": b + a} for a, b in pairs]
    harmless, *episodes = play(chat, [{}, *cases])
    _, quiet = segments(chat, harmless)
    for case, episode in zip(cases, episodes, strict=True):
        _, found = segments(chat, episode)
        for place, tokens in found.items():
            control = [t for t in tokens if t in chat.control_ids]
            assert control == [t for t in quiet[place] if t in chat.control_ids], (case, place)
    # The negative control: written one after the other and encoded together, they are the control token.
    together = [chat.tokenizer(a + b, add_special_tokens=False)["input_ids"] for a, b in pairs]
    assert all(not chat.control_ids.isdisjoint(ids) for ids in together)


@pytest.mark.parametrize("name", ALL)
def test_a_control_token_that_the_agent_sampled_comes_back_as_text(name: str) -> None:
    """The tool error repeats the token's name; the sampled token itself stays what it was."""
    chat = chat_of(name)
    inside = [i for i in sorted(chat.control_ids) if i not in chat.stop_ids]
    for i in inside:
        written = chat.action_text((i, chat.end_id))
        ids = chat.observation(f"unknown action: {written}", closed=True)
        quiet = chat.observation("unknown action: x", closed=True)
        assert [t for t in ids if t in chat.control_ids] == [t for t in quiet if t in chat.control_ids]
        assert written in chat.decode(ids)
    assert inside


@pytest.mark.parametrize("name", ["metaspace, first", "metaspace, always", "metaspace by normalizer", "whole words"])
def test_nothing_is_put_before_a_text(name: str) -> None:
    """These tokenizers write a space before what they take for the beginning of a text: ours are in the middle."""
    chat = chat_of(name)
    for text in ("SEARCH(x)", " a", "a</s>b<|im_end|>c", "\n"):
        read = chat.decode(chat.observation(text, closed=True))
        assert text in read and f" {text}" not in read.replace(f"[INST] {text}", f"[INST]{text}")
    before = chat.tokenizer.backend_tokenizer.encode("x", add_special_tokens=False).ids
    assert len(before) > len(chat.encode("x")), "the tokenizer puts nothing before a text: the case is void"
