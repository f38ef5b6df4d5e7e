"""All text the coding environment says to an agent, in both languages. Short on purpose: every token is paid for.

Invariant: names, lines and output are put in as plain text; nothing here is ever parsed again.
"""

from agent_envs.code.sandbox import RunResult, Status
from agent_envs.code.view import cut, printed

_TEXTS: dict[str, tuple[str, str]] = {
    "file": ("{name}: {lines} lines", "{name}: {lines}行"),
    "shown": ("{name}: {lines} lines, {first}-{last} shown", "{name}: {lines}行, 显示{first}-{last}"),
    "empty": ("{name}: no lines", "{name}: 空文件"),
    "nofile": ("no such file, files: {names}", "没有这个文件, 文件: {names}"),
    "name": ("{name} cannot be the name of a file: take one like main.py", "{name} 不能作文件名, 例: main.py"),
    "exists": ("{name} is there already: use EDIT or REPLACE", "{name} 已存在: 请用 编辑 或 替换"),
    "full": ("there may be no more than {most} files", "文件不能多于{most}个"),
    "long": ("a file may have no more than {most} KiB", "文件不能大于{most} KiB"),
    "unicode": ("the text is not valid Unicode", "文字不是有效的 Unicode"),
    "lines": ("no such lines: {name} has {lines}", "没有这些行: {name} 共{lines}行"),
    "stale": ("not edited: VIEW lines {first}-{last} as they are now", "未编辑: 请先 查看 第{first}-{last}行的现状"),
    "same": ("nothing changed", "没有改变"),
    "syntax": (
        "not edited: {error}\nas it is:\n{now}\nas it would be:\n{then}",
        "未编辑: {error}\n现在:\n{now}\n改后会是:\n{then}",
    ),
    "edited": ("edited", "已编辑"),
    "created": ("created {name}: {lines} lines", "已新建 {name}: {lines}行"),
    "notfound": ("not found", "没有找到"),
    "matches": ("found {matches} times, must be once: give more, or its line", "有{matches}处, 应为1处: 多给些或行号"),
    "further": ("{left} more", "还有{left}处"),
    "undone": ("undone: {names}", "已撤销: {names}"),
    "noundo": ("nothing to undo", "没有可撤销的"),
    "ok": ("{number}: ok", "{number}: 对"),
    "wrong": ("{number}: {got}", "{number}: {got}"),
    "passed": ("{passed} of {total} ok", "{total}个对了{passed}个"),
    "notests": ("there are no checks to run", "没有可运行的检查"),
    "exit": ("exit {code}", "退出码 {code}"),
    "signal": ("ended by signal {code}", "被信号 {code} 终止"),
    "timeout": ("timeout", "超时"),
    "oom": ("out of memory", "内存不足"),
    "output_limit": ("too much output", "输出过多"),
    "pids_limit": ("too many processes", "进程过多"),
    "errors": ("errors:", "错误输出:"),
    "kept": ("changed: {names}", "已改变: {names}"),
    "notkept": ("not kept: {names}", "未保留: {names}"),
    "morelines": ("[{count} more lines]", "[省略{count}行]"),
    "morechars": ("[{count} more characters]", "[省略{count}个字符]"),
    "left": ("({left} turns left)", "(还剩{left}轮)"),
    "left1": ("(1 turn left)", "(还剩1轮)"),
}  # fmt: skip


def say(key: str, language: str, **values: object) -> str:
    """One fixed text with its values filled in."""
    return _TEXTS[key][language == "zh"].format(**values)


def shortened(text: str, most: int, language: str) -> str:
    """Head and tail of a text of more than ``most`` tokens, with what is left out between them counted."""
    head, middle, tail = cut(text, most)
    if not middle:
        return text
    lines = middle.count("\n")
    note = say("morelines" if lines else "morechars", language, count=lines or len(middle))
    return "\n".join(part for part in (head.removesuffix("\n"), note, tail) if part)


def ended(result: RunResult, language: str) -> str:
    """How a program ended."""
    if result.status not in (Status.OK, Status.ERROR):
        return say(str(result.status), language)
    code = result.exit_code if result.signal is None else result.signal
    return say("exit" if result.signal is None else "signal", language, code=code)


def outcome_of(result: RunResult, most: int, language: str) -> str:
    """How a program ended and what it printed, in at most about ``most`` tokens."""
    rows = [ended(result, language)]
    out, errors = printed(result.stdout), printed(result.stderr)
    half = most // 2 if out and errors else most
    if out:
        rows.append(shortened(out, half, language))
    if errors:
        rows += [say("errors", language), shortened(errors, half, language)]
    return "\n".join(rows)
