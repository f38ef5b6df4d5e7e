"""Runs the attacks: in this process, or as ``python attack_run.py BACKEND`` as a user without privileges.

Invariant: an outcome is "" (held), a few words (what got through), or begins with NOT RUN, which is never a success.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attack_list import ATTACKS
from attacks import TIGHT, Attack, Seen, said

from agent_envs.code.sandbox import Limits, Sandbox, SandboxFault, SandboxUnavailable, Status, warm
from agent_envs.code.sandbox.choose import open_sandbox
from agent_envs.code.sandbox.zygote import linux, reach

USER = 1_234_567
PATIENCE = 0.75
"""Seconds after a deadline in which a run must be dead, on a machine with other work (the benchmark asks for 0.25)."""


class World:
    """What there is on the host for an attack to find; a new one for each, so that none sees what another did."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix="attacked-"))
        self.folder.chmod(0o777)
        self.file, self.target = self.folder / f"canary-{self.secret[:6]}", self.folder / "made"
        self.file.write_text(self.secret)
        self.file.chmod(0o666)
        self._before = self.file.stat()
        self.nap = f"30.{secrets.randbelow(10**12):012}"
        self.victim = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
        self.tcp, self.udp, self.path, self.abstract = (
            socket.socket(),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            socket.socket(socket.AF_UNIX),
            socket.socket(socket.AF_UNIX),
        )
        self.tcp.bind(("127.0.0.1", 0))
        self.udp.bind(("127.0.0.1", 0))
        self.udp.setblocking(False)
        self.path.bind(str(self.folder / "socket"))
        (self.folder / "socket").chmod(0o777)
        self.abstract.bind("\0" + self.secret)
        for listening in (self.tcp, self.path, self.abstract):
            listening.listen()
        os.environ["TURNWISE_ATTACK"] = self.secret
        self.held = os.open(self.file, os.O_RDONLY)
        os.set_inheritable(self.held, True)

    def given(self, attack: Attack, *, control: bool, own_first: bool) -> dict[str, Any]:
        return {
            "secret": self.secret, "file": str(self.file), "name": self.file.name, "target": str(self.target),
            "tcp": self.tcp.getsockname()[1], "udp": self.udp.getsockname()[1], "path": str(self.folder / "socket"),
            "abstract": self.secret, "victim": self.victim.pid, "nap": self.nap, "floods": not control,
            "long": 0.8 if control else 30.0, "may_kill_first": own_first, **attack.given,
            **(attack.control_given if control else {}),
        }  # fmt: skip

    def look(self) -> dict[str, Any]:
        now = self.file.stat() if self.file.exists() else None
        kept = now and (now.st_mode, now.st_mtime_ns, now.st_size) == (
            self._before.st_mode, self._before.st_mtime_ns, self._before.st_size)  # fmt: skip
        try:
            datagram = bool(self.udp.recv(10))
        except BlockingIOError:
            datagram = False
        return {
            "secret": self.secret,
            "patience": PATIENCE,
            "changed": not kept or self.target.exists(),
            "datagram": datagram,
            "victim_dead": self.victim.poll() is not None,
            "daemons": processes_with(self.nap),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in processes_with(self.nap):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.victim.kill()
        self.victim.wait()
        for each in (self.tcp, self.udp, self.path, self.abstract):
            each.close()
        os.close(self.held)
        os.environ.pop("TURNWISE_ATTACK", None)
        shutil.rmtree(self.folder)


def processes_with(word: str) -> list[int]:
    """Processes of this machine that have the word among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def descendants(pid: int) -> set[int]:
    """A process and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def outcome(sandbox: Sandbox, attack: Attack, *, control: bool = False) -> str:
    """What got through; "" when the attack was held."""
    limits: Limits = attack.limits(wide=control)
    got, late = _tried(sandbox, attack, limits, control)
    if late:  # on a busy machine a short limit may end before the program begins
        got, _ = _tried(sandbox, attack, replace(limits, seconds=limits.seconds * 5), control)
    return got


def _tried(sandbox: Sandbox, attack: Attack, limits: Limits, control: bool) -> tuple[str, bool]:
    """One try: what got through, and whether the limit of time ended it before it had done what it is to do."""
    with World() as world:
        own_first = sandbox.capabilities.backend in ("namespace", "docker")
        given = world.given(attack, control=control, own_first=own_first)
        started = time.monotonic()
        try:
            result = sandbox.run(["python", "-c", attack.source()], stdin=json.dumps(given).encode(), limits=limits)
        except SandboxFault as fault:
            return f"fault of the sandbox: {fault}", False
        after = world.look() | {"took": time.monotonic() - started}
        try:
            return attack.judge(Seen(result, said(result), sandbox.capabilities, limits, after)), False
        except (AssertionError, KeyError) as error:
            told = f"NOT RUN: {error!r} {result.status} {result.exit_code} {result.signal} {result.stderr[-300:]!r}"
            return told, result.status is Status.TIMEOUT


def outcomes(backend: str) -> dict[str, Any]:
    """`outcomes_of` all attacks."""
    return outcomes_of(backend, ATTACKS)


def outcomes_of(backend: str, attacks: Sequence[Attack]) -> dict[str, Any]:
    """Outcomes by attack, what was left afterwards, and the bound of memory; or why there is no such sandbox."""
    found: dict[str, str] = {}
    patient, warm._GRACE = warm._GRACE, 1.5  # for the control that stops its supervisor
    try:
        mounts = set(Path("/proc/self/mountinfo").read_text().splitlines())
        with open_sandbox(backend, limits=TIGHT, workers=1) as sandbox:
            keeper = getattr(sandbox, "pid", 0)
            made = list(getattr(sandbox, "made", []))
            seen = descendants(keeper) if keeper else set()
            control = not sandbox.capabilities.safe
            for attack in attacks:
                if attack.control or not control:
                    found[attack.name] = outcome(sandbox, attack, control=control)
            if keeper:
                seen |= descendants(sandbox.pid)  # type: ignore[attr-defined]
                made += sandbox.made  # type: ignore[attr-defined]
            able = sandbox.capabilities
    except SandboxUnavailable as error:
        return {"unavailable": str(error)}
    finally:
        warm._GRACE = patient
    left = [f"process {pid}" for pid in seen if Path(f"/proc/{pid}").exists()]
    left += [path for path in made if Path(path).exists()]
    left += [f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if line not in mounts]
    return {
        "outcomes": found,
        "left": left,
        "exceptions": list(able.exceptions),
        "bound_mb": able.bound_mb(Limits()),
        "total": able.total_memory,
        "memory": able.memory,
    }


def as_ordinary_user(backend: str, program: str = __file__) -> dict[str, Any]:
    """`outcomes` in a process that owns nothing on this machine; to be called by root.

    ``program``: another one that prints such a report when it is called with ``--report BACKEND`` in that process.
    """
    words = [] if program == __file__ else [program, "--report"]
    done = subprocess.run(
        [sys.executable, __file__, *words, backend], capture_output=True, text=True, timeout=600, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def become_ordinary(visible: Iterable[str]) -> None:
    """Drops root's rights for good, and keeps this interpreter and project readable."""
    reach.make_visible([path for path in dict.fromkeys(visible) if os.path.isdir(path)])
    reach.become(USER)
    linux.set_dumpable(True)


if __name__ == "__main__":
    if os.geteuid() == 0:
        here = Path(__file__).resolve()
        project = next(folder for folder in here.parents if (folder / "pyproject.toml").exists())
        become_ordinary([sys.base_prefix, sys.prefix, str(project)])
    if sys.argv[2:]:
        sys.argv[:] = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        print(json.dumps(outcomes(sys.argv[1])))
