"""Compiles C sources for this machine's processor, once, and keeps them in the cache.

Invariant: a library is used only by a processor like the one that it was compiled for, and only if nobody else could
have put it there.
"""

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from ctypes import CDLL
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Thread, main_thread

from agent_envs.cache import build_once, cache_dir
from agent_envs.core import SettingsError
from agents.compiled.processor import told

FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC")
NATIVE = ("-march=native --param=avoid-fma-max-bits=0", "-march=native", "-mcpu=native", "")
"""Flags for this very processor, of which a compiler may know only some. For Zen GCC would add apart from multiplying
where one sum waits for itself, as in a tile of one row: a number then had other bits there than in a taller tile."""
PATIENCE = 120
"""Seconds after which a compiler has hung."""


class CompileError(Exception):
    """There is no compiled library; the message says why, and can follow "since"."""


def begin() -> Thread:
    """Compiles everything beside what the process does next. What cannot be is told where it is asked for."""

    def compile_all() -> None:
        for source in sorted(Path(__file__).parent.glob("*.c")):
            with suppress(CompileError, OSError, SettingsError):
                if main_thread().is_alive():
                    _compiled(source)

    thread = Thread(target=compile_all, name="compile")
    thread.start()
    return thread


@cache
def library(source: Path) -> CDLL:
    """What ``source`` was compiled to, now or earlier. Raises CompileError."""
    try:
        place = _compiled(source)
        if place.stat().st_uid not in (0, os.geteuid()):
            raise CompileError(f"{place} belongs to another user")
        return CDLL(str(place / "library.so"))
    except (OSError, SettingsError) as error:
        raise CompileError(str(error)) from error


def _compiled(source: Path) -> Path:
    """The folder of its library. Raises CompileError, OSError and SettingsError."""
    texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
    digest = sha256(b"".join([*texts, repr((FLAGS, NATIVE, processor())).encode()])).hexdigest()[:16]
    return build_once(cache_dir() / "compiled" / f"{source.stem}-{digest}", _builder(source))


def why_not(source: Path) -> str:
    """Why there is no library of ``source``; empty where there is one, which then is compiled."""
    try:
        library(source)
    except CompileError as error:
        return str(error)
    return ""


def processor() -> str:
    """What programs for this processor may use."""
    if not (known := dict(told())):
        return f"{platform.machine()} {platform.processor()}"
    names = ("model name", "flags", "Features", "CPU part")
    return " ".join([platform.machine(), *(known[name] for name in names if name in known)])


def _builder(source: Path) -> Callable[[Path], None]:
    """Compiles ``source`` into a folder. Raises CompileError."""

    def build(folder: Path) -> None:
        compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
        if shutil.which(compiler[0]) is None:
            raise CompileError(f"there is no C compiler ({compiler[0]})")
        said = ""
        for native in NATIVE:
            flags = [*FLAGS, *native.split(), "-o", str(folder / "library.so"), str(source), "-lm"]
            try:
                done = subprocess.run(
                    [*compiler, *flags], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
                )
            except subprocess.TimeoutExpired:
                raise CompileError(f"{compiler[0]} did not end within {PATIENCE} seconds") from None
            if done.returncode == 0:
                return
            said = said or next((line for line in done.stderr.splitlines() if "error" in line), "it failed")
        raise CompileError(f"{compiler[0]} cannot compile {source.name} ({said})")

    return build
