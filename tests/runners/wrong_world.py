"""The files that wrong inputs name: one small run and its model, and copies of both, each damaged in one way."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from run_cases import SMALL
from safetensors.torch import load_file, save_file

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


def build(w: Path, cache: Path) -> None:
    """Fills the folder ``w``."""
    for name in ("here", "empty", "files", "runs", "models", "plugins", "home"):
        (w / name).mkdir()
    write_files(w / "files")
    (w / "files" / "small.yaml").write_text(SMALL)
    (w / "files" / "compare.yaml").write_text(f"{SMALL}env_steps: 5000\nseeds: 2\n".replace("updates: 4\n", ""))
    command = [sys.executable, "-c", "from runners.cli import main; main()", "train"]
    command += ["--config", str(w / "files" / "small.yaml"), "--updates", "2", "--out", str(w / "runs" / "good")]
    env = {**os.environ, "TURNWISE_CACHE": str(cache)}
    done = subprocess.run(command, cwd=w, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    source = json.loads((w / "runs" / "good" / "base.json").read_text())["source"]
    shutil.copytree(source, w / "models" / "good")
    for name, change in MODELS.items():
        copied(w / "models", name, change)
    for name, change in RUNS.items():
        copied(w / "runs", name, change)
    for name, source in PLUGINS.items():
        plugin(w / "plugins" / name, name, source)
    plugin(w / "plugins" / "taken", "taken", "class Mine(Plain): pass", part="identity")


def copied(place: Path, name: str, change: Callable[[Path], object]) -> None:
    shutil.copytree(place / "good", place / name)
    change(place / name)


def write_files(place: Path) -> None:
    """Settings files and other files, none of which can be used."""
    texts = {
        "broken.yaml": "env: [", "broken.json": '{"env": ', "broken.toml": "env = ", "empty.yaml": "",
        "list.yaml": "- 1\n- 2\n", "number.yaml": "3", "key.yaml": "env: identity\nepizodes: 3\n",
        "type.yaml": "env: identity\nupdates: many\n", "nan.yaml": "env: identity\nlr: .nan\n",
        "inner.yaml": "env: identity\nidentity: {lenght: 3}\n", "part.yaml": "env: identity\nidentity: 3\n",
        "object.yaml": "!!python/object/apply:os.getpid []\n", "date.yaml": "env: identity\nout: 2020-01-01\n",
        "deep.yaml": "a: " + "[" * 5000, "deep.json": '{"a": ' + "[" * 100_000,
        "bomb.yaml": "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise("abcdefghijk")),
        "twice.yaml": "env: identity\nupdates: 3\nupdates: 4\n", "env-list.yaml": "env: [wiki, 3]\n",
        "big.yaml": "env: identity\nseed: 1" + "0" * 5000, "tab.yaml": "env:\tidentity\n\tlr: 3",
        "entrants.yaml": "entrants: {a: {algo: selfac, lr: fast}}\n", "entrant.yaml": "entrants: [1]\n",
        "claims.yaml": "claims: [{left: nobody, right: selfac}]\n", "tune.yaml": "selfac: {lr: [1.0e-3]}\n",
        "null.yaml": "env: null\n",
    }  # fmt: skip
    for name, text in texts.items():
        (place / name).write_text(text)
    (place / "binary.yaml").write_bytes(bytes(range(256)) * 40)
    (place / "utf16.yaml").write_text("env: identity", "utf-16")
    (place / "loop").symlink_to("loop")
    (place / "dangling").symlink_to("nowhere")
    (place / "folder.yaml").mkdir()
    (place / "task.jsonl").write_text('{"question": 3}\nno json\n')


def edited(name: str, old: str, new: str) -> Callable[[Path], object]:
    """Replaces a piece of a text file, which must be there."""

    def change(folder: Path) -> None:
        text = (folder / name).read_text("utf-8")
        assert old in text, (name, old)
        (folder / name).write_text(text.replace(old, new, 1), "utf-8")

    return change


def without(*names: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def holding(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def weights(change: Callable[[dict[str, torch.Tensor]], object], file: str = WEIGHTS) -> Callable[[Path], object]:
    def changed(folder: Path) -> None:
        tensors = load_file(folder / file)
        change(tensors)
        save_file(tensors, folder / file, {"format": "pt"})

    return changed


def fill(tensors: dict[str, torch.Tensor], part: str, value: float) -> None:
    next(x for name, x in tensors.items() if part in name).view(-1)[3] = value


def narrow(tensors: dict[str, torch.Tensor], part: str) -> None:
    name = next(name for name in tensors if part in name)
    tensors[name] = tensors[name][: tensors[name].shape[0] // 2].contiguous()


def sharded(folder: Path) -> None:
    """An index that names a file that is not there."""
    names = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).rename(folder / "model-00001-of-00002.safetensors")
    there = dict.fromkeys(names, "model-00001-of-00002.safetensors")
    there[next(iter(there))] = "model-00002-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": there}))


def few_rows(folder: Path) -> None:
    """Fewer embeddings than tokens."""
    config = json.loads((folder / "config.json").read_text())
    rows = config["vocab_size"] // 2

    def cut(tensors: dict[str, torch.Tensor]) -> None:
        for name, x in tensors.items():
            if x.shape[0] == config["vocab_size"]:
                tensors[name] = x[:rows].contiguous()

    weights(cut)(folder)
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows, "pad_token_id": None}))


def no_template(folder: Path) -> None:
    for file in folder.glob("chat_template*"):
        file.unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def template(text: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        no_template(folder)
        (folder / "chat_template.jinja").write_text(text)

    return change


MODELS: dict[str, Callable[[Path], object]] = {
    "no-weights": without(WEIGHTS),
    "no-config": without("config.json"),
    "no-tokenizer": without(TOKENIZER, "tokenizer_config.json"),
    "cut-weights": lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:5000]),
    "text-weights": holding(WEIGHTS, b"these are no weights"),
    "empty-weights": holding(WEIGHTS, b""),
    "broken-config": holding("config.json", b"{"),
    "list-config": holding("config.json", b"[]"),
    "other-kind": edited("config.json", '"qwen3"', '"gpt17"'),
    "broken-tokenizer": holding(TOKENIZER, b"{"),
    "broken-tokenizer-config": holding("tokenizer_config.json", b"{"),
    "list-tokenizer-config": holding("tokenizer_config.json", b"[]"),
    "nan": weights(lambda t: fill(t, "mlp", float("nan"))),
    "inf": weights(lambda t: fill(t, "q_proj", float("inf"))),
    "shapes": weights(lambda t: narrow(t, "mlp.up_proj")),
    "missing-layer": weights(lambda t: t.pop(next(n for n in t if "q_proj" in n))),
    "few-rows": few_rows,
    "sharded": sharded,
    "no-template": no_template,
    "broken-template": template("{% for message in messages %}"),
    "empty-template": template(""),
    "raising-template": template("{{ raise_exception('no\\nsystem') }}"),
}


def stopped(folder: Path) -> None:
    """As if the run had not come to its end."""
    (folder / "summary.json").unlink()


def stopped_and(*changes: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        stopped(folder)
        for each in changes:
            each(folder)

    return change


def in_checkpoints(name: str, data: bytes | None) -> Callable[[Path], object]:
    """Every checkpoint holds other data under a name; None removes it."""

    def change(folder: Path) -> None:
        for place in (folder / "checkpoints").iterdir():
            (place / name).unlink() if data is None else (place / name).write_bytes(data)

    return change


def linked_page(folder: Path) -> None:
    (folder / "view.html").unlink(missing_ok=True)
    (folder / "view.html").symlink_to("/dev/null")


RUNS: dict[str, Callable[[Path], object]] = {
    "stopped": stopped,
    "no-checkpoints": without("checkpoints"),
    "empty-checkpoints": stopped_and(without("checkpoints"), lambda f: (f / "checkpoints").mkdir()),
    "file-checkpoints": stopped_and(without("checkpoints"), holding("checkpoints", b"")),
    "no-config": without("config.yaml"),
    "no-base": without("base.json"),
    "broken-base": stopped_and(holding("base.json", b"{")),
    "list-base": stopped_and(holding("base.json", b"[]")),
    "other-base": stopped_and(edited("base.json", '"fingerprint": "', '"fingerprint": "0')),
    "broken-config": stopped_and(holding("config.yaml", b"env: [")),
    "empty-config": stopped_and(holding("config.yaml", b"")),
    "binary-config": stopped_and(holding("config.yaml", bytes(range(128, 256)))),
    "edited-rank": stopped_and(edited("config.yaml", "rank: 8", "rank: 4")),
    "edited-env": stopped_and(edited("config.yaml", "env: identity", "env: corridor")),
    "edited-algo": stopped_and(edited("config.yaml", "algo: selfac", "algo: selfak")),
    "edited-model": stopped_and(edited("config.yaml", "model: tiny", "model: /nowhere")),
    "edited-range": stopped_and(edited("config.yaml", "updates: 2", "updates: -2")),
    "bomb-config": stopped_and(holding("config.yaml", b"a: &a [x]\nb: *a\n")),
    "no-adapter": stopped_and(in_checkpoints("adapter_model.safetensors", None)),
    "cut-adapter": stopped_and(in_checkpoints("adapter_model.safetensors", b"")),
    "broken-manifest": stopped_and(in_checkpoints("MANIFEST.json", b"{")),
    "no-manifest": stopped_and(in_checkpoints("MANIFEST.json", None)),
    "list-manifest": stopped_and(in_checkpoints("MANIFEST.json", b"[]")),
    "strange-file": stopped_and(in_checkpoints("extra", b"x")),
    "no-metrics": stopped_and(without("metrics.jsonl")),
    "edited-metrics": stopped_and(edited("metrics.jsonl", '"update": 1', '"update": 7')),
    "no-ledger": stopped_and(without("ledger.jsonl")),
    "cut-episodes": stopped_and(holding("episodes.jsonl", b"")),
    "broken-metrics": holding("metrics.jsonl", b"no json\n"),
    "typed-metrics": holding("metrics.jsonl", b'{"kind": "update", "update": "one"}\n'),
    "list-metrics": holding("metrics.jsonl", b"[]\n"),
    "broken-episodes": holding("episodes.jsonl", b"no json\n"),
    "typed-episodes": holding("episodes.jsonl", b'{"update": 1, "task": "a", "turns": 3}\n'),
    "deep-episodes": holding("episodes.jsonl", b'{"update": ' + b"[" * 100_000 + b"\n"),
    "linked-page": linked_page,
    "folder-page": lambda f: ((f / "view.html").unlink(), (f / "view.html").mkdir()),
}

HEADER = """
from dataclasses import dataclass
from agent_envs.identity.env import IdentityEnv
from agent_envs.identity.config import IdentityConfig

