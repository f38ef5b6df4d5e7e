"""Reports what this machine has and what is missing, with the command that adds it. Nothing is changed, but
our C is compiled into the cache.

turnwise doctor
turnwise doctor --model FOLDER-OR-HUB-NAME --gpu "H100 80GB"     # what a run would take, from shapes alone
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("doctor")

import contextlib
import logging
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from typing import ClassVar

import torch
from packaging.requirements import Requirement
from rich.console import Console
from rich.markup import escape

from agent_envs.cache import cache_dir
from runners.command_line.interrupts import importing
from runners.command_line.parse import parse
from runners.command_line.plain import dump_json
from runners.command_line.small_budget import VARIABLE
from runners.reporting.hardware import hardware
from runners.settings.run_settings import parts_of, settings_of
from runners.settings.train_settings import Train

PACKAGES = ("torch", "transformers", "peft", "gymnasium", "tokenizers")
EXTRAS = {
    "babyai": ("minigrid", "the environment babyai"),
    "docker": ("docker", "the docker sandbox"),
    "geo": ("babel", "questions about the real world (--wiki.corpus geo)"),
    "math": ("math_verify", "grading of LaTeX answers"),
    "mcp": ("mcp", "environments served over MCP (turnwise serve-mcp)"),
    "reasoning-gym": ("reasoning_gym", "the environment reasoning_gym"),
    "tau2": ("tau2", "the environment tau2"),
    "textworld": ("textworld", "the environment textworld"),
    "textworld-express": ("textworld_express", "the environment textworld_express, which also needs Java"),
    "datasets": ("datasets", "data sets by name and parquet files"),
    "quantize": ("bitsandbytes", "frozen weights in 4 or 8 bits (--quantize nf4)"),
    "openenv": ("openenv", "environments served to OpenEnv's clients (turnwise serve-openenv)"),
    "ray": ("ray", "rollout workers on Ray (--workers ray:2)"),
    "trl": ("trl", "environments for TRL's trainers"),
    "verifiers": ("verifiers", "environments for verifiers"),
    "wikipedia": ("wikipediaapi", "live wikis (--wiki.backend live)"),
    "zim": ("libzim", "files of Kiwix (--wiki.backend zim)"),
    "vllm": ("vllm", "the engine vllm (--engine vllm --workers 1); on a CPU install it with scripts/vllm_env.sh"),
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
    """Report what this machine has, and how to add what is missing. With --model, or --config, and any flags of
    `turnwise train`: what such a run takes in memory, by the model's shapes alone."""

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class Estimate(Train):
    """Report what a run with these settings takes in memory, by the model's shapes alone."""

    COMMON: ClassVar[tuple[str, ...]] = (
        "model",
        "gpu",
        "json",
        "algo",
        "token_budget",
        "slots",
        "dtype",
        "quantize",
        "device",
    )

    gpu: str = ""
    """A GPU by name, or by its memory, as 24GB; by default the first of this machine, or its main memory."""
    json: bool = False
    """Print JSON."""


def python() -> Iterator[Finding]:
    yield Finding("python", Status.OK, f"{platform.python_version()} at {sys.prefix}")


def packages() -> Iterator[Finding]:
    """The installed versions, against the ranges that the installed package declares."""
    declared = {r.name: r for r in map(Requirement, metadata.requires("turnwise") or ()) if r.marker is None}
    for requirement in (declared.get(name, Requirement(name)) for name in PACKAGES):
        allowed, problem = requirement.specifier, "not installed"
        with contextlib.suppress(metadata.PackageNotFoundError):
            version = metadata.version(requirement.name)
            problem = "" if allowed.contains(version, prereleases=True) else f"{version} is not in {allowed}"
        if problem:
            yield Finding(requirement.name, Status.MISSING, problem, f"pip install '{requirement}'", needed=True)
        else:
            yield Finding(requirement.name, Status.OK, f"{version} ({allowed or 'any version'})")


def processor() -> Iterator[Finding]:
    here = hardware()
    yield Finding("processor", Status.OK, f"{here.processor}, {here.cores} cores, {here.instructions}")


def compiler() -> Iterator[Finding]:
    from agents.compiled import layers, transformer, tree_attention

    if why_not := layers.missing() or transformer.missing() or tree_attention.missing():
        text = f"none, since {why_not}: small models train more slowly on a CPU"
        yield Finding("C kernels", Status.NOTE, text, "sudo apt-get install gcc libc6-dev")
    else:
        yield Finding("C kernels", Status.OK, "compiled for this processor: the training pass, and a step of sampling")


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
        if find_spec(module) is not None:
            yield Finding(f"extra {extra}", Status.OK, purpose)
            continue
        fix = f"pip install 'turnwise[{extra}]'"
        yield Finding(f"extra {extra}", Status.NOTE, f"not installed: {purpose}", fix)


def budget() -> Iterator[Finding]:
    small = os.environ.get(VARIABLE, "")
    about = f"{small or 'full'}; {VARIABLE}=small bounds updates, steps and tasks, to try commands out"
    yield Finding("budget", Status.NOTE if small else Status.OK, about, f"unset {VARIABLE}" if small else "")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python, packages, processor, compiler, memory, gpu, cache, budget, sandbox, extras,
)  # fmt: skip


def findings() -> Iterator[Finding]:
    """All findings; a check that fails is one of them."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:  # the report is what helps where something is broken
            yield Finding(check.__name__, Status.MISSING, " ".join(f"{type(error).__name__}: {error}".split()))


def main() -> None:
    if any(arg.partition("=")[0] in ("--model", "--config", "--init-from", "--gpu") for arg in sys.argv[1:]):
        asked, parts = parse(Estimate, parts_of)
        with importing():
            from runners.sizing.program import show

        show(settings_of(asked, parts), gpu=asked.gpu, as_json=asked.json)
        return
    settings, _ = parse(Doctor)
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
