"""Environments for TRL: GRPOTrainer trains on the wiki over many turns, with the rewards that the environment gives."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
from clients_cases import SETTINGS, example, played
from datasets import concatenate_datasets
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer

from agent_envs import registry
from agent_envs.actions import Grammar, Verb
from agent_envs.core import SettingsError
from agent_envs.identity.env import IdentityEnv
from agent_envs.tools import as_call, as_turn, tools_of
from agents.text.settings import Tools
from runners.cloning.settings import PretrainSettings
from runners.cloning.tiny_model import ensure_tiny
from runners.interop.for_trl import OVER, Environment, dataset, environment_factory, reward

pytestmark = pytest.mark.usefixtures("own_cache")
WIKI = SETTINGS["wiki"]
STEPS = 20
HERMES = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>", "close_pattern": r"</tool_call>\s*", "repeats": True, "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|end\|>\s*", "content": "text"},
    },
}  # fmt: skip
"""How the tiny model writes calls; TRL brings the like for the templates that it knows."""


def calls_of(env: str, turns: Sequence[str]) -> list[dict[str, Any]]:
    grammar = registry.make(env).grammar
    return [as_call(tools_of(grammar, "en"), grammar.parse(turn)) for turn in turns]


def call(environment: Environment, name: str, arguments: Mapping[str, Any]) -> str:
    answer: str = getattr(environment, name)(**arguments)
    return answer


@pytest.mark.parametrize("env", ("wiki", "code", "puzzle", "research", "corridor", "identity"))
def test_tools_are_those_of_the_environment(env: str) -> None:
    made = environment_factory(env)()
    wanted = tools_of(registry.make(env).grammar, "en")
    for tool in wanted:
        schema = get_json_schema(getattr(made, tool["function"]["name"]))
        schema["function"]["parameters"].setdefault("required", [])
        assert schema == tool
    public = {name for name in dir(type(made)) if not name.startswith("_")}
    assert public == {"reset", *(tool["function"]["name"] for tool in wanted)}


def test_calls_give_our_rewards() -> None:
    made = environment_factory("wiki", **WIKI)()
    own = played("wiki", 5, split="train")
    assert made.reset(task=own.task, seed=0, prompt="of the row") == own.prompt
    heard = [call(made, **one) for one in calls_of("wiki", own.turns)]
    assert heard == [*own.texts[:-1], OVER] and reward([[]], [made]) == [own.total] == [1.0]
    with pytest.raises(RuntimeError, match="the episode is over"):
        call(made, "SUBMIT", {"answer": "x"})
    wrong = played("wiki", 5, split="train", wrong=True)
    made.reset(task=wrong.task, seed=0)
    first, _, last = wrong.turns
    call(made, **calls_of("wiki", [first])[0])
    for arguments in ({}, {"page": 3}):  # turns that are refused, and fined
        assert call(made, "NAVIGATE", arguments).startswith("invalid action: ")
    call(made, **calls_of("wiki", [last])[0])
    assert reward([[]], [made]) == [-0.25] == [2 * wrong.total]


def test_rows_name_tasks_of_their_split() -> None:
    rows = dataset("wiki", "valid", count=10, **WIKI)
    made = registry.from_settings("wiki", **WIKI)
    assert (
        len(rows) == len(set(rows["task"])) == 10 and rows["task"] != dataset("wiki", "valid", count=10, seed=1)["task"]
    )
    assert all(made.tasks("valid").find(task) for task in rows["task"])
    system, user = rows[0]["prompt"]
    assert (system["role"], user) == ("system", {"role": "user", "content": ""})
    assert "<action>" not in system["content"], "calls are no text"
    assert len(dataset("wiki", "test", **WIKI)) == len(made.tasks("test"))


def test_a_message_of_thoughts_is_a_whole_episode() -> None:
    own = played("math", 2)
    made = [environment_factory("math", **SETTINGS["math"])() for _ in range(3)]
    for one in made:
        one.reset(task=own.task, seed=0)
    said = ("".join(own.turns), "I do not know", None)
    assert reward([[{"role": "assistant", "content": text}] for text in said], made) == [own.total, 0.0, 0.0]
    assert own.total == 1.0


def test_a_broken_environment_has_no_reward() -> None:
    class Broken(IdentityEnv):
        def _act(self, action: Any) -> Any:
            raise OSError("the disk is gone")

    class Made(Environment):
        _make = staticmethod(Broken)

    made = Made()
    made.reset(task=IdentityEnv().tasks("train")[0].id)
    with pytest.raises(OSError, match="the disk is gone"):
        made._episodes.call("SAY", {"word": "red"})
    assert reward([[]], [made]) == [None]


def test_what_cannot_be_made_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="did you mean wiki"):
        environment_factory("wikki")
    with pytest.raises(SettingsError, match="unknown setting 'hops'"):
        environment_factory("wiki", hops=3)
    with pytest.raises(SettingsError, match="no split 'tset'"):
        dataset("wiki", "tset")
    monkeypatch.setattr(IdentityEnv, "grammar", Grammar(Verb("reset", "word")))
    with pytest.raises(SettingsError, match="no tool of an action called reset"):
        environment_factory("identity")


@pytest.fixture(scope="module")
def trained(own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, list[Any]]]:
    """(trainer, the weights before, what each step's episodes said and were paid)"""
    made = registry.from_settings("wiki", **WIKI)
    source = ensure_tiny([made], PretrainSettings(demonstrations=400, steps=150), Console(quiet=True), Tools.ON)
    tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")
    tokenizer.response_template = HERMES
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    steps: list[Any] = []

    def recorded(completions: Any, environments: Any, task: Any, seed: Any, **_: Any) -> list[float | None]:
        paid = reward(completions, environments)
        steps.append(list(zip(task, seed, json.loads(json.dumps(completions)), paid, strict=True)))
        return paid

    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, reward_funcs=recorded,
        train_dataset=dataset("wiki", count=64, **WIKI), environment_factory=environment_factory("wiki", **WIKI),
        args=GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp("trl")), use_cpu=True, bf16=False, max_steps=STEPS,
            per_device_train_batch_size=8, num_generations=4, max_completion_length=640, max_tool_calling_iterations=8,
            learning_rate=1e-4, gradient_checkpointing=False, logging_steps=1, save_strategy="no", report_to="none",
            disable_tqdm=True,
        ),
    )  # fmt: skip
    trainer.train()
    yield trainer, before, steps


