"""Oracles: the contract and how it can be broken, and that each number is the chance of the very agent it names."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from agent_envs import SettingsError, registry
from agent_envs.contract.check import ContractError
from agent_envs.contract.oracle import check_oracle
from agent_envs.core import TextEnv
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv
from agent_envs.oracle import chance
from agent_envs.wiki.config import Corpus, WikiConfig
from agent_envs.wiki.env import WikiEnv
from runners.evaluation.random_wiki import RandomAgent

# -- the contract ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["identity", "wiki"])
def test_ours_keep_it(name: str, small: WikiConfig) -> None:
    config = small if name == "wiki" else None
    check_oracle(lambda: registry.make(name, config), 8, 0)


class Blind(IdentityEnv):
    def oracle(self) -> Any:
        return None


class Overconfident(IdentityEnv):
    def oracle(self) -> Any:
        return super().oracle() * 3


class Worded(IdentityEnv):
    def oracle(self) -> Any:
        return str(super().oracle())


class Fading(IdentityEnv):
    def oracle(self) -> Any:
        return 0.9 - 0.1 * self.turn


class Hopeless(IdentityEnv):
    def oracle(self) -> Any:
        return super().oracle() if self.turn != 1 else 0.0


class Spent(IdentityEnv):
    def oracle(self) -> Any:
        self.np_random.random()
        return super().oracle() * 0.9 + 0.01 * self.np_random.random()


class Counting(IdentityEnv):
    def fork(self) -> Any:
        twin = super().fork()
        twin.turn += 1
        return twin

    def oracle(self) -> Any:
        return super().oracle() * 0.99**self.turn


class Stale(IdentityEnv):
    def _told(self, *, success: bool | None) -> Any:
        return {"oracle": 0.1 if success is None else float(success)} if self._tells else {}


class Unsure(IdentityEnv):
    def _told(self, *, success: bool | None) -> Any:
        return {"oracle": super().oracle() if success is None else 0.9} if self._tells else {}


class Talking(IdentityEnv):
    def _told(self, *, success: bool | None) -> Any:
        self._tells = True
        return super()._told(success=success)


class Deaf(IdentityEnv):
    def _told(self, *, success: bool | None) -> Any:
        return {}


class Whispering(IdentityEnv):
    def step(self, action: str) -> Any:
        text, *rest = super().step(action)
        return text + ("." if self._tells else ""), *rest


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Overconfident, "chance from 0 to 1, not"),
        (Worded, "chance from 0 to 1, not '"),
        (Fading, "lowers the oracle from"),
        (Hopeless, "tells 0 where the expert still succeeds|lowers the oracle"),
        (Spent, "asking the oracle changes what it tells"),
        (Counting, "a fork's oracle tells something else"),
        (Stale, "not what oracle\\(\\) tells"),
        (Unsure, "must end with an oracle of 1, not 0.9"),
        (Talking, "must not be told unless"),
        (Deaf, "reset must tell info\\['oracle'\\]"),
        (Whispering, "must not change what the agent sees"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_part_of_it_can_fail(broken: Callable[[], TextEnv], complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_oracle(broken, 4, 0)


def test_an_environment_without_an_oracle_passes() -> None:
    check_oracle(Blind, 4, 0)


# -- the identity environment: played out ------------------------------------------------------------------------


def played(env: IdentityEnv, skill: float, episodes: int, rng: np.random.Generator) -> dict[float, list[bool]]:
    """Oracle's value -> the verdicts of the episodes that came through a state of that value, each counted once."""
    found: dict[float, list[bool]] = defaultdict(list)
    tasks = env.tasks("train")
    for _ in range(episodes):
        env.reset(options={"task": tasks[int(rng.integers(len(tasks)))]})
        values, over, info = set(), False, {}
        while not over:
            values.add(env.oracle())
            text = "no action" if rng.random() < 0.1 else env.expert(flaw=1 - skill, rng=rng)
            _, _, terminated, truncated, info = env.step(text)
            over = terminated or truncated
        for value in values:
            found[value].append(info["success"])
    return found


@pytest.mark.parametrize(("skill", "holds"), [(0.7, True), (0.6, False)])
def test_the_verdict_is_as_likely_as_the_oracle_says(skill: float, holds: bool) -> None:
    """For the agent that the settings name, from any state; and for no other. Idle turns never run it out of them."""
    env = IdentityEnv(IdentityConfig(skill=0.7, max_turns=40))
    found = played(env, skill, 4000, np.random.default_rng(0))
    assert sorted(found) == pytest.approx([0.0, 0.7**3, 0.7**2, 0.7])
    off = [
        abs(np.mean(verdicts) - value) / max((value * (1 - value) / len(verdicts)) ** 0.5, 1e-12)
        for value, verdicts in found.items()
    ]
    assert (max(off) < 4) == holds


