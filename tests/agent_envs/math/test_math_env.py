"""The environment: the contract, what an answer is paid, metrics, and exact forks."""

import numpy as np
import pytest

from agent_envs.contract.check import ContractError, check_text_env
from agent_envs.core import SettingsError
from agent_envs.math.config import MathConfig, Verifier
from agent_envs.math.env import MathEnv

EXACT = Verifier.EXACT


@pytest.mark.parametrize(
    "config",
    [
        MathConfig(verifier=EXACT),
        MathConfig(min_steps=1, max_steps=1, digits=1, max_turns=1, verifier=EXACT),
        MathConfig(min_steps=4, max_steps=6, digits=3, operations=("+", "-", "×"), languages=("zh",), verifier=EXACT),
    ],
)
def test_contract(config: MathConfig) -> None:
    check_text_env(lambda: MathEnv(config))


class Talks(MathEnv):
    """Answers a thought."""

    def _act(self, action):  # type: ignore[no-untyped-def]
        outcome = super()._act(action)
        return outcome if outcome.terminated else type(outcome)("go on")


class Deaf(MathEnv):
    """Does not see that a message has ended."""

    def _act(self, action):  # type: ignore[no-untyped-def]
        return super()._act(action if action.name == "THINK" or "boxed" in action.args else type(action)("THINK", ""))


class Silent(MathEnv):
    """Does not say that its turns are thoughts."""

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        text, info = super().reset(seed=seed, options=options)
        info.pop("thoughts")
        return text, info


@pytest.mark.parametrize(("broken", "words"), [(Talks, "with nothing"), (Deaf, "must end"), (Silent, "'thoughts'")])
def test_the_contract_of_thoughts_can_fail(broken: type[MathEnv], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        check_text_env(lambda: broken(MathConfig(verifier=EXACT)))


def episode(*turns: str, max_turns: int = 8) -> tuple[float, bool, bool, dict[str, object]]:
    env = MathEnv(MathConfig(max_turns=max_turns, languages=("en",), verifier=EXACT))
    env.reset(options={"task": env.tasks("train")[0]})
    gold = env.task.data.gold
    for text in turns:
        seen, reward, terminated, truncated, info = env.step(text.replace("GOLD", gold))
        assert seen == ""
    return reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("turns", "paid", "terminated", "truncated"),
    [
        (("\\boxed{GOLD}",), 1, True, False),
        (("One way.\n\n", "So \\boxed{GOLD}."), 1, True, False),
        (("So \\boxed{0}, no, \\boxed{GOLD}.",), 1, True, False),
        (("\\boxed{0}",), 0, True, False),
        (("The answer is GOLD.",), 0, True, False),
        (("\\boxed{GOLD}\n\n", "Done."), 0, True, False),
        (("\\boxed{GOLD}\n\n",), 0, False, False),
        (("",), 0, True, False),
        (("a\n\n",) * 7 + ("b\n\n",), 0, False, True),
        (("a\n\n",) * 7 + ("b\n\nc\n\n\\boxed{GOLD}",), 1, True, False),
        (("a\n\n",) * 7 + ("\\boxed{GOLD}\n\n",), 1, True, False),
        (("a\n\n",) * 7 + ("no answer",), 0, True, False),
    ],
)
def test_what_is_paid(turns: tuple[str, ...], paid: float, terminated: bool, truncated: bool) -> None:
    assert episode(*turns)[:3] == (paid, terminated, truncated)


def test_metrics_tell_kinds_and_whether_an_answer_could_be_checked() -> None:
    metrics = episode("Maybe 3?\n\n", "No, too small.\n\n", "\\boxed{GOLD}")[3]["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["factors"] == 3 and metrics["factors_guess"] == metrics["factors_reject"] == 1
    assert metrics["unverified"] == 0 == metrics["invalid"]
    metrics = episode("\\boxed{" + "9" * 301 + "}")[3]["metrics"]
    assert isinstance(metrics, dict) and metrics["unverified"] == 1


def test_the_system_prompt_names_the_six_kinds_in_both_languages() -> None:
    env = MathEnv(MathConfig(verifier=EXACT))
    openings = {"en": "Let's think step by step:", "zh": "让我们一步步思考："}
    for language, words in (
        ("en", ("a guess", "reject", "a way", "goal", "mend", "split", "blank line", "\\boxed{")),
        (
            "zh",
            ("提出猜测", "否定猜测", "候选方案", "澄清目标", "修正自己的错误", "拆解子任务", "空行", "\\boxed{"),
        ),
    ):
        task = next(task for task in env.tasks("train") if task.language == language)
        _, info = env.reset(options={"task": task})
        assert all(word in env.system_prompt() for word in words)
        assert info["thoughts"]["opening"] == openings[language]


def test_a_thousand_random_states_fork_exactly() -> None:
    env = MathEnv(MathConfig(min_steps=1, max_steps=4, verifier=EXACT))
    rng = np.random.default_rng(0)
    states = 0
    for index in range(400):
        env.reset(seed=index, options={"task": env.tasks("train")[index]})
        over = False
        while not over:
            twin, before = env.fork(), (env.oracle(), env.expert())
            assert (twin.oracle(), twin.expert()) == before
            twin.step("elsewhere.\n\n")
            assert (env.oracle(), env.expert()) == before, "a fork disturbs nothing"
            again = env.fork()
            text = env.expert(flaw=0.5, rng=rng)
            assert env.step(text) == again.step(text)
            over, states = bool(env._over), states + 1
    assert states >= 1000


def test_a_missing_verifier_is_told_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_envs.math.reward.find_spec", lambda name: None)
    for call in (MathEnv.prepare, lambda env: env.tasks("test"), lambda env: env.reset(seed=0)):
        with pytest.raises(SettingsError, match="math-verify"):
            call(MathEnv())
        call(MathEnv(MathConfig(verifier=EXACT)))
