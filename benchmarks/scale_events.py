"""Discrete-event simulation of a training run: workers that play portions, and a learner that waits for whole batches.

Invariants:

- Admission is that of `runners.training.rollouts`: batch b is dispatched when update max(1, b - S) begins, and played
  with the policy after update max(0, b - 1 - S).
- Portions are played in the order of their dispatch, each by whichever worker has been free for longest.
- There is no wall clock and no random draw in here: what the environments take comes from ``turns_of``, by the number
  of the batch, so that runs that differ in their settings alone meet the same episodes.

All times are in seconds.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice

from agent_envs.ranges import check_ranges

Turns = Sequence[float]
"""What the environment takes for each turn of an episode."""
TurnsOf = Callable[[int, int], Sequence[Turns]]
"""(number of the batch, how many episodes) → their turns."""


@dataclass(frozen=True)
class Costs:
    """What the parts of a run take, in seconds."""

    portion: float
    """A portion, besides its episodes and the wait for its environments."""
    episode: float
    """The worker's own work for an episode."""
    sync: float
    """From a portion's dispatch until the worker has a policy that it did not have."""
    update: float
    """An update of the learner, besides its episodes."""
    learned: float
    """The learner's work for an episode."""


@dataclass(frozen=True)
class Setup:
    """The run that is simulated. Raises ValueError."""

    workers: int
    episodes: int
    """Episodes that an update learns from."""
    portion: int
    """Those of them that a worker plays at once."""
    staleness: int = 0
    extra: float = 0.0
    """Share by which a portion begins more episodes than it is to end; it ends with the last that is needed."""
    carry: bool = False
    """Episodes that were cut go on in the next batch that is dispatched. Otherwise they are lost."""
    exact: bool = False
    """The engine waits for all environments in each round of turns (`--exact`)."""
    updates: int = 24
    warm: int = 4
    """First updates that are not counted."""

    def __post_init__(self) -> None:
        check_ranges(self, workers=1, episodes=1, portion=1, staleness=0, warm=0, updates=self.warm + 1)
        if not 0 <= self.extra <= 10:
            raise ValueError(f"extra must lie in 0..10, not {self.extra}")


@dataclass(frozen=True)
class Begun:
    """An episode in play, or cut."""

    turns: Turns
    """Those that are left."""
    version: int
    """Policy of its oldest action."""


@dataclass(frozen=True)
class Portion:
    """What a worker plays at once."""

    batch: int
    version: int
    episodes: Sequence[Begun]
    needed: int
    """The portion ends when this many of its episodes have."""


@dataclass(frozen=True)
class Simulated:
    """What a run does once it is warm. Shares lie in 0..1."""

    seconds_update: float
    episodes_per_s: float
    """Episodes that are learned from in a second."""
    learner_idle: float
    """Share of the time in which the learner waits."""
    worker_idle: float
    wasted: float
    """Share of the episodes that are lost."""
    lag: Mapping[int, float]
    """Age in updates of an episode's oldest action, when it is learned from → share of the episodes."""


def simulate(setup: Setup, costs: Costs, turns_of: TurnsOf) -> Simulated:
    """Runs ``setup.updates`` updates; those after the warm ones are counted."""
    run = _Run(setup, costs, turns_of)
    run.begin(1)
    while len(run.ended) <= setup.updates:
        run.now, _, happens = heappop(run.events)
        happens()
    return run.found()


def played(portion: Portion, exact: bool) -> tuple[float, list[Begun], list[Begun]]:
    """(wait for its environments, episodes that ended and are needed, the others with the turns that are left)."""
    return _in_rounds(portion) if exact else _each_by_itself(portion)


def _each_by_itself(portion: Portion) -> tuple[float, list[Begun], list[Begun]]:
    lasts = [sum(episode.turns) for episode in portion.episodes]
    order = sorted(range(len(lasts)), key=lasts.__getitem__)
    wait = lasts[order[portion.needed - 1]]
    kept, cut = order[: portion.needed], order[portion.needed :]
    return wait, [portion.episodes[i] for i in kept], [_after(portion.episodes[i], wait) for i in cut]


def _after(episode: Begun, wait: float) -> Begun:
    """What is left after ``wait`` seconds; the turn that is being played goes on."""
    left: list[float] = []
    for seconds in episode.turns:
        spent = min(wait, seconds)
        wait -= spent
        if seconds > spent:
            left.append(seconds - spent)
    return Begun(left, episode.version)


def _in_rounds(portion: Portion) -> tuple[float, list[Begun], list[Begun]]:
    episodes = portion.episodes
    rounds = sorted(len(episode.turns) for episode in episodes)[portion.needed - 1]
    wait = sum(max(e.turns[i] for e in episodes if i < len(e.turns)) for i in range(rounds))
    over = [episode for episode in episodes if len(episode.turns) <= rounds]
    longer = [Begun(e.turns[rounds:], e.version) for e in episodes if len(e.turns) > rounds]
    return wait, over[: portion.needed], [Begun((), e.version) for e in over[portion.needed :]] + longer


