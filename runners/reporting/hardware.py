"""What a figure was computed on."""

import os
import platform
from dataclasses import dataclass

import torch

from agents.compiled.processor import told


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
    """The name of the processor, with family and model where it tells them: virtual machines hide much of a name."""
    if not (first := dict(reversed(told()))):
        return platform.processor() or platform.machine()
    name = first.get("model name", platform.machine())
    if not {"cpu family", "model"} <= first.keys():
        return name
    return f"{name} (family {first['cpu family']}, model {first['model']})"
