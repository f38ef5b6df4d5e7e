"""More submissions against the judge: verdicts forged, things left for later checks, answers that cost the host.

Each takes a sandbox and gives what got through, in words; nothing when it was held. NOT RUN is neither.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from forgeries import Cheat, honest

from agent_envs.code.judge import check, evaluate, in_process
from agent_envs.code.sandbox import Limits, Sandbox
from agent_envs.code.task import Case

LARGE = [Case("main", f"double({number})", 2 * number) for number in (3, 10)]
CASES = [Case("main", "double(2)", 4), *LARGE, Case("main", "half(9)", 4)]
EARNED = [True, False, False, True]
_EQUAL = "    __eq__ = lambda self, other: True\n    __ne__ = lambda self, other: False\n"
_GUESS = '        import os\n        for guess in range(40):\n            line = \'\\n%s %d =["i","%x"]\\n\'\n'

FORGERIES: dict[str, Cheat] = {
    "a class that equals everything": Cheat(
        f"class Meta(type):\n{_EQUAL}    __hash__ = type.__hash__\nclass Any(metaclass=Meta):\n    pass\n",
        "        return Any",
    ),
    "a float that equals everything": Cheat(
        f"class Same(float):\n{_EQUAL}    __hash__ = float.__hash__\n    __sub__ = __rsub__ = lambda *given: 0.0\n",
        "        return Same(0)",
    ),
    "a complex number that equals everything": Cheat(
        f"class Same(complex):\n{_EQUAL}    __hash__ = complex.__hash__\n", "        return Same(0)"
    ),
    "a tuple that equals everything": Cheat(
        f"class Same(tuple):\n{_EQUAL}    __hash__ = None\n", "        return Same()"
    ),
    "an object that is every number": Cheat(
        f"class Same:\n{_EQUAL}    __class__ = int\n    __index__ = __int__ = __hash__ = lambda self: 6\n",
        "        return Same()",
    ),
    "an evaluation of its own": Cheat(
        "import builtins\n_eval = builtins.eval\n"
        "builtins.eval = lambda text, *given: 6 if 'double' in str(text) else _eval(text, *given)\n"
    ),
    "a program of tests of its own": Cheat("import unittest\nunittest.main = lambda *given, **more: None\n"),
    "a test case of its own": Cheat("import unittest\nunittest.TestCase.run = lambda self, result=None: result\n"),
    "the end of threads": Cheat("import os, threading\nthreading._register_atexit(os._exit, 0)\n"),
    "a collection of garbage": Cheat(
        "import gc, os\ngc.callbacks.append(lambda *given: os._exit(0))\n", "        gc.collect()\n        return None"
    ),
    "a hook of audits": Cheat(
        "import os, sys\nsys.addaudithook(lambda name, given: os._exit(0) if name == 'claim' else None)\n",
        "        sys.audit('claim')",
    ),
    "a hook of traces": Cheat(
        "import os, sys\n", "        sys.setprofile(lambda *given: os._exit(0))\n        return len('x')"
    ),
    "an output that ends it": Cheat(
        "import os, sys\nclass Out:\n    write = flush = lambda *given: os._exit(0)\nsys.stderr = sys.stdout = Out()\n"
    ),
    "a way of encoding": Cheat(
        "import codecs\nfor name in ('strict', 'surrogatepass', 'replace', 'backslashreplace'):\n"
        "    codecs.register_error(name, lambda error: ('6', error.end))\n",
        "        return '\\ud800'",
        fools=False,
    ),
    "a finder of files": Cheat(
        "import sys\nsys.path_hooks.clear()\nsys.path_importer_cache.clear()\nsys.path[:] = ['/nowhere']\n",
        fools=False,
    ),
    "a module in its own place": Cheat(
        "import sys\nclass Mine(dict):\n    __dict__ = {'double': lambda n: 6, 'half': lambda n: n // 2}\n",
        "        sys.modules['__main__'] = sys.modules['json'] = Mine()\n        return None",
        fools=False,
    ),
    "an iterator that may give anything": Cheat(wrong="        return iter(range(10**9))", fools=False),
    "no depth to answer with": Cheat(
        "import sys\n", "        sys.setrecursionlimit(40)\n        return [[0]]", fools=False
    ),
    "no files to answer with": Cheat("import os\n", "        os.closerange(0, 256)\n        return 6", fools=False),
    "no limits to answer with": Cheat(
        "import resource\n",
        "        for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):\n"
        "            resource.setrlimit(which, (0, 0))\n        return None",
        fools=False,
    ),
    "its own text, changed": Cheat(
        "import os\n",
        "        with open('main.py', 'w') as file:\n"
        "            file.write('def double(n):\\n    return 6\\ndef half(n):\\n    return 4\\n')\n        return None",
        fools=False,
    ),
    "its own text, gone": Cheat(
        "import os\n",
        "        os.rename('main.py', 'other.py')\n        os.umask(0o777)\n        return None",
        fools=False,
    ),
    "every guess in the descriptors it has": Cheat(
        wrong=f"{_GUESS}            for frame in (__import__('sys')._getframe(depth) for depth in range(3)):\n"
        "                token = frame.f_locals.get('token', b'')\n                for fd in range(3, 20):\n"
        "                    try:\n                        os.write(fd, (line % (token.decode(), 1, guess)).encode())\n"
        "                    except OSError:\n                        pass\n        return None",
        fools=False,
    ),
    "the driver's memory and descriptors": Cheat(
        wrong="        import os\n        for name in ('mem', *(f'fd/{at}' for at in range(16))):\n            try:\n"
        "                file = os.open(f'/proc/{os.getppid()}/{name}', os.O_RDWR)\n"
        '                os.write(file, b\'\\n= 1 =["i","6"]\\n\' * 64)\n            except OSError:\n'
        "                pass\n        return None",
        fools=False,
    ),
}
"""`no files to answer with` returns the right value where it cannot be told: it must not be paid for the other one."""

LEFT: dict[str, tuple[str, str]] = {  # what a check does, and how another one would see it
    "a file": ("open('left', 'w').close()", "os.path.exists('left')"),
    "a file that is not seen in a list": ("open('.left', 'w').close()", "os.path.exists('.left')"),
    "a temporary file": (
        "open(tempfile.gettempdir() + '/left', 'w').close()",
        "os.path.exists(tempfile.gettempdir() + '/left')",
    ),
    "a change of a file through a mapping": (
        "mmap.mmap(os.open('data', os.O_RDWR), 0)[:1] = b'z'",
        "open('data').read(1) == 'z'",
    ),
    "a file of which only the time changed": ("os.utime('data', (1, 1))", "os.stat('data').st_mtime == 1"),
    "the times of the folder": ("os.utime('.', (1, 1))", "os.stat('.').st_mtime == 1"),
    "another name of a file": ("os.rename('data', 'more')", "not os.path.exists('data')"),
    "marks of what is open": (
        "fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK)",
        "fcntl.fcntl(0, fcntl.F_GETFL) & os.O_NONBLOCK",
    ),
    "a lock of what is open": (
        "sys.kept = open('data'); fcntl.flock(sys.kept, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "locked()",
    ),
    "a module that is changed": ("json.left = 1", "hasattr(json, 'left')"),
    "a variable of the environment": ("os.environ['LEFT'] = '1'", "'LEFT' in os.environ"),
    "a handler and a timer": (
        "signal.signal(signal.SIGVTALRM, print); signal.setitimer(signal.ITIMER_VIRTUAL, 9)",
        "signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 4 or signal.getsignal(signal.SIGVTALRM) is print",
    ),
    "a limit of its own": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))",
        "resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 99",
    ),
    "a built-in function": ("builtins.left = 1", "hasattr(builtins, 'left')"),
    "a path of modules": ("sys.path.append('/left')", "'/left' in sys.path"),
    "the working directory": ("os.chdir('/')", "os.getcwd() == '/'"),
    "the mask of new files": ("os.umask(0o077)", "os.umask(0) == 0o077"),
}
_SEEN = """import builtins, fcntl, json, mmap, os, resource, signal, sys, tempfile
def locked():
    with open('data') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
