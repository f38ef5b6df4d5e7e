"""The judge: a submission's values are computed in the sandbox and compared on the host.

Invariants:

- An expected value never enters the sandbox. So whatever a submission does there, it is worth what its values are
  worth: to forge one it would have to know it.
- No case sees what another one did, and what it does, exit and hang included, is lost to it only. It has a process of
  its own, or, where `agent_envs.code.plain` finds that the submission can leave nothing behind, modules of its own.
  They share a run, because a run costs most; where something ends it, or a case leaves a file or a process behind, the
  cases that are left have another. (On `unsafe-process` files and processes stay.)
- Reading a verdict takes time in proportion to its length, which the expected values bound, and has a deadline.
- What the sandbox itself could not do is tried again, and then raises SandboxFault: it is never a verdict.

`in_process` is the other way, for checks that are programs: it believes an exit status, which a submission can forge.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from time import monotonic

from agent_envs.code import driver
from agent_envs.code.memo import Memo
from agent_envs.code.plain import is_plain
from agent_envs.code.sandbox import Limits, RunResult, Sandbox, SandboxFault, Status
from agent_envs.code.task import Case, Identity
from agent_envs.code.values import decode, same, show
from agent_envs.code.view import without_addresses

TRIES = 3
"""How often a run is tried that the sandbox fails to carry out."""
PATIENCE = 10
"""A case may wait this many times as long as it may compute."""
_MOST_SECONDS = 15.0
"""All runs of a verdict together: below the deadline of a step, so that nobody can turn a bad verdict into a fault."""
_MOST_READING = 5.0
"""Seconds for reading what all cases gave. One takes milliseconds: its length and its keys are bounded."""
_MOST_TEXT = 4 * driver.MOST
"""Characters that may be said of a case: what the driver says has fewer."""
_MOST_KB = 4096
"""What is said in one run; where it is more, the rest is asked in another."""
_SIGNALS = {9: "killed", 11: "crashed", 14: "timeout", 24: "timeout", 27: "timeout"}
_WORDS = {
    Status.TIMEOUT: "timeout",
    Status.OOM: "out of memory",
    Status.OUTPUT_LIMIT: "too much output",
    Status.PIDS_LIMIT: "too many processes",
}
_ALONE = ("landlock", "docker")
"""Where a case that may leave something behind has a run of its own: no process can be started, or the processes and
folders of a container outlive a case."""
_SLACK = 0.25
"""Seconds of computing that a run of one case may take beside the case."""
_memo = Memo(1 << 14)
_LATE = frozenset({".timeout", ".-14"})
"""How a case ended that ran out of wall time."""


@dataclass(frozen=True)
class Checked:
    """What came of a case."""

    passed: bool
    got: str = ""
    """The value, or what happened instead, in one line that an agent may read."""


def check(
    sandbox: Sandbox, files: Mapping[str, str], cases: Sequence[Case], *, seconds: float = 0.25, memory_mb: int = 256
) -> list[Checked]:
    """What the files give for the cases, in their order. ``seconds`` of computing for each. Raises SandboxFault."""
    expressions = [(case.module, case.expression) for case in cases]
    question = (sandbox.capabilities.backend, sorted(files.items()), expressions, seconds, memory_mb)
    # What the clock on the wall ended may do better on a quieter machine.
    texts = _memo.ask(
        question,
        lambda: evaluate(sandbox, files, expressions, seconds, memory_mb),
        keeps=lambda texts: _LATE.isdisjoint(texts),
    )
    ends = monotonic() + _MOST_READING
    return [
        _judged(text, case) if monotonic() < ends else Checked(False, "timeout")
        for text, case in zip(texts, cases, strict=True)
    ]


def evaluate(
    sandbox: Sandbox, files: Mapping[str, str], expressions: Sequence[tuple[str, str]], seconds: float, memory_mb: int
) -> tuple[str, ...]:
    """What is said of each (module, expression): ``=`` value, ``?`` or ``!`` why there is none, ``.`` how it ended."""
    given = {name: text.encode() for name, text in files.items()}
    apart = not is_plain(files)
    alone = apart and sandbox.capabilities.backend in _ALONE
    walled = sandbox.capabilities.safe and not alone
    found: dict[int, str] = {}
    pending = list(range(len(expressions)))
    ends = monotonic() + _MOST_SECONDS
    while pending and (left := ends - monotonic()) > 0.1:
        group = pending[:1] if alone else pending
        token = secrets.token_hex(8).encode()
        patience = max(1.0, PATIENCE * seconds)
        limits = Limits(
            seconds=min(left, 5.0 + patience * len(group)),
            memory_mb=memory_mb,
            output_kb=min(2 * len(group) * driver.MOST // 1024 + 64, _MOST_KB),
            collected_kb=0,
        )
        questions = [(number, *expressions[number]) for number in group]
        arguments = (token, seconds, patience, questions, apart and not alone, walled)
        code = f"{_driver()}\nmain{arguments!r}\n"
        result = _begun(sandbox, code, given, limits, token)
        answers = _told(result.stdout, token)
        if alone and result.cpu > seconds + _SLACK:  # the case may have switched its own clock off
            answers = {group[0]: ".-27"}
        found |= {number: answers[number] for number in group if number in answers}
        missing = [number for number in pending if number not in found]
        further = len(missing) < len(pending)  # else it would be asked for ever
        full = further and result.status is Status.OUTPUT_LIMIT  # of what was told; nobody is to blame
        again = further and b"\n%b %b\n" % (token, driver.AGAIN) in result.stdout
        if missing and missing[0] in group and not full and not again:
            found[missing[0]] = f".{_ended(result)}"  # there the process ended; the others are asked in another
        pending = [number for number in missing if number not in found]
    return tuple(found.get(number, ".timeout") for number in range(len(expressions)))


def run(
    sandbox: Sandbox, argv: Sequence[str], files: Mapping[str, bytes], *, stdin: bytes = b"", limits: Limits
) -> RunResult:
    """A run, tried again where the sandbox failed; every run is in a fresh sandbox. Raises SandboxFault."""
    for _ in range(TRIES - 1):
        try:
            return sandbox.run(argv, files, stdin=stdin, limits=limits)
        except SandboxFault:
            continue
    return sandbox.run(argv, files, stdin=stdin, limits=limits)


def _begun(sandbox: Sandbox, code: str, files: Mapping[str, bytes], limits: Limits, token: bytes) -> RunResult:
    """A run that came to the point where the submission is loaded. Raises SandboxFault."""
    for _ in range(TRIES):
        result = run(sandbox, ["python", "-c", code], files, limits=limits)
        # Where not even the supervisor had memory left, nothing of what was said came back: the program spent it.
        unheard = result.status is Status.OOM and not result.stdout
        if unheard or b"\n%b %b\n" % (token, driver.READY) in result.stdout:
            return result
    raise SandboxFault(f"the run of a check does not begin ({result.status}, exit status {result.exit_code})")


@cache
def _driver() -> str:
    return resources.files("agent_envs.code").joinpath("driver.py").read_text("utf-8")


def _told(output: bytes, token: bytes) -> dict[int, str]:
    """Number → what was said last of it. Whatever else was printed is passed over."""
    lines = re.finditer(rb"(?:^|(?<=\n))%b ([0-9]{1,8}) ([^ \n]*)\n" % token, output)
    return {int(line[1]): line[2][: _MOST_TEXT + 1].decode("ascii", "replace") for line in lines}


def _judged(answer: str, case: Case) -> Checked:
    kind, text = answer[:1], answer[1:]
    try:
        if len(text) > _MOST_TEXT:
            return Checked(False, "a value too large")
        if kind == "=":
            value = decode(text, case.expected)
            alike = type(value) is type(case.expected) or not isinstance(case, Identity)
            return Checked(alike and same(value, case.expected, case.tolerance), show(value))
        if kind in ("?", "!"):
            return Checked(False, one_line(bytes.fromhex(text).decode("utf-8", "replace")))
        if kind == ".":
            return Checked(False, _word(text))
    except ValueError:
        pass
    return Checked(False, "no plain value")


def _ended(result: RunResult) -> str:
    """How a process ended that had not told the value of a case: a word, or the number that `os` has for it."""
    if result.status in _WORDS:
        return _WORDS[result.status]
    return str(-result.signal if result.signal is not None else result.exit_code)


def _word(ended: str) -> str:
    number = ended.removeprefix("-")
    if not number.isdecimal() or len(number) > 3:
        return ended if ended in _WORDS.values() else "no value"
    return f"exit {number}" if number == ended else _SIGNALS.get(int(number), f"signal {number}")


def one_line(text: str, most: int = 80) -> str:
    """What a program says of an error, in one line and without addresses, which differ from run to run."""
    text = " ".join(without_addresses(text).split())
    return text if len(text) <= most else text[: most - 1] + "…"


_BESIDE = """import sys, unittest
module = __import__({module!r}, fromlist=["*"])
class Check(unittest.TestCase):
    def test(self):
        expected = {expected!r}
        self.{compare}
