"""A tokenizer made from the texts of an environment.

Words are tokens, and whatever often stands between two words of the lexicon becomes one token: a fixed phrase costs one
step, however long. Any other text falls back to bytes, so every string can be encoded and comes back unchanged.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

CONTROL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CHAT_TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}"
    "{% for call in m['tool_calls'] %}<tool_call>{{ call['function'] | tojson }}</tool_call>{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Without tools nothing of them is written."""
_RARE = 0.01
"""Neighbours are joined when they occur more often than this share of the texts."""


def build_tokenizer(texts: Sequence[str], lexicon: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """A tokenizer for ``texts``. The words of ``lexicon`` are kept whole and are never joined with anything."""
    result = re.compile(
        "|".join([*map(re.escape, sorted(lexicon, key=len, reverse=True)), r"[A-Za-z]+", r"\d{1,2}", "."]), re.DOTALL
    )
    lines = [result.findall(text) for text in texts]
    pieces = dict.fromkeys([*lexicon, *(piece for line in lines for piece in line)])
    pieces.update(dict.fromkeys(_phrases(lines, frozenset(lexicon), at_least=max(8, int(_RARE * len(lines))))))
    pieces.update(dict.fromkeys(chr(c) for c in range(32, 127)))
    # Of all joined pieces only those are kept that the shortest segmentation of the texts really uses.
    trial = _backend(pieces)
    used = Counter(i for encoding in trial.encode_batch(list(texts)) for i in encoding.ids)
    keep = {p for i, p in enumerate(pieces, 1) if len(p) == 1 or p in lexicon or used[i]}
    backend = _backend([p for p in pieces if p in keep])
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _backend(pieces: Iterable[str]) -> Tokenizer:
    # One nat a piece: the best segmentation is the one with the fewest pieces.
    # The names of the bytes are no pieces of text: scored so low, they are only reached by falling back.
    bytes_ = ((f"<0x{b:02X}>", -100.0) for b in range(256))
    vocab = [("<unk>", -20.0), *((p, -1.0) for p in pieces), *bytes_]
    backend = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return backend


def _phrases(lines: list[list[str]], walls: frozenset[str], *, at_least: int) -> list[str]:
    """Everything that comes of joining frequent neighbours, again and again; nothing is joined with a wall."""
    result: dict[str, None] = {}
    while True:
        pairs = Counter(pair for line in lines for pair in pairwise(line))
        # A dict, not a set: the order of the vocabulary must not depend on Python's hash seed.
        joins = dict.fromkeys(p for p, n in pairs.items() if n >= at_least and walls.isdisjoint(p))
        if not joins:
            return list(result)
        result.update((a + b, None) for a, b in joins)
        lines = [_join(line, joins) for line in lines]


def _join(line: list[str], joins: Mapping[tuple[str, str], None]) -> list[str]:
    out: list[str] = []
    i = 0
    while i < len(line):
        if i + 1 < len(line) and (line[i], line[i + 1]) in joins:
            out.append(line[i] + line[i + 1])
            i += 2
        else:
            out.append(line[i])
            i += 1
    return out
