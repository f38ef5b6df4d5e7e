"""The question to ADCA's judge and the reading of its reply, against AgentEvolver's functions."""

import pytest
import torch
from reference_cases import Case, cases
from reference_deviations import deviation

from agents.judge.parse import parse_judgments
from agents.judge.prompt import judge_messages, positive
from algorithms.adca import ADCA

UNREAD = ("labels outside judgment lines", "replies that cannot be read", "both words at once", "a longer word")


@cases("adca_parse_judgments")
def test_parsing(case: Case) -> None:
    case.knows()
    steps = case.inputs["num_steps"]
    ours = parse_judgments(case.inputs["response"], steps)
    assert len(ours) == steps
    if None in ours:
        assert ours == (None,) * steps and any(deviation(case, name) for name in UNREAD)
    elif "error" in case.outputs:
        assert deviation(case, "steps from 1")
    else:
        assert list(ours) == case.outputs["flags"]
        deviation(case, "other spellings of a judgment line")
    if deviation(case, "steps from 1"):
        assert None not in ours


@cases("adca_prompt_structure")
def test_the_frame_of_the_question(case: Case) -> None:
    case.knows()
    given, wanted = case.inputs, case.outputs
    score = given["score"] if "score" in given else given["overall_adv"]
    steps = [(step["action"], step.get("observation", "")) for step in given["steps"]]
    messages = judge_messages(given["query"], steps, score)
    user = messages[1]["content"]
    assert [message["role"] for message in messages] == wanted["roles"]
    assert wanted["score_text"] in user and user.count(f"({wanted['polarity']})") == 1
    assert user.count(">>> EVAL-STEP") == wanted["eval_step_markers"] == len(steps)
    assert user.count("\n…") == wanted["truncation_marks"]
    assert deviation(case, "the words of the question")


@cases("adca_score_helpers")
def test_scores(case: Case) -> None:
    case.knows()
    if deviation(case, "an advantage among tokens"):
        mask = case.inputs.get("mask") or [abs(a) >= 1e-8 for a in case.inputs["advantages"]]
        said = {a for a, m in zip(case.inputs["advantages"], mask, strict=True) if m}
        if len(said) <= 1:
            assert case.outputs == pytest.approx(next(iter(said), 0.0), abs=case.tolerance)
        return
    score = case.inputs["score"]
    case.expect(float(ADCA().judge_score(torch.tensor([score], dtype=torch.float64), torch.tensor([0]))), "rescaled")
    assert positive(score) is case.outputs["positive_threshold0"]
    assert positive(score, 0.5) is case.outputs["positive_threshold_half"]
