"""The keeper: it starts the zygote, waits, and cleans up after it, whoever ends first and however.

Invariants:

- It takes no orders and reads nothing that a run wrote: it may stay root.
- When the process that uses the sandbox ends in any way, so does the zygote and every run, and nothing is left.

``main(config)`` is called in a bare interpreter without an environment. ``config``: ``cage``, ``control`` (socket for
the zygote's orders), ``readable``, ``hidden`` and ``prefix`` (folders), ``temporary`` (folder for temporary files).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from functools import partial
from typing import Any

from agent_envs.code.sandbox.zygote import cgroup, files, linux, loop, reach, stale, wire
from agent_envs.code.sandbox.zygote.cage import Cage, Refused
from agent_envs.code.sandbox.zygote.group import Tree


class _Ended(Exception):  # noqa: N818
    """Nobody needs the sandbox any more."""


def main(config: Mapping[str, Any]) -> None:
    """Runs until the sandbox is no longer needed; never returns."""
    signal.signal(signal.SIGIO, _stop)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that uses the sandbox
    linux.adopt_orphans()
    trees: list[Tree] = []
    folder = ""
    try:
        user = reach.spare_user() if os.geteuid() == 0 and config["cage"] != "process" else os.geteuid()
        reason = ""
        stale.sweep(config["temporary"], stale.FOLDER, files.remove)
        if config["cage"] == "namespace":
            trees, reason = _trees(user)
        else:
            folder = _folder(config["temporary"], user)
        status = _watch(config, user, trees, folder, reason)
        if status == loop.NO_GROUP and trees:
            cgroup.remove(trees)
            trees = []
            _watch(config, user, trees, folder, "a process may not be moved into a control group")
    except Refused as refused:
        _tell(config["controls"][0], refused)
    except _Ended:
        pass
    finally:
        _reap()
        cgroup.remove(trees)
        if folder:
            files.remove(folder)
        os._exit(0)


def _watch(config: Mapping[str, Any], user: int, trees: list[Tree], folder: str, reason: str) -> int:
    """Starts a zygote and waits for its end; its exit status."""
    pid = os.fork()
    if pid == 0:
        _become_zygote(config, user, trees, folder, reason)
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except _Ended:
        os.kill(pid, signal.SIGKILL)
        raise
    _reap()
    return status


def _stop(*_: object) -> None:
    for number in (signal.SIGIO, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise _Ended


def _reap() -> None:
    while True:
        try:
            os.waitpid(-1, 0)  # the zygote, and the first process of its namespaces after it
        except ChildProcessError:
            return


def _trees(user: int) -> tuple[list[Tree], str]:
    try:
        return cgroup.make_trees(user), ""
    except OSError as error:
        return [], error.strerror or str(error)


def _folder(parent: str, user: int) -> str:
    folder = os.path.join(parent, f"{stale.FOLDER}{os.urandom(8).hex()}")
    try:
        os.mkdir(folder, 0o700)
        stale.hold(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        raise Refused(
            f"no temporary folder can be written ({error.strerror})",
            "set TMPDIR to a folder that can be written, or free some space",
        ) from error
    os.chown(folder, user, -1)
    return folder


def _become_zygote(config: Mapping[str, Any], user: int, trees: list[Tree], folder: str, reason: str) -> None:
    """Goes on as the zygote, which never returns."""
    try:
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        linux.die_with_parent(signal.SIGKILL)
        os.setsid()
        readable = [path for path in config["readable"] if os.path.isdir(path)]
        hidden = config["hidden"]
        if user != os.geteuid():
            reach.make_visible([config["prefix"]])
            reach.become(user)
            linux.die_with_parent(signal.SIGKILL)
        try:
            cage = _cage(config["cage"], readable, hidden, trees, folder)
            loop.warm()
            cage.start()
        except Refused as refused:
            _tell(config["controls"][0], refused)
            os._exit(3)
        made = [tree.path for tree in trees] + [folder] * bool(folder)
        report = wire.pack({"ready": True, "total_memory": bool(trees), "no_group": reason, "made": made})
        loop.serve(config["controls"], cage, partial(wire.write, config["controls"][0], report))
    except Refused as refused:
        _tell(config["controls"][0], refused)
    finally:
        os._exit(3)


def _cage(name: str, readable: list[str], hidden: list[str], trees: list[Tree], folder: str) -> Cage:
    match name:
        case "namespace":
            from agent_envs.code.sandbox.zygote.namespace import NamespaceCage

            return NamespaceCage(readable, hidden, trees)
        case "landlock":
            from agent_envs.code.sandbox.zygote.landlock import LandlockCage

            return LandlockCage(folder, readable, hidden)
        case _:
            from agent_envs.code.sandbox.zygote.process import ProcessCage

            return ProcessCage(folder)


def _tell(report: int, refused: Refused) -> None:
    wire.write(report, wire.pack({"ready": False, "reason": refused.reason, "remedy": refused.remedy}))
