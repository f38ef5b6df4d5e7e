r"""ARPO's tags as an action format [arXiv 2507.19849]: one call of a tool, or the answer, a turn.

    <think>…</think><search>query</search>
    <think>…</think><python>code</python>
    <think>…</think><answer>… \boxed{answer}</answer>

Invariants: a turn is accepted exactly when a transcript made of such turns, and of results between them, is one that
`read_strictly` accepts; what a tool returns can neither close its `<result>` nor open another block.
"""

import re
import textwrap

from agent_envs.actions import THINK, THINK_END, Action, ActionError, Grammar
from agent_envs.boxed import boxed
from agent_envs.tool_format import TOOLS, Piece, read_strictly

_THOUGHT = f"{THINK}{THINK_END}"
_ANSWER = "<answer>"
_ANSWERED = Piece(f"{_ANSWER}\\boxed{{0}}</answer>")
_RESULT = Piece("", by_model=False)
_TAGS = re.compile(rf"[<＜](?=/?\s*(?:think|answer|result|{'|'.join(TOOLS)})\b)", re.IGNORECASE)
_SHOWN = {
    "en": {"search": "query", "python": "code", "answer": "answer"},
    "zh": {"search": "词语", "python": "代码", "answer": "答案"},
}


class TagGrammar(Grammar):
    """Turns in tags. The actions are SEARCH(query), PYTHON with the code below it, and SUBMIT(the boxed answer)."""

    def __init__(self) -> None:
        super().__init__()

    def usage(self, language: str) -> str:
        shown = _SHOWN[language]
        calls = " ".join(f"<{tool}>{shown[tool]}</{tool}>" for tool in TOOLS)
        return f"{calls} {_ANSWER}\\boxed{{{shown['answer']}}}</answer>"

    def format(self, language: str) -> str:
        if language == "zh":
            return f"每轮先写 {THINK}思考{THINK_END}，然后恰好一个调用或答案；工具的结果写在 <result> 里："
        return f"Each turn: {THINK}thought{THINK_END}, then one call or the answer; a tool answers in <result>:"

    def parse(self, text: str) -> Action:
        """The call or the answer of a turn; raises `ActionError` when it is not one, or breaks the form."""
        alone = read_strictly([Piece(_THOUGHT), Piece(text)])
        if _ANSWER in text:
            if alone.wrong:
                raise ActionError(alone.wrong)
            return Action("SUBMIT", boxed(alone.answer))
        # A call is right where the transcript is that goes on with its result and an answer.
        form = read_strictly([Piece(_THOUGHT), Piece(text), _RESULT, _ANSWERED])
        if form.wrong:
            raise ActionError(alone.wrong or form.wrong)
        if not form.called:
            raise ActionError("no call and no answer", "没有调用也没有答案")
        (tool,) = form.called
        inside = text.partition(f"<{tool}>")[2].partition(f"</{tool}>")[0]
        if not inside.strip():
            raise ActionError(f"<{tool}> is empty", f"<{tool}> 是空的")
        if tool == "python":
            return Action("PYTHON", body=textwrap.dedent(inside).strip())
        return Action(tool.upper(), inside.strip())


def render_tags(name: str, args: str, thought: str = "") -> str:
    """The full turn of an action, by its name in `TagGrammar`."""
    if name == "SUBMIT":
        return f"{THINK}{thought}{THINK_END}{_ANSWER}\\boxed{{{args}}}</answer>"
    tool = name.lower()
    return f"{THINK}{thought}{THINK_END}<{tool}>{args}</{tool}>"


def as_result(text: str) -> str:
    """What a tool returned, in its tag. A blank is put into every tag that the text holds, so that it is none."""
    return f"<result>\n{_TAGS.sub(lambda found: f'{found[0]} ', text)}\n</result>"
