"""Tokenizers with the chat templates of many families, read at test time from a package that ships them (Makefile)."""

import re
from functools import cache
from pathlib import Path

from chat_cases import byte_bpe
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

PLACE = Path(__file__).parents[2] / ".templates" / "trl" / "chat_templates"
TEMPLATES = {path.stem: path for path in sorted(PLACE.glob("*.jinja"))}
IMAGES = {"idefics3", "llava_next", "smolvlm"}
"""Templates whose contents are lists of parts, for images: refused in one line."""
TEXT = [name for name in TEMPLATES if name.removesuffix("_training") not in IMAGES]
SPECIAL = re.compile(
    r"<\|[^|<>{}'\"]{1,40}\|>|<\|[a-z_]+>|<[a-z_]+\|>|<｜[^｜<>]{1,40}｜>|\[/?[A-Z_a-z]{3,20}\]|<sop>"
    r"|<(?:start|end)_of_turn>|<end_of_utterance>"
)
SOFT = re.compile(r"</?(?:think|tool_call|tool_response)>")


@cache
def backend() -> str:
    return byte_bpe().to_str()


@cache
def tokenizer(name: str) -> PreTrainedTokenizerFast:
    """A tokenizer with the control tokens that the template names."""
    return tokenizer_of(TEMPLATES[name].read_text("utf-8"))


def tokenizer_of(template: str) -> PreTrainedTokenizerFast:
    made = Tokenizer.from_str(backend())
    special = sorted({"<bos>", "<eos>", *SPECIAL.findall(template)})
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    made.add_tokens([AddedToken(text, normalized=False) for text in sorted(set(SOFT.findall(template)))])
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<bos>",
        eos_token="<eos>",
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )
