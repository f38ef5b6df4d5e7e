"""Reports what this machine has and what is missing, with the command that adds it. Nothing is changed."""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

import logging
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec

import torch
from packaging.requirements import Requirement
from rich.console import Console
from rich.markup import escape

from agent_envs.cache import cache_dir
from runners.command_line.errors import run_program
from runners.command_line.parse import parse
from runners.command_line.plain import dump_json

PACKAGES = ("torch", "transformers", "peft", "gymnasium", "tokenizers")
EXTRAS = {
    "docker": ("docker", "the docker sandbox"),
    "geo": ("babel", "questions about the real world (--wiki.corpus geo)"),
    "math": ("math_verify", "grading of LaTeX answers"),
    "reasoning-gym": ("reasoning_gym", "the environment reasoning_gym"),
    "datasets": ("datasets", "data sets by name and parquet files"),
}
WALLS = ("namespace", "landlock", "docker")


class Status(StrEnum):
    """How a finding is marked."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    what: str
    state: Status
    text: str
    fix: str = ""
    """The command that adds what is missing."""
    needed: bool = False
    """Whether nothing can be trained without it."""


@dataclass(frozen=True)
class Doctor:
    """Report what this machine has, and how to add what is missing."""

    json: bool = False
    """Print JSON."""


def python() -> Iterator[Finding]:
    yield Finding("python", Status.OK, f"{platform.python_version()} at {sys.prefix}")


def packages() -> Iterator[Finding]:
    """The installed versions, against the ranges that the installed package declares."""
    declared = {r.name: r for r in map(Requirement, metadata.requires("turnwise") or ()) if r.marker is None}
    for name in PACKAGES:
        try:
            result = metadata.version(name)
        except metadata.PackageNotFoundError:
            fix = f"pip install '{declared.get(name, name)}'"
            yield Finding(name, Status.MISSING, "not installed", fix, needed=True)
            continue
        allowed = declared[name].specifier if name in declared else None
        if allowed is not None and not allowed.contains(result, prereleases=True):
            yield Finding(
                name, Status.MISSING, f"{result} is not in {allowed}", f"pip install '{declared[name]}'", True
            )
        else:
            yield Finding(name, Status.OK, f"{result} ({allowed})")


def processor() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processor", Status.OK, f"{_model()}, {cores} cores, {torch.backends.cpu.get_cpu_capability()}")


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def memory() -> Iterator[Finding]:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        yield Finding("memory", Status.NOTE, "unknown")
        return
    yield Finding("memory", Status.OK, f"{total / 2**30:.1f} GiB")


def gpu() -> Iterator[Finding]:
    if not torch.cuda.is_available():
        build = "a build without CUDA" if torch.version.cuda is None else f"CUDA {torch.version.cuda}, no device"
        yield Finding("GPU", Status.NOTE, f"none; torch is {build}. The tiny model trains on the CPU")
        return
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        yield Finding("GPU", Status.OK, f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")


def cache() -> Iterator[Finding]:
    folder = cache_dir()
    place = next(p for p in (folder, *folder.parents) if p.exists())
    free = f"{shutil.disk_usage(place).free / 2**30:.1f} GiB free"
    if not os.access(place, os.W_OK):
        problem = f"{folder} cannot be written"
        yield Finding("cache", Status.MISSING, problem, "export TURNWISE_CACHE=FOLDER", needed=True)
        return
    held = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder.exists() else 0
    yield Finding("cache", Status.OK, f"{folder}, {held / 2**20:.0f} MiB, {free}")


def sandbox() -> Iterator[Finding]:
    """Opens each wall, which probes it."""
    from agent_envs.code.sandbox.choose import open_sandbox
    from agent_envs.code.sandbox.interface import SandboxUnavailable

    logging.getLogger("agent_envs.code.sandbox.choose").setLevel(logging.ERROR)
    safe = False
    for wall in WALLS:
        try:
            open_sandbox(wall, workers=1).close()
        except SandboxUnavailable as refusal:
            yield Finding(f"sandbox {wall}", Status.NOTE, refusal.reason, refusal.remedy)
        else:
            safe = True
            yield Finding(f"sandbox {wall}", Status.OK, "works")
    if not safe:
        yield Finding("sandbox", Status.MISSING, "no wall works: the environment code cannot run programs")


def extras() -> Iterator[Finding]:
    for extra, (module, purpose) in EXTRAS.items():
        if find_spec(module) is None:
            yield Finding(
                f"extra {extra}", Status.NOTE, f"not installed: {purpose}", f"pip install 'turnwise[{extra}]'"
            )
        else:
            yield Finding(f"extra {extra}", Status.OK, purpose)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python, packages, processor, memory, gpu, cache, sandbox, extras,
)  # fmt: skip


def findings() -> Iterator[Finding]:
    """All findings; a check that fails is one of them."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:  # the report is what helps where something is broken
            yield Finding(check.__name__, Status.MISSING, " ".join(f"{type(error).__name__}: {error}".split()))


def main() -> None:
    settings, _ = parse(Doctor, lambda _: {}, about=Doctor.__doc__ or "")
    result = list(findings())
    ready = not any(finding.needed and finding.state == Status.MISSING for finding in result)
    if settings.json:
        print(dump_json({"ready": ready, "findings": [asdict(finding) for finding in result]}), end="")
    else:
        console = Console()
        colour = {Status.OK: "green", Status.NOTE: "yellow", Status.MISSING: "red"}
        for one in result:
            mark = f"[{colour[one.state]}]{one.state:<7}[/]"
            console.print(f"{mark} {one.what}: {escape(one.text)}", highlight=False, soft_wrap=True)
            if one.fix:
                console.print(f"        {escape(one.fix)}", highlight=False, style="dim", soft_wrap=True)
        console.print("Training can start." if ready else "[red]Training cannot start: fix what is missing.[/]")
    sys.exit(0 if ready else 1)


if __name__ == "__main__":
    run_program(main)
