"""Settings of the processes that environments live in."""

from dataclasses import dataclass

from agent_envs.ranges import check_ranges


@dataclass(frozen=True)
class HostSettings:
    """The processes that environments live in, and what a call of an environment may take."""

    processes: int = 2
    """Processes that share the environments; those of one process wait for each other."""
    reset_seconds: float = 60.0
    """Longest time to make or to reset an environment; one that takes longer hangs, and its process is killed."""
    step_seconds: float = 30.0
    """Longest time of a step, including the grading of the last one, and of any other call."""
    memory_mb: int = 4096
    """Memory in MiB that the environments of one process may allocate together."""
    output_kb: int = 1024
    """Longest answer in KiB: observation, system prompt and info."""

    def __post_init__(self) -> None:
        check_ranges(self, processes=1, memory_mb=128, output_kb=1)
        for name in ("reset_seconds", "step_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be above 0 and finite, not {getattr(self, name)}")
