"""What every sandbox does alike: streams, files, exit statuses, limits, and Python as it is elsewhere."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import LIMITS, WALLS, opened

from agent_envs.code.sandbox import Limits, RunResult, Sandbox, SandboxFault, SandboxJob, Status

pytestmark = pytest.mark.walls

FORKS = ("namespace", "unsafe-process", "docker")


def python(sandbox: Sandbox, program: str, files: dict[str, bytes] | None = None, **more: Any) -> RunResult:
    return sandbox.run(["python", "main.py"], {"main.py": program.encode(), **(files or {})}, **more)


def test_text_and_bytes_come_back_as_they_were_printed(sandbox: Sandbox) -> None:
    result = python(
        sandbox, "import sys\nprint('où 你好 🙂')\nsys.stderr.write('é\\n')\nsys.stdout.buffer.write(bytes(range(256)))"
    )
    assert result.ok and result.exit_code == 0 and not result.truncated
    assert b"\0\x01\x02" in result.stdout and "où 你好 🙂\n".encode() in result.stdout
    assert result.stderr == "é\n".encode()


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_input_of_any_size(sandbox: Sandbox, size: int) -> None:
    result = python(sandbox, "import sys; print(len(sys.stdin.buffer.read()))", stdin=bytes(size))
    assert result.stdout == b"%d\n" % size


def test_input_that_nobody_reads_is_no_matter(sandbox: Sandbox) -> None:
    assert python(sandbox, "print(1)", stdin=bytes(3_000_000)).stdout == b"1\n"


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_codes(sandbox: Sandbox, code: int) -> None:
    result = python(sandbox, f"import sys; sys.exit({code})")
    assert result.exit_code == code and result.signal is None
    assert result.status is (Status.ERROR if code else Status.OK)


def test_the_end_by_a_signal(sandbox: Sandbox) -> None:
    result = python(sandbox, "import os; os.kill(os.getpid(), 9)")
    assert (result.status, result.exit_code, result.signal) == (Status.ERROR, None, 9)


def test_a_program_that_is_not_there(sandbox: Sandbox) -> None:
    result = sandbox.run(["no-such-program"])
    assert result.exit_code == 127 and result.stderr == b"no-such-program: command not found\n"


def test_other_programs(sandbox: Sandbox) -> None:
    result = sandbox.run(["cat", "a/b.txt", "-"], {"a/b.txt": b"file "}, stdin=b"input")
    assert result.stdout == b"file input"


def test_files_new_changed_and_deleted(sandbox: Sandbox) -> None:
    given = {"same.txt": b"same", "old.txt": b"old", "gone.txt": b"", "deep/er/x": b"\0\xff"}
    program = """
import os
assert open('deep/er/x', 'rb').read() == b'\\0\\xff'
open('old.txt', 'w').write('new')
os.makedirs('made')
open('made/文.bin', 'wb').write(bytes(1000))
os.remove('gone.txt')
os.rename('deep/er/x', 'deep/y')
"""
    result = python(sandbox, program, given)
    assert result.ok, result.stderr
    assert dict(result.files) == {"old.txt": b"new", "made/文.bin": bytes(1000), "deep/y": b"\0\xff"}
    assert list(result.deleted) == ["deep/er/x", "gone.txt"] and list(result.skipped) == []


def test_what_is_too_large_to_come_back_is_named(sandbox: Sandbox) -> None:
    limits = replace(LIMITS, collected_kb=1)
    result = python(sandbox, "open('a', 'wb').write(bytes(1000))\nopen('b', 'wb').write(bytes(1100))", limits=limits)
    assert set(result.files) == {"a"} and list(result.skipped) == ["b"]


def test_a_deadline_ends_the_program(sandbox: Sandbox) -> None:
    started = time.monotonic()
    result = python(sandbox, "print('begun', flush=True)\nwhile True: pass", limits=replace(LIMITS, seconds=2.0))
    assert result.status is Status.TIMEOUT and result.stdout == b"begun\n" and result.signal == 9
    assert 2.0 <= result.wall < 6 and time.monotonic() - started < 12


def test_a_deadline_ends_its_children(sandbox: Sandbox) -> None:
    if sandbox.capabilities.backend not in FORKS:
        pytest.skip("a program here has no children")
    program = "import subprocess\nsubprocess.run(['sh', '-c', 'sleep 20; echo late'])"
    started = time.monotonic()
    assert python(sandbox, program, limits=replace(LIMITS, seconds=0.3)).status is Status.TIMEOUT
    assert time.monotonic() - started < 6


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_is_cut_where_it_was_said(sandbox: Sandbox, stream: str) -> None:
    limits = replace(LIMITS, output_kb=2)
    some = python(sandbox, f"import sys; sys.{stream}.write('x' * 2047)", limits=limits)
    assert some.ok and len(getattr(some, stream)) == 2047
    more = python(sandbox, f"import sys\nwhile True: sys.{stream}.write('x' * 1000)", limits=limits)
    assert (more.status, more.truncated, len(getattr(more, stream))) == (Status.OUTPUT_LIMIT, True, 2048)


def test_what_a_run_used_is_told(sandbox: Sandbox) -> None:
    result = python(
        sandbox,
        "import time\nx = b'x' * (40 << 20)\nt = time.process_time()\nwhile time.process_time() < t + 0.2: pass",
    )
    assert result.ok and 0.2 <= result.cpu < 5 and result.cpu <= result.wall + 0.1
    assert result.memory is not None and 40 << 20 <= result.memory < 128 << 20


def test_what_the_run_before_used_is_not_told(sandbox: Sandbox) -> None:
    """Files and memory of a run that was killed are gone from the next one's account."""
    written = "for i in range(28):\n    open(f'f{i}', 'wb').write(b'x' * (1 << 20))"
    killed = "import os\nx = b'x' * (90 << 20)\nos.kill(os.getpid(), 9)"
    alone = python(sandbox, "pass").memory
    assert alone is not None
    for code in (written, killed) * 6:
        used = python(sandbox, code).memory
        after = python(sandbox, "pass").memory
        assert used is not None and after is not None
        assert after < alone + (6 << 20), (code, used, after, alone)
    assert python(sandbox, killed).memory > 90 << 20, "the control: a run's own memory is told"


