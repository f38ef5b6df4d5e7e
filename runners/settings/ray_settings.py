"""Settings of rollout workers on Ray. Imports no Ray."""

from dataclasses import dataclass

from agent_envs.ranges import check_ranges


@dataclass(frozen=True)
class RaySettings:
    """Rollout workers on Ray (--workers ray:N)."""

    address: str = ""
    """Cluster to join, as HOST:PORT, from one of its machines; its token is read from RAY_AUTH_TOKEN or
    RAY_AUTH_TOKEN_PATH. By default one is started on this machine for the run, on loopback with a token of its own."""
    cpus: float = 1.0
    """Processors that Ray reserves for each worker. It bounds where workers fit, not what they use."""
    gpus: float = 0.0
    """GPUs that each worker gets; a worker sees no other ones. A part such as 0.5 shares one."""

    def __post_init__(self) -> None:
        check_ranges(self, cpus=(0, 1024), gpus=(0, 64))
        host, _, port = self.address.rpartition(":")
        if self.address and not (host and "/" not in host and port.isascii() and port.isdecimal()):
            raise ValueError(f"address must be HOST:PORT of a cluster, not {self.address!r}")

    @property
    def place(self) -> tuple[str, int]:
        """(host, port) of the address."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)
