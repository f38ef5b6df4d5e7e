"""Verdicts: values come back as plain data and are compared on the host; nothing else is believed."""

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_envs.code import driver, judge
from agent_envs.code.judge import TRIES, Checked, check
from agent_envs.code.memo import Memo
from agent_envs.code.plain import is_plain
from agent_envs.code.sandbox import RunResult, Sandbox, SandboxFault, Status
from agent_envs.code.sandbox.choose import shared_sandbox
from agent_envs.code.task import Case, Identity
from agent_envs.code.values import decode, same, show


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return shared_sandbox("namespace")


def ask(
    sandbox: Sandbox, text: str, *expected: Any, seconds: float = 0.25, kind: type[Case] = Case, **more: Any
) -> list[Checked]:
    """What `f(0)`, `f(1)`, … give."""
    cases = [kind("main", f"f({number})", value, **more) for number, value in enumerate(expected)]
    return check(sandbox, {"main.py": text}, cases, seconds=seconds)


PLAIN = [
    None, True, False, 0, -5, 10**400, 1.5, float("inf"), 2 + 3j, "", "a\nb\0é🙂\ud800", b"\x00\xff", [], (), (1,), {},
    set(), [1, [2, (3, {"a": {4}})]], {1: "x", (2, 3): None}, {1, "a"},
]  # fmt: skip


def test_every_plain_value_comes_back_as_it_is(sandbox: Sandbox) -> None:
    text = f"inf = float('inf')\nvalues = {PLAIN!r}\ndef f(n):\n    return values[n]\n"
    for expected, done in zip(PLAIN, ask(sandbox, text, *PLAIN), strict=True):
        assert done.passed, (expected, done)
    wrong = ask(sandbox, text, *[[value] for value in PLAIN])
    assert not any(done.passed for done in wrong)  # the control


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=20,
    )
)
def test_reading_undoes_writing(value: Any) -> None:
    back = decode(driver.plain(value, 0, [driver.MOST]))
    assert back == value and type(back) is type(value) and same(back, value)


@given(st.text() | st.recursive(st.just("1"), lambda inner: inner.map(lambda text: f'["l",[{text}]]'), max_leaves=200))
def test_any_other_text_is_refused_and_not_worse(text: str) -> None:
    try:
        decode(text)
    except ValueError:
        return


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '["l",[' * 5000, "1" * 100_000, "NaN", "1", '"a"', '["i","zz"]', '["i"]', '["S",[["l",[]]]]',
     '["x",[]]', '["d",[null]]',
     '["f","0x1p99999"]', "{}", '["s","d8"]', '["l",null]', '["l",[],[]]', "[[],[]]", '["i",1]'],
)  # fmt: skip
def test_hostile_answers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no plain value"):
        decode(text)


def test_what_is_no_plain_data_or_not_the_same_does_not_pass(sandbox: Sandbox) -> None:
    text = (
        "class Int(int):\n    __eq__ = lambda self, other: True\n    __hash__ = int.__hash__\n"
        "class Text(str):\n    __repr__ = __str__ = lambda self: '7'\n    __len__ = lambda self: 0\n"
        "class Dict(dict):\n    items = lambda self: [(7, 7)]\n    __iter__ = lambda self: iter([7])\n"
        "class Lies:\n    __class__ = int\n    __index__ = lambda self: 7\n    __eq__ = lambda self, other: True\n"
        "loop = []\nloop.append(loop)\ndeep = 7\nfor _ in range(5000):\n    deep = [deep]\nwide = 7\n"
        "for _ in range(64):\n    wide = [wide, wide]\nvalues = [Int(3), Text('x'), Dict(), Lies(), "
        "loop, deep, wide, float('nan'), object(), None, 7.5, 1 << 10**7]\ndef f(n):\n    return values[n]\n"
    )
    done = ask(sandbox, text, *[7] * 12, seconds=2.0)
    assert [case.passed for case in done] == [False] * 12
    assert [case.got for case in done][:6] == [
        "3", "'x'", "{}", "no plain value: Lies", "a value nested too deeply", "a value nested too deeply"
    ]  # fmt: skip
    assert done[7].got == "nan" and not ask(sandbox, text, *[float("nan")] * 8)[7].passed
    assert ask(sandbox, text, 3, "x", {})[:3] == [Checked(True, "3"), Checked(True, "'x'"), Checked(True, "{}")]


