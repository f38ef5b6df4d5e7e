"""The action grammar: ``<think>…</think><action>NAME(args)</action>``, or leniently a bare last line ``NAME(args)``.

Some actions take a text of several lines, which stands below the call and is taken as it is::

    <action>EDIT(main.py, 3:4)
        return "two (lines)"
    </action>

Invariant: parsing looks at the model's own turn only, in time linear in its length, and either returns exactly one
`Action` or raises `ActionError`. Only `str` methods are used: no regular expression can blow up on hostile text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

THINK, THINK_END, ACTION, ACTION_END = "<think>", "</think>", "<action>", "</action>"
BLANK = "\n\n"
"""What ends a thought factor."""
BELOW = "⏎"
"""What stands for the end of a line in the help."""
_OPEN, _CLOSE = "(（", ")）"
_PREFIXES = ("action:", "action：", "动作:", "动作：")
_MAX_NAME = 32


class Args(StrEnum):
    """Whether an action takes an argument."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    NONE = "none"


@dataclass(frozen=True)
class Verb:
    """One action: its name, how its call is shown, and its names in other languages."""

    name: str
    """Canonical name: upper case, where others have not named it before."""
    usage: str
    """The argument as shown in the help, e.g. ``title[#section]``."""
    args: Args = Args.REQUIRED
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Language → the name shown and accepted in that language; every alias is accepted in every language."""
    usages: Mapping[str, str] = field(default_factory=dict)
    """Language → `usage` in that language, where it differs."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """Language → how the lines below the call are shown in the help; empty for an action of one line."""
    body: Args = Args.NONE
    """Whether lines stand below the call."""

    def call(self, language: str) -> str:
        lines = f"{BELOW}{self.lines[language]}" if self.lines else ""
        return f"{self.aliases.get(language, self.name)}({self.usages.get(language, self.usage)}){lines}"


@dataclass(frozen=True)
class Action:
    """One parsed action."""

    name: str
    """Canonical name of the verb."""
    args: str = ""
    """Everything between the first opening and the last closing parenthesis, stripped."""
    thought: str = ""
    """What stood between the think tags, stripped."""
    body: str | None = None
    """The lines below the call, each with its end; empty for no line, None where nothing was said of lines."""


class ActionError(Exception):
    """Why an action was refused, in English and where there is one in Chinese; the turn counts, the state stays."""

    def __init__(self, en: str, zh: str = "") -> None:
        super().__init__(en)
        self.en, self.zh = en, zh

    def text(self, language: str) -> str:
        return self.zh if language == "zh" and self.zh else self.en


class Grammar:
    """The verbs of one environment, and the parser over them."""

    def __init__(self, *verbs: Verb) -> None:
        self.verbs = verbs
        self._by_name = {name.casefold(): verb for verb in verbs for name in (verb.name, *verb.aliases.values())}

    def __getitem__(self, name: str) -> Verb:
        return self._by_name[name.casefold()]

    def usage(self, language: str) -> str:
        """All actions in one line."""
        return " ".join(verb.call(language) for verb in self.verbs)

    def format(self, language: str) -> str:
        """The form of a turn, in one line."""
        long = any(verb.lines for verb in self.verbs)
        if language == "zh":
            more = f"（{BELOW} 表示换行）" if long else ""
            return f"每轮恰好一个动作：{THINK}思考{THINK_END}{ACTION}名称(参数){ACTION_END}{more}"
        more = f" ({BELOW} is a new line)" if long else ""
        return f"One action per turn: {THINK}thought{THINK_END}{ACTION}NAME(args){ACTION_END}{more}"

    def refuse(self, reason: str, language: str) -> str:
        """The tool message for an invalid action: the reason and the grammar in one line each."""
        head = "无效动作：" if language == "zh" else "invalid action: "
        return f"{head}{reason}\n{self.usage(language)}"

    def parse(self, text: str) -> Action:
        """The one action of a turn; raises `ActionError` when there is none, more than one, or a malformed one."""
        thought, rest = split_thought(text)
        tags = rest.count(ACTION)
        if tags > 1:
            raise ActionError("more than one action", "动作多于一个")
        if tags == 1:
            inside = rest.partition(ACTION)[2]
            if (long := self._long_call(inside, thought)) is not None:
                return long
            body, closed, _ = inside.partition(ACTION_END)
            if not closed:
                raise ActionError(f"{ACTION} is not closed", f"{ACTION} 没有结束")
            lines = _filled(body)
            if len(lines) > 1:
                raise ActionError("more than one line in the action", "动作多于一行")
            return self._call(lines[0] if lines else "", thought)
        lines = _filled(rest)
        if not lines:
            raise ActionError("no action", "没有动作")
        if sum(self._looks_like_call(line) for line in lines) > 1:
            raise ActionError("more than one action", "动作多于一个")
        return self._call(_without_prefix(lines[-1]), thought)

    def _looks_like_call(self, line: str) -> bool:
        name, args, end = cut_call(_without_prefix(line))
        return args is not None and not end and name.casefold() in self._by_name

    def _long_call(self, inside: str, thought: str) -> Action | None:
        """The action with lines below its call; None when the first line is the whole call, or no call with lines."""
        head, _, below = inside.lstrip().partition("\n")
        verb = self._by_name.get(cut_call(head)[0].casefold())
        if verb is None or verb.body is Args.NONE or ACTION_END in head:
            return None
        body = _body(below)
        if body is None:
            raise ActionError(f"{ACTION} is not closed", f"{ACTION} 没有结束")
        return self._call(head, thought, body)

    def _call(self, line: str, thought: str, body: str | None = None) -> Action:
        name, args, end = cut_call(line)
        if args is None:
            raise ActionError("not of the form NAME(args)", "格式应为 名称(参数)")
        verb = self._by_name.get(name.casefold())
        if verb is None:
            raise ActionError("unknown name", "未知的动作名称")
        if end:
            raise ActionError("text after the closing parenthesis", "右括号之后有多余文字")
        if verb.args is Args.REQUIRED and not args:
            raise ActionError(f"{verb.name} needs an argument", f"{verb.aliases.get('zh', verb.name)} 缺少参数")
        if verb.args is Args.NONE and args:
            raise ActionError(f"{verb.name} takes no argument", f"{verb.aliases.get('zh', verb.name)} 不带参数")
        if verb.body is Args.REQUIRED and body is None:
            raise ActionError(
                f"{verb.name} needs lines below it, before {ACTION_END}",
                f"{verb.aliases.get('zh', verb.name)} 的下面要有内容，写在 {ACTION_END} 之前",
            )
        return Action(verb.name, args, thought, body)


class Thoughts(Grammar):
    """Turns that are thought factors: every text is one. The names are THINK, and ANSWER for the end of the message."""

    def __init__(self) -> None:
        super().__init__()

    def format(self, language: str) -> str:
        if language == "zh":
            return "你的思考由很短的“思考因子”组成，用空行分割；最后一个给出答案：\\boxed{答案}"
        return "Think in short thought factors, with a blank line after each; the last one answers: \\boxed{answer}"

    def parse(self, text: str) -> Action:
        """Never refuses: a text with a blank line after its beginning is a thought, any other ends the message."""
        return Action("THINK" if ends_thought(text) else "ANSWER", text)


def ends_thought(text: str) -> bool:
    """Whether a thought factor is ended by a blank line; one of nothing but white space is, if it holds one."""
    return BLANK in (text.lstrip() or text)


def thoughts_of(text: str, turns: int) -> list[str]:
    """The thoughts of a message: each ends with the first blank line after its beginning, and the last of ``turns``
    thoughts goes on to the end of the message. At least one, which may be empty."""
    result: list[str] = []
    start, at = 0, text.find(BLANK)
    while at >= 0 and len(result) < turns - 1:
        if text[start:at].strip():
            result.append(text[start : at + len(BLANK)])
            start = at + len(BLANK)
            at = text.find(BLANK, start)
        else:  # blank lines before a thought belong to it
            at = text.find(BLANK, at + 1)
    rest = text[start:]
    return [*result, rest] if rest.strip() or not result else result


def split_thought(text: str) -> tuple[str, str]:
    """(thought, rest). A thought counts only at the beginning and up to its first end tag; else all is rest."""
    body = text.lstrip()
    if not body.startswith(THINK):
        return "", text
    thought, closed, rest = body[len(THINK) :].partition(THINK_END)
    return (thought.strip(), rest) if closed else ("", text)


def cut_call(line: str) -> tuple[str, str | None, str]:
    """(name, argument, text after the call). The argument is None when the line is not a call at all.

    The argument runs from the first opening to the last closing parenthesis, so titles may hold parentheses.
    """
    line = line.strip()
    start = min((at for at in map(line.find, _OPEN) if at >= 0), default=-1)
    stop = max(map(line.rfind, _CLOSE))
    name = line[:start].strip()
    if not 0 < start < stop or len(name) > _MAX_NAME:
        return "", None, ""
    return name, line[start + 1 : stop].strip(), line[stop + 1 :].strip().strip(".。")


def render(name: str, args: str = "", thought: str = "", body: str | None = None) -> str:
    """The full turn text of an action, as the default format wants it; every line of the ``body`` has its end."""
    lines = "" if body is None else f"\n{body}"
    return f"{THINK}{thought}{THINK_END}{ACTION}{name}({args}){lines}{ACTION_END}"


def _body(below: str) -> str | None:
    """The lines up to the end tag, each with its end; None without one.

    Where the tag stands at the beginning of a line, the lines before it may hold the tag's own text.
    """
    at = 0 if below.startswith(ACTION_END) else below.find(f"\n{ACTION_END}") + 1 or below.find(ACTION_END)
    if at < 0:
        return None
    body = below[:at].replace("\r\n", "\n").replace("\r", "\n")
    return body if not body or body.endswith("\n") else body + "\n"


def _without_prefix(line: str) -> str:
    line = line.strip()
    head = line[:8].casefold()
    for prefix in _PREFIXES:
        if head.startswith(prefix):
            return line[len(prefix) :].strip()
    return line


def _filled(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]
