"""From root to nobody in particular, without losing sight of the interpreter.

Invariant: a sandbox that is started by root works for a user that owns nothing on this machine, so that whatever gets
out of it is not root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from agent_envs.code.sandbox.zygote import linux
from agent_envs.code.sandbox.zygote.cage import Refused

_FIRST = 1_879_048_192
_NOBODY = 65534


def spare_user() -> int:
    """A user number that nobody has; 65534 where the numbers of this system are few (in most containers).

    Raises Refused.
    """
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    for wanted in (_FIRST + os.getpid(), _NOBODY):
        if any(first <= wanted < first + count for first, _, count in ranges):
            return wanted
    raise Refused(
        "it runs as root and there is no other user in this user namespace to become",
        "start it as an ordinary user, or map 65536 users into the container",
    )


def become(user: int) -> None:
    """Changes this process, a root's, to the user for good. Raises Refused."""
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError as error:
        raise Refused(
            f"it runs as root and may not become another user ({error.strerror})",
            "start it as an ordinary user, or give it the capabilities CAP_SETUID and CAP_SETGID",
        ) from error
    linux.set_dumpable(True)


def make_visible(folders: Sequence[str]) -> None:
    """Lets everybody reach folders that lie below a private one, as /root is, in a mount namespace of this process.

    Raises Refused.
    """
    for folder in folders:
        private = _first_private(folder)
        if private is None:
            continue
        try:
            linux.unshare(linux.CLONE_NEWNS)
            linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
            held = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            linux.mount("tmpfs", private, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=64k,mode=0755")
            Path(folder).mkdir(parents=True, exist_ok=True)
            linux.mount(f"/proc/self/fd/{held}", folder, None, linux.MS_BIND | linux.MS_REC)
            os.close(held)
        except OSError as error:
            raise Refused(
                f"it runs as root, and Python's folder {folder} cannot be read by any other user ({error.strerror})",
                f"chmod o+x {private}, start it as an ordinary user, or use a Python below /usr",
            ) from error


def _first_private(folder: str) -> str | None:
    """The highest folder on the way that others may not pass, or None."""
    for above in reversed([Path(folder), *Path(folder).parents]):
        if not above.stat().st_mode & stat.S_IXOTH:
            return str(above)
    return None
