"""ARPO's reward against the functions of its authors: the answer's F1, the form, the box, the whole score."""

import random
import re

import pytest
from reference_cases import Case, cases
from reference_deviations import STRICT, deviation

from agent_envs.boxed import last_boxed, unbox
from agent_envs.hierarchical import FormRules, HierarchicalScore, HierarchicalSettings, hierarchical_reward
from agent_envs.scoring import AnswerScore, f1_en, normalise_en
from agent_envs.tool_format import Piece, check_as_arpo, read_strictly

AUTHORS = HierarchicalSettings(rules=FormRules.ARPO, accuracy=AnswerScore.F1_EN)


@cases("f1_score")
def test_f1(case: Case) -> None:
    golds = case.inputs["ground_truths"]
    if "error" in case.outputs:
        with pytest.raises(TypeError):
            f1_en(case.inputs["prediction"], golds)
        return
    assert normalise_en(case.inputs["prediction"]) == case.outputs["normalized_prediction"]
    listed = [golds] if isinstance(golds, str) else golds
    assert [normalise_en(gold) for gold in listed] == case.outputs["normalized_ground_truths"]
    case.expect(f1_en(case.inputs["prediction"], golds), "f1")


def pieces(text: str) -> list[Piece]:
    """A text cut where a result follows a call: that is what a tool wrote."""
    parts = re.split(r"((?:(?<=</search>)|(?<=</python>))\s*<result>.*?</result>)", text, flags=re.DOTALL)
    return [Piece(part, by_model=i % 2 == 0) for i, part in enumerate(parts)]


@cases("validate_format")
def test_form(case: Case) -> None:
    wrong = check_as_arpo(case.inputs["text"])
    assert (not wrong, wrong or "format is correct") == (case.outputs["valid"], case.outputs["reason"])
    ours = read_strictly(pieces(case.inputs["text"]))
    if deviation(case, "results of tools are not read"):
        assert ours.wrong is None
    elif deviation(case, "a looser form"):
        assert ours.wrong
    else:
        assert (ours.wrong is None) == case.outputs["valid"], ours.wrong


@cases("validate_format_python")
def test_form_with_python_alone(case: Case) -> None:
    wrong = check_as_arpo(case.inputs["text"], tools=("python",))
    assert (not wrong, wrong or "format is correct") == (case.outputs["valid"], case.outputs["reason"])


@cases("boxed")
def test_box(case: Case) -> None:
    box = last_boxed(case.inputs["text"])
    assert box == case.outputs["last_boxed"]
    if "error" in case.outputs:
        assert deviation(case, "errors in words")
        with pytest.raises(ValueError, match="closed"):
            unbox(box)
    else:
        assert unbox(box) == case.outputs["unboxed"]


def score(case: Case) -> HierarchicalScore:
    given = case.inputs
    return hierarchical_reward(given["solution"], given["ground_truth"], AUTHORS, eos=given["eos_token"] or "")


@cases("arpo_compute_score")
def test_score(case: Case) -> None:
    if "error" in case.outputs:
        with pytest.raises(TypeError, match="accepted answers are texts"):
            score(case)
        return
    ours, wanted = score(case), case.outputs
    case.expect(ours.score, "score")
    case.expect(ours.accuracy, "f1_score")
    assert ours.answer == wanted["answer"]
    if deviation(case, "errors in words"):
        assert ours.reason.startswith("find box error: ") and wanted["reason"].startswith("find box error: ")
    else:
        assert ours.reason == wanted["reason"]


PARTS = (
    *(
        "<think>t</think>",
        "<search>q</search>",
        "<python>p</python>",
        " <result>r</result>",
        "<answer>\\boxed{1}</answer>",
    ),
    *("<think>", "</think>", "<search>", "</python>", "<result>", "</result>", "<answer>", "</answer>"),
    *("\\boxed{", "{2}", "}", "x", " "),
)


def test_the_strict_form_is_the_pattern() -> None:
    """On random texts the reader and the pattern of the deviations agree, and tell what the authors' checks do not."""
    rng, stricter, looser = random.Random(0), 0, 0
    for _ in range(20_000):
        text = "".join(rng.choices(PARTS, weights=(5, 3, 2, 4, 4, *[1] * (len(PARTS) - 5)), k=rng.randint(1, 7)))
        ours, authors = read_strictly(pieces(text)).wrong, check_as_arpo(text)
        assert (ours is None) == bool(STRICT.fullmatch(text)), (text, ours)
        stricter += bool(ours) and not authors
        looser += not ours and bool(authors)
    assert stricter > 100, "the control: both must occur"
    whole = "<think>t</think><search>q</search><result></answer></result><answer>\\boxed{1}</answer>"
    assert check_as_arpo(whole) and read_strictly(pieces(whole)).wrong is None and not looser
