"""An export, loaded by plain vLLM, is the model that was trained; its base model alone is not."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm_cases import marks

from runners.exporting.program import export
from runners.settings.run_settings import read_settings
from runners.training import start

pytestmark = [*marks, pytest.mark.usefixtures("own_cache")]
RUN = (
    *("--env", "identity", "--updates", "3", "--episodes", "32", "--minibatches", "2", "--lr", "0.02"),
    *("--eval-every", "0", "--test-tasks", "0", "--envs.processes", "1", "--pretrain.steps", "60"),
    *("--react.max-action-tokens", "16", "--react.max-tokens", "256", "--pretrain.demonstrations", "100"),
)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> dict[str, Path]:
    place, quiet = tmp_path_factory.mktemp("export"), Console(file=io.StringIO())
    with start.begin(read_settings([*RUN, "--out", str(place / "run")]), quiet) as training:
        training.run()
    return {
        "adapter": export(place / "run", place / "adapter", quiet),
        "merged": export(place / "run", place / "merged", quiet, merge=True),
    }


def in_vllm(model: Path, tokens: list[int], adapter: Path | None = None) -> dict[str, Any]:
    rank = json.loads((adapter / "adapter_config.json").read_text())["r"] if adapter else 0
    command = [sys.executable, Path(__file__).with_name("plain_vllm.py"), model, adapter or "", str(rank)]
    said = subprocess.run(
        command, input=json.dumps(tokens), capture_output=True, text=True, timeout=300, cwd=model.parent
    )
    assert said.returncode == 0, said.stderr[-2000:]
    done: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return done


def logp_of(model: Any, prompt: list[int], tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens)[:, None]).squeeze(1)


def test_plain_vllm_reads_the_adapter_and_the_merged_model(exports: dict[str, Path]) -> None:
    adapter, merged = exports["adapter"], exports["merged"]
    base = AutoModelForCausalLM.from_pretrained(adapter / "base", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(adapter)
    turns = [{"role": "system", "content": "Repeat the word."}, {"role": "user", "content": "red"}]
    prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    found = {
        "adapter": in_vllm(adapter / "base", prompt, adapter),
        "merged": in_vllm(merged, prompt),
        "base": in_vllm(adapter / "base", prompt),
    }
    before = logp_of(base, prompt, found["adapter"]["tokens"])
    trained = PeftModel.from_pretrained(base, adapter)
    ids = torch.tensor([prompt])
    greedy = trained.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    for name in ("adapter", "merged"):
        tokens = found[name]["tokens"]
        assert tokens == greedy[0, len(prompt) :].tolist()[: len(tokens)]
        worst = (torch.tensor(found[name]["logp"]) - logp_of(trained, prompt, tokens)).abs().max()
        print(f"\n{name}: {len(tokens)} tokens, log-probs differ by at most {worst:.1e}")
        assert worst <= 2e-5
    # The control: without the adapter it is another model.
    assert (before - logp_of(trained, prompt, found["adapter"]["tokens"])).abs().max() > 1e-2
    assert found["base"] != found["adapter"]
