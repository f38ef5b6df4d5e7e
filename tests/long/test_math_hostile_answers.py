"""Ten thousand hostile answers: none crashes, hangs or carries anything out, and the verifier still works after them.

.venv/bin/python -m pytest -q -s tests/long/test_math_hostile_answers.py
"""

import re
import resource
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

import pytest

pytest.importorskip("math_verify")
sys.path.append(str(Path(__file__).resolve().parents[1] / "agent_envs" / "math"))

from math_hostile import CARRIED_OUT, hostile_answers

from agent_envs.math.reward import number, verdict


@pytest.mark.parametrize("gold", ["85", "x^2+1"])
def test_ten_thousand_hostile_answers(gold: str, tmp_path: Path) -> None:
    """Where a number is asked for, what has no end is not even begun; elsewhere it is stopped."""
    marker = tmp_path / "marker"
    reasons: Counter[str] = Counter()
    slowest, before = 0.0, resource.getrusage(resource.RUSAGE_SELF)
    for text in hostile_answers(5000, str(marker), seed=len(gold)):
        began = perf_counter()
        found = verdict(gold, text)
        slowest = max(slowest, perf_counter() - began)
        assert not found.right, text[:200]
        reasons[re.sub("[0-9]+", "N", found.unverified) or "verified: wrong"] += 1
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"\n{gold}: {dict(reasons.most_common())}; slowest {slowest:.1f} s, {spent:.1f} s of computing here")
    assert spent < 120, "what is hard to compute is computed elsewhere"
    assert reasons["verified: wrong"] > 500, "the control: not all are turned away"
    hung = any(reason.startswith("hung") for reason in reasons)
    assert hung != (number(gold) is not None), "the control: there are some that never end"
    assert not marker.exists()
    eval(CARRIED_OUT[1].format(str(marker)))
    assert marker.exists(), "the control: they do run where somebody evaluates them"
    assert verdict(gold, "x = 85" if gold == "85" else "1 + x^2").right
