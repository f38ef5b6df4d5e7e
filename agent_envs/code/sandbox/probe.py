"""The probe of a sandbox: a program that tries what must fail.

Invariant: a sandbox that calls itself safe is handed out only after a run in it has tried, in earnest and in vain, to
read and write a file of the host and to read a reference solution, to reach two listening sockets, to signal this
process and to have more processes and more memory than it may. A probe that did not run is a failure, too.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import tempfile
from importlib import resources
from pathlib import Path

from agent_envs.code.sandbox.interface import Limits, Sandbox, SandboxFault, SandboxUnavailable
from agent_envs.code.sandbox.zygote import stale

_LIMITS = Limits(seconds=10.0, memory_mb=64, processes=8, disk_mb=1, inodes=16)
_PROGRAM = """
import errno, glob, json, os, signal, socket, sys, time
given = json.load(sys.stdin)
did = []
def tries(what, action):
    try:
        if action() is not False:
            did.append(what)
    except (OSError, MemoryError):
        pass
tries("read a file of the host", lambda: given["secret"] in open(given["file"]).read())
tries("write a file of the host", lambda: open(given["file"], "r+").close())
def solutions():
    places = [given["tasks"], *glob.glob(sys.base_prefix + "/lib*/python3*/*-packages/agent_envs/code/tasks/*.py")]
    return any([tried(place) for place in places])
def tried(place):
    try:
        return bool(open(place).read())
    except OSError:
        return False
tries("read the reference solutions of the coding tasks", solutions)
tries("connect to this machine", lambda: socket.create_connection(("127.0.0.1", given["port"]), 1))
def abstract():
    socket.socket(socket.AF_UNIX).connect("\\0" + given["name"])
tries("connect to a socket of another program", abstract)
tries("signal a process of the host", lambda: os.kill(given["pid"], 0))
def children(count, action):
    pids = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                try:
                    action()
                finally:
                    os._exit(0)
            pids.append(pid)
    except OSError:
        pass
    time.sleep(0.05)
    alive = [pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0] == 0]
    return alive
def end(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
pids = children(given["processes"] + 4, lambda: time.sleep(5))
if len(pids) >= given["processes"]:
    did.append("have more processes than it may")
end(pids)
def eat():
    block = bytearray(given["bytes"])
    for at in range(0, len(block), 4096):
        block[at] = 1
    time.sleep(5)
pids = children(2, eat)
time.sleep(0.2)
if sum(os.waitpid(pid, os.WNOHANG)[0] == 0 for pid in pids) == 2:
    did.append("have more memory than it may")
    end(pids)
print(json.dumps({"answer": given["secret"][::-1], "did": did}))
"""
_MESSAGE = "it is not safe on this machine: report it, and use docker meanwhile"


def probe(sandbox: Sandbox) -> None:
    """Raises SandboxUnavailable when a program gets through, or the probe cannot be made."""
    secret = secrets.token_hex(16)
    try:
        folder = tempfile.mkdtemp(prefix=stale.FOLDER)
    except OSError as error:
        raise SandboxUnavailable(
            f"no temporary folder can be written ({error.strerror})",
            "set TMPDIR to a folder that can be written, or free some space",
        ) from error
    backend = sandbox.capabilities.backend
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        stale.hold(held)  # were this process killed now, the next sandbox would remove it
        path = Path(folder, "secret")
        path.write_text(secret)
        for each, mode in ((folder, 0o755), (path, 0o666)):  # whatever user a run has: only the walls keep it out
            os.chmod(each, mode)
        did = _did(sandbox, secret, str(path))
    except SandboxFault as error:
        raise SandboxUnavailable(f"{backend}: the probe did not run ({error})", _MESSAGE) from error
    finally:
        os.close(held)
        shutil.rmtree(folder, ignore_errors=True)
    if did:
        raise SandboxUnavailable(f"{backend}: a probe could {did[0]}", _MESSAGE)


def _did(sandbox: Sandbox, secret: str, path: str) -> list[str]:
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as local:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        name = f"turnwise-{secret}"
        local.bind("\0" + name)
        local.listen()
        given = {
            "secret": secret,
            "file": path,
            "port": tcp.getsockname()[1],
            "name": name,
            "pid": os.getpid(),
            "tasks": str(resources.files("agent_envs.code.tasks").joinpath("__init__.py")),
            "processes": sandbox.capabilities.processes_for(_LIMITS),
            # Without a bound for all of them together two halves are allowed.
            "bytes": (_LIMITS.memory_mb << 20) * 3 // 4
            if sandbox.capabilities.total_memory
            else _LIMITS.memory_mb << 20,
        }
        result = sandbox.run(["python", "-c", _PROGRAM], stdin=json.dumps(given).encode(), limits=_LIMITS)
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        answer = {}
    if answer.get("answer") != secret[::-1]:
        last = (result.stderr.decode("utf-8", "replace").strip().splitlines() or [result.status])[-1]
        raise SandboxFault(last[:300])
    return list(answer["did"])
