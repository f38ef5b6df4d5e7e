"""Runs program after program, each in a process forked from one that has imported what they need.

Reads a JSON list of {argv, path, env} and writes a line for each, {status, out, err, left, children, seconds}: what a
program left in the watched folders, and how many processes.
"""

import atexit
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from warm_programs import load

SECONDS = int(os.environ.get("SECONDS", "20"))
"""Processor time that one program may take."""
DEADLINE = 120
"""Seconds that one program may take."""


def main() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what a program leaves behind becomes a child of this one
    load()
    watched = [Path(folder) for folder in sys.argv[1:]]
    for case in json.load(sys.stdin):
        print(json.dumps(run(case, watched)), flush=True)


def run(case: dict[str, Any], watched: list[Path]) -> dict[str, Any]:
    before, began = things(watched), time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            become(case)
        status = waited(child)
        for file in (out, err):
            file.seek(0)
        said = [file.read().decode("utf-8", "backslashreplace") for file in (out, err)]
    until = time.monotonic() + 2  # what reads from it ends a moment after it
    while (children := sorted(children_of(os.getpid()))) and time.monotonic() < until:
        time.sleep(0.02)
    for left in children:
        os.kill(left, signal.SIGKILL)
        os.waitpid(left, 0)
    new = sorted(map(str, things(watched) - before))
    for path in map(Path, new):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return {"status": status, "out": said[0], "err": said[1], "left": new, "children": len(children),
            "seconds": round(time.monotonic() - began, 2)}  # fmt: skip


def waited(child: int) -> int | str:
    """The exit status of a child that is given `DEADLINE` seconds."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "no end"


def become(case: dict[str, Any]) -> None:
    """The program, from its command line to its end. Does not return."""
    resource.setrlimit(resource.RLIMIT_CPU, tuple(int(time.process_time()) + SECONDS + more for more in (0, 1)))
    os.environ.update(case["env"])
    sys.path[:0] = case["path"]
    sys.argv = ["turnwise", *case["argv"]]
    sys.stdin = open(os.devnull)  # noqa: SIM115
    status = 1
    try:
        from runners.cli import main as program

        program()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


def things(folders: list[Path]) -> set[Path]:
    return {path for folder in folders for path in folder.rglob("*")}


def children_of(parent: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.add(int(stat.parent.name))
    return found


if __name__ == "__main__":
    main()