def test_numbers_are_compared_as_python_does_or_within_the_tolerance(sandbox: Sandbox) -> None:
    text = "def f(n):\n    return [0.1 + 0.2, 3, True, [0.1 + 0.2], {'a': (1, 0.1 + 0.2)}, 1e400, 10**400, None][n]\n"
    want = [0.3, 3.0, 1, [0.3], {"a": (1, 0.3)}, 5.0, 5.0, 0.0]
    assert [case.passed for case in ask(sandbox, text, *want)] == [False, True, True, *[False] * 5]
    assert [case.passed for case in ask(sandbox, text, *want, tolerance=1e-9)] == [
        True, True, False, True, True, False, False, False,
    ]  # fmt: skip


def test_what_must_be_true_itself_is_not_passed_by_one(sandbox: Sandbox) -> None:
    text = "def f(n):\n    return [1, 1.0, True, 0, False, None, []][n]\n"
    want = [True, True, True, False, False, None, None]
    assert [case.passed for case in ask(sandbox, text, *want, kind=Identity)] == [
        False, False, True, False, True, True, False,
    ]  # fmt: skip
    equal = [case.passed for case in ask(sandbox, text, *want)]
    assert equal == [True, True, True, True, True, True, False], "the control: they are equal"


def test_one_case_that_ends_or_hangs_is_lost_alone(sandbox: Sandbox) -> None:
    text = (
        "import os, time\ndef f(n):\n    if n == 1: os._exit(0)\n    if n == 2:\n        while True: pass\n"
        "    if n == 3: time.sleep(99)\n    if n == 4: raise ValueError('no', f)\n"
        "    if n == 5: os.kill(os.getppid(), 9)\n    if n == 6: raise SystemExit(0)\n"
        "    if n == 7: return f.missing\n    return n\n"
    )
    began = time.monotonic()
    done = ask(sandbox, text, 0, 1, 2, 3, 4, 5, 6, 7, 8, seconds=0.1)
    assert [case.passed for case in done] == [True, *[False] * 7, True]
    assert [case.got for case in done] == [
        "0", "exit 0", "timeout", "timeout", "ValueError: ('no', <function f at 0x…>)", "killed", "SystemExit: 0",
        "AttributeError: 'function' object has no attribute 'missing'", "8",
    ]  # fmt: skip
    assert time.monotonic() - began < 20


def test_a_case_sees_nothing_of_another_one(sandbox: Sandbox) -> None:
    text = (
        "import sys\nseen = []\ndef f(n, kept=[]):\n    kept.append(n)\n    seen.append(n)\n"
        "    sys.seen = getattr(sys, 'seen', 0) + 1\n    return kept, seen, sys.seen\n"
    )
    assert [case.passed for case in ask(sandbox, text, *[([n], [n], 1) for n in range(3)])] == [True] * 3


@pytest.mark.parametrize("imports", ["", "import sys\n"])
def test_so_it_is_in_one_process_and_in_many(imports: str, sandbox: Sandbox) -> None:
    text = (
        f"{imports}seen = []\nclass C:\n    kept = []\ndef f(n, kept=[]):\n    kept.append(n)\n    seen.append(n)\n"
        "    C.kept.append(n)\n    if n == 2:\n        while True:\n            pass\n"
        "    if n == 3:\n        raise SystemExit(0)\n    return kept, seen, C.kept\n"
    )
    assert is_plain({"main.py": text}) is not bool(imports)
    done = ask(sandbox, text, *[([n], [n], [n]) for n in range(6)], seconds=0.1)
    assert [case.passed for case in done] == [True, True, False, False, True, True]
    assert [case.got for case in done][2:4] == ["timeout", "SystemExit: 0"]


