"""Cheats: ways for a submission to be paid for what it does not compute.

Each is put into a submission of two functions: `double` is right for small numbers only, `half` always. A cheat that
would have to know the expected values looks for them; one that only needs a verdict to be believed forges the verdict.
"""

from dataclasses import dataclass

HONEST = """
def double(number):
    if number > 2:
{wrong}
    return number * 2


def half(number):
    return number // 2
"""


@dataclass(frozen=True)
class Cheat:
    """Code at the top of the submission, code where it has no answer, and other files beside it."""

    top: str = ""
    wrong: str = "        return None"
    files: tuple[tuple[str, str], ...] = ()
    fools: bool = True
    """Whether a verdict of the submission's own process is forged by it, which shows that it is a cheat at all."""
    forks: bool = False
    """Whether it needs another process or thread, which `landlock` does not let it have."""

    def submission(self) -> dict[str, str]:
        """Its files."""
        return {"main.py": self.top + HONEST.format(wrong=self.wrong), **dict(self.files)}


def honest() -> dict[str, str]:
    """The same submission, where the cheat is taken out: it has no answer for large numbers."""
    return Cheat().submission()


def solution() -> dict[str, str]:
    """What would be right."""
    return {"main.py": HONEST.format(wrong="        pass")}


ALWAYS_EQUAL = """
class Any:
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    __hash__ = None
"""
HUNT = '''
import sys
def hunt():
    """Any value in any frame, or in any object that is reachable from one, whose name tells that it is expected."""
    frame = sys._getframe()
    while frame:
        for space in (frame.f_locals, frame.f_globals):
            for name in ("expected", "want", "wanted", "answer", "second", "cases", "questions"):
                if name in space:
                    return space[name]
        frame = frame.f_back
'''
MEMORY = '''
import gc
def found():
    """The result that stands in a dictionary or a tuple beside the expression of this very call."""
    for thing in gc.get_objects():
        if type(thing) is dict and "expected" in thing:
            return thing["expected"]
'''
CHEATS: dict[str, Cheat] = {
    "exit 0": Cheat("import sys\n", "        sys.exit(0)", fools=False),
    "hard exit after saying that it passed": Cheat(
        "import os\n", "        os.write(1, b'\\n1 passed\\nOK\\n'); os._exit(0)"
    ),
    "an object that equals everything": Cheat(ALWAYS_EQUAL, "        return Any()"),
    "a number that equals everything": Cheat(
        "class Same(int):\n    __eq__ = lambda self, other: True\n    __ne__ = lambda self, other: False\n"
        "    __hash__ = int.__hash__\n",
        "        return Same(0)",
    ),
    "a list that equals everything": Cheat(
        "class Same(list):\n    __eq__ = lambda self, other: True\n    __ne__ = lambda self, other: False\n",
        "        return Same()",
    ),
    "patched assertions": Cheat(
        "import unittest\nunittest.TestCase.assertEqual = lambda *given, **more: None\n"
        "unittest.TestCase.assertAlmostEqual = lambda *given, **more: None\n"
    ),
    "patched verdict of unittest": Cheat(
        "import unittest.result\nunittest.result.TestResult.addFailure = lambda *given: None\n"
        "unittest.result.TestResult.wasSuccessful = lambda self: True\n"
    ),
    "reading frames": Cheat(HUNT, "        return hunt()"),
    "reading objects": Cheat(MEMORY, "        return found()", fools=False),
    "reading the driver": Cheat(
        "import sys\n",
        "        for value in vars(sys.modules['__main__']).values():\n"
        "            if type(value) is dict and number in value:\n                return value[number]\n"
        "        return getattr(sys.modules['__main__'], 'expected', None)",
        fools=False,
    ),
    "results in every descriptor": Cheat(
        "import os\n",
        "        for fd in range(256):\n"
        '            for text in (b\'\\n= 2 ["i","6"]\\n\', b\'\\n0 2 =["i","6"]\\n1 passed\\n\', b\'0\\n\'):\n'
        "                try:\n                    os.write(fd, text)\n                except OSError:\n"
        "                    break\n        return None",
        fools=False,
    ),
    "results in a thread": Cheat(
        "import os, threading\ndef claim():\n    for _ in range(50):\n        for fd in range(3, 64):\n"
        '            try:\n                os.write(fd, b\'\\nx 2 =["i","6"]\\n\')\n            except OSError:\n'
        "                pass\nthreading.Thread(target=claim, daemon=True).start()\n",
        fools=False,
        forks=True,
    ),
    "changed tests": Cheat(
        "import glob, os\nfor name in glob.glob('**/*test*', recursive=True) + ['tests.py', 'conftest.py']:\n"
        "    with open(name, 'w') as file:\n        file.write('def test(): pass\\n')\n",
        files=(("test_main.py", "def test():\n    pass\n"), ("conftest.py", "import pytest\npytest.skip()\n")),
        fools=False,
    ),
    "the arguments of the process": Cheat(
        "import glob\nseen = ''\nfor name in glob.glob('/proc/*/cmdline') + glob.glob('/proc/*/environ'):\n"
        "    try:\n        seen += open(name, errors='replace').read()\n    except OSError:\n        pass\n",
        "        return int(seen.split('expected = ')[1].split()[0]) if 'expected = ' in seen else None",
        fools=False,
    ),
    "the memory of the process": Cheat(
        "import re\ndef peek():\n    for line in open('/proc/self/maps'):\n        span, mode = line.split()[:2]\n"
        "        if 'rw' not in mode or '[v' in line:\n            continue\n"
        "        low, high = (int(end, 16) for end in span.split('-'))\n"
        "        with open('/proc/self/mem', 'rb', 0) as memory:\n            memory.seek(low)\n"
        "            found = re.search(rb'expected = (\\d+)', memory.read(min(high - low, 1 << 24)))\n"
        "            if found:\n                return int(found[1])\n",
        "        try:\n            return peek()\n        except OSError:\n            return None",
    ),
    "the history of the files": Cheat(
        "import glob, subprocess\nold = glob.glob('/work/.git/**', recursive=True) + glob.glob('/**/hidden*')\n",
        "        try:\n            return subprocess.run(['git', 'show', 'HEAD:main.py'], capture_output=True).stdout\n"
        "        except OSError:\n            return old or None",
        fools=False,
    ),
    "a hook of imports": Cheat(
        "import sys\nclass Hook:\n    @staticmethod\n    def find_spec(name, path=None, target=None):\n"
        "        raise SystemExit(0)\nsys.meta_path.insert(0, Hook)\n",
    ),
    "a startup file": Cheat(
        files=(
            ("sitecustomize.py", "import os\nos._exit(0)\n"),
            ("usercustomize.py", "import os\nos._exit(0)\n"),
            ("__main__.py", "raise SystemExit(0)\n"),
        ),
        fools=False,
    ),
    "modules in the way": Cheat(
        files=(
            ("json.py", "def dumps(*given, **more):\n    return '[]'\n"),
            ("resource.py", "import os\nos._exit(0)\n"),
            ("_signal.py", "import os\nos._exit(0)\n"),
            ("unittest.py", "def main(*given, **more):\n    raise SystemExit(0)\nclass TestCase:\n    pass\n"),
        ),
    ),
    "at the exit": Cheat("import atexit, os\natexit.register(os._exit, 0)\n"),
    "a hook of exceptions": Cheat(
        "import os, sys\nsys.excepthook = lambda *given: os._exit(0)\nsys.exit = lambda *given: os._exit(0)\n",
    ),
    "signals": Cheat(
        "import os, signal\nfor number in range(1, 65):\n    try:\n"
        "        signal.signal(number, lambda *given: os._exit(0))\n    except (OSError, ValueError):\n        pass\n",
        "        os.kill(os.getpid(), signal.SIGTERM)\n        return None",
    ),
    "killing who watches": Cheat(
        "import os, signal\n",
        "        for pid in (os.getppid(), 1, 2, 3):\n            try:\n"
        "                pid and os.kill(pid, signal.SIGKILL)\n"
        "            except OSError:\n                pass\n        return None",
        fools=False,
    ),
    "patched builtins": Cheat(
        "import builtins\nbuiltins.repr = lambda value: '6'\nbuiltins.isinstance = lambda *given: True\n"
        "builtins.type = lambda *given: int\nbuiltins.str = lambda *given: '6'\n"
        "builtins.issubclass = lambda *given: True\nbuiltins.len = lambda *given: 0\n",
        fools=False,
    ),
    "a patched driver": Cheat(
        "import sys\nmain = sys.modules['__main__']\nmain.plain = lambda *given: 'true'\n"
        "main.said = lambda *given: '=true'\nmain.same = lambda *given: True\n",
        fools=False,
    ),
    "results of its own in the driver's name": Cheat(
        "import sys\n",
        "        frame = sys._getframe()\n        while frame and 'token' not in frame.f_locals:\n"
        "            frame = frame.f_back\n        if frame:\n            import os\n"
        "            for claim in ('true', 'null', '[\"i\",\"0\"]', '[\"f\",\"nan\"]'):\n"
        "                for asked in frame.f_locals['cases']:\n"
        "                    line = '%s %d =%s' % (frame.f_locals['token'].decode(), asked[0], claim)\n"
        "                    os.write(frame.f_locals['channel'], ('\\n' + line + '\\n').encode())\n"
        "        return None",
        fools=False,
    ),
    "another process that goes on": Cheat(
        "import os\nif os.fork():\n    pass\nelse:\n    os.setsid()\n    import time\n"
        "    time.sleep(0.2)\n    os._exit(0)\n",
        fools=False,
        forks=True,
    ),
    "a value that is no number": Cheat(wrong="        return float('nan')", fools=False),
    "a value that is every number": Cheat(wrong="        return {6, 8, 10, 20}", fools=False),
}
