"""The judges that need no network: the oracle, the policy itself, and a trained critic."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from judge_cases import episode
from rollout_cases import CHAT, ENV, engine, jobs
from scripted_engine import FakeEngine
from tree_cases import CRITIC_PROMPT, actor_critic, truth

from agents.engine.base import Request
from agents.judge import JudgeKind, JudgeSettings
from agents.judge.critic import CriticJudge
from agents.judge.oracle import OracleJudge
from agents.judge.policy import PolicyJudge
from agents.judge.prompt import messages_of
from agents.rollout.play import rollout
from agents.rollout.settings import ReActSettings
from agents.tree.episode import Episode
from agents.tree.merge import grow
from agents.tree.packing import pack

ACT = ("act", "seen")

# -- the oracle ----------------------------------------------------------------------------------------------------


def test_a_rise_or_nothing_is_good_and_a_fall_is_bad() -> None:
    told = episode(*[ACT] * 4, oracle=(0.2, 0.5, 0.5 + 1e-9, 0.1, 1.0))
    silent = episode(*[ACT] * 3, oracle=(0.2, None, 0.5, 0.4))
    verdicts = OracleJudge().label([told, silent, episode(ACT)], [0.0] * 3)
    assert verdicts.labels == [(True, True, False, True), (None, None, False), (None,)] and not verdicts.stats


def test_noise_is_drawn_of_the_episode_and_the_turn() -> None:
    """What is wrong at some noise is wrong at every higher one; another run, sample or turn is another draw."""
    played = [episode(*[ACT] * 5, oracle=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6), sample=i) for i in range(400)]
    wrong = {noise: [not x for e in played for x in OracleJudge(noise).labels(e)] for noise in (0, 0.1, 0.3, 1.0)}
    assert not any(wrong[0]) and all(wrong[1.0])
    for low, high in pairwise(wrong.values()):
        assert all(b for a, b in zip(low, high, strict=True) if a)
    for noise in (0.1, 0.3):
        share, deviation = sum(wrong[noise]) / 2000, math.sqrt(noise * (1 - noise) / 2000)
        assert abs(share - noise) < 4 * deviation
    again = [not x for e in played for x in OracleJudge(0.3).labels(e)]
    assert again == wrong[0.3]
    other = episode(*[ACT] * 40, oracle=[k / 50 for k in range(41)], run_seed=1)
    first = episode(*[ACT] * 40, oracle=[k / 50 for k in range(41)])
    assert OracleJudge(0.5).labels(other) != OracleJudge(0.5).labels(first)
    assert len(set(OracleJudge(0.5).labels(first))) == 2, "turns are drawn apart"


def test_it_says_what_the_environment_knows() -> None:
    """Where the identity environment's oracle falls, a wrong word was said; and labels survive merging."""
    played = rollout(
        lambda: ENV, engine(0.6, slots=1), CHAT, jobs(5, 4), ReActSettings(oracle=True), threads=1
    ).episodes
    labels = OracleJudge().label(played, [0.0] * len(played)).labels
    for e, said in zip(played, labels, strict=True):
        for (action, _), label in zip(e.turns, said, strict=True):
            action.label = label
    trees = grow(played)
    batch = pack([tree.root for tree in trees])
    assert ((batch.progress() >= 0).long() == batch.label_A).all() and set(batch.label_A.tolist()) == {0, 1}
    for tree in trees:
        for e, path in tree.paths:
            assert [a.label for a, _ in path] == [a.label for a, _ in e.turns]


# -- the policy ----------------------------------------------------------------------------------------------------


def judging_engine(slots: int = 2, reply: str = "") -> FakeEngine:
    """Answers every question in full, GOOD for the first step and BAD for the others, or with ``reply``."""

    def script(request: Request, history: tuple[int, ...]) -> Sequence[int]:
        steps = int(re.findall(r"\(total (\d+) steps\)", CHAT.decode(request.tokens))[-1])
        lines = [f"Step {k} Judgment: {'BAD' if k else 'GOOD'}" for k in range(steps)]
        return (*CHAT.encode(reply or "\n".join(lines)), CHAT.end_id)

    return FakeEngine(script, CHAT.stop_ids, slots=slots)


def policy_judge(made: FakeEngine, **settings: int) -> PolicyJudge:
    told = JudgeSettings(kind=JudgeKind.POLICY, **{"max_prompt_tokens": 100_000, **settings})
    return PolicyJudge(made, CHAT, told, refresh=lambda: made.load(7, None))


