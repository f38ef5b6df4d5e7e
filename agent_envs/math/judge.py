"""The function that `agent_envs.isolation.grader` runs in a killable process: math-verify.

Invariant: nothing here sets an alarm or a thread; whoever asks bounds the time. Never imported by what trains.
"""

import logging
from typing import Any

from agent_envs.core import SettingsError

try:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
except ImportError as error:
    raise SettingsError("math needs math-verify: pip install 'turnwise[math]', or --math.verifier exact") from error

logging.disable(logging.ERROR)  # it warns of every text that it cannot read
_PLACES = 10
"""Decimal places to which values agree that are no fractions."""
_AS_BOX = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())


def same(gold: str, answer: str) -> bool:
    """Whether both have the same value, in any notation that math-verify reads."""
    return bool(verify(_read(gold), _read(answer), float_rounding=_PLACES, timeout_seconds=None))


def _read(text: str) -> list[Any]:
    return parse(f"\\boxed{{{text}}}", extraction_config=_AS_BOX, parsing_timeout=None)


_LATE = (("1/2", "0.5"), ("x^2+2x+1", "(x+1)^2"), ("(1, 2]", "(1,2]"), ("\\{1, 2\\}", "\\{2,1\\}"), ("5", "x=5"))
for _gold, _answer in _LATE:
    same(_gold, _answer)  # what sympy loads late is loaded before computing time is counted
