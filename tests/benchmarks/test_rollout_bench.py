"""What the benchmarks of playing compare is the same work: every way reads and samples what it was asked to."""

import json
import random
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agents.engine import SamplingSettings
from agents.engine.hf import HFEngine
from benchmarks import sampled, wiki_steps
from benchmarks.rollout import KEPT, LOOP, Workload, conditions, ways
from benchmarks.single_turn import GROUP, Ours, Shape, Words, prompts, reward

VOCABULARY = 61


def small() -> PreTrainedModel:
    """Weights so large that a greedy choice is clear."""
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, max_position_embeddings=512, eos_token_id=3, bos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(5)
    return model


def reads_as_asked(todo: list[sampled.Episode], done: sampled.Done) -> bool:
    """Every history holds what was to be read, where it was to be read, and is as long as was asked."""
    for episode, history in zip(todo, done.histories, strict=True):
        at = 0
        for turn in episode:
            if history[at : at + len(turn.reads)] != turn.reads:
                return False
            at += len(turn.reads) + turn.samples
        if at != len(history):
            return False
    return True


@pytest.mark.parametrize("todo", [sampled.uneven(7, VOCABULARY), sampled.made_up(3, 4, 5, 6, VOCABULARY)])
def test_every_way_does_the_same_work(todo: list[sampled.Episode]) -> None:
    model = sampled.endless(small())
    work = Workload(model, todo, (2, 8))
    engine = sampled.engine_of(model, todo)
    for name, program in ways(work, engine).items():
        done = program()
        assert done.sampled == work.samples, name
        assert reads_as_asked(todo, done), name
    assert engine.sampled_tokens == work.samples
    assert engine.encoded_tokens + engine.reused_tokens == work.samples + work.reads - len(todo)


def test_a_way_that_does_less_is_noticed() -> None:
    todo = sampled.uneven(7, VOCABULARY)
    longest = max(sum(len(turn.reads) + turn.samples for turn in episode) for episode in todo)
    stops = HFEngine(small(), range(1, VOCABULARY), max_length=longest + 1, slots=len(todo))
    done = sampled.with_engine(stops, todo)
    assert not reads_as_asked(todo, done) and done.sampled < Workload(stops.model, todo, ()).samples
    found = {
        "asked": 10, "sampled": {"engine": 10, "generate": 9}, "best": "generate",
        "rows": {name: {"times": {"median": times}} for name, times in (("generate", 2.0), (KEPT, 1.9), (LOOP, 1.7))},
    }  # fmt: skip
    fast = {"p95_ms": 0.2}
    wiki = {"steps_per_s": {"median": 9000.0}, "answered_as_meant": 1.0, "search": fast, "similar": fast}
    assert [holds for _, holds in conditions({"x": found}, wiki)] == [False, True, True, False, True, True, True, True]


def test_all_ways_choose_the_same_tokens_when_greedy() -> None:
    """Left padding and the holes of the kept cache change nothing: the comparison is with a right ``generate()``."""
    todo = sampled.uneven(7, VOCABULARY, seed=1)
    model = sampled.endless(small())
    engine = sampled.engine_of(model, todo)
    engine.sampling = SamplingSettings(greedy=True)
    truth = sampled.with_engine(engine, todo).histories
    assert sampled.with_generate(model, todo, 3, greedy=True).histories == truth
    assert sampled.with_kept_cache(model, todo, greedy=True).histories == truth
    assert sampled.with_loop(model, todo, greedy=True).histories == truth
    assert sampled.with_generate(model, todo, 3).histories != truth
    assert {KEPT, LOOP} <= ways(Workload(model, todo, ()), engine).keys()


def test_recorded_episodes_are_read_back(tmp_path: Path) -> None:
    turns = [
        {"tokens": [5, 6, 7], "observation_tokens": [8, 9]},
        {"tokens": [1], "observation_tokens": []},
    ]
    records = [{"update": u, "prompt_tokens": [u, 4], "turns": turns} for u in (1, 2, 2, 2)]
    path = tmp_path / "episodes.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in [*records, {"update": 2, "prompt_tokens": [3], "turns": []}]))
    episode = (sampled.Turn((2, 4), 3), sampled.Turn((8, 9), 1))
    assert sampled.read_recorded(path, 2, 2) == [episode] * 2
    assert sampled.read_recorded(path, 2, 9) == [episode] * 3, "an episode without a turn has nothing to sample"


def test_the_mix_of_the_wiki_is_what_is_said_and_each_turn_finds_what_it_is_for(tmp_path: Path) -> None:
    share = {kind: wiki_steps.PATTERN.count(kind) / len(wiki_steps.PATTERN) for kind in wiki_steps.PATTERN}
    assert share == {"open": 0.3, "miss": 0.1, "SEARCH": 0.3, "FIND": 0.1, "SAVE_LINE_IDS": 0.1, "CLICK": 0.1}
    backend = wiki_steps.write_wiki(tmp_path, 200)
    env, names = wiki_steps.environment(backend), wiki_steps.titles(200)
    todo = wiki_steps.episodes(names, 10, 0)
    assert sum(wiki_steps.answered(env, todo).values()) == 100
    backwards = [list(reversed(turns)) for turns in todo]
    assert sum(wiki_steps.answered(env, backwards).values()) < 100, "the test would notice"
    rng = random.Random(0)
    assert not {wiki_steps.misspelt(name, rng) for name in names} & set(names)


def test_our_step_samples_and_trains_what_is_said() -> None:
    shape = Shape(groups=2, prompt=12, answer=5)
    split = Ours(small(), shape)
    split.engine.sampling = SamplingSettings(temperature=3.0)  # so that no two answers are the same
    for _ in range(2):
        found = split.step()
        assert found.sampled == shape.sampled == 2 * GROUP * 5
        assert found.trained <= 2 * (12 + GROUP * 5), "a prompt is trained once for its group"
        assert found.trained >= 2 * (12 + (GROUP - 2) * 5)
        assert min(found.generation, found.learning) > 0


def test_texts_and_tokens_are_as_many() -> None:
    text = prompts(1, Shape(1), 2048)[0]
    tokens = Words().prompt("", text)
    assert len(tokens) == 60 and Words().action_text(tokens) == text
    assert reward("2 4 5 7") == 0.5 and reward("") == 0.0
