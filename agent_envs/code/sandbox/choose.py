"""The choice of a sandbox: by name, or the best that this machine allows.

Invariant: nothing is fallen back to in silence. ``auto`` takes what a run can be trusted to, in a fixed order, and says
which; what was asked for by name is had or refused; and no wall at all is had under its own name only.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable

from agent_envs.code.sandbox.interface import Limits, Sandbox, SandboxUnavailable
from agent_envs.code.sandbox.local import LandlockSandbox, NamespaceSandbox, UnsafeProcess
from agent_envs.code.sandbox.probe import probe
from agent_envs.core import SettingsError

NAMES = ("auto", "namespace", "landlock", "docker", "unsafe-process")
_AUTO = ("namespace", "landlock")


def open_sandbox(name: str = "auto", *, limits: Limits | None = None, workers: int = 2) -> Sandbox:
    """A sandbox of that name, probed; ``limits`` are those of runs that name none, ``workers`` run at a time.

    Raises SandboxUnavailable, and SettingsError for a name that is not among `NAMES`.
    """
    if name not in NAMES:
        raise SettingsError(f"unknown sandbox {name!r}: use {', '.join(NAMES)}")
    if name != "auto":
        return _probed(name, limits or Limits(), workers)
    refusals = []
    for candidate in _AUTO:
        try:
            return _probed(candidate, limits or Limits(), workers)
        except SandboxUnavailable as refusal:
            logging.getLogger(__name__).warning("sandbox: not %s: %s", candidate, refusal.reason)
            refusals.append((candidate, refusal))
    raise SandboxUnavailable(
        "; ".join(f"{candidate}: {refusal.reason}" for candidate, refusal in refusals),
        "; ".join(f"for {candidate} {refusal.remedy}" for candidate, refusal in refusals) + "; or choose docker",
    )


def _probed(name: str, limits: Limits, workers: int) -> Sandbox:
    sandbox = _MAKERS[name](limits, workers)
    if not sandbox.capabilities.safe:
        logging.getLogger(__name__).warning("%s: programs may do whatever this user may", name)
        return sandbox
    try:
        probe(sandbox)
    except BaseException:
        sandbox.close()
        raise
    return sandbox


def _docker(limits: Limits, workers: int) -> Sandbox:
    from agent_envs.code.sandbox.docker import DockerSandbox

    return DockerSandbox(limits=limits, workers=workers)


_MAKERS: dict[str, Callable[[Limits, int], Sandbox]] = {
    "namespace": lambda limits, workers: NamespaceSandbox(limits=limits, workers=workers),
    "landlock": lambda limits, workers: LandlockSandbox(limits=limits, workers=workers),
    "docker": _docker,
    "unsafe-process": lambda limits, workers: UnsafeProcess(limits=limits, workers=workers),
}

_open: dict[tuple[int, str, int], Sandbox] = {}
_opening = threading.Lock()


def shared_sandbox(name: str = "auto", *, workers: int = 2) -> Sandbox:
    """The one sandbox of that name and number of workers of this process, opened when first asked for.

    It is closed when the process ends; a fork of the process opens its own. Pass limits with each run.
    Raises what `open_sandbox` does.
    """
    key = (os.getpid(), name, workers)
    with _opening:
        if key not in _open:
            sandbox = _open[key] = open_sandbox(name, workers=workers)
            atexit.register(_close, key, sandbox)
        return _open[key]


def _close(key: tuple[int, str, int], sandbox: Sandbox) -> None:
    if key[0] == os.getpid():
        _open.pop(key, None)
        sandbox.close()
