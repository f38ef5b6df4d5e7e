"""What runs on the nodes of a Ray cluster: an actor that holds the process of a rollout worker. Imports no torch.

Invariant: the worker is a child of the actor, the very program that the backend `process` starts. It ends with its
actor in whatever way that ends, and its environments end with it.
"""

import platform
from contextlib import suppress

from agent_envs.isolation.child import Child


class WorkerActor:
    """One process ``python -m MODULE``, and its messages by remote calls."""

    def __init__(self, module: str) -> None:
        self._child = Child(module)

    def about(self) -> tuple[str, str, str, int]:
        """(version of Ray, version of Python, node, number of the worker's process)."""
        import ray

        node: str = ray.get_runtime_context().get_node_id()
        return ray.__version__, platform.python_version(), node, self._child.pid

    def send(self, message: bytes) -> None:
        """Raises EOFError when the process has ended."""
        self._child.send_bytes(message, 60.0)

    def receive(self, timeout: float) -> list[bytes]:
        """The next message, and those that are there already.

        Raises EOFError when the process has ended, TimeoutError after ``timeout`` seconds.
        """
        messages = [self._child.recv_bytes(timeout)]
        with suppress(TimeoutError, EOFError):
            while True:
                messages.append(self._child.recv_bytes(0.0))
        return messages

    def last_words(self, grace: float) -> tuple[str, str]:
        """How the process ended, and the last lines that it printed."""
        return self._child.ending(grace), self._child.tail()