def f(x):
    seen = bool(LOOK)
    if not seen:
        LEAVE
    return seen
"""
_BOTH = "import main; main.f(0); print(main.f(1))"

COSTS: dict[str, str] = {
    "numbers of one hash in a set": "{(2**61 - 1) * k for k in range(1, 1500)}",
    "numbers of one hash as keys": "{(2**61 - 1) * k: None for k in range(1, 1500)}",
    "fractions of one hash": "{float(2 ** 61) ** 2 * 2.0 ** (61 * k) for k in range(12)}",
    "complex numbers of one hash": "{complex(-1000003 * k, k) for k in range(800)}",
    "pairs of one hash": "{((2**61 - 1) * k, 0) for k in range(1, 1200)}",
    "keys that equal nothing": "{float('nan'): k for k in range(2)} | {k * float('nan'): k for k in range(1500)}",
    "a very large number": "1 << 250_000",
    "a text without end": "'\\ud800' * 60_000",
    "many small numbers": "list(range(6000))",
    "a list in a list in a list": "nested(48)",
    "a list in a list, deeper than can be told": "nested(9000)",
    "a list that holds itself": "looped()",
    "a value that is told by itself": "Told()",
    "an error with a very long text": "fail(ValueError('x' * 10**7))",
    "an error without a text": "fail(Mute())",
    "an error whose name is very long": "fail(type('E' * 10**6, (Exception,), {})())",
    "an error of lone surrogates": "fail(ValueError('\\ud800' * 200))",
    "a million lines in the judge's name": "claims()",
}
_COST = """import os, sys
def nested(depth):
    value = 7
    for _ in range(depth):
        value = [value]
    return value
