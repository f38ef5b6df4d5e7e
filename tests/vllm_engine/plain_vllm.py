"""Plain vLLM on an export, in a process of its own: no part of this project is imported.

    python plain_vllm.py MODEL ADAPTER-OR-EMPTY RANK

Reads token ids as JSON; writes {"tokens": greedy continuation, "logp": their log-probabilities}.
"""

import json
import os
import sys

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
os.environ |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}

from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt
from vllm.lora.request import LoRARequest

if __name__ == "__main__":
    model, adapter, rank = sys.argv[1:]
    lora = {"enable_lora": True, "max_lora_rank": int(rank), "max_loras": 1} if adapter else {}
    llm = LLM(
        model=model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        block_size=32,
        kv_cache_memory_bytes=64 * 2**20,
        model_impl="transformers",  # the tiny model has a window on some layers only
        logprobs_mode="processed_logprobs",
        generation_config="vllm",
        **lora,
    )
    params = SamplingParams(temperature=0, max_tokens=12, logprobs=0, detokenize=False)
    request = LoRARequest("trained", 1, adapter) if adapter else None
    prompt = TokensPrompt(prompt_token_ids=json.load(sys.stdin))
    (done,) = llm.generate([prompt], params, use_tqdm=False, lora_request=request)
    out = done.outputs[0]
    logp = [entry[token].logprob for token, entry in zip(out.token_ids, out.logprobs, strict=True)]
    print(json.dumps({"tokens": list(out.token_ids), "logp": logp}))
