"""The words that a tokenizer made for generated coding tasks keeps whole: those of programs, of what is said of them,
and of their values. Identifiers are words joined by `_`; an indentation is one word.
"""

from __future__ import annotations

import re
from functools import cache

from agent_envs.code.tasks.catalogue import programs
from agent_envs.code.tasks.inputs import WORDS

_PIECE = re.compile(r"[A-Za-z]+|[<>=!+\-*/%&|^]=|//|\*\*|[^\w\s]|_")
_INDENTS = tuple(" " * 4 * depth for depth in range(5, 0, -1))


@cache
def words() -> tuple[str, ...]:
    """In the order in which they occur in the library, each once."""
    found = dict.fromkeys([*_INDENTS, *"0123456789", *WORDS])
    for program in programs().values():
        said = [told["en"] for told in program.statements.values()]
        for text in (*program.files.values(), *program.signatures.values(), *said):
            found |= dict.fromkeys(_PIECE.findall(text))
    return tuple(found)