def looped():
    value = []
    value.append(value)
    return value
class Told(str):
    __len__ = __repr__ = __str__ = __hash__ = __iter__ = lambda self: self.__repr__()
class Mute(Exception):
    def __str__(self):
        raise self
def fail(error):
    raise error
def claims():
    frame = sys._getframe()
    while frame and 'token' not in frame.f_locals:
        frame = frame.f_back
    token = frame.f_locals['token'].decode() if frame else ''
    for fd in range(3, 12):
        try:
            os.set_blocking(fd, True)
            for number in ('', '0 '):
                os.write(fd, (f'\\n{token} {number}=["S",[{"null," * 400}null]]\\n' * 60).encode())
        except OSError:
            pass
    return 8
def f(x):
    return VALUE
"""


@dataclass(frozen=True)
class Trial:
    """One submission: what it achieves with the judge, and whether its control shows that it would elsewhere."""

    name: str
    family: str
    run: Callable[[Sandbox], str]
    control: Callable[[Sandbox], bool] | None = None
    """Whether the attempt works where nothing but the wall is. Without one, ``run`` shows that it was made."""


def _forge(cheat: Cheat) -> Callable[[Sandbox], str]:
    def run(sandbox: Sandbox) -> str:
        done = [case.passed for case in check(sandbox, cheat.submission(), CASES, seconds=2.0)]
        return "" if done == EARNED else f"earned {done}"

    return run


def _fools(cheat: Cheat) -> Callable[[Sandbox], bool] | None:
    if not cheat.fools:
        return None

    def control(sandbox: Sandbox) -> bool:
        before = in_process(sandbox, honest(), LARGE[:1], limits=Limits())[0].passed
        return not before and in_process(sandbox, cheat.submission(), LARGE[:1], limits=Limits())[0].passed

    return control


def _leave(leave: str, look: str) -> tuple[Callable[[Sandbox], str], Callable[[Sandbox], bool]]:
    files = {"main.py": _SEEN.replace("LEAVE", leave).replace("LOOK", look), "data": "a" * 100}

    def run(sandbox: Sandbox) -> str:
        done = check(sandbox, files, [Case("main", f"f({x})", False) for x in range(3)], seconds=2.0)
        if all("PermissionError" in case.got for case in done):  # a wall does not let it be left
            return ""
        seen = [case.got for case in done]
        return "" if seen == ["False"] * 3 else f"NOT RUN: {seen}" if "True" not in seen else "another check saw it"

    def control(sandbox: Sandbox) -> bool:
        given = {name: text.encode() for name, text in files.items()}
        result = sandbox.run(["python", "-c", _BOTH], given)
        return result.stdout.endswith(b"True\n") or b"PermissionError" in result.stderr

    return run, control


def _cost(value: str) -> Callable[[Sandbox], str]:
    files = {"main.py": _COST.replace("VALUE", value)}

    def run(sandbox: Sandbox) -> str:
        said = evaluate(sandbox, files, [("main", "f(0)")], 2.0, 256)[0]
        if said[:1] not in ("=", "?", "!"):
            return f"NOT RUN: {said[:80]}"
        began = time.process_time()
        done = check(sandbox, files, [Case("main", "f(0)", 7)] * 3, seconds=2.0)
        took = time.process_time() - began
        if any(case.passed for case in done):
            return "it passed"
        return f"{took:.2f} s of the host's time" if took > 0.5 else ""

    return run


def trials() -> list[Trial]:
    found: list[Any] = [Trial(name, "verdicts", _forge(cheat), _fools(cheat)) for name, cheat in FORGERIES.items()]
    for name, (leave, look) in LEFT.items():
        found.append(Trial(name, "later checks", *_leave(leave, look)))
    return found + [Trial(name, "cost to the host", _cost(value)) for name, value in COSTS.items()]
