"""How models of several families write calls of functions, and the turns that the calls are.

Invariant: reading looks at the model's own turn only, in time linear in its length, and evaluates nothing. What is not
exactly one well-formed call becomes a turn that every environment refuses; a turn without a call stays as it is, so it
may hold an action as text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from agent_envs.actions import ACTION, split_thought
from agent_envs.tools import Tool, as_turn, no_action, two_actions

MOST = 1_000_000
"""Characters of the calls of one turn; more are not read."""


class Malformed(ValueError):  # noqa: N818
    """A call that cannot be read."""


@dataclass(frozen=True)
class Call:
    """One call of a function."""

    name: str
    arguments: Mapping[str, Any]


class Scan:
    """A place in a text, which moves on."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    @property
    def rest(self) -> str:
        return self.text[self.at :]

    def sees(self, mark: str) -> bool:
        """Whether ``mark`` comes next, after white space at most."""
        return self.text.startswith(mark, self._filled())

    def take(self, mark: str) -> bool:
        """Passes ``mark`` where it comes next."""
        if not self.sees(mark):
            return False
        self.at = self._filled() + len(mark)
        return True

    def need(self, mark: str) -> None:
        if not self.take(mark):
            raise Malformed(f"{mark} is missing")

    def until(self, mark: str, *, passing: bool = True) -> str:
        """What stands before the next ``mark``, which is passed too."""
        end = self.text.find(mark, self.at)
        if end < 0:
            raise Malformed(f"{mark} is missing")
        found, self.at = self.text[self.at : end], end + (len(mark) if passing else 0)
        return found

    def json(self) -> Any:
        try:
            value, self.at = _JSON.raw_decode(self.text, self._filled())
        except (ValueError, RecursionError) as error:
            raise Malformed("this is not JSON") from error
        return value

    def _filled(self) -> int:
        """The next place that is not white space."""
        at = self.at
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        return at


@dataclass(frozen=True)
class Format:
    """How a family writes calls."""

    name: str
    begins: str
    """What a call begins with, anywhere in a turn."""
    read: Callable[[Scan], list[Call]]
    """Reads the calls from the beginning of the first one on. Raises Malformed."""
    bare: str = ""
    """What a call may begin with instead where it is the whole turn."""
    stops: tuple[str, ...] = ()
    """Tokens by which such a model may end a call, beside the one that ends a message."""

    def find(self, text: str) -> tuple[str, list[Call] | None, str] | None:
        """(text before, calls, text after), without calls where they are malformed; None where there is none."""
        if self.bare and text.lstrip().startswith(self.bare):
            start = len(text) - len(text.lstrip())
        elif (start := text.find(self.begins)) < 0:
            return None
        scan = Scan(text[start:])
        try:
            if len(scan.text) > MOST:
                raise Malformed("too long")
            return text[:start], self.read(scan), scan.rest
        except Malformed:
            return text[:start], None, text[start:]

    def turn(self, text: str, tools: Sequence[Tool]) -> str:
        """What an environment reads for a turn of the model: the action of its call, or the text as it is."""
        thought, rest = split_thought(text)
        if (found := self.find(rest)) is None:
            return text
        before, calls, after = found
        if not calls:
            return no_action(text)
        said = "\n".join(filter(None, (thought, before.strip())))
        if len(calls) > 1 or ACTION in before or ACTION in after or self.begins in after:
            return two_actions(said)
        return as_turn(tools, calls[0].name, calls[0].arguments, said)


# -- the families ----------------------------------------------------------------------------------------------------


def _hermes(scan: Scan) -> list[Call]:
    calls = []
    while scan.take("<tool_call>"):
        calls.append(_named(scan.json(), "arguments"))
        scan.need("</tool_call>")
    return calls


def _qwen_xml(scan: Scan) -> list[Call]:
    calls = []
    while scan.take("<tool_call>"):
        scan.need("<function=")
        name = scan.until(">").strip()
        arguments: dict[str, str] = {}
        while scan.take("<parameter="):
            key = scan.until(">")
            # The template writes a value on lines of its own.
            arguments[_new(key, arguments)] = scan.until("</parameter>").removeprefix("\n").removesuffix("\n")
        scan.need("</function>")
        scan.need("</tool_call>")
        calls.append(Call(name, arguments))
    return calls


def _glm(scan: Scan) -> list[Call]:
    calls = []
    while scan.take("<tool_call>"):
        name = scan.until("<", passing=False).strip()
        arguments: dict[str, str] = {}
        while scan.take("<arg_key>"):
            key = scan.until("</arg_key>")
            scan.need("<arg_value>")
            arguments[_new(key, arguments)] = scan.until("</arg_value>")
        scan.need("</tool_call>")
        calls.append(Call(name, arguments))
    return calls


def _llama(scan: Scan) -> list[Call]:
    scan.take("<|python_tag|>")
    calls = [_named(scan.json(), "parameters")]
    while scan.take(";"):
        scan.take("<|python_tag|>")
        calls.append(_named(scan.json(), "parameters"))
    scan.take("<|eom_id|>")
    if scan.rest.strip():
        raise Malformed("text after the call")
    return calls


def _mistral(scan: Scan) -> list[Call]:
    calls: list[Call] = []
    while scan.take("[TOOL_CALLS]"):
        if scan.sees("["):
            calls += [_named(each, "arguments") for each in scan.json()]
        else:
            name = scan.until("[ARGS]").partition("[CALL_ID]")[0]
            calls.append(_call(name.strip(), scan.json()))
    return calls


def _deepseek(scan: Scan) -> list[Call]:
    calls = []
    scan.need("<｜tool▁calls▁begin｜>")
    while scan.take("<｜tool▁call▁begin｜>"):
        name = scan.until("<｜tool▁sep｜>").strip()
        if name == "function":  # V3 and R1; later ones have the name here
            name = scan.until("\n").strip()
            scan.need("```json")
            call = _call(name, scan.json())
            scan.need("```")
        else:
            call = _call(name, scan.json())
        scan.need("<｜tool▁call▁end｜>")
        calls.append(call)
    scan.need("<｜tool▁calls▁end｜>")
    return calls


def _named(value: Any, key: str) -> Call:
    """A call as an object of name and arguments; some models number it, too."""
    if not isinstance(value, dict) or not {"name", key} <= value.keys() <= {"name", key, "id", "type"}:
        raise Malformed(f"a call is an object of name and {key}")
    return _call(value["name"], value[key])


def _call(name: Any, arguments: Any) -> Call:
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise Malformed("a name is a text, and arguments are an object")
    return Call(name, arguments)


def _new(key: str, arguments: Mapping[str, Any]) -> str:
    if key in arguments:
        raise Malformed(f"two arguments have the name {key}")
    return key


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(result := dict(pairs)) < len(pairs):
        raise Malformed("two arguments have one name")
    return result


def _refuse(constant: str) -> NoReturn:
    raise Malformed(f"{constant} is no JSON")


_JSON = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)
HERMES = Format("Hermes (Qwen)", "<tool_call>", _hermes)
FORMATS = (
    HERMES,
    Format("Qwen3-Coder", "<tool_call>", _qwen_xml),
    Format("GLM", "<tool_call>", _glm),
    Format("Llama 3", "<|python_tag|>", _llama, bare="{", stops=("<|eom_id|>",)),
    Format("Mistral", "[TOOL_CALLS]", _mistral),
    Format("DeepSeek", "<｜tool▁calls▁begin｜>", _deepseek),
)