def test_temporary_files_are_the_run_s_own(sandbox: Sandbox) -> None:
    program = "import os, tempfile\nfile = tempfile.NamedTemporaryFile()\n"
    program += (
        "print(os.path.dirname(file.name) == tempfile.gettempdir() == os.environ['TMPDIR'] == os.environ['HOME'])"
    )
    result = sandbox.run(["python", "-c", program])
    assert result.stdout == b"True\n", result.stderr


def test_the_environment_is_the_same_in_every_run(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    program = "import os; print(sorted(os.environ)); print(list({'a', 'b', 'c', 'd', 'e'}))"
    first, second = python(sandbox, program), sandbox.run(["python3", "-S", "-c", program])
    assert first.stdout == second.stdout  # the warm interpreter and a fresh one
    assert b"HOME" in first.stdout and b"SECRET" not in first.stdout


PROGRAMS = {
    "an error in a function": "def f(x):\n    return 1 / x\n\nf(0)\n",
    "an error in an error": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e\n",
    "a mistake of syntax": "x = 1\nif x\n    print(x)\n",
    "a mistake of indentation": "def f():\nreturn 1\n",
    "a deep recursion": "def f(): f()\ntry: f()\nexcept RecursionError as e: print(e)\n",
    "an exit with words": "raise SystemExit('words')\n",
    "an exit with None": "import sys\nprint(1)\nsys.exit()\n",
    "an interrupt": "raise KeyboardInterrupt\n",
    "exit handlers": "import atexit\natexit.register(print, 'last')\nprint('first')\n1 / 0\n",
    "an error in an exit handler": "import atexit\natexit.register(lambda: 1 / 0)\n",
    "a thread that goes on": "import threading, time\ndef f():\n    time.sleep(0.1)\n    print('late')\n"
    "threading.Thread(target=f).start()\nprint('early')\n",
    "an error in a thread": "from threading import Thread\nt = Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\n",
    "an exception hook": "import sys\nsys.excepthook = lambda *a: print('mine', a[1])\n1 / 0\n",
    "its own names": "import sys\nprint(__name__, __file__, sys.argv, __builtins__, __doc__)\n"
    "print(sys.path[0], sorted(globals()))\n",
    "a main guard and pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)\n",
    "lines of input": "print([input(), input()])\ninput()\n",
    "a closed output": "import sys\nprint('x')\nsys.stdout.close()\n",
    "os._exit": "import os\nprint('lost')\nos._exit(3)\n",
    "a module beside it": "import helper\nprint(helper.twice(2), helper.__file__)\nhelper.fails()\n",
    "a module that hides another": "import json, queue, random\nprint(json.mine, random.mine, json.__file__)\n",
    "no module of ours": "import sys\nprint([m for m in sys.modules if 'agent' in m], sys.meta_path)\nimport agents\n",
    "inspect and dataclasses": "import dataclasses, inspect\n@dataclasses.dataclass\nclass A:\n    x: int = 1\n"
    "print(A(), inspect.getsource(A))\n",
    "a class twice": "class A: pass\nprint(A, repr(A)[:18], A.__qualname__)\n",
    "doctest": "def f():\n    '>>> f()\\n1'\n    return 2\nimport doctest\nprint(doctest.testmod())\n",
}
FILES = {
    "helper.py": b"def twice(x):\n    return 2 * x\ndef fails():\n    raise RuntimeError('here')\n",
    "json.py": b"mine = 'json'\n",
    "random/__init__.py": b"mine = 'random'\n",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_warm_interpreter_is_like_a_fresh_one(name: str, sandbox: Sandbox, tmp_path: Path) -> None:
    if sandbox.capabilities.backend == "landlock" and "thread" in name:
        pytest.skip("a program here has one thread")
    theirs = sandbox.run(["python", "-c", "import sys; print(sys.version, end='')"]).stdout.decode()
    if theirs != sys.version:  # an image may hold any
        assert sandbox.capabilities.backend == "docker"
        pytest.skip(f"another Python than this one: {theirs}")
    hides = "hides" in name
    files = {path: data for path, data in FILES.items() if hides or path == "helper.py"}
    files["main.py"] = PROGRAMS[name].encode("utf-8", "surrogateescape")
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    fresh = subprocess.run(
        [os.path.realpath(sys.executable), "-S", "main.py", "word"],
        cwd=tmp_path,
        input=b"one\ntwo\n",
        capture_output=True,
        env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    warm = sandbox.run(["python", "main.py", "word"], files, stdin=b"one\ntwo\n")

    def alike(text: bytes) -> bytes:
        return re.sub(rb"0x[0-9a-f]+", b"0x", text.replace(str(tmp_path).encode(), b"/work"))

    assert alike(warm.stdout) == alike(fresh.stdout)
    assert alike(warm.stderr) == alike(fresh.stderr)
    assert (warm.exit_code if warm.signal is None else -warm.signal) == fresh.returncode


def test_other_ways_to_call_python(sandbox: Sandbox) -> None:
    files = {"tool.py": b"import sys; print(__name__, sys.argv[1:])", "pack/__main__.py": b"print(__package__)"}
    assert sandbox.run(["python", "-m", "tool", "a"], files).stdout == b"__main__ ['a']\n"
    assert sandbox.run(["python", "-m", "pack"], files).stdout == b"pack\n"
    assert sandbox.run(["python", "-"], stdin=b"print(__name__)").stdout == b"__main__\n"
    assert sandbox.run(["python", "-c", "import sys; print(sys.argv)", "x"]).stdout == b"['-c', 'x']\n"
    assert sandbox.run(["python", "-O", "-c", "print(__debug__)"]).stdout == b"False\n"
    assert sandbox.run(["python", "missing.py"]).exit_code == 2


def end_from_outside(sandbox: Any) -> None:
    """Ends all that serves runs now."""
    if sandbox.capabilities.backend != "docker":
        os.kill(sandbox.pid, signal.SIGKILL)
        return
    for container in list(sandbox._all):
        with contextlib.suppress(Exception):  # one that is being removed
            sandbox._client.api.kill(container.id)


def fault(sandbox: Any) -> None:
    ends = threading.Timer(0.5, end_from_outside, [sandbox])
    ends.start()
    with pytest.raises(SandboxFault):
        sandbox.run(["python", "-c", "import time; time.sleep(8)"])
    ends.join()


@pytest.mark.parametrize("wall", WALLS)
def test_after_a_fault_comes_a_run(wall: str) -> None:
    with opened(wall, workers=1) as sandbox:
        for _ in range(2):
            fault(sandbox)
            for left in reversed(range(4)):  # containers that waited for a run were killed, too
                try:
                    result = sandbox.run(["python", "-c", "print(1)"])
                    break
                except SandboxFault:
                    assert wall == "docker" and left
            assert result.stdout == b"1\n"


def test_jobs_come_back_in_their_order(sandbox: Sandbox) -> None:
    jobs = [
        SandboxJob(["python", "-c", f"import time; time.sleep({0.2 * (at == 0)}); print({at})"], limits=LIMITS)
        for at in range(6)
    ]
    assert [result.stdout for result in sandbox.run_many(jobs)] == [b"%d\n" % at for at in range(6)]


@pytest.mark.parametrize(
    ("argv", "files", "line"),
    [
        ([], {}, "a job needs a program"),
        ([""], {}, "a job needs a program"),
        (["a\0b"], {}, "zero byte"),
        (["a"], {"/etc/passwd": b""}, "not a name of a file"),
        (["a"], {"../x": b""}, "not a name of a file"),
        (["a"], {"a/../../x": b""}, "not a name of a file"),
        (["a"], {"a//b": b""}, "not a name of a file"),
        (["a"], {"": b""}, "not a name of a file"),
        (["a"], {"a\0": b""}, "not a name of a file"),
        (["a"], {"\udcff": b""}, "no Unicode text"),
        (["a"], {"x" * 300: b""}, "too long"),
        (["a"], {"a": b"", "a/b": b""}, "a file and of a folder"),
        (["a"], {"a": bytes(17 << 20)}, "larger than the 16 MiB"),
    ],
)
def test_a_bad_job_is_a_value_error(sandbox: Sandbox, argv: list[str], files: dict[str, bytes], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        sandbox.run(argv, files)


@pytest.mark.parametrize(("name", "value"), [("seconds", 0), ("memory_mb", 1), ("processes", 0), ("output_kb", 0)])
def test_limits_that_make_no_sense(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        Limits(**{name: value})


def test_memory_leaves_room_for_files_and_for_what_reads_them() -> None:
    with pytest.raises(ValueError, match="memory_mb must be at least 88 beside disk_mb=32"):
        Limits(memory_mb=64)
    assert Limits(memory_mb=88).needed_mb == 88
