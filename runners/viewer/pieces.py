"""The text of single token ids.

Invariant: nothing is downloaded and no model is loaded; an id whose text is not known is shown as its number. A token
that is only a part of a character is shown by its bytes, ``<0xE5>``.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer


@dataclass(frozen=True)
class Pieces:
    """What the ids of a run stand for."""

    text: dict[int, str] = field(default_factory=dict)
    control: list[int] = field(default_factory=list)
    """Ids that no text can become: the template's own."""
    missing: str = ""
    """Why there are no texts, in one sentence; empty when there are."""


def read_pieces(source: str | None, ids: Collection[int]) -> Pieces:
    """The texts of ``ids`` in the tokenizer of ``source``: a folder, or a hub name in the local cache."""
    if source is None:
        return Pieces(missing="The run does not name its base model, so tokens are shown as numbers.")
    file = _file(source)
    if file is None:
        return Pieces(missing=f"The tokenizer of {source} is not on this machine, so tokens are shown as numbers.")
    try:
        tokenizer = Tokenizer.from_file(str(file))
        control = tokenizer.get_added_tokens_decoder()
    except Exception as error:  # the library raises the bare class
        return Pieces(missing=f"{file} cannot be read ({error}), so tokens are shown as numbers.")
    byte_level = '"ByteLevel"' in json.dumps(json.loads(tokenizer.to_str())["decoder"])
    alphabet = _byte_letters() if byte_level else {}
    text = {i: _piece(tokenizer, i, alphabet) for i in sorted(ids) if tokenizer.id_to_token(i) is not None}
    return Pieces(text, sorted(set(control) & set(ids)))


def _file(source: str) -> Path | None:
    if Path(source).is_dir():
        file = Path(source) / "tokenizer.json"
        return file if file.is_file() else None
    try:
        cached = try_to_load_from_cache(source, "tokenizer.json")
    except ValueError:  # no hub name either
        return None
    return Path(cached) if isinstance(cached, str) else None


def _piece(tokenizer: Tokenizer, i: int, alphabet: dict[str, int]) -> str:
    name = tokenizer.id_to_token(i) or ""
    if i in tokenizer.get_added_tokens_decoder():
        return name
    text = str(tokenizer.decode([i], skip_special_tokens=False))
    if "\ufffd" not in text:
        # Decoders drop the space before a first word.
        return " " + text if name.startswith("▁") and not text.startswith(" ") else text
    return "".join(f"<0x{alphabet[c]:02X}>" for c in name) if alphabet.keys() >= set(name) else name


def _byte_letters() -> dict[str, int]:
    """The printable letter of every byte in a byte-level vocabulary (GPT-2's table), turned around."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(256 + i): byte for i, byte in enumerate(moved)}