@pytest.mark.parametrize(
    "text",
    ["import sys", "from os import path", "import math", "from . import other", "exec('x')", "open('x')", "globals()",
     "x.__class__", "(x for x in y).gi_frame", "__builtins__", "__import__('os')", "getattr(x, 'y')", "error.tb_frame",
     "try:\n    x\nexcept BaseException as e:\n    e.f_back", "async def f(): pass", "vars()", "exit()", "input()",
     "setattr(x, 'y', 1)", "type('X', (), {})", "x = (", "\0", "(" * 300, "breakpoint()", "eval('1')",
     "delattr(x, 'y')", "from other import __builtins__ as b", "match x:\n    case object(__builtins__=b):\n        b",
     "# coding: unicode_escape\n# \\u000aimport sys", "# coding: utf-7\n# +AAo-import sys +AAo-",
     "class C:\n    def __del__(self):\n        import other\n        other.left = 1",
     "class C:\n    @make\n    def __match_args__():\n        pass",
     "def f():\n    try:\n        yield\n    finally:\n        import other\n        other.left = 1", "x = '\ud800'"],
)  # fmt: skip
def test_what_is_not_plain(text: str) -> None:
    assert not is_plain({"main.py": "def f(n):\n    return n\n", "other.py": text})


@pytest.mark.parametrize("name", ["sys.py", "os.py", "builtins/__init__.py", "math.py", "main.so", "main.pyc"])
def test_what_files_make_not_plain(name: str) -> None:
    text = f"import {name.partition('.')[0].partition('/')[0]}\n"
    assert not is_plain({"main.py": text, name: ""}) and is_plain({"main.py": "import mine", "mine.py": ""})


KEEPS = "    try:\n        s.kept = s.kept + 1\n    except AttributeError:\n        s.kept = 1\n    return s.kept\n"
HIDING = {
    "names out of a module": {
        "main.py": "from other import __builtins__ as b\ns = b['__import__']('sys')\ndef f(n):\n"
    },
    "a module that is there": {"main.py": "import sys as s\ndef f(n):\n", "sys.py": ""},
    "a code of escapes": {"main.py": "# coding: unicode_escape\n# \\u000aimport sys as s\ndef f(n):\n"},
    "an object's end": {
        "main.py": "class S:\n    kept = 0\ns = S()\nclass C:\n    def __del__(self):\n        import main\n"
        "        main.s.kept = 5\ndef f(n):\n    c = C()\n    c.c = c\n    waste = [[] for _ in range(3000)]\n"
    },
}


@pytest.mark.parametrize("what", HIDING)
def test_no_check_sees_what_another_left_where_it_hid_that_it_can(sandbox: Sandbox, what: str) -> None:
    files = {"other.py": "", **HIDING[what]}
    files["main.py"] += KEEPS
    done = check(sandbox, files, [Case("main", f"f({n})", 1) for n in range(4)], seconds=2.0)
    assert len({case.got for case in done}) == 1, done


@pytest.mark.parametrize(
    "text",
    ["from other import f", "import other as o", "class A:\n    def __init__(self):\n        self.x = max([1])\n",
     "try:\n    raise ValueError(1)\nexcept (KeyError, StopIteration):\n    print('x')", "x = sorted({1, 2})"],
)  # fmt: skip
def test_what_is_plain(text: str) -> None:
    assert is_plain({"main.py": text, "other.py": "def f(n):\n    return n\n", "notes.txt": "import sys\n"})


