"""The grammar: what counts as exactly one action, and what is refused with which reason."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_envs.actions import Action, ActionError, Args, Grammar, Thoughts, Verb, render

GRAMMAR = Grammar(
    Verb("NAVIGATE", "title", aliases={"zh": "打开"}),
    Verb("SUBMIT", "answer", aliases={"zh": "提交"}, usages={"zh": "答案"}),
    Verb("BACK", "", Args.NONE, aliases={"zh": "返回"}),
    Verb("LOOK", "[what]", Args.OPTIONAL),
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("<think>why</think><action>NAVIGATE(Bel Mora)</action>", Action("NAVIGATE", "Bel Mora", "why")),
        (
            " \n<think> a\nb </think>\n<action> navigate ( Bel (river) ) </action>\n",
            Action("NAVIGATE", "Bel (river)", "a\nb"),
        ),
        ("<action>BACK()</action> trailing words", Action("BACK")),
        ("I go.\nNAVIGATE(Bel Mora)", Action("NAVIGATE", "Bel Mora")),
        ("Action: SUBMIT(1,234)\n\n", Action("SUBMIT", "1,234")),
        ("动作：提交（贝尔莫拉）", Action("SUBMIT", "贝尔莫拉")),
        ("<think>想</think><action>返回（）</action>", Action("BACK", "", "想")),
        ("LOOK()", Action("LOOK")),
        ("LOOK(NAVIGATE(x))", Action("LOOK", "NAVIGATE(x)")),
        ("SUBMIT(a) .", Action("SUBMIT", "a")),
        (
            "<think><action>BACK()</action></think><action>LOOK(up)</action>",
            Action("LOOK", "up", "<action>BACK()</action>"),
        ),
        ("<think>open NAVIGATE(a)\n</think>\nNAVIGATE(b)", Action("NAVIGATE", "b", "open NAVIGATE(a)")),
    ],
)
def test_one_action(text: str, want: Action) -> None:
    assert GRAMMAR.parse(text) == want


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no action"),
        (" \n ", "no action"),
        ("just words", "form NAME"),
        ("<action>BACK()</action><action>BACK()</action>", "more than one action"),
        ("NAVIGATE(a)\nNAVIGATE(b)", "more than one action"),
        ("Action: BACK()\n返回（）", "more than one action"),
        ("<action>NAVIGATE(a)\nNAVIGATE(b)</action>", "more than one line"),
        ("<action>NAVIGATE(a)", "not closed"),
        ("<action></action>", "form NAME"),
        ("FLY(home)", "unknown name"),
        ("NAVIGATE()", "needs an argument"),
        ("NAVIGATE(  )", "needs an argument"),
        ("BACK(now)", "takes no argument"),
        ("NAVIGATE(a) and more", "after the closing"),
        ("NAVIGATE)a(", "form NAME"),
        ("(a)", "form NAME"),
        ("<think>never closed NAVIGATE(a)", "unknown name"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(ActionError, match=reason):
        GRAMMAR.parse(text)


def test_help_and_refusal_are_in_the_language() -> None:
    assert GRAMMAR.usage("en") == "NAVIGATE(title) SUBMIT(answer) BACK() LOOK([what])"
    assert GRAMMAR.usage("zh") == "打开(title) 提交(答案) 返回() LOOK([what])"
    assert GRAMMAR.refuse("no action", "en").splitlines() == ["invalid action: no action", GRAMMAR.usage("en")]
    assert GRAMMAR.refuse("没有动作", "zh").startswith("无效动作：没有动作\n")


@given(st.text(alphabet=st.characters(exclude_characters="\n<>")), st.sampled_from(GRAMMAR.verbs))
def test_rendered_actions_parse_back(thought: str, verb: Verb) -> None:
    args = "" if verb.args is Args.NONE else "a (b) ，c"
    assert GRAMMAR.parse(render(verb.name, args, thought)) == Action(verb.name, args, thought.strip())


@given(st.text(st.characters(), max_size=200))
def test_any_text_is_one_action_or_refused(text: str) -> None:
    try:
        action = GRAMMAR.parse(text)
    except ActionError as error:
        assert error.text("en") and error.text("zh")
    else:
        assert action.name in {verb.name for verb in GRAMMAR.verbs}


@pytest.mark.parametrize("piece", ["(", ")", "<think>", "<action>", "</action>", "LOOK(", "LOOK()\n", "（", "\n", "🙂"])
def test_parsing_is_linear(piece: str) -> None:
    """Ten times the text takes ten times as long, where the square of the size would take a hundred times."""

    def seconds(size: int) -> float:
        text = piece * size
        began = time.process_time()
        with suppress(ActionError):
            GRAMMAR.parse(text)
        return time.process_time() - began

    assert min(seconds(200_000) for _ in range(2)) < 30 * max(min(seconds(20_000) for _ in range(3)), 1e-3)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("One thought.\n\n", "THINK"), ("\n\nOne thought.\n\n", "THINK"), ("a\n\nb", "THINK"), ("\n\n", "THINK"),
        (" \n\n ", "THINK"), ("The end.", "ANSWER"), ("\n\nThe end.", "ANSWER"), ("a\nb\n", "ANSWER"), ("", "ANSWER"),
        (" ", "ANSWER"), ("a\n \nb", "ANSWER"), ("SAY(x)", "ANSWER"), ("\ud800\n\n", "THINK"),
    ],
)  # fmt: skip
def test_a_thought_is_whatever_is_ended_by_a_blank_line(text: str, name: str) -> None:
    assert Thoughts().parse(text) == Action(name, text)
    assert Thoughts().usage("en") == "" and "\\boxed{" in Thoughts().format("zh")


LONG = Grammar(
    Verb("EDIT", "[file, ]a:b", lines={"en": "new lines", "zh": "新的行"}, body=Args.REQUIRED, aliases={"zh": "编辑"}),
    Verb("RUN", "file", lines={"en": "[input]", "zh": "[输入]"}, body=Args.OPTIONAL),
    Verb("BACK", "", Args.NONE),
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("<action>EDIT(3)\n    x = (1)\n\ny\n</action>", Action("EDIT", "3", body="    x = (1)\n\ny\n")),
        ("<think>why</think><action>\n EDIT(a, 1:2)\n</action>", Action("EDIT", "a, 1:2", "why", "")),
        ("<action>EDIT(3)\n\n</action>", Action("EDIT", "3", body="\n")),
        ("<action>编辑（3）\r\n行\r\n</action>", Action("EDIT", "3", body="行\n")),
        ("<action>EDIT(3)\n\tx</action> and so on", Action("EDIT", "3", body="\tx\n")),
        ("<action>EDIT(3)\na = '</action>'\n</action>", Action("EDIT", "3", body="a = '</action>'\n")),
        ("<action>EDIT(3)\nBACK()\n</think>\n</action>", Action("EDIT", "3", body="BACK()\n</think>\n")),
        ("<action>RUN(f(x).py)</action>", Action("RUN", "f(x).py")),
        ("<action>RUN(f)\n</action>", Action("RUN", "f", body="")),
        ("words\nRUN(f)", Action("RUN", "f")),
        ("<action>BACK()\n</action>", Action("BACK")),
    ],
)
def test_lines_below_the_call_are_taken_as_they_are(text: str, want: Action) -> None:
    assert LONG.parse(text) == want


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<action>EDIT(3)</action>", "needs lines below it"),
        ("EDIT(3)", "needs lines below it"),
        ("EDIT(3)\nx", "form NAME"),
        ("<action>EDIT(3)\nx", "not closed"),
        ("<action>EDIT()\nx\n</action>", "needs an argument"),
        ("<action>EDIT(3) x\ny\n</action>", "text after the closing"),
        ("<action>EDIT(3)\n<action>BACK()</action>\n</action>", "more than one action"),
        ("<action>BACK()\nx\n</action>", "more than one line"),
        ("<action>x\nEDIT(3)\n</action>", "more than one line"),
    ],
)
def test_what_is_no_action_with_lines(text: str, reason: str) -> None:
    with pytest.raises(ActionError, match=reason):
        LONG.parse(text)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))))
def test_any_lines_come_back(lines: list[str]) -> None:
    body = "".join(f"{line}\n" for line in lines)
    if "<action>" not in body and "\n</action>" not in f"\n{body}":
        assert LONG.parse(render("EDIT", "3", "so", body)) == Action("EDIT", "3", "so", body)


def test_help_shows_the_lines_and_says_what_the_sign_means() -> None:
    assert LONG.usage("en") == "EDIT([file, ]a:b)⏎new lines RUN(file)⏎[input] BACK()"
    assert LONG.usage("zh") == "编辑([file, ]a:b)⏎新的行 RUN(file)⏎[输入] BACK()"
    assert LONG.format("en").endswith(" (⏎ is a new line)") and "⏎" not in GRAMMAR.format("en")


@pytest.mark.parametrize("piece", ["\n", "</action", "\n</action", "EDIT(3)\n", "\r"])
def test_many_lines_take_linear_time(piece: str) -> None:
    began = time.process_time()
    with suppress(ActionError):
        LONG.parse("<action>EDIT(3)\n" + piece * (1_000_000 // len(piece)))
    assert time.process_time() - began < 2


def test_a_refusal_needs_no_chinese_text() -> None:
    assert ActionError("no such door").text("zh") == ActionError("no such door").text("en") == "no such door"
    assert ActionError("no such door", "没有这扇门").text("zh") == "没有这扇门"
