"""Actions as tools: JSON schemas for models that call functions, and calls as the turns that an environment reads.

Invariant: the environment's grammar stays the only judge of actions. A call becomes the turn that says the same in
text, or, where no text says exactly that, a turn without an action, which every grammar refuses.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.actions import ACTION, ACTION_END, THINK, THINK_END, Action, Args, Grammar, Verb, render

Tool = Mapping[str, Any]
"""``{"type": "function", "function": {"name", "description", "parameters"}}``"""
LINES = "lines"
"""The parameter for the lines below a call."""
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
ONE_CALL = {"en": "Call exactly one tool per turn.", "zh": "每轮恰好调用一个工具。"}


def tools_of(grammar: Grammar, language: str) -> list[dict[str, Any]]:
    """One function for each verb. Raises ValueError where there are none, as where turns are thought factors.

    Functions have the canonical names in every language, since servers take ASCII names only; descriptions are in the
    language.
    """
    if not grammar.verbs:
        raise ValueError("there are no actions that could be tools")
    return [_tool(verb, language) for verb in grammar.verbs]


def _tool(verb: Verb, language: str) -> dict[str, Any]:
    wanted: dict[str, tuple[str, Args]] = {}
    if verb.args is not Args.NONE:
        wanted[_parameter(verb.usage)] = verb.usages.get(language, verb.usage), verb.args
    if verb.body is not Args.NONE:
        wanted[LINES] = verb.lines.get(language, LINES), verb.body
    parameters = {
        "type": "object",
        "properties": {name: {"type": "string", "description": shown} for name, (shown, _) in wanted.items()},
        "required": [name for name, (_, args) in wanted.items() if args is Args.REQUIRED],
    }
    function = {"name": verb.name, "description": verb.call(language), "parameters": parameters}
    return {"type": "function", "function": function}


def _parameter(usage: str) -> str:
    """A name for an argument that is shown as ``usage``: its one word that is not optional, if that is all there is."""
    head, bracket, rest = usage.partition("[")
    word = head + rest.partition("]")[2] if bracket else head
    word = word or rest.partition("]")[0]
    return word if word.isascii() and word.isalpha() and word != LINES else "argument"


def checked(tools: Any) -> list[dict[str, Any]]:
    """``tools`` as `tools_of` makes them, whoever made these. Raises ValueError for anything else."""
    try:
        result = [_checked(tool) for tool in tools]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("tools must be functions with a name, a description and parameters that are texts") from error
    if not result or result != list(tools):
        raise ValueError("tools must be functions, and nothing else, and one at least")
    return result


def _checked(tool: Any) -> dict[str, Any]:
    """The same tool, made of what may be in it only."""
    function = tool["function"]
    wanted, needed = function["parameters"]["properties"], function["parameters"]["required"]
    properties = {_name(key): {"type": "string", "description": _said(wanted[key])} for key in wanted}
    parameters = {"type": "object", "properties": properties, "required": [_name(key) for key in needed]}
    made = {"name": _name(function["name"]), "description": _said(function), "parameters": parameters}
    return {"type": "function", "function": made}


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("a name has other characters than letters, digits, - and _")
    return text


def _said(part: Mapping[str, Any]) -> str:
    if not isinstance(part["description"], str):
        raise ValueError("a description is no text")
    return part["description"]


def as_turn(tools: Sequence[Tool] | None, name: str, arguments: Mapping[str, Any], thought: str = "") -> str:
    """The turn that an environment reads for a call, by the schemas of ``tools_of`` (as ``reset`` gives them).

    A call of a name that the schemas lack is left to the environment, which refuses it. Without ``tools`` (None) any
    name of a parameter will do. Numbers are taken as they would be written.
    """
    lines = arguments.get(LINES)
    values = [value for key, value in arguments.items() if key != LINES]
    texts = [_text(value) for value in (*values, *([] if lines is None else [lines]))]
    if len(values) > 1 or None in texts or not _known(tools, name, arguments):
        return no_action(thought)
    args = texts[0] if values else ""
    body = None if lines is None else texts[-1]
    assert args is not None
    if not _plain(name) or {"(", "（"} & set(name) or not _plain(args) or (body is not None and _ends_early(body)):
        return no_action(thought)
    if body is not None and body and not body.endswith("\n"):
        body += "\n"
    return render(name, args, _inside(thought), body)


def as_call(tools: Sequence[Tool], action: Action) -> dict[str, Any]:
    """The call that `as_turn` makes this action of: its name and arguments."""
    (function,) = (tool["function"] for tool in tools if tool["function"]["name"] == action.name)
    arguments = {name: action.args for name in function["parameters"]["properties"] if name != LINES}
    if not action.args and not set(arguments) & set(function["parameters"]["required"]):
        arguments = {}
    return {"name": action.name, "arguments": arguments | ({} if action.body is None else {LINES: action.body})}


def no_action(thought: str = "") -> str:
    """A turn that every grammar refuses, since it holds no action."""
    return f"{THINK}{_inside(thought)}{THINK_END}"


def two_actions(thought: str = "") -> str:
    """A turn that every grammar refuses, since it holds more than one action."""
    return no_action(thought) + 2 * (ACTION + ACTION_END)


def _known(tools: Sequence[Tool] | None, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the function of that name takes these arguments; one that there is not takes anything."""
    for tool in tools or ():
        if tool["function"]["name"].casefold() == name.casefold():
            return set(arguments) <= set(tool["function"]["parameters"]["properties"])
    return True


def _text(value: Any) -> str | None:
    """An argument as text; None for what is neither text nor a number."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _plain(text: str) -> bool:
    """Whether a text can stand in the line of a call: it ends neither the line nor the action."""
    return len(text.splitlines()) <= 1 and not {"\n", "\r"} & set(text) and not (ACTION in text or ACTION_END in text)


def _ends_early(body: str) -> bool:
    """Whether lines hold what would end them, or begin another action."""
    return ACTION in body or any(line.startswith(ACTION_END) for line in body.replace("\r", "\n").split("\n"))


def _inside(thought: str) -> str:
    """A thought that does not end itself."""
    return thought.replace(THINK_END, f"{THINK_END[:2]} {THINK_END[2:]}")
