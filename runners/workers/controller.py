"""The controller: hands jobs to workers and stops the run when too many environments break."""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from safetensors.torch import save
from torch import Tensor

from agents.engine import SamplingSettings
from agents.rollout.forking.settings import ForkPlan
from agents.rollout.play import Played, Stalled
from agents.rollout.search.settings import SearchPlan
from agents.rollout.settings import FaultSettings
from agents.tree.episode import Job
from runners.command_line.errors import UserError
from runners.workers.base import BASE_MODEL, PlaySpec, WorkerLost, Workers

_WINDOW, _LEAST = 200, 20
"""Attempts that the fault rate covers, newest first, and attempts without which there is none."""


class Controller:
    """Owns the workers and the version they play with.

    Jobs are handed out in portions of ``portion``, so that the number of workers changes nothing but the time it takes;
    tasks whose episodes fork are never divided.
    """

    def __init__(self, workers: Workers, portion: int, faults: FaultSettings) -> None:
        self.workers, self.portion, self.faults = workers, portion, faults
        self.version: int | None = None
        self._recent: deque[tuple[int, int]] = deque()
        """(faults, attempts) of the newest portions."""

    def load(self, version: int, policy: Mapping[str, Tensor] | None) -> None:
        """The policy of the next episodes; None is the base model."""
        data = BASE_MODEL if policy is None else save({k: v.cpu().contiguous() for k, v in policy.items()})
        self.workers.load(version, data, hashlib.sha256(data).hexdigest())
        self.version = version

    def play(
        self,
        jobs: Sequence[Job],
        sampling: SamplingSettings,
        on_end: Callable[[], None] | None = None,
        plan: ForkPlan | None = None,
        search: SearchPlan | None = None,
    ) -> Played:
        """Plays ``jobs`` with the loaded policy; with a ``plan`` they are the episodes that each task may have,
        and with a ``search`` each is a search.

        Raises UserError when too many environments break, nothing ends, or a worker cannot be restarted.
        """
        if self.version is None:
            raise RuntimeError("load a policy first")
        group = plan.sampling.group if plan else 1
        portion = self.portion // group * group
        specs = [PlaySpec(tuple(jobs[i : i + portion]), sampling, plan, search) for i in range(0, len(jobs), portion)]
        futures = [self.workers.submit(spec, self.version, on_end) for spec in specs]
        whole = Played([])
        for future in futures:
            try:
                played = future.result()
            except (WorkerLost, Stalled) as error:
                raise UserError(str(error)) from None
            self.check_faults(played)
            whole.outcomes += played.outcomes
            whole.faults += played.faults
            whole.seconds_env += played.seconds_env
        return whole

    def check_faults(self, played: Played) -> None:
        """Raises UserError when more of the last attempts broke than the settings allow."""
        self._recent.append((len(played.faults), len(played.faults) + len(played.episodes)))
        broken, attempts = (sum(column) for column in zip(*self._recent, strict=True))
        while attempts - self._recent[0][1] >= _WINDOW:
            gone = self._recent.popleft()
            broken, attempts = broken - gone[0], attempts - gone[1]
        if attempts >= _LEAST and broken > self.faults.max_rate * attempts:
            raise UserError(
                f"the environment broke in {broken} of the last {attempts} attempts, most recently: "
                f"{played.faults[-1] if played.faults else 'earlier'}; fix it, or raise --faults.max-rate"
            )

    def close(self) -> None:
        self.workers.close()
