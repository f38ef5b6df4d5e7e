"""ARPO's hierarchical reward: form first, then the answer, then a little for using several tools [arXiv 2507.19849].

    R = -1            the form is broken
    R = 0             the form is kept, Acc = 0
    R = Acc + r_M     the form is kept, Acc > 0;  r_M = 0.1 where every one of several tools was used, else 0

Invariant: a pure function of the transcript and of the accepted answers; a transcript whose form is broken is never
paid for its answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_envs.boxed import boxed, last_boxed, unbox
from agent_envs.scoring import AnswerScore
from agent_envs.tool_format import TOOLS, Piece, check_as_arpo, read_strictly


class FormRules(StrEnum):
    """How the form is checked."""

    STRICT = "strict"
    """Every call closed and answered, in what the model wrote; see `read_strictly`."""
    ARPO = "arpo"
    """The authors' own checks of the whole text, results of tools included; see `check_as_arpo`."""


@dataclass(frozen=True)
class HierarchicalSettings:
    """How a transcript is paid."""

    rules: FormRules = FormRules.STRICT
    """How the form is checked, and which calls count."""
    accuracy: AnswerScore = AnswerScore.F1
    """How the answer is compared; the authors' own is f1_en."""
    tools: tuple[str, ...] = TOOLS
    """The tags of the tools."""
    bonus: float = 0.1
    """Added to a right answer where every tool was used, and there are several."""


@dataclass(frozen=True)
class HierarchicalScore:
    """What a transcript is worth, and why."""

    score: float
    """-1, 0, or the accuracy with or without the bonus."""
    reason: str
    """One line for the record, and for whoever wrote the transcript."""
    answer: str = ""
    """What was found in the box."""
    accuracy: float = 0.0
    """In [0, 1]."""


def hierarchical_reward(
    transcript: str | Sequence[Piece],
    accepted: str | Iterable[str],
    settings: HierarchicalSettings | None = None,
    *,
    eos: str = "",
) -> HierarchicalScore:
    """Scores a transcript: pieces with their authors, or a text that the model wrote alone.

    ``eos`` is the end-of-sequence text that is taken off the end. Raises TypeError when an accepted form is not text.
    """
    settings = settings or HierarchicalSettings()
    pieces = [Piece(transcript)] if isinstance(transcript, str) else list(transcript)
    if settings.rules == FormRules.ARPO:
        answer, used_all, wrong = _as_arpo("".join(piece.text for piece in pieces), settings.tools, eos)
    else:
        if eos and pieces:
            pieces[-1] = Piece(pieces[-1].text.removesuffix(eos), pieces[-1].by_model)
        form = read_strictly(pieces, settings.tools)
        used_all, wrong = form.called >= set(settings.tools), form.wrong and f"bad format: {form.wrong}"
        answer = "" if wrong else boxed(form.answer)
    return paid(wrong, answer, accepted, used_all=used_all, settings=settings)


def paid(
    wrong: str | None, answer: str, accepted: str | Iterable[str], *, used_all: bool, settings: HierarchicalSettings
) -> HierarchicalScore:
    """What an episode is worth of which is known what breaks its form, if anything does, and whether it used all tools.

    For environments that have a form of their own. Raises TypeError when an accepted form is not text.
    """
    if wrong:
        return HierarchicalScore(-1.0, wrong)
    accuracy = settings.accuracy(answer, accepted)
    if accuracy <= 0:
        return HierarchicalScore(0.0, f"wrong answer but good format: {answer}", answer)
    if not (used_all and len(settings.tools) > 1):
        kind = settings.accuracy.partition("_")[0]
        return HierarchicalScore(accuracy, f"correct answer, get {kind} score: {accuracy}", answer, accuracy)
    score = accuracy + settings.bonus
    together = f"calling {' and '.join(settings.tools)} at the same time"
    return HierarchicalScore(score, f"correct answer and {together}, get score: {score}", answer, accuracy)


def _as_arpo(text: str, tools: Sequence[str], eos: str) -> tuple[str, bool, str | None]:
    """(answer, whether every tool's closing tag occurs, what is wrong), as the authors find them."""
    if wrong := check_as_arpo(text, tools):
        return "", False, f"bad format: {wrong}"
    text = text.removesuffix(eos)
    _, begins, rest = text.partition("<answer>")
    part, ends, _ = rest.partition("</answer>")
    if not (begins and ends):
        return "", False, "cannot extract answer"
    try:
        answer = unbox(last_boxed(part))
    except ValueError as error:
        return "", False, f"find box error: {error}"
    return answer, all(f"</{tool}>" in text for tool in tools), None
