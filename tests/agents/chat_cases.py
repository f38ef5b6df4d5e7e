"""Tokenizers of several kinds and chat templates of several families, all made here."""

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% elif m.role == 'assistant' %}{% set c = m.content %}"
    "{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"  # past thoughts are dropped
    "<|im_start|>assistant\n{{ c }}<|im_end|>\n"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}"
    "<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (  # the system message goes into the *last* user message
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}"
    "[INST] {% if loop.last and system %}{{ system }}\n\n{% endif %}{{ m.content }}[/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }}</s>"
    "{% else %}{{ raise_exception('only user and assistant roles are supported') }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role in ('system', 'tool') %}{{ raise_exception(m.role ~ ' role not supported') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
REFUSES = "{{ raise_exception('no') }}"
IGNORES = "{% for m in messages %}<|im_start|><|im_end|>{% endfor %}"
NO_END = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
ONE_ANSWER = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('one turn') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)

SPECIAL = {
    "chatml": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "mistral": ["<s>", "</s>", "[INST]", "[/INST]"],
    "gemma": ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
}
NOT_SPECIAL = ["<think>", "</think>", "<tool_call>"]
"""Added tokens that are not special: the switches that hide special tokens do not hide these."""
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "gemma": GEMMA}
BOS = {"llama3": "<|begin_of_text|>", "mistral": "<s>", "gemma": "<bos>"}
EOS = {"chatml": "<|im_end|>", "llama3": "<|eot_id|>", "mistral": "</s>", "gemma": "<eos>"}
CORPUS = [
    "The river Ardel flows through Brunwick. 1: Brunwick is a town of 12000 people.",
    "<think>I look it up.</think><action>SEARCH(Brunwick)</action> system user assistant tool model",
    "动作：搜索（河流）。 Ж é ß 🙂",
]


def byte_bpe() -> Tokenizer:
    """Bytes and merges, as GPT, Llama 3 and Qwen have."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(CORPUS * 3, trainer)
    return backend


def unigram(pieces: list[str], *, nfkc: bool = False) -> Tokenizer:
    """Pieces by score with bytes for the rest. Whatever stands in ``pieces`` is in the model's own vocabulary."""
    letters = [chr(c) for c in range(32, 127)] + ["\n"]
    vocab = [("<unk>", -20.0), *((p, -1.0) for p in dict.fromkeys([*pieces, *letters]))]
    vocab += [(f"<0x{b:02X}>", -100.0) for b in range(256)]
    backend = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    if nfkc:
        backend.normalizer = normalizers.NFKC()
    return backend


def characters() -> Tokenizer:
    """A plain table of characters (WordLevel)."""
    table = dict.fromkeys("".join(CORPUS) + "".join(map(chr, range(32, 127))) + "\n")
    vocab = {"[UNK]": 0, **{c: i for i, c in enumerate(table, 1)}}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    return backend


def tokenizer(family: str = "chatml", backend: Tokenizer | None = None, **changes: str) -> PreTrainedTokenizerFast:
    """A tokenizer with the family's control tokens and template, on ``backend`` (bytes and merges by default)."""
    backend = backend or byte_bpe()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL[family]])
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t in NOT_SPECIAL])
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=EOS[family],
        bos_token=BOS.get(family),
        chat_template=TEMPLATES[family],
        clean_up_tokenization_spaces=False,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made
