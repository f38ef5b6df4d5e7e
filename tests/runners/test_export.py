"""What leaves a run is loaded again without Turnwise, as its model card says, and is the model that was trained."""

import base64
import json
import re
import shutil
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import huggingface_hub
import pytest
import torch
import yaml
from rich.console import Console
from run_cases import training
from safetensors.torch import load_file, save_file

from agents.engine import Request, SamplingSettings
from agents.engine.hf import HFEngine
from runners import export as command
from runners.command_line.errors import UserError
from runners.exporting import folder as folder_module
from runners.exporting import hub
from runners.exporting.card import _fenced
from runners.exporting.folder import BASE, DETAILS
from runners.exporting.program import export
from runners.loading.base_model import actor_of, load_base
from runners.run_folder.runs import base_of, locate

pytestmark = [pytest.mark.runs, pytest.mark.usefixtures("own_cache")]
RUN = ("--updates", "2", "--eval-every", "0", "--lr", "0.02")
CRITIC = ("--value-lr", "0.02")
ALGORITHMS = {
    "selfac": CRITIC,
    "standard": (*CRITIC, "--critic.standardize", "--critic.layers", "2"),
    "silent": (*CRITIC, "--critic.prompt", "", "--temperature", "0.7"),
    "grpo": ("--algo", "grpo"),
    "ppo": (*CRITIC, "--algo", "ppo"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for name, argv in ALGORITHMS.items():
        with training(place / name, *RUN, *argv) as run:
            run.run()
    return place


def exported(run: Path, out: Path, **flags: Any) -> Path:
    return export(run, out, Console(quiet=True), **flags)


def as_the_card_says(folder: Path) -> dict[str, Any]:
    """Runs the model card's own Python in the folder; what it defines."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.S))
    assert 'folder = "."' in code
    names: dict[str, Any] = {}
    exec(code.replace('folder = "."', f"folder = {str(folder)!r}"), names)
    return names


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("name", list(ALGORITHMS))
@torch.no_grad()
def test_the_card_loads_the_trained_model(runs: Path, tmp_path: Path, name: str, merge: bool) -> None:
    out = exported(runs / name, tmp_path / "out", merge=merge)
    loaded = as_the_card_says(out)
    run, chosen = locate(runs / name, Console(quiet=True))
    base = load_base(base_of(run.settings, Console(quiet=True), "cpu"))
    actor, prompt = actor_of(base, run.settings)
    actor.load(chosen)
    tokens = base.chat.prompt("Repeat the word.", "red")
    assert loaded["tokenizer"]("a red wörld").input_ids == base.chat.tokenizer("a red wörld").input_ids
    engine = HFEngine(actor.model, base.chat.stop_ids, max_length=128, sampling=SamplingSettings(greedy=True))
    engine.submit(Request(0, tokens, max_tokens=12, seed=0))
    done = []
    while engine.pending:
        done += engine.step()
    wanted = done[0].tokens
    ids = torch.tensor([tokens])
    greedy = loaded["model"].generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False,
        eos_token_id=sorted(base.chat.stop_ids), pad_token_id=base.chat.end_id,
    )  # fmt: skip
    assert tuple(greedy[0, len(tokens) :].tolist()) == wanted
    logits = loaded["model"](torch.tensor([tokens + wanted])).logits[0, len(tokens) - 1 : -1]
    logp = torch.log_softmax(logits, -1).gather(1, torch.tensor(wanted)[:, None]).squeeze(1)
    assert (logp - torch.tensor(done[0].logp)).abs().max() <= 2e-5
    details = json.loads((out / DETAILS).read_text("utf-8"))
    assert details["check"]["logp"] <= 2e-5
    assert (out / BASE).is_dir() != merge
    if "value" in loaded:
        assert details["check"]["value"] <= 2e-5
        asked = details["critic"]["prompt_tokens"]
        assert tuple(asked) == prompt
        path = torch.tensor([[*tokens, *wanted, *asked]])
        hidden = loaded["model"](path, output_hidden_states=True).hidden_states[-1][0, -1]
        assert actor.value_head is not None
        assert abs(loaded["value"](hidden) - float(actor.value_head(hidden[None]))) <= 1e-6
        assert abs(loaded["value"](hidden)) > 1e-3, "a head that says nothing shows nothing"
    else:
        assert name in ("grpo", "ppo")
        assert (out / "critic" / "critic.safetensors").exists() == (name == "ppo")


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "critic/value_head.safetensors"])
def test_an_export_that_is_not_the_trained_model_is_refused(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    write = folder_module.write_adapter

    def spoilt(actor: Any, base: Any, name: str, out: Path) -> None:
        write(actor, base, name, out)
        tensors = load_file(out / file)
        save_file({name: tensor + 0.05 for name, tensor in tensors.items()}, out / file)

    monkeypatch.setattr(folder_module, "write_adapter", spoilt)
    with pytest.raises(UserError, match="is not the trained model: loaded again, it differs by"):
        exported(runs / "selfac", tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()


def test_the_card_tells_of_the_run_and_of_no_place(runs: Path, tmp_path: Path) -> None:
    out = exported(runs / "selfac", tmp_path / "out")
    text = (out / "README.md").read_text("utf-8")
    front = yaml.safe_load(text.split("---")[1])
    assert front["library_name"] == "peft" and "base_model" not in front
    summary = json.loads((runs / "selfac" / "summary.json").read_text("utf-8"))
    assert f"| greedy | {summary['start']['greedy']['mean']:.3f} [" in text
    assert str(runs) not in text and str(tmp_path) not in text
    config = json.loads((out / "adapter_config.json").read_text("utf-8"))
    assert config["base_model_name_or_path"] == BASE
    assert _fenced("a ```` b", "yaml").startswith("`````yaml\n")


def test_what_is_there_is_never_overwritten(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(UserError, match="is not empty; name another folder with --out"):
        exported(runs / "selfac", tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("taken", [600_000, 800_000, 1_000_000])
def test_a_full_disk_is_one_line_and_leaves_nothing(runs: Path, small_disk: Path, taken: int) -> None:
    (small_disk / "mine").write_bytes(bytes(taken))
    with pytest.raises(UserError, match=r"cannot write .*No space left on device.*; make room") as caught:
        exported(runs / "selfac", small_disk / "export")
    assert "\n" not in str(caught.value)
    assert [path.name for path in small_disk.iterdir()] == ["mine"]


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A hub on loopback that takes a repository and its first commit; what it was sent."""
    got: dict[str, Any] = {"files": {}}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer: dict[str, Any] = {"commitUrl": f"{url}/someone/something/commit/1", "commitOid": "1"}
            if self.path == "/api/repos/create":
                got["made"], answer = json.loads(body), {"url": f"{url}/someone/something"}
            elif "/preupload/" in self.path:
                paths = [file["path"] for file in json.loads(body)["files"]]
                answer = {"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in paths]}
            else:
                rows = [json.loads(line)["value"] for line in body.splitlines() if b'"file"' in line]
                got["files"] = {row["path"]: base64.b64decode(row["content"]) for row in rows}
            text = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        yield got
        server.shutdown()


def test_a_push_sends_every_file_to_a_private_repository(runs: Path, tmp_path: Path, twin: dict[str, Any]) -> None:
    out = exported(runs / "grpo", tmp_path / "out", merge=True)
    assert hub.push(out, "someone/something", public=False).endswith("/someone/something")
    assert twin["made"]["name"] == "something" and twin["made"]["visibility"] == "private"
    files = [path for path in out.rglob("*") if path.is_file()]
    assert twin["files"] == {str(path.relative_to(out)): path.read_bytes() for path in files}


def test_a_push_that_fails_is_one_line_and_loses_nothing(runs: Path, tmp_path: Path) -> None:
    out = exported(runs / "selfac", tmp_path / "out")
    with pytest.raises(UserError, match=r"was not pushed to someone/something: .*HF_HUB_OFFLINE is set"):
        hub.push(out, "someone/something", public=False)
    assert (out / "README.md").exists()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (("--public",), "public only works with push"),
        (("--push", "no-owner"), "push must name a repository, OWNER/NAME"),
        (("nowhere",), "nowhere is not a run folder"),
        ((), "name a run folder"),
    ],
)
def test_wrong_words_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["export.py", *argv])
    with pytest.raises(UserError, match=line):
        command.main()
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_refused(runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "selfac", tmp_path / "run")
    last = sorted((run / "checkpoints").iterdir())[-1]
    (last / "value_head.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"value_head\.safetensors was changed or cut short"):
        exported(last, tmp_path / "out")