@pytest.mark.runs
def test_the_documented_example_makes_its_trainer(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, *_ = trained
    trainer.save_model(str(tmp_path / "model"))
    code = example("TRL").replace("trainer.train()", "")
    for there, here in (("Qwen/Qwen3-0.6B", str(tmp_path / "model")), ("GRPOConfig(", "GRPOConfig(use_cpu=True, ")):
        assert code.count(there) == 1
        code = code.replace(there, here)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/trainers.md", "exec"), names)
    assert {tool.__name__ for tool in names["trainer"].tools} >= {"SEARCH", "SUBMIT"}
    assert len(names["trainer"].train_dataset) == 1000


@pytest.mark.runs
def test_several_environments_in_one_trainer(trained: Any, tmp_path: Path) -> None:
    trainer, *_ = trained
    sets = {"wiki": WIKI, "math": SETTINGS["math"]}
    seen: set[tuple[str, str]] = set()

    def recorded(completions: Any, environments: Any, **row: Any) -> list[float | None]:
        seen.update((one._episodes.env.name, name) for one, name in zip(environments, row["environment"], strict=True))
        return reward(completions, environments)

    mixed = GRPOTrainer(
        model=deepcopy(trainer.model), processing_class=trainer.processing_class, reward_funcs=recorded,
        train_dataset=concatenate_datasets([dataset(env, count=8, **given) for env, given in sets.items()]),
        environment_factory={env: environment_factory(env, **given) for env, given in sets.items()},
        args=GRPOConfig(
            output_dir=str(tmp_path), use_cpu=True, bf16=False, max_steps=3, per_device_train_batch_size=8,
            num_generations=2, max_completion_length=128, gradient_checkpointing=False, save_strategy="no",
            report_to="none", disable_tqdm=True,
        ),
    )  # fmt: skip
    mixed.train()
    assert seen == {(env, env) for env in sets}


def turns_of(completion: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [one["function"] for message in completion for one in message.get("tool_calls") or ()]


@pytest.mark.runs
def test_the_trainer_makes_its_steps_and_moves_the_weights(trained: Any) -> None:
    trainer, before, steps = trained
    assert trainer.state.global_step == len(steps) == STEPS
    moved = [name for name, weight in trainer.model.state_dict().items() if not torch.equal(weight, before[name])]
    assert moved
    logged = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    paid = [[float(pay) for *_, pay in step] for step in steps]
    assert logged == pytest.approx([sum(step) / len(step) for step in paid], abs=1e-3)
    assert len({pay for step in paid for pay in step}) > 1, "there is something to learn from"


@pytest.mark.runs
def test_its_episodes_are_of_many_turns_and_paid_as_the_environment_pays(trained: Any) -> None:
    *_, steps = trained
    made = registry.from_settings("wiki", **WIKI)
    tools, lengths, won = tools_of(made.grammar, "en"), [], 0
    for task, seed, completion, pay in (one for step in steps for one in step):
        made.reset(seed=seed, options={"task": task, "tools": True})
        over, total, turns = False, 0.0, 0
        for function in turns_of(completion):
            known = function["name"] in {tool["function"]["name"] for tool in tools}
            if over or not known or not isinstance(function["arguments"], dict):
                continue  # TRL does not hand it over, or it comes too late
            _, earned, terminated, truncated, info = made.step(as_turn(tools, function["name"], function["arguments"]))
            over, total, turns = terminated or truncated, total + earned, turns + 1
        assert pay == total
        lengths.append(turns)
        won += over and bool(info["success"])
    assert max(lengths) >= 4 and sum(length >= 2 for length in lengths) >= len(lengths) / 4 and won
    print(f"{len(lengths)} episodes, {sum(lengths)} turns, {won} successes")