class _Run:
    """The state of a simulated run."""

    def __init__(self, setup: Setup, costs: Costs, turns_of: TurnsOf) -> None:
        self.setup, self.costs, self.turns_of = setup, costs, turns_of
        self.now, self.numbers = 0.0, count()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        """Time, a number that keeps what comes at the same time in order, and what happens."""
        self.waiting: deque[Portion] = deque()
        self.free = deque(range(setup.workers))
        self.loaded = [-1] * setup.workers
        """Version of every worker's policy."""
        self.admitted = 0
        self.open: dict[int, int] = {}
        """Batch → its portions that have not ended."""
        self.cut: deque[Begun] = deque()
        self.ended = [0.0]
        """When each update had ended; the run begins with update 0."""
        self.busy: list[tuple[float, float]] = []
        """When a worker played."""
        self.ages: dict[int, Counter[int]] = {}
        """Batch → age of its episodes → how many."""
        self.kept = self.lost = 0

    def at(self, time: float, happens: Callable[[], None]) -> None:
        heappush(self.events, (time, next(self.numbers), happens))

    # -- dispatch ------------------------------------------------------------------------------------------------

    def begin(self, update: int) -> None:
        """Admits batches with the policy after the update before this one."""
        while self.admitted < update + self.setup.staleness:
            self.admitted += 1
            self.dispatch(self.admitted, update - 1)
        self.hand_out()
        self.learn(update)

    def dispatch(self, batch: int, version: int) -> None:
        setup = self.setup
        needed = [min(setup.portion, setup.episodes - i) for i in range(0, setup.episodes, setup.portion)]
        sizes = [round(n * (1 + setup.extra)) for n in needed]
        again = [self.cut.popleft() for _ in range(min(len(self.cut), sum(sizes)))]
        # Episodes that go on are spread over all portions; new ones follow in the order of the tasks.
        hands = [again[i :: len(sizes)] for i in range(len(sizes))]
        fresh = iter(self.turns_of(batch, sum(sizes) - len(again)))
        for hand, size in zip(hands, sizes, strict=True):
            hand += [Begun(turns, version) for turns in islice(fresh, size - len(hand))]
        self.waiting += [Portion(batch, version, hand, n) for hand, n in zip(hands, needed, strict=True)]
        self.open[batch], self.ages[batch] = len(sizes), Counter()

    # -- workers -------------------------------------------------------------------------------------------------

    def hand_out(self) -> None:
        while self.waiting and self.free:
            self.play(self.free.popleft(), self.waiting.popleft())

    def play(self, worker: int, portion: Portion) -> None:
        sync = 0.0 if self.loaded[worker] == portion.version else self.costs.sync
        self.loaded[worker] = portion.version
        wait, kept, cut = played(portion, self.setup.exact)
        work = self.costs.portion + self.costs.episode * len(portion.episodes)
        until = self.now + sync + work + wait
        self.busy.append((self.now, until))
        self.at(until, lambda: self.over(worker, portion, kept, cut))

    def over(self, worker: int, portion: Portion, kept: Sequence[Begun], cut: Sequence[Begun]) -> None:
        batch = portion.batch
        self.free.append(worker)
        self.kept += len(kept)
        self.ages[batch].update(batch - 1 - episode.version for episode in kept)
        if self.setup.carry:
            self.cut += cut
        else:
            self.lost += len(cut)
        self.open[batch] -= 1
        self.hand_out()
        self.learn(batch)

    # -- learner -------------------------------------------------------------------------------------------------

    def learn(self, batch: int) -> None:
        """Begins the update where it is the next one and its episodes are there."""
        if batch == len(self.ended) and self.open.get(batch) == 0:
            del self.open[batch]
            self.at(self.now + self.lasts, self.learned)

    @property
    def lasts(self) -> float:
        """What an update takes the learner."""
        return self.costs.update + self.costs.learned * self.setup.episodes

    def learned(self) -> None:
        self.ended.append(self.now)
        self.begin(len(self.ended))

    # -- result --------------------------------------------------------------------------------------------------

    def found(self) -> Simulated:
        setup, since, until = self.setup, self.ended[self.setup.warm], self.ended[self.setup.updates]
        updates, time = setup.updates - setup.warm, until - since
        busy = sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in self.busy)
        ages = sum((self.ages[batch] for batch in range(setup.warm + 1, setup.updates + 1)), Counter[int]())
        return Simulated(
            seconds_update=time / updates,
            episodes_per_s=setup.episodes * updates / time,
            learner_idle=max(0.0, 1 - updates * self.lasts / time),  # a sum of rounded times may be a hair more
            worker_idle=max(0.0, 1 - busy / (setup.workers * time)),
            wasted=self.lost / (self.kept + self.lost),
            lag={age: ages[age] / ages.total() for age in sorted(ages)},
        )