# -- the wiki ----------------------------------------------------------------------------------------------------


def by_enumeration(saves: tuple[bool, ...], turns: int, skill: float) -> float:
    """The chance, over every sequence of turns that succeed or are wasted."""
    total = 0.0
    for luck in product((True, False), repeat=turns):
        at, left = 0, turns
        for made in luck:
            needed = saves[at:].count(False)
            if at < len(saves) and saves[at] and left <= needed:
                at += 1
            at, left = at + (made and at < len(saves)), left - 1
        total += (at == len(saves)) * skill ** sum(luck) * (1 - skill) ** (turns - sum(luck))
    return total


@pytest.mark.parametrize("saves", [(False,), (False, True, False), (False, False, True, False), (True, False) * 3])
def test_the_chance_is_that_of_all_ways_to_play(saves: tuple[bool, ...]) -> None:
    for turns in range(9):
        assert chance(saves, turns, 0.7) == pytest.approx(by_enumeration(saves, turns, 0.7), abs=1e-12)
    assert chance(saves, saves.count(False) - 1, 0.7) == 0 < chance(saves, saves.count(False), 0.7)
    assert chance((False, False), 3, 0.8) == pytest.approx(0.8**3 + 3 * 0.8**2 * 0.2)


def lost_and_found(env: WikiEnv, tasks: int, rng: np.random.Generator) -> list[WikiEnv]:
    """Environments in all kinds of states: on the way, astray, with evidence saved, short of turns."""
    states = []
    for task in env.tasks("test")[:tasks]:
        agent = RandomAgent(rng)
        observation, _ = env.reset(options={"task": task, "oracle": True})
        agent.begin(task)
        over = False
        while not over:
            states.append(env.fork())
            text = env.expert(flaw=0.3, rng=rng) if rng.random() < 0.6 else agent.act(observation)
            observation, _, terminated, truncated, _ = env.step(text)
            over = terminated or truncated
    return states


def worst_gap(states: list[WikiEnv], skill: float) -> float:
    """How far the oracle ever is from what it will be after the agent's next turn, on average."""
    gaps = []
    for env in states:
        wasted, made = env.fork(), env.fork()
        after = [twin.step(text)[4]["oracle"] for twin, text in ((wasted, "no action at all"), (made, made.expert()))]
        gaps.append(abs(env.oracle() - (1 - skill) * after[0] - skill * after[1]))
    return max(gaps)


@pytest.mark.parametrize(
    "settings",
    [{}, {"evidence": 0.5}, {"corpus": Corpus.GEO, "max_turns": 6}, {"max_turns": 5, "languages": ("en", "zh")}],
)
def test_the_wikis_oracle_is_exact_from_every_state(settings: dict[str, Any], small: WikiConfig) -> None:
    config = replace(small, **settings, skill=0.6)
    if config.corpus is Corpus.GEO:
        pytest.importorskip("countryinfo")
    states = lost_and_found(WikiEnv(config), 25, np.random.default_rng(0))
    assert len({round(env.oracle(), 6) for env in states}) > 15
    assert worst_gap(states, 0.6) < 1e-12
    assert worst_gap(states, 0.7) > 1e-3, "the control: it is the chance of no other agent"


def test_progress_on_the_wiki_is_what_a_person_would_say(small: WikiConfig) -> None:
    """The expert's turns rise, idle ones and detours fall, a wrong answer ends at 0, a right one at 1."""
    env = WikiEnv(replace(small, skill=0.6))
    task = next(task for task in env.tasks("test") if task.level == 3)
    env.reset(options={"task": task, "oracle": True})
    env.step(env.expert())
    here = env.oracle()

    def after(*texts: str) -> float:
        twin = env.fork()
        return [twin.step(text)[4]["oracle"] for text in texts][-1]

    chain = [hop.title for hop in task.data.hops]
    links = [link.title for line in env._page(chain[0]).lines for link in line.links]
    elsewhere = next(title for title in links if title not in chain)
    assert after(env.expert()) > here
    assert after(f"NAVIGATE({elsewhere})") < after("BACK()") < here, "one is wasted, the other must be undone too"
    assert after(f"SUBMIT({elsewhere})") == 0 and after(f"SUBMIT({task.data.answer})") == 1
    assert after(*["no action at all"] * 7) == 0, "what is left of the turns does not suffice"


@pytest.mark.parametrize("skill", [0.0, 1.0, -0.5])
def test_a_skill_is_a_chance(skill: float) -> None:
    for kind in (WikiConfig, IdentityConfig):
        with pytest.raises(SettingsError, match="skill must lie between 0 and 1"):
            kind(skill=skill)