def test_what_a_submission_prints_and_its_files_do_no_harm(sandbox: Sandbox) -> None:
    files = {
        "main.py": "import json, resource, select, pack.part\nprint('x' * 10**6)\ndef f(n):\n    print(n)\n"
        "    return [json.here, resource.here, select.here, pack.part.here]\n",
        "json.py": "here = 1\n", "resource.py": "here = 2\n", "select.py": "here = 3\n", "pack/part.py": "here = 4\n",
    }  # fmt: skip
    cases = [Case("main", "f(0)", [1, 2, 3, 4]), Case("pack.part", "here", 4), Case("none", "here", 4)]
    done = check(sandbox, files, cases)
    assert [case.passed for case in done] == [True, True, False]
    assert done[2].got == "ModuleNotFoundError: No module named 'none'"


def test_a_fault_is_tried_again_and_never_a_verdict(sandbox: Sandbox) -> None:
    inner = sandbox

    class Broken:
        def __init__(self, faults: int) -> None:
            self.faults, self.runs = faults, 0
            self.capabilities = inner.capabilities

        def run(self, *given: Any, **more: Any) -> RunResult:
            self.runs += 1
            if self.runs <= self.faults:
                raise SandboxFault("the disk is gone")
            return inner.run(*given, **more)

    text = "def f(n):\n    return n  # faults\n"
    mended: Any = Broken(TRIES - 1)
    broken: Any = Broken(TRIES)
    with pytest.raises(SandboxFault, match="the disk is gone"):
        ask(broken, text, 0)
    assert broken.runs == TRIES
    assert ask(mended, text, 0) == [Checked(True, "0")] and mended.runs == TRIES


def test_many_cases_and_long_answers(sandbox: Sandbox) -> None:
    text = "def f(n):\n    return 'x' * 30000 + str(n)\n"
    done = ask(sandbox, text, *["x" * 30000 + str(n) for n in range(200)], seconds=1.0)
    assert [case.passed for case in done] == [True] * 200
    assert not any(case.passed for case in ask(sandbox, text, *["x" * 30000] * 5))