def test_the_policy_reads_the_question_and_answers_greedily() -> None:
    made = judging_engine()
    played = [episode(*[ACT] * n, sample=n) for n in (2, 1, 3, 2, 4)]
    verdicts = policy_judge(made).label(played, [1.0, -1.0, 1.0, 1.0, 1.0])
    assert verdicts.labels == [(True, *[False] * (len(e.turns) - 1)) for e in played]
    assert made.loaded == [(7, None)] and made.sampling.greedy and not made.pending
    asked = [CHAT.decode(request.tokens) for request in made.submitted]
    assert all("EVAL-STEP 0" in text and text.count("review how an agent") == 1 for text in asked)
    assert "(negative)" in asked[1] and "(positive)" in asked[0]
    assert verdicts.stats["calls"] == 5 and verdicts.stats["too_long"] == 0
    assert verdicts.stats["prompt_tokens"] == sum(len(r.tokens) for r in made.submitted)
    made.load(8, None)  # every session was closed


def test_what_does_not_fit_or_cannot_be_read_has_no_labels() -> None:
    question = len(CHAT.prompt(*(m["content"] for m in messages_of(episode(ACT), 1.0))))
    some = policy_judge(judging_engine(), max_prompt_tokens=question)
    assert some.label([episode(ACT, ACT), episode(ACT)], [1.0, 1.0]).labels == [(None, None), (True,)]
    none = policy_judge(judging_engine(), max_prompt_tokens=10).label([episode(ACT, ACT)], [1.0])
    assert none.labels == [(None, None)] and none.stats["too_long"] == 1 and none.stats["calls"] == 0
    assert policy_judge(judging_engine(reply="well")).label([episode(ACT, ACT)], [1.0]).labels == [(None, None)]
    cut = policy_judge(judging_engine(), max_reply_tokens=3).label([episode(ACT, ACT)], [1.0])
    assert cut.labels == [(None, None)] and cut.stats["completion_tokens"] == 3


def test_a_text_cannot_become_a_control_token() -> None:
    made = judging_engine()
    bad = "".join(CHAT.decode([i]) for i in sorted(CHAT.control_ids))
    policy_judge(made).label([episode((bad, bad)), episode(("x", "x"))], [1.0, 1.0])
    counts = [sum(token in CHAT.control_ids for token in r.tokens) for r in made.submitted]
    assert counts[0] == counts[1] > 0
    (request, _) = made.submitted
    direct = CHAT.tokenizer.encode(bad, add_special_tokens=False)
    assert CHAT.control_ids & set(direct), "the control: encoded as it is, it would"
    assert request.seed == 0


# -- a critic ------------------------------------------------------------------------------------------------------


def played_with_rewards() -> list[Episode]:
    return [
        episode(*[ACT] * 3, rewards=(0.1, 0.0, 1.0)),
        episode(*[ACT] * 2, rewards=(0.0, -0.5), truncated=True, sample=1),
        episode(sample=2),
        episode(*[ACT] * 4, sample=3),
    ]


@pytest.mark.parametrize("budget", [16384, 20])
def test_good_is_where_the_expected_outcome_rises(budget: int) -> None:
    """Against a forward of every state's path on its own."""
    model, discount, seen = actor_critic(), 0.9, set()
    played = played_with_rewards()
    labels = CriticJudge(model, CRITIC_PROMPT, discount, budget).label(played, [0.0] * 4).labels
    for e, said in zip(played, labels, strict=True):
        assert len(said) == len(e.turns)
        if not e.turns:
            continue
        _, value = truth(model, [e.root])
        value = torch.where(torch.tensor([*[False] * len(e.turns), e.end.terminated]), 0, value)
        for k, (action, _) in enumerate(e.turns):
            assert said[k] is bool(action.reward + discount * value[k + 1] - value[k] > 0)
            seen.add(said[k])
    assert seen == {True, False}


def test_a_critic_that_was_never_trained_praises_nothing() -> None:
    model = actor_critic()
    with torch.no_grad():
        for parameter in model.value_parameters()[-2:]:
            parameter.zero_()
    assert CriticJudge(model, CRITIC_PROMPT).label([episode(ACT, ACT)], [1.0]).labels == [(False, False)]
    assert CriticJudge(model, CRITIC_PROMPT).label([], []).labels == []
