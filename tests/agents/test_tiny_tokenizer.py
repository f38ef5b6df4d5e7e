"""The tokenizer of the tiny model: every text comes back, the words of the lexicon are one token each."""

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from agents.text.chat import Chat
from agents.tiny.tokenizer import CONTROL, build_tokenizer

LEXICON = ["Brunwick", "Ardel", "Brun", "山"]
TEXTS = [
    f"{i}: {town} is a town on the {river}. It has {i * 37} people. 动作：搜索"
    for i in range(40)
    for town, river in (("Brunwick", "Ardel"), ("Brun", "山"))
]
TOKENIZER = build_tokenizer(TEXTS, LEXICON)
CHAT = Chat(TOKENIZER)


@given(st.text())
@example("<unk>")
@example("Brunwick's Brun, naïve 山水 🙂 \x00\x7f\n\r\t")
@example("▁ \u2581 \u200b\ufeff e\u0301")
@example("".join(CONTROL))
def test_any_text_comes_back(text: str) -> None:
    assert CHAT.decode(CHAT.encode(text)) == text


def test_the_name_of_a_byte_token_is_only_text() -> None:
    assert CHAT.decode(CHAT.encode("<0x41>")) == "<0x41>"


def test_words_of_the_lexicon_are_one_token_each() -> None:
    said = CHAT.encode("Is Brunwick on the Ardel? Brun山")
    for word in LEXICON:
        (token,) = CHAT.encode(word)
        assert token in said
    assert len(CHAT.encode("Bruns")) == 2  # the longer name does not hide the shorter one


def test_nothing_is_joined_with_a_word_of_the_lexicon() -> None:
    pieces = [TOKENIZER.decode([i]) for i in range(len(TOKENIZER))]
    assert not [p for p in pieces for word in ("Brunwick", "Ardel") if word in p and p != word]


def test_frequent_phrases_are_one_token() -> None:
    (_,) = CHAT.encode(" is a town on the ")
    assert len(CHAT.encode("a noun it saw never")) > 5


def test_the_same_texts_give_the_same_tokenizer() -> None:
    again = build_tokenizer(TEXTS, LEXICON)
    assert again.backend_tokenizer.to_str() == TOKENIZER.backend_tokenizer.to_str()
    assert build_tokenizer(TEXTS[:10], LEXICON).backend_tokenizer.to_str() != TOKENIZER.backend_tokenizer.to_str()


def test_it_keeps_its_ids_when_saved(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    TOKENIZER.save_pretrained(str(tmp_path))
    loaded = Chat(PreTrainedTokenizerFast.from_pretrained(str(tmp_path)))
    assert loaded.prompt("s", TEXTS[0]) == CHAT.prompt("s", TEXTS[0])
    assert (loaded.end_id, loaded.stop_ids, loaded.control_ids) == (CHAT.end_id, CHAT.stop_ids, CHAT.control_ids)
