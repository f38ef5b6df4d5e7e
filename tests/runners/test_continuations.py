"""Values by continuations: the exact ones of an agent whose chances are known, and runs that learn from them."""

import io
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text
from run_cases import SMALL, fingerprint, rows, training
from scripted_engine import FakeEngine

from agent_envs.corridor.config import CorridorConfig
from agent_envs.corridor.env import CorridorEnv
from agent_envs.corridor.reward import chances
from agent_envs.corridor.tasks import handles_of
from agents.engine import SamplingSettings
from agents.engine.base import Request
from agents.rollout.play import Played, rollout
from agents.rollout.quota import Quota
from agents.rollout.settings import FaultSettings
from agents.text.chat import Chat
from agents.tiny.tokenizer import build_tokenizer
from agents.tree.episode import Episode, Fault, Job
from agents.tree.merge import Tree, grow
from algorithms.base import Needs
from runners.command_line.errors import UserError
from runners.comparison.curves import LEARNING, Clock, read_history
from runners.training.continuations import Continuations, open_states

CONFIG = CorridorConfig(doors=4, pulls=8, max_turns=8, signs=24)
ENV = CorridorEnv(CONFIG)
TEXTS = [ENV.tasks("train")[i].prompt for i in range(200)]
CHAT = Chat(build_tokenizer([f"{text} <action>PULL({h})</action>" for text in TEXTS for h in CONFIG.handles], ()))


class Player:
    """Plays in this process, as the controller of a run has it played, an agent of the skill of the oracle's."""

    def __init__(self, make_env: Any = lambda: CorridorEnv(CONFIG)) -> None:
        self.make_env = make_env
        self.jobs: list[Job] = []

    def play(
        self,
        jobs: Sequence[Job],
        sampling: SamplingSettings,
        on_end: Callable[[], None] | None = None,
        quota: Quota | None = None,
    ) -> Played:
        self.jobs += jobs
        engine, faults = FakeEngine(skilled, CHAT.stop_ids, slots=512), FaultSettings(retries=1)
        told = on_end and (lambda _: on_end())
        return rollout(self.make_env, engine, CHAT, jobs, quota=quota, faults=faults, on_episode=told)


def skilled(request: Request, history: tuple[int, ...]) -> Sequence[int]:
    """The right handle with the chance that the settings name, else the one it may be taken for."""
    sign = re.findall(r"(?:sign: (\w+)|no sign), door", CHAT.decode(request.tokens))[-1]
    pair = handles_of(CONFIG)[sign] if sign else CONFIG.handles
    return (*CHAT.encode(f"PULL({pair[Random(request.seed).random() >= CONFIG.skill]})"), CHAT.end_id)


def grown(player: Player, tasks: int, group: int = 1) -> list[Tree]:
    jobs = [Job(ENV.tasks("train")[i], g, 7) for i in range(tasks) for g in range(group)]
    return grow(player.play(jobs, SamplingSettings()).episodes)


def valuing(player: Any, count: int, discount: float = 1.0) -> Continuations:
    return Continuations(player, SamplingSettings(), Needs(continuations=count, discount=discount), attempt=1)


def chance(episode: Episode, turns: int, skill: float) -> float:
    """The exact chance of success after the first turns of an episode."""
    env = CorridorEnv(CONFIG)
    env.reset(seed=0, options={"task": episode.job.task})
    for text, _ in episode.texts[:turns]:
        env.step(text)
    state, blank = env._state, tuple(not sign for sign in episode.job.task.data)
    return float(chances(blank, CONFIG.pulls, skill)[state.left, state.door])


def share_within(trees: Sequence[Tree], count: int, skill: float) -> tuple[float, int]:
    """(share of states whose value is within two standard errors of the exact one, states)."""
    within = []
    for node, episode, turns in open_states(trees):
        exact = chance(episode, turns, skill)
        assert node.continued is not None
        within.append(abs(node.continued - exact) <= 2 * math.sqrt(exact * (1 - exact) / count) + 1e-9)
    return sum(within) / len(within), len(within)


