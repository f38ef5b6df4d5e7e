"""Classes of transformers count as one another only where they compute the same."""

from transformers.models.gemma.modeling_gemma import GemmaAttention, GemmaRMSNorm
from transformers.models.glm4.modeling_glm4 import Glm4Attention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRMSNorm
from transformers.models.ministral.modeling_ministral import MinistralAttention
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention

from agents.model.known_code import same_code


def test_copies_are_recognised() -> None:
    assert same_code(MinistralAttention, Qwen2Attention)
    assert same_code(GemmaAttention, LlamaAttention)


def test_other_code_is_other_code() -> None:
    assert not same_code(Qwen2Attention, LlamaAttention)
    assert not same_code(GemmaRMSNorm, LlamaRMSNorm)


def test_a_call_of_another_function_of_the_same_name_is_other_code() -> None:
    """GLM's attention is Llama's to the letter, but its file turns queries and keys in another way."""
    assert not same_code(Glm4Attention, LlamaAttention)
