"""The hierarchical reward, in literal transcripts."""

import pytest

from agent_envs.hierarchical import FormRules, HierarchicalSettings, hierarchical_reward
from agent_envs.scoring import AnswerScore
from agent_envs.tool_format import Piece

SEARCH = (Piece("<think>t</think><search>q</search>"), Piece(" <result>\nr\n</result>", by_model=False))
PYTHON = (Piece("<think>u</think><python>p</python>"), Piece(" <result>\no\n</result>", by_model=False))
ANSWER = Piece("<think>v</think><answer>\\boxed{Bel Mora}</answer>")
AUTHORS = HierarchicalSettings(rules=FormRules.ARPO, accuracy=AnswerScore.F1_EN)


def test_the_levels() -> None:
    right = hierarchical_reward([*SEARCH, ANSWER], "Bel Mora")
    assert (right.score, right.reason) == (1.0, "correct answer, get f1 score: 1.0")
    both = hierarchical_reward([*SEARCH, *PYTHON, ANSWER], "Bel Mora")
    assert both.score == pytest.approx(1.1) and "calling search and python at the same time" in both.reason
    half = hierarchical_reward([*SEARCH, *PYTHON, ANSWER], ["Bel Tor", "贝尔"])
    assert (half.score, half.accuracy, half.answer) == (pytest.approx(0.6), pytest.approx(0.5), "Bel Mora")
    wrong = hierarchical_reward([*SEARCH, *PYTHON, ANSWER], "Tor Vin")
    assert (wrong.score, wrong.reason) == (0.0, "wrong answer but good format: Bel Mora")
    broken = hierarchical_reward([*SEARCH, ANSWER, ANSWER], "Bel Mora")
    assert (broken.score, broken.reason) == (-1.0, "bad format: <think> comes after the answer")
    assert not broken.accuracy and not broken.answer


def test_the_bonus_is_for_calls_that_were_answered() -> None:
    """The control: the authors' rule pays for closing tags anywhere."""
    orphans = Piece("<think>v</think></search></python><answer>\\boxed{Bel Mora}</answer>")
    after = [*SEARCH, ANSWER, Piece("</python>")]
    assert hierarchical_reward([orphans], "Bel Mora", AUTHORS).score == pytest.approx(1.1)
    assert hierarchical_reward(after, "Bel Mora", AUTHORS).score == pytest.approx(1.1)
    assert hierarchical_reward([orphans], "Bel Mora").score == -1
    assert hierarchical_reward(after, "Bel Mora").score == -1
    mentioned = Piece(" <result>\n</python>\n</result>", by_model=False)
    assert hierarchical_reward([SEARCH[0], mentioned, ANSWER], "Bel Mora", AUTHORS).score == pytest.approx(1.1)
    assert hierarchical_reward([SEARCH[0], mentioned, ANSWER], "Bel Mora").score == 1


def test_settings_act() -> None:
    one = HierarchicalSettings(tools=("search",))
    assert hierarchical_reward([*SEARCH, ANSWER], "Bel Mora", one).score == 1, "one tool is no collaboration"
    generous = HierarchicalSettings(bonus=0.5)
    assert hierarchical_reward([*SEARCH, *PYTHON, ANSWER], "Bel Mora", generous).score == 1.5
    exact = HierarchicalSettings(accuracy=AnswerScore.EXACT)
    assert hierarchical_reward([*SEARCH, ANSWER], "Bel Tor", exact).score == 0
    assert hierarchical_reward([*SEARCH, ANSWER], "bel mora", exact).reason == "correct answer, get exact score: 1.0"


@pytest.mark.parametrize("settings", [None, AUTHORS])
def test_the_end_token_is_no_text(settings: HierarchicalSettings | None) -> None:
    text = ANSWER.text
    assert hierarchical_reward(text + "</s>", "Bel Mora", settings, eos="</s>").score == 1
    assert hierarchical_reward(text, "Bel Mora", settings, eos="</s>").score == 1
    assert hierarchical_reward("", "Bel Mora", settings, eos="</s>").score == -1
    assert hierarchical_reward([], "Bel Mora", settings, eos="</s>").score == -1
    eaten = hierarchical_reward(text, "Bel Mora", settings, eos="</answer>")
    assert eaten.score == -1 and eaten.reason in ("cannot extract answer", "bad format: <answer> is not closed")
