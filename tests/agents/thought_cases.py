"""Tokenizers that cut blank lines in different ways, and a speaker of thoughts."""

from functools import cache
from random import Random

from chat_cases import CHATML, SPECIAL, TEMPLATES
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agents.text.chat import Chat
from agents.tiny.tokenizer import build_tokenizer

THOUGHTS = (
    "Goal: 5.\n\n",
    "也许 3？\n\n",
    "No.\n \nWait: 4.\n\n",  # a line of blanks is no blank line
    "a\nb\n\n",
    "x\n\n\n\n",
    "so\n\n",
)


@cache
def byte_level() -> Chat:
    """Merges that hold whole blank lines and halves of them, as those of Qwen and Llama 3 do."""
    assert TEMPLATES["chatml"] == CHATML
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, min_frequency=2
    )
    backend.train_from_iterator(["a.\n\n", "b.\n\n", "so\n", "x\n\ny", "is\n\nSo"] * 3, trainer)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL["chatml"]])
    return Chat(PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=CHATML, eos_token="<|im_end|>"))


@cache
def tiny() -> Chat:
    return Chat(build_tokenizer([*THOUGHTS * 9, "The answer is \\boxed{5}."], list("0123456789")))


CHATS = {"byte_level": byte_level, "tiny": tiny}


def message(rng: Random) -> str:
    """Many lines, some of them empty."""
    parts = ("a", "b. ", "也", "é", " ", "\t", "\n", "\n", "\n\n", ".\n\n", "\nSo", "x\n\ny", "7", "🙂")
    return "".join(rng.choice(parts) for _ in range(rng.randint(1, 40)))
