"""Runs programs in processes forked from one that has imported what they need, so that a start costs no import.

    python warm_programs.py SOCKET           serves until its standard input ends; prints a line when it is ready
    python warm_programs.py SOCKET WORD …    is `turnwise WORD …`, or the script that the first word names

A program has the directory, variables and files of whoever asked for it, a session of its own, and is killed where
the asker is.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE, STATUS = 8, 4
"""Bytes of a request's length, and of the exit status that answers it."""


@contextmanager
def serving(place: Path, python: Path, env: Mapping[str, str]) -> Iterator[None]:
    """While programs of this interpreter can begin at the socket ``place``."""
    with subprocess.Popen(
        [python, "-P", __file__, place], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield
        server.stdin.close()


def load() -> None:
    """Imports what the programs import, soon or late."""
    import importlib

    for name in ("torch", "transformers", "peft", "tantivy", "matplotlib.pyplot"):
        importlib.import_module(name)
    from runners import cli

    for module, _ in cli.COMMANDS.values():
        importlib.import_module(module)
    importlib.import_module("runners.training.start")


def ask(place: str, words: list[str]) -> int:
    """The exit status of the program."""
    request = json.dumps({"argv": words, "cwd": os.getcwd(), "env": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        socket.send_fds(server, [len(request).to_bytes(SIZE, "big")], [0, 1, 2])
        server.sendall(request)
        answer = server.recv(STATUS, socket.MSG_WAITALL)
    return int.from_bytes(answer, "big") if answer else 1


def serve(place: str) -> list[str]:
    """Returns only in the processes that are to become a program: its words."""
    load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for a program
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        print("ready", flush=True)
        while True:
            if sys.stdin in select.select([server, sys.stdin], [], [])[0]:
                sys.exit()
            asker, _ = server.accept()
            if os.fork() == 0:
                break
            asker.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, files, _, _ = socket.recv_fds(asker, SIZE, 3)
    request = json.loads(asker.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
    program = os.fork()
    if program:
        wait(asker, program)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", errors="backslashreplace")  # noqa: SIM115
    asker.close()
    become(request["cwd"], request["env"])
    words: list[str] = request["argv"]
    return words


def wait(asker: socket.socket, program: int) -> None:
    """Tells the asker how its program ended, or ends it where the asker is gone. Does not return."""
    ended = os.pidfd_open(program)
    if ended not in select.select([asker, ended], [], [])[0]:
        with suppress(ProcessLookupError):
            os.killpg(program, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with suppress(OSError):
        asker.sendall((status if status >= 0 else 128 - status).to_bytes(STATUS, "big"))
    os._exit(0)


def become(folder: str, env: dict[str, str]) -> None:
    import importlib
    import site
    import sysconfig

    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    site.addsitedir(sysconfig.get_path("purelib"))  # what was installed meanwhile
    importlib.invalidate_caches()


def run(words: list[str]) -> None:
    """The program, as if it had been started. Returns where it does."""
    import runpy

    if words[0].endswith(".py"):
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
    else:
        from runners.cli import main

        sys.argv = ["turnwise", *words]
        main()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    run(serve(sys.argv[1]))
