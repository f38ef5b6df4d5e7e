"""Runs with --agent tot: they train, here and in other processes, record every state, and refuse what cannot be."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from run_cases import fingerprint, gradient, jobs, settings, training
from safetensors.torch import save

from agents.model.adapter_io import HEAD
from agents.tree.episode import Searched
from agents.tree.merge import grow
from runners.command_line.errors import UserError
from runners.workers.serve import WorkerSetup

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]
TOT = (
    *("--agent", "tot", "--tot.branch", "3", "--episodes", "8"),
    *("--updates", "2", "--eval-every", "0", "--test-tasks", "0"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """A finished run of two updates."""
    place = tmp_path_factory.mktemp("runs") / "tot"
    with training(place, *TOT) as run:
        run.run()
    return place


def episodes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


def test_it_trains_and_records_every_state(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    updates = [row for row in rows if row["kind"] == "update"]
    assert [row["update"] for row in updates] == [1, 2] and all(row["mismatch_max_abs"] < 1e-4 for row in updates)
    assert all(row["critic"] > 0 and row["grad_norm"] > 0 for row in updates)
    found = episodes(folder)
    first = [e for e in found if e["update"] == 1]
    nodes = [e["search"]["nodes"] for e in first]
    assert updates[0]["searched_nodes"] == pytest.approx(sum(nodes) / len(nodes)) and min(nodes) >= 3
    for e in found:
        states = e["search"]["states"]
        assert sum(s.get("count", 0) for s in states) == e["search"]["nodes"]
        assert all(s["parent"] < i for i, s in enumerate(states) if i)
        settled = e["search"]["settled"]
        assert [states[i]["tokens"] for i in settled[1:]] == [t["tokens"] for t in e["turns"]]
        assert [states[i]["parent"] for i in settled[1:]] == settled[:-1]
        assert all(t["value"] is not None and t["advantage"] is not None for t in e["turns"])
    # What was sampled is what the budget counts.
    sampled = sum(len(s["tokens"]) * s["count"] for e in first for s in e["search"]["states"][1:])
    assert updates[0]["sampled_tokens"] == sampled
    assert updates[0]["env_steps"] == sum(len(e["search"]["states"]) - 1 for e in first)


def test_the_same_seed_is_the_same_run(folder: Path, tmp_path: Path) -> None:
    with training(tmp_path / "again", *TOT) as run:
        run.run()
    assert episodes(folder) == episodes(tmp_path / "again")
    assert fingerprint(folder) == fingerprint(tmp_path / "again")


def test_one_action_for_every_state_is_a_run_without_a_search(tmp_path: Path) -> None:
    """Same episodes, same trees, same gradient; with two actions they are others."""
    found = {}
    for name, argv in {
        "react": (),
        "one": ("--agent", "tot", "--tot.branch", "1"),
        "two": ("--agent", "tot", "--tot.branch", "2"),
    }.items():
        with training(tmp_path / name, *argv) as run:
            run.controller.load(0, run.policy())
            played = run.controller.play(jobs(run), run.train.sampling(), plan=run.plan, search=run.search)
            found[name] = [e.texts for e in played.episodes], gradient(run.learner, grow(played.episodes))
    assert found["react"][0] == found["one"][0] != found["two"][0]
    for a, b in zip(found["react"][1], found["one"][1], strict=True):
        assert torch.equal(a, b)
    assert not all(torch.equal(a, b) for a, b in zip(found["react"][1], found["two"][1], strict=True))


def test_a_search_is_led_by_the_value_head_that_was_sent(tmp_path: Path) -> None:
    """A worker of another process has no value head but the one in the message."""
    with training(tmp_path / "sender", *TOT) as run:
        with torch.no_grad():
            for parameter in run.model.value_parameters():
                parameter.add_(0.1)
        settings_ = run.controller.workers._worker.settings  # type: ignore[attr-defined]
        setup = WorkerSetup(_spec(run), run.settings.lora, settings_, 1, run.settings.critic)
        worker = setup.make()
        try:
            data = save({k: v.cpu().contiguous() for k, v in run.model.adapter_state().items()})
            first = jobs(run)[:2]
            run.controller.load(0, run.policy())
            here = run.controller.play(first, run.train.sampling(), search=run.search).episodes
            worker.load(0, data, hashlib.sha256(data).hexdigest())
            lead = worker.scorer(run.search)
            assert lead is not None and lead.additive, "the critic leads"
            mine = run.controller.workers._worker.scorer(run.search)  # type: ignore[attr-defined]
            chains = [e for e in here if isinstance(e, Searched)]
            assert lead.scores(chains) == pytest.approx(mine.scores(chains), abs=1e-5)
            assert any(abs(x) > 0.01 for x in lead.scores(chains)), "the control: a fresh head says 0"
            assert any(name.startswith(HEAD) for name in run.model.adapter_state())
        finally:
            worker.close()


def _spec(run: Any) -> Any:
    from agents.text.settings import ChatSettings
    from runners.loading.base_model import BaseSpec

    return BaseSpec(run.source, "cpu", "float32", ChatSettings())


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("--algo", "grpo"), "--agent tot needs an algorithm that learns from a search tree, and grpo does not"),
        (("--selfac.group", "2"), "--agent tot searches a task once"),
        (("--tot.seconds", "3"), "--tot.seconds makes a run that cannot be repeated"),
        (("--slots", "5"), "--slots 5 must hold the 6 actions"),
    ],
)
def test_what_cannot_be_searched_is_one_line(argv: tuple[str, ...], told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        training(tmp_path / "no", *TOT, *argv)
    assert told in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("--tot.branch", "3"), "unknown flag --tot.branch"),
        (("--agent", "tot", "--tot.search", "puct", "--tot.nodes", "9", "--tot.beam", "3"), "beam only works with bfs"),
        (("--agent", "tree"), "unknown agent 'tree'; there are react, tot"),
    ],
)
def test_settings_without_effect_are_refused(argv: tuple[str, ...], told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told):
        settings(tmp_path / "no", *argv)
    searching = settings(tmp_path / "yes", "--agent", "tot")
    assert searching.train.agent == "tot" and searching.agent.branch == 4
