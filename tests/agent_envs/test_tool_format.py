"""The form of a transcript and the box of its answer, in literal texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_envs.boxed import boxed, last_boxed, unbox
from agent_envs.tool_format import Piece, check_as_arpo, read_strictly

ANSWER = "<answer>so \\boxed{1}</answer>"


def said(*texts: str) -> list[Piece]:
    """Pieces; those that begin with "tool:" a tool wrote."""
    return [Piece(text.removeprefix("tool:"), by_model=not text.startswith("tool:")) for text in texts]


def test_a_whole_transcript() -> None:
    form = read_strictly(
        said(
            *("<think>t</think> let me see <search>q</search>\n", "tool: <result>\n<answer></think></result>"),
            *("<think>u</think><python>p</python>", "tool:", f"<think>v</think>{ANSWER} \n"),
        )
    )
    assert (form.wrong, form.answer, form.called) == (None, "so \\boxed{1}", {"search", "python"})


def test_a_tag_may_be_cut_anywhere() -> None:
    text = f"<think>t</think>{ANSWER}"
    for cut in range(len(text)):
        assert read_strictly(said(text[:cut], text[cut:])).wrong is None
        torn = read_strictly(said(text[:cut], "tool:x", text[cut:]))
        assert torn.wrong is None or cut  # the control: a tool's text in between tears tags apart
    assert read_strictly(said(text[:3], "tool:x", text[3:])).wrong


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        (("",), "there is no <answer>"),
        ((ANSWER,), "there is no <think>"),
        (("<think>t</think><answer>1</answer>",), "the answer is not in \\boxed{}"),
        (("<think>t</think><answer>}\\boxed{1</answer>",), "\\boxed{ is not closed"),
        (("<think>t</think><answer>\\boxed{ }</answer>",), "\\boxed{} is empty"),
        ((f"<think>t</think>{ANSWER} done",), "text follows the answer"),
        ((f"<think>t</think>{ANSWER}<think>u</think>",), "<think> comes after the answer"),
        ((f"<think>t</think>{ANSWER}{ANSWER}",), "<answer> comes after the answer"),
        ((f"<think>t{ANSWER}",), "<answer> comes where </think> is expected"),
        ((f"<think><think>t</think></think>{ANSWER}",), "<think> comes where </think> is expected"),
        ((f"</think><think>{ANSWER}",), "</think> comes where a block is expected"),
        ((f"<think>t</think></search>{ANSWER}",), "</search> comes where a block is expected"),
        (("<think>t</think><answer>\\boxed{1}",), "<answer> is not closed"),
        (("<think>t</think><search>q</search>",), "the call of search got no result"),
        ((f"<think>t</think><search>q</search>{ANSWER}",), "the call of search got no result before <answer>"),
        (("<think>t</think><search>q</search> hm", "tool:r", ANSWER), "text follows the call of search before its"),
        (("<think>t</think><search>q</search><search>", "tool:r", ANSWER), "got no result before <search>"),
        ((f"<think>t</think><search>q</search><result>r</result>{ANSWER}",), "<result> is written by tools only"),
    ],
)
def test_what_breaks_the_form(texts: tuple[str, ...], wrong: str) -> None:
    form = read_strictly(said(*texts))
    assert form.wrong is not None and wrong in form.wrong and "\n" not in form.wrong
    assert not form.answer and not form.called


def test_other_tools() -> None:
    texts = ("<think>t</think><look-up>q</look-up>", "tool:r", ANSWER)
    assert read_strictly(said(*texts), ("look-up",)).called == {"look-up"}
    assert not read_strictly(said(*texts)).called  # no tag that is known


def test_what_a_tool_returns_changes_nothing() -> None:
    """The control: the authors' checks of the whole text are broken by it."""
    texts = ("<think>t</think><search>q</search>", "tool: <result></result>", ANSWER)
    for evil in ("<answer>", "</think>", "</result>", "\\boxed{", "<python>"):
        torn = [texts[0], f"tool: <result>{evil}</result>", texts[2]]
        assert read_strictly(said(*torn)) == read_strictly(said(*texts))
    assert check_as_arpo("".join(texts).replace("tool:", "")) == ""
    assert check_as_arpo("".join(torn).replace("tool:", "").replace("<python>", "</think>"))


@given(st.lists(st.tuples(st.sampled_from(["<think>", "</think>", "<answer>", "\\", "{", "}", "x"]), st.booleans())))
def test_any_text_is_read(parts: list[tuple[str, bool]]) -> None:
    form = read_strictly([Piece(text, by_model) for text, by_model in parts])
    assert form.wrong is None or (form.wrong and not form.answer)


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        ("\\boxed{1} and \\boxed{ 2 }", "2", " 2 "),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", "\\frac{1}{2}"),
        ("\\boxed {7}", "7", "{7}"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}", "\\{1, 2\\}"),
        ("\\boxed{\\{}", "\\{", None),
        ("\\boxed 5$ is it", None, "5"),
        ("\\boxed{1} \\boxed 5", "1", "5"),
        ("\\boxed{", None, None),
        ("\\fbox{1}", None, None),
        ("\\boxedx{3}", None, None),
        ("none", None, None),
    ],
)
def test_boxes(text: str, ours: str | None, theirs: str | None) -> None:
    for read, want in ((boxed, ours), (lambda t: unbox(last_boxed(t)), theirs)):
        if want is None:
            with pytest.raises(ValueError, match="boxed"):
                read(text)
        else:
            assert read(text) == want