unittest.main(argv=["check"])
"""


def in_process(
    sandbox: Sandbox, files: Mapping[str, str], cases: Sequence[Case], program: str = "", *, limits: Limits
) -> list[Checked]:
    """The verdict of the submission's own process: each case a test beside it, or ``program``; exit status 0 passes.

    A submission can forge this. Raises SandboxFault.
    """
    given = {name: text.encode() for name, text in files.items()}
    codes = [program] if program else [_test(case) for case in cases]
    ends = monotonic() + _MOST_SECONDS
    done = []
    for code in codes:
        left = ends - monotonic()
        if left < 0.1:
            done.append(Checked(False, "timeout"))
            continue
        bound = replace(limits, seconds=min(left, limits.seconds))
        result = run(sandbox, ["python", "-c", code], given, limits=bound)
        done.append(Checked(result.ok, "" if result.ok else _word(_ended(result))))
    return done


def _test(case: Case) -> str:
    value = f"eval({case.expression!r}, vars(module))"
    compare = f"assertEqual({value}, expected)"
    if isinstance(case, Identity):
        compare = f"assertIs({value}, expected)"
    if case.tolerance:
        compare = f"assertAlmostEqual({value}, expected, delta={case.tolerance})"
    return _BESIDE.format(module=case.module, expected=case.expected, compare=compare)
