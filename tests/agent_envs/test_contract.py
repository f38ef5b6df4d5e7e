"""Every registered environment keeps the contract, and each of its checks can fail."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from env_packages import named, skip_without

import agent_envs
from agent_envs.actions import Action
from agent_envs.adapters.textworld.config import Name, TextWorldConfig
from agent_envs.code.config import CodeConfig
from agent_envs.contract.check import ContractError, check_text_env
from agent_envs.core import Outcome, SettingsError, Task, TaskSet, TextEnv
from agent_envs.corridor.env import CorridorEnv
from agent_envs.identity.env import IdentityEnv
from agent_envs.math.env import MathEnv
from agent_envs.research.config import ResearchConfig
from agent_envs.wiki.config import OutcomeScore, WikiConfig
from agent_envs.wiki.python import WikiPythonConfig


@pytest.mark.parametrize("name", named(agent_envs.ENVS))
def test_registered_environments_keep_the_contract(name: str, small: WikiConfig) -> None:
    skip_without(name)
    quick = {
        "wiki": small,
        "wiki_python": WikiPythonConfig(**asdict(small)),
        "research": ResearchConfig(train_worlds=6, valid_worlds=3, test_worlds=4, questions=12),
        "code": CodeConfig(turns=8, max_turns=10),
        "textworld": TextWorldConfig(Name.COIN, level=3, train_tasks=50, held_out_tasks=10),
    }
    config = quick.get(name)
    check_text_env(lambda: agent_envs.make(name, config), tasks=2 if name == "code" else 4)
    check_text_env(agent_envs.make(name, config), tasks=1)


def test_the_wiki_keeps_it_with_the_hierarchical_reward(small: WikiConfig) -> None:
    config = replace(small, outcome=OutcomeScore.HIERARCHICAL)
    check_text_env(lambda: agent_envs.make("wiki", config))


class Unpicklable(IdentityEnv):
    def __init__(self) -> None:
        super().__init__()
        self.handle = lambda: None


class UnnamedAction(IdentityEnv):
    def system_prompt(self) -> str:
        return "Say it."


class OverlappingSplits(IdentityEnv):
    def tasks(self, split: str) -> TaskSet:
        tasks = super().tasks("train")

        def build(index: int) -> Task:
            task = tasks[index]
            return Task(task.id.replace("train", split), split, task.prompt, data=task.data)

        return TaskSet(len(tasks), build, lambda id: tasks._number_of(id.replace(split, "train")))


class LostIds(IdentityEnv):
    def tasks(self, split: str) -> TaskSet:
        return TaskSet(5, super().tasks(split).__getitem__, lambda id: 0)


class OwnDice(IdentityEnv):
    def _choose(self, wanted: Any, split: str | None) -> Task:
        return super()._choose(wanted or self.tasks(split or "train")[0], split)


class WorldDice(IdentityEnv):
    draws: ClassVar = np.random.default_rng(0)

    def _choose(self, wanted: Any, split: str | None) -> Task:
        if wanted is not None:
            return super()._choose(wanted, split)
        return self.tasks(split or "train")[int(self.draws.integers(40))]


class EndlessTurns(IdentityEnv):
    def __init__(self) -> None:
        super().__init__()
        self.max_turns = 99

    def step(self, action: str) -> Any:
        text, reward, terminated, truncated, info = super().step(action)
        return text, reward, terminated or self.turn == 5, truncated, info


class CutTask(IdentityEnv):
    task_turns = property(lambda self: self.max_turns + 1)


class Fragile(IdentityEnv):
    def step(self, action: str) -> Any:
        action.encode()
        return super().step(action)


class SpentByMistakes(IdentityEnv):
    def _invalid_reward(self) -> float:
        self._state = type(self._state)(shown=min(self._state.shown + 1, 2))
        return 0.0


class Slow(IdentityEnv):
    def step(self, action: str) -> Any:
        until = time.process_time() + (2.1 if len(action) > 100_000 else 0)
        while time.process_time() < until:
            pass
        return super().step(action)


class WrongExpert(IdentityEnv):
    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        return "SAY(red)"


class NoExpert(IdentityEnv):
    expert = TextEnv.expert


class CorridorWithoutExpert(CorridorEnv):
    expert = TextEnv.expert


class MathWithoutExpert(MathEnv):
    expert = TextEnv.expert


class NoExpertButCut(NoExpert, CutTask):
    """What is wrong beside the expert is still found."""


class CuriousExpert(IdentityEnv):
    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        turn = super().expert(flaw=flaw, rng=rng)
        return turn if self.np_random.random() < 0.5 else turn.replace("SAY", "say")


class Noisy(IdentityEnv):
    noise: ClassVar = np.random.default_rng(0)

    def _act(self, action: Action) -> Outcome:
        done = super()._act(action)
        return Outcome(f"{done.text} {self.noise.random()}", done.reward, done.terminated, done.success)


class SharedState(IdentityEnv):
    def _begin(self, task: Task) -> Any:
        self.__dict__["log"] = []
        return super()._begin(task)

    def _act(self, action: Action) -> Outcome:
        self.__dict__["log"].append(action.args)
        done = super()._act(action)
        return Outcome(f"{done.text} {len(self.__dict__['log'])}", done.reward, done.terminated, done.success)


class SharedDice(IdentityEnv):
    def fork(self) -> Any:
        twin = super().fork()
        twin._np_random = self._np_random
        return twin


class WholeRewards(IdentityEnv):
    def _act(self, action: Action) -> Outcome:
        done = super()._act(action)
        return Outcome(done.text, round(done.reward), done.terminated, done.success)

    def step(self, action: str) -> Any:
        text, reward, *rest = super().step(action)
        return text, int(reward), *rest


class ClosedOnce(IdentityEnv):
    def close(self) -> None:
        del self.config


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Unpicklable, "cannot be pickled"),
        (type("Soft", (IdentityEnv,), {"Config": type("C", (), {"max_turns": 5})}), "frozen dataclass"),
        (UnnamedAction, "does not show the action SAY"),
        (OverlappingSplits, "is also in train"),
        (LostIds, "is not that task"),
        (OwnDice, "drew a task of|twelve seeds draw one task"),
        (WorldDice, "check_env says|same seed drew different"),
        (EndlessTurns, "ends wrongly"),
        (CutTask, "ends wrongly"),
        (NoExpertButCut, "ends wrongly"),
        (Fragile, "lone surrogate.*raised"),
        (SpentByMistakes, "changed the state"),
        (Slow, "take too long"),
        (WrongExpert, "the expert gets .* of 1"),
        (CuriousExpert, "asking the expert"),
        (Noisy, "does not replay exactly|check_env says"),
        (SharedState, "disturbs its origin|goes on differently"),
        (SharedDice, "copy np_random"),
        (WholeRewards, "finite float"),
        (ClosedOnce, "close must be callable twice"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_check_can_fail(broken: Callable[[], IdentityEnv], complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_text_env(broken)


@pytest.mark.parametrize("without", [NoExpert, CorridorWithoutExpert, MathWithoutExpert])
def test_an_expert_is_optional(without: type[TextEnv]) -> None:
    assert IdentityEnv().has_expert and not without().has_expert
    check_text_env(without, tasks=2)
    with pytest.raises(SettingsError, match="has no scripted expert"):
        without().expert()


def test_an_instance_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(ContractError, match="identity: cannot be pickled"):
        check_text_env(Unpicklable())


def test_the_last_of_the_tasks_turns_keeps_what_it_earned_and_gets_what_the_end_is_worth() -> None:
    class Fined(IdentityEnv):
        task_turns = property(lambda self: 2)

        def _invalid_reward(self) -> float:
            return -0.5

    class Consoled(Fined):
        def _out_of_turns(self) -> Outcome:
            return Outcome("the end", 0.25, terminated=True, success=True)

    for made, last in ((Fined, ("", -0.5, True, False)), (Consoled, ("the end", -0.25, True, False))):
        env = made()
        env.reset(seed=0)
        assert env.step("no action")[1:4] == (-0.5, False, False)
        *found, info = env.step("no action")
        assert tuple(found) == last and info["success"] is (made is Consoled) and info["invalid"]
