"""The state of an episode of the coding environment. Invariant: a state is an immutable value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent_envs.code.reward import Verdict
from agent_envs.code.workspace import Workspace


@dataclass(frozen=True)
class CodeState:
    """All that an episode changes."""

    now: Workspace
    before: tuple[Workspace, ...] = ()
    """What UNDO goes back to, oldest first."""
    tested: tuple[bool, ...] | None = None
    """Which visible checks passed with the files as they are; None when they were not made since the last change."""
    undone: tuple[Mapping[str, str], ...] = ()
    """Files that were taken back."""
    tests: int = 0
    edits: int = 0
    verdict: Verdict | None = None

    def changed(self, now: Workspace) -> CodeState:
        """With other files, from which the present ones can be gone back to."""
        return replace(self, now=now, before=(*self.before, self.now), tested=None)