class Plain(IdentityEnv):
    name = "mine"
"""


def step(change: str) -> str:
    """An environment whose answers are changed by one statement."""
    return f"""
class Mine(Plain):
    def step(self, action):
        seen, reward, terminated, truncated, info = super().step(action)
        {change}
        return seen, reward, terminated, truncated, info
"""


def method(signature: str, body: str) -> str:
    return f"class Mine(Plain):\n    def {signature}:\n        {body}\n"


PLUGINS: dict[str, str] = {
    "import": "import turnwise_no_such_module",
    "syntax": "def (:",
    "exits": "raise SystemExit(0)",
    "stranger": "class Mine: pass",
    "thawed": "class Mine(Plain):\n    Config = dict\n",
    "no-default": "@dataclass(frozen=True)\nclass C:\n    max_turns: int\nclass Mine(Plain):\n    Config = C\n",
    "tasks-raise": method("tasks(self, split)", "raise RuntimeError('a\\nb')"),
    "tasks-none": method("tasks(self, split)", "return None"),
    "tasks-empty": method("tasks(self, split)", "return []"),
    "tasks-of-test": method("tasks(self, split)", "return [] if split == 'test' else super().tasks(split)"),
    "tasks-odd": method("tasks(self, split)", "return [1, 2, 3]"),
    "tasks-item": "class T(list):\n    def __getitem__(self, i): 1 / 0\n"
    + method("tasks(self, split)", "return T([1])"),
    "init-raises": method("__init__(self, config=None)", "raise RuntimeError('no luck')"),
    "reset-raises": method("reset(self, **_)", "raise RuntimeError('no luck')"),
    "prompt-raises": method("system_prompt(self)", "raise RuntimeError('no luck')"),
    "oracle-raises": method("oracle(self)", "raise RuntimeError('no luck')"),
    "expert-raises": method("expert(self, **_)", "raise RuntimeError('no luck')"),
    "lexicon-raises": method("lexicon(self)", "raise RuntimeError('no luck')"),
    "no-expert": "from agent_envs.core import TextEnv\nclass Mine(Plain):\n    expert = TextEnv.expert\n",
    "prepare-raises": method("prepare(self)", "raise RuntimeError('no luck')"),
    "success": step("info['success'] = 'maybe' if terminated or truncated else None"),
    "no-success": step("info.pop('success', None)"),
    "metrics": step("info['metrics'] = [1.0]"),
    "info": step("info = None"),
    "large": step("reward = 1e39"),
    "text-reward": step("reward = 'much'"),
    "seen": step("seen = 3"),
    "step-raises": step("raise RuntimeError('a\\nb')"),
    "dies": step("import os; os._exit(3)"),
}


def plugin(place: Path, name: str, source: str, part: str = "mine") -> None:
    """An installed package with one environment."""
    module = f"turnwise_{name.replace('-', '_')}"
    info = place / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: turnwise-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[turnwise.envs]\n{part} = {module}:Mine\n")
    (place / f"{module}.py").write_text(f"{HEADER}\n{source}\n")
