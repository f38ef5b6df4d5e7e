"""What a figure was computed on."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Hardware:
    """The processor of this machine, and the GPU where there is one."""

    processor: str
    instructions: str
    """The vector instructions that torch uses."""
    cores: int
    gpu: str = ""

    def __str__(self) -> str:
        gpu = f", {self.gpu}" if self.gpu else ""
        return f"{self.processor}, {self.cores} cores, {self.instructions}{gpu}"


def hardware() -> Hardware:
    """That of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    return Hardware(processor(), torch.backends.cpu.get_cpu_capability(), cores, gpu)


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