def test_the_values_are_the_exact_ones_of_the_agent_that_plays() -> None:
    """In 95 of 100 states to within two standard errors, but for the error of that share itself."""
    player, count = Player(), 60
    trees = grown(player, 30)
    played = valuing(player, count).play(trees).played
    share, states = share_within(trees, count, CONFIG.skill)
    print(f"{share:.3f} of {states} states within two standard errors")
    assert states >= 100 and len(played.episodes) == states * count
    assert share >= 0.95 - 2 * math.sqrt(0.95 * 0.05 / states)
    assert share_within(trees, count, CONFIG.skill - 0.2)[0] < 0.7, "the control: another agent's chances"


def test_every_state_that_a_turn_was_taken_in_is_played_on_once() -> None:
    """Also one that several episodes went through; each continuation has seeds of its own."""
    player = Player()
    trees = grown(player, 4, group=6)
    del player.jobs[:]
    valuing(player, 2).play(trees)
    states = list(open_states(trees))
    assert (
        len({id(node) for node, _, _ in states}) == len(states) < sum(len(e.turns) for t in trees for e, _ in t.paths)
    )
    assert len(player.jobs) == 2 * len(states)
    assert len({job.seed(0) for job in player.jobs}) == len(player.jobs) and all(job.sample < 0 for job in player.jobs)
    for tree in trees:
        for node in tree.root.walk():
            assert (node.continued is not None) == (node.kind.value == "state" and bool(node.children))


def test_a_bar_counts_them_on_a_terminal() -> None:
    """And says nothing where its output is no terminal."""
    for terminal in (True, False):
        player, out = Player(), io.StringIO()
        trees = grown(player, 3)
        console = Console(file=out, force_terminal=terminal, width=80)
        count = len(replace(valuing(player, 2), console=console).play(trees).played.episodes)
        said = Text.from_ansi(out.getvalue()).plain
        assert (f"{count}/{count}" in said) == ("playing on" in said) == terminal
        assert terminal or not said


def test_rewards_that_come_later_are_worth_less() -> None:
    player = Player()
    trees = grown(player, 3)
    played = valuing(player, 1, discount=0.5).play(trees).played
    own = [[action.reward for action, _ in e.own_turns] for e in played.episodes]
    values = [node.continued for node, _, _ in open_states(trees)]
    assert values == pytest.approx([sum(0.5**i * r for i, r in enumerate(rewards)) for rewards in own])
    assert any(0 < v < 1 for v in values if v is not None)


@dataclass
class Breaking:
    """A controller of which every so many-th continuation breaks."""

    player: Player
    every: int

    def play(self, jobs: Sequence[Job], sampling: SamplingSettings, **how: Any) -> Played:
        played = self.player.play(jobs, sampling, **how)
        broken = Fault(jobs[0], "crash", "step", "broke")  # type: ignore[arg-type]
        outcomes = [broken if i % self.every == 0 else one for i, one in enumerate(played.outcomes)]
        return replace(played, outcomes=outcomes)


def test_a_continuation_that_broke_is_left_out_of_the_mean() -> None:
    player = Player()
    trees = grown(player, 4)
    played = valuing(Breaking(player, 2), 2).play(trees).played
    kept = [one for one in played.outcomes if isinstance(one, Episode)]
    assert [node.continued for node, _, _ in open_states(trees)] == [e.reward for e in kept]
    valuing(Breaking(player, 1), 2).play(trees)
    assert all(node.continued is None for node, _, _ in open_states(trees)), "none is left"


def test_an_environment_that_breaks_is_not_played_again_from_the_root() -> None:
    player = Player()
    trees = grown(player, 3)

    class Fails(CorridorEnv):
        def step(self, action: str) -> Any:
            raise RuntimeError("broke")

    player.make_env = lambda: Fails(CONFIG)
    played = valuing(player, 1).play(trees).played
    assert not played.episodes and len(played.faults) == len(played.outcomes)


