"""The model card of an export: Markdown, filled in from what the run recorded.

What a run recorded is untrusted: settings stand in a fence that nothing in them can close.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runners.command_line.plain import without_place
from runners.exporting.folder import BASE, Check
from runners.run_folder.runs import SavedRun
from runners.training.evaluations import by_env


@dataclass(frozen=True)
class Contents:
    """What is in the folder."""

    merged: bool
    base: str | None
    """Public name of the base model; None where it has none."""
    head: bool
    """There is a value head."""
    separate: bool
    """There is a separate critic."""
    curve: bool


def card(run: SavedRun, checkpoint: Path, contents: Contents, fingerprint: str, checked: Check) -> str:
    """The text of README.md."""
    train = run.train
    envs = f"environment{'s'[: len(train.env) > 1]} {' and '.join(f'`{env}`' for env in train.env)}"
    front: dict[str, Any] = {
        "library_name": "transformers" if contents.merged else "peft",
        "pipeline_tag": "text-generation",
        "tags": ["turnwise", "reinforcement-learning", "multi-turn", *train.env, train.algo],
    }
    if contents.base:
        front["base_model"] = contents.base
    value = "" if checked.value is None else f"; the value by {checked.value:.1e}"
    lines = [
        f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---",
        f"# {train.envs}, {train.algo}",
        f"An agent for the {envs}, trained by Turnwise with `{train.algo}` (`{checkpoint.name}`, seed {train.seed}).",
        *_results(run.folder / "summary.json", train.env),
        *(["![success and loss over the run](curve.png)"] if contents.curve else []),
        "## Load it",
        _fenced(_loading(contents), "python"),
        f"Loaded this way, log-probabilities of {checked.tokens} tokens differ from the trained model's by at most "
        f"{checked.logp:.1e} (temperature {train.temperature:g}){value}.",
        *_critic(contents, run),
        "## Settings",
        f"Tasks come from the {envs}: it was trained on the split `train`, chosen on `valid`, and "
        "measured on `test`. The fingerprint of the base model's weights is "
        f"`{fingerprint}`; `turnwise.json` has the sha256 of every file and the versions that trained it.",
        _fenced(_settings(run), "yaml"),
    ]
    return "\n\n".join(lines) + "\n"


def _settings(run: SavedRun) -> str:
    """The run's settings as YAML; of a local path only the last part, for the rest is nobody's business."""
    plain = run.settings.plain()
    del plain["out"]
    for key in ("model", "init_from"):
        if plain[key]:
            plain[key] = without_place(plain[key])
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


def _results(file: Path, envs: Sequence[str]) -> Iterator[str]:
    try:
        rows = [
            f"| {f'{env}, ' if len(envs) > 1 else ''}{mode} | {_interval(mine['start'][mode])} | {_interval(final)} |"
            for env, mine in by_env(json.loads(file.read_text("utf-8")), envs).items()
            for mode, final in mine["final"].items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        rows = []
    if rows:
        yield "## Success on test tasks, with 95 % intervals over tasks"
        yield "\n".join(["| decoding | before | after |", "|---|---|---|", *rows])
    else:
        yield "Success on test tasks was not measured."


def _interval(figures: Mapping[str, float]) -> str:
    return f"{float(figures['mean']):.3f} [{float(figures['low']):.3f}, {float(figures['high']):.3f}]"


def _loading(contents: Contents) -> str:
    if contents.merged:
        return (
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            'folder = "."  # this folder\n'
            "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
            "model = AutoModelForCausalLM.from_pretrained(folder)"
        )
    base = repr(contents.base) if contents.base else f'f"{{folder}}/{BASE}"'
    return (
        "from peft import PeftModel\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'folder = "."  # this folder\n'
        "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
        f"base = AutoModelForCausalLM.from_pretrained({base})\n"
        "model = PeftModel.from_pretrained(base, folder)"
    )


VALUE = """from safetensors.torch import load_file
from torch.nn.functional import linear, silu

head = load_file(f"{folder}/critic/value_head.safetensors")


def value(hidden):  # the last layer's hidden state of the last token, [width]
    x = (hidden.float() - head.get("0.mean_D", 0)) / head.get("0.deviation_D", 1)
    layers = sorted(int(name.split(".")[0]) for name in head if name.endswith(".weight"))
    for layer in layers:
        x = linear(x, head[f"{layer}.weight"], head[f"{layer}.bias"])
        x = x if layer == layers[-1] else silu(x)
    return float(x)"""


def _critic(contents: Contents, run: SavedRun) -> Iterator[str]:
    if contents.head:
        prompt = getattr(run.settings.critic, "prompt", "")
        where = "after the ids `critic.prompt_tokens` of `turnwise.json`, appended" if prompt else "as it is"
        yield "## The value of a state"
        yield f"The value head reads the last hidden state of the state, {where}."
        yield _fenced(VALUE, "python")
    if contents.separate:
        yield "`critic/critic.safetensors` is the run's separate critic (an adapter and a head); Turnwise reads it."


def _fenced(text: str, language: str) -> str:
    """A fence longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
