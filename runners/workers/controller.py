"""The controller: hands jobs to workers and stops the run when too many environments break."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from safetensors.torch import save
from torch import Tensor

from agents.engine import SamplingSettings
from agents.rollout.forking.settings import ForkPlan
from agents.rollout.play import Played, Stalled
from agents.rollout.quota import Quota
from agents.rollout.search.settings import SearchPlan
from agents.rollout.settings import FaultSettings
from agents.tree.episode import Job
from runners.command_line.errors import UserError
from runners.workers.base import BASE_MODEL, PlaySpec, WorkerLost, Workers
from runners.workers.fault_rate import FaultRate


class Controller:
    """Owns the workers and the version they play with.

    Jobs are handed out in portions of ``portion``, so that the number of workers changes nothing but the time it takes;
    tasks whose episodes fork are never divided.
    """

    def __init__(self, workers: Workers, portion: int, faults: FaultSettings) -> None:
        self.workers, self.portion = workers, portion
        self.version: int | None = None
        self.fault_rate = FaultRate(faults)

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
        quota: Quota | None = None,
    ) -> Played:
        """Plays ``jobs`` with the loaded policy; with a ``plan`` they are the episodes that each task may have,
        with a ``search`` each is a search, and with a ``quota`` not all of them are played to their end.

        Raises UserError when too many environments break, nothing ends, or a worker cannot be restarted.
        """
        return self.collect(self.dispatch(jobs, sampling, on_end, plan, search, quota))

    def dispatch(
        self,
        jobs: Sequence[Job],
        sampling: SamplingSettings,
        on_end: Callable[[], None] | None = None,
        plan: ForkPlan | None = None,
        search: SearchPlan | None = None,
        quota: Quota | None = None,
    ) -> list[Future[Played]]:
        """Has ``jobs`` played with the policy that is loaded now, whatever is loaded afterwards."""
        if self.version is None:
            raise RuntimeError("load a policy first")
        group = plan.sampling.group if plan else quota.size if quota else 1
        portion = self.portion_of(group)
        portions = [tuple(jobs[i : i + portion]) for i in range(0, len(jobs), portion)]
        quotas = quota.divided(portions) if quota else [None] * len(portions)
        specs = [PlaySpec(mine, sampling, plan, search, of) for mine, of in zip(portions, quotas, strict=True)]
        return [self.workers.submit(spec, self.version, on_end) for spec in specs]

    def portion_of(self, group: int) -> int:
        """Episodes of a portion, where this many of a task stay together."""
        return max(1, self.portion // group) * group

    def idle(self, episodes: int, group: int, workers: int, ahead: int) -> str:
        """Says that some of the ``workers`` (0: all is played here) never play while others do, where an update's
        ``episodes``, and those of the updates that are played ``ahead`` of it, are too few portions; else nothing."""
        portion = self.portion_of(group)
        portions = -(-episodes // portion)
        at_once = portions * (1 + ahead)
        if at_once >= workers:
            return ""
        return (
            f"workers: {at_once} of {workers} play at a time, for an update of {episodes} episodes is {portions} "
            f"portion{'s' if portions > 1 else ''} of {portion}: lower --slots to {max(1, episodes // workers)}"
        )

    def collect(self, futures: Sequence[Future[Played]]) -> Played:
        """What came of jobs that were dispatched together. Raises what `play` raises."""
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
            whole.cut += played.cut
        return whole

    def check_faults(self, played: Played) -> None:
        """Raises UserError when more of the last attempts broke than the settings allow."""
        broken = len(played.faults)
        self.fault_rate.add(broken, broken + len(played.episodes), played.faults[-1] if broken else None)

    def close(self) -> None:
        self.workers.close()