# -- runs --------------------------------------------------------------------------------------------------------

VINE = f"{SMALL}algo: vineppo\nvineppo: {{continuations: 2}}\n"


@pytest.mark.runs
@pytest.mark.usefixtures("own_cache")
def test_workers_play_the_same_continuations(tmp_path: Path) -> None:
    found = {}
    for name, argv in (("one", ()), ("two", ("--workers", "2", "--slots", "8")), ("again", ("--slots", "8"))):
        with training(tmp_path / name, "--updates", "2", *argv, text=VINE) as run:
            run.run()
        found[name] = fingerprint(tmp_path / name), [r.get("continuation_tokens") for r in rows(tmp_path / name)]
    assert found["two"] == found["again"] and found["one"][1] == found["two"][1]


@pytest.mark.runs
@pytest.mark.usefixtures("own_cache")
def test_what_continuations_cost_is_counted(tmp_path: Path) -> None:
    with training(tmp_path / "run", "--updates", "2", text=VINE) as run:
        run.run()
    updates = [row for row in rows(tmp_path / "run") if row["kind"] == "update"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    own = sum(len(turn["tokens"]) for line in lines for turn in line["turns"])
    assert updates[-1]["sampled_tokens"] == own + sum(row["continuation_tokens"] for row in updates)
    assert all(row["continuations"] > 2 * 16 for row in updates)
    assert len(lines) == 32, "the continuations are no episodes of the run"
    assert all(turn["advantage"] is not None for line in lines for turn in line["turns"])


@pytest.mark.runs
@pytest.mark.usefixtures("own_cache")
def test_a_control_has_them_for_nothing(tmp_path: Path) -> None:
    """It plays, values and learns as VinePPO does; only what counts differs."""
    for name, argv in (("counted", ()), ("free", ("--vineppo.no-count-continuations",))):
        with training(tmp_path / name, "--updates", "2", *argv, text=VINE) as run:
            run.run()
    assert fingerprint(tmp_path / "free") == fingerprint(tmp_path / "counted")
    last, numbers = {}, {}
    for name in ("counted", "free"):
        found = rows(tmp_path / name)
        last[name] = [row for row in found if row["kind"] == "update"]
        numbers[name] = [{k: v for k, v in row.items() if k not in {"env_steps", "sampled_tokens"}} for row in found]
    assert numbers["free"] == numbers["counted"]
    for total, part in (("env_steps", "continuation_steps"), ("sampled_tokens", "continuation_tokens")):
        played = sum(row[part] for row in last["free"])
        assert last["counted"][-1][total] - last["free"][-1][total] == played > 0
    for clock, kind in ((Clock.WALL, "uncounted_seconds"), (Clock.PROCESSOR, "uncounted_processor")):
        parts = ("seconds_processor",) if clock is Clock.PROCESSOR else ("seconds_rollout", *LEARNING)
        history, counted = (read_history(tmp_path / name, clock) for name in ("free", "counted"))
        whole = sum(row.get(part, 0.0) for row in history.rows for part in parts)
        left_out = sum(row[kind] for row in history.rows)
        assert 0 < left_out < whole and history.rows[-1]["busy_seconds"] == pytest.approx(whole - left_out)
        assert not any(kind in row for row in counted.rows), "VinePPO itself pays for them"


@pytest.mark.runs
@pytest.mark.parametrize(
    "argv", [("--workers", "1", "--staleness", "1"), ("--overprovision", "2"), ("--agent", "tot")], ids=lambda a: a[-2]
)
@pytest.mark.usefixtures("own_cache")
def test_what_does_not_go_together_is_refused(tmp_path: Path, argv: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="vineppo"):
        training(tmp_path / "run", *argv, text=VINE)
