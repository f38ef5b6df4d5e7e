"""Strings that a tokenizer for generated coding tasks keeps whole: words, operators with their blanks, indentations,
and fixed parts of turns.

Identifiers are words joined by `_`. Words of one letter are left out: they are whole anyway, and would cut others.
"""

import builtins
import re
from collections.abc import Iterator
from functools import cache
from keyword import iskeyword
from string import ascii_lowercase

from agent_envs.actions import ACTION, ACTION_END, THINK, THINK_END, Grammar, render
from agent_envs.code.arguments import SEPARATOR
from agent_envs.code.tasks.catalogue import programs
from agent_envs.code.tasks.inputs import WORDS

_PIECE = re.compile(r"[A-Za-z]{2,}|[^\w\s]|_")
_INDENTS = tuple(" " * 4 * depth for depth in range(5, 0, -1))
BETWEEN = (
    "= == != < > <= >= + - * / // % ** += -= *= //= %= & | ^ and or in is not if else for as import".split()  # noqa: SIM905
)
BEFORE = "if elif while for return not def class from import assert lambda raise yield".split()  # noqa: SIM905
_NUMBERS = "0123456789"
_LINES = 60
"""So many lines have numbers that are one word."""


@cache
def words(grammar: Grammar, system_prompts: tuple[str, ...]) -> tuple[str, ...]:
    """Each once, in an order that does not change."""
    result = dict.fromkeys([*system_prompts, *_turns(grammar), *_INDENTS, *_NUMBERS, *WORDS, ", ", ": "])
    result |= dict.fromkeys(f" {sign} " for sign in BETWEEN)
    result |= dict.fromkeys(f"{word} " for word in BEFORE)
    for program in programs().values():
        statements = [statement["en"] for statement in program.statements.values()]
        for text in (*program.files.values(), *program.signatures.values(), *statements):
            result |= dict.fromkeys(_PIECE.findall(text))
    return tuple(result)


def _turns(grammar: Grammar) -> Iterator[str]:
    yield from (THINK, f"{THINK_END}{ACTION}", ACTION_END, f"\n{ACTION_END}", f"\n{SEPARATOR}\n")
    for number in range(1, _LINES + 1):
        # As `view.numbered` writes a line's number, and as a turn names the line.
        yield from (f"\n{number}|", f"\n{number:2}|", f"{number})\n")
    for verb in grammar.verbs:
        for name in (verb.name, *verb.aliases.values()):
            yield render(name)
            yield f"{THINK_END}{ACTION}{name}("
            yield f"{THINK}{THINK_END}{ACTION}{name}("
            yield f"{THINK_END}{ACTION}{name}(){ACTION_END}"


@cache
def identifiers() -> tuple[str, ...]:
    """Words that can be names, short ones included; they are words only, whichever program has them."""
    result = dict.fromkeys(ascii_lowercase)
    for program in programs().values():
        for text in program.files.values():
            result |= dict.fromkeys(_PIECE.findall(text))
    return tuple(word for word in result if word.isalpha() and not iskeyword(word) and not hasattr(builtins, word))