def test_a_run_that_does_not_begin_is_a_fault(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def f(n):\n    return n  # does not begin\n"
    good = judge._driver()
    monkeypatch.setattr(judge, "_driver", lambda: good.replace("    tell(channel, token, READY)", "    _exit(1)"))
    with pytest.raises(SandboxFault, match=r"does not begin \(error, exit status 1\)"):
        ask(sandbox, text, 0)
    monkeypatch.setattr(judge, "_driver", lambda: good)
    assert ask(sandbox, text, 0) == [Checked(True, "0")]


def test_the_time_of_a_verdict_is_bounded(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_MOST_SECONDS", 1.0)
    began = time.monotonic()
    done = ask(sandbox, "import time\ndef f(n):\n    time.sleep(60)\n", *range(40))
    assert {case.got for case in done} == {"timeout"} and time.monotonic() - began < 10


def test_answers_are_remembered_but_not_faults_nor_long_ones() -> None:
    memo, asked = Memo(2), []

    def answer(*said: str) -> Any:
        def call() -> tuple[str, ...]:
            asked.append(said)
            return said

        return call

    assert memo.ask("a", answer("1")) == memo.ask("a", answer("2")) == ("1",)
    for _ in range(2):
        assert len(memo.ask("long", answer("x" * 9999))[0]) == 9999
    assert len(asked) == 3
    with pytest.raises(ZeroDivisionError):
        memo.ask("fault", lambda: (str(1 / 0),))
    assert memo.ask("fault", answer("3")) == ("3",)
    memo.ask("b", answer("4"))
    assert memo.ask("a", answer("5")) == ("5",)  # the oldest was forgotten


def test_values_are_shown_alike_and_shortly() -> None:
    assert show({3, 1, 2}) == "{1, 2, 3}" and show((1,)) == "(1,)" and show({"b": [1, None]}) == "{'b': [1, None]}"
    assert show(10**5000) == "a number of 16610 bits" and show(set()) == "set()" and show("\ud800") == "'\\ud800'"
    assert show("x" * 500) == f"'{'x' * 38} … {'x' * 38}'" and len(show(list(range(999)))) <= 81


def colliding(count: int) -> str:
    """A set whose numbers all have the same hash: reading it takes time that grows with the square of their number."""
    numbers = ((2**61 - 1) * (number + 1) for number in range(count))
    return '["S",[' + ",".join(f'["i","{number:x}"]' for number in numbers) + "]]"


def test_reading_takes_no_longer_than_the_expected_value_allows() -> None:
    assert decode(colliding(3), {1, 2, 3}) == {(2**61 - 1) * number for number in (1, 2, 3)}
    with pytest.raises(ValueError, match="too large"):
        decode(colliding(2000), {1})
    many = ["x" * 300] * 400  # a text of that length may be read, but not so many keys
    with pytest.raises(ValueError, match="no plain value"):
        decode(colliding(2000), many)
    with pytest.raises(ValueError, match="no plain value"):
        decode('["d",[' + ",".join(['["i","1"]'] * 2000) + "]]", many)
    with pytest.raises(ValueError, match="no plain value"):
        decode(colliding(300), set(range(300)))  # few enough keys, but not of so many hashes
    with pytest.raises(ValueError, match="no plain value"):
        decode('["d",[' + ",".join(f'["i","{(2**61 - 1) * at:x}"],null' for at in range(1, 30)) + "]]", many)
    alike = {(2**61 - 1) * (number + 1) for number in range(300)}
    assert decode(colliding(300)) == decode(colliding(300), alike) == alike  # the controls
    assert decode(colliding(300), [1, {"a": {2: alike}}]) == alike


def test_reading_a_verdict_has_a_deadline(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = judge.decode

    def dripping(*given: Any) -> Any:
        time.sleep(0.2)
        return slow(*given)

    monkeypatch.setattr(judge, "decode", dripping)
    monkeypatch.setattr(judge, "_MOST_READING", 0.5)
    done = ask(sandbox, "def f(n):\n    return n  # dripping\n", *range(30))
    assert done[0] == Checked(True, "0") and done[-1] == Checked(False, "timeout")
    assert sum(case.passed for case in done) <= 3


def test_what_is_told_of_other_cases_is_no_reason_to_ask_again() -> None:
    runs = []

    class Full:
        """A wall in which a case fills the output with what it tells of another one."""

        capabilities = replace(shared_sandbox("namespace").capabilities, backend="landlock")

        def run(self, argv: list[str], *_: Any, **__: Any) -> RunResult:
            token = re.search(r"main\(b'(\w+)'", argv[2])
            assert token is not None
            runs.append(argv)
            out = "\n{0} ready\n{0} 0 =null\n{0} again\n".format(token[1]).encode()
            return RunResult(Status.OUTPUT_LIMIT, None, 9, out, b"", True, 0.0, 0.0, None)

    cases = [Case("main", f"f({x})", 1) for x in range(3)]
    done = check(Full(), {"main.py": "import sys  # full"}, cases)  # type: ignore[arg-type]
    assert [one.got for one in done] == ["None", "too much output", "too much output"] and len(runs) == 3


def test_reading_what_was_printed_takes_time_in_proportion_to_its_length() -> None:
    token = b"0123456789abcdef"
    said = b"\n%b 7 =null\n" % token
    for filling in (b"\n", b" ", b"\n%b" % token, b"\n%b 1" % token, token + b" 1 "):
        began = time.process_time()
        assert judge._told(filling * ((4 << 20) // len(filling)) + said, token) == {7: "=null"}
        assert time.process_time() - began < 2
    assert judge._told(b"%b 3 =x\n%b 4 =y\n" % (token, token), token) == {3: "=x", 4: "=y"}
    assert judge._told(b"x%b 3 =x\n%b 1 two words\n%b 123456789 =x\n%b 5 =cut" % ((token,) * 4), token) == {}
    long = judge._told(b"%b 1 =%b\n" % (token, b"x" * (1 << 20)), token)[1]
    assert not judge._judged(long, Case("main", "f(0)", 1)).passed and len(long) < 1 << 20


DAEMON = """import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(20)
        time.sleep({seconds})
        os._exit(0)
    time.sleep(0.05)"""
LEAVES = {
    "a file": "open('left', 'w').close()",
    "a changed file": "open('main.py', 'a').write(chr(35))",
    "a file far away": "open(os.path.join(tempfile.gettempdir(), 'left'), 'w').close()",
    "a folder": "os.makedirs('a/b')",
    "a file written by a mapping": "import mmap; f = open('data', 'r+b'); mmap.mmap(f.fileno(), 0)[:1] = b'x'",
    "a file that is gone": "time.sleep(0.02); open('left', 'w').close(); os.unlink('left')",
    "the mode of the folder": "os.chmod('.', 0o707)",
    "when a file was read": "time.sleep(0.02); open('data').read()",
    "marks of a stream": "fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK); fcntl.fcntl(1, fcntl.F_SETSIG, 33)",
    "processes that have ended": "[os.fork() or os._exit(0) for _ in range(9)]; [os.wait() for _ in range(9)]",
    "a daemon": DAEMON.replace("{seconds}", "20"),
    "a daemon of a daemon": DAEMON.replace("{seconds}", "0"),
}
SEES = """
def f(x):
    import fcntl, os, tempfile, time
    found = [name for name in os.listdir('.') if name not in ('main.py', 'data')] + os.listdir(tempfile.gettempdir())
    found += os.listdir('/dev/shm')
    changed = chr(35) in open('main.py').read()
    ours = ('1', str(os.getpid()), str(os.getppid()))
    others = [name for name in os.listdir('/proc') if name.isdigit() and name not in ours]
    status, data = os.stat('.'), os.stat('data')
    later = status.st_ctime_ns - os.stat('main.py').st_ctime_ns > 10_000_000
    read = data.st_atime_ns - data.st_mtime_ns > 10_000_000
    marks = [fcntl.fcntl(n, command) & ~0o100003 for n in (0, 1, 2) for command in (fcntl.F_GETFL, fcntl.F_GETSIG)]
    content = [open('data').read(1), status.st_mode & 0o777, later, read, any(marks), os.getpid() > 9]
    LEAVE
    return [found, changed, others, content]
"""


@pytest.mark.parametrize("what", LEAVES)
def test_no_check_sees_what_another_left(sandbox: Sandbox, what: str) -> None:
    files = {"main.py": SEES.replace("LEAVE", LEAVES[what]), "data": "a"}
    clean = [[], False, [], ["a", 0o755, False, False, False, False]]
    done = check(sandbox, files, [Case("main", f"f({x})", clean) for x in range(4)], seconds=2.0)
    assert all(one.passed for one in done), done


def test_a_clock_that_is_switched_off_is_no_help(sandbox: Sandbox) -> None:
    text = (
        "import signal, time\ndef f(x):\n    signal.setitimer(signal.ITIMER_PROF, 0)\n"
        "    end = time.process_time() + x\n    while time.process_time() < end:\n        pass\n    return x\n"
    )
    done = check(sandbox, {"main.py": text}, [Case("main", f"f({x})", x) for x in (0.0, 0.8, 0.01)], seconds=0.2)
    assert [one.passed for one in done] == [True, False, True] and done[1].got == "timeout"


def test_memory_that_not_even_the_supervisor_survives_is_no_fault() -> None:
    class Spent:
        """A wall in which every run ends so."""

        capabilities = shared_sandbox("namespace").capabilities

        def run(self, *_: Any, **__: Any) -> RunResult:
            return RunResult(Status.OOM, None, 9, b"", b"", True, 0.0, 0.0, None, stray=True)

    cases = [Case("main", f"f({x})", x) for x in range(3)]
    done = check(Spent(), {"main.py": "f = lambda x: x"}, cases)  # type: ignore[arg-type]
    assert [(one.passed, one.got) for one in done] == [(False, "out of memory")] * 3
