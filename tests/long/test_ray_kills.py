"""The fault protocol on a cluster: random ``kill -9`` of everything that a run is made of, while episodes are played
ahead and two processes learn.

    TURNWISE_ALL_KILLS=1 python -m pytest -q tests/long/test_ray_kills.py

kills thirty times, which takes a quarter of an hour; without the variable, as in `.ci/run`, nine times.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "runners"))
from test_ray_runs import ABSENT, Run, line_of, text_of, until
from test_staleness_runs import events, lags

from runners.workers import ray_guard

pytestmark = [
    pytest.mark.usefixtures("own_cache"),
    pytest.mark.skipif(ABSENT, reason="needs the extra ray"),
]
RUNNERS = Path(__file__).resolve().parents[1] / "runners"
KILLS, UPDATES = {"actor": 2, "worker": 1, "host": 2, "rank": 1, "node": 1, "driver": 2}, 30
if os.environ.get("TURNWISE_ALL_KILLS"):
    KILLS, UPDATES = {"actor": 7, "worker": 3, "host": 7, "rank": 4, "node": 3, "driver": 6}, 80
NAMES = {
    "actor": "ray::WorkerActor",
    "worker": "runners.workers.serve",
    "host": "agent_envs.isolation.host",
    "rank": "runners.training.serve_rank",
}
MARK = "TURNWISE_KILLS"
"""Environment variable of all that this test starts."""


class Nodes:
    """A cluster of two simulated nodes, on which a lost one is replaced."""

    def __init__(self, place: Path) -> None:
        self.variables = {
            **{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "1" * 64, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"},
            MARK: str(place),
        }
        self.process = subprocess.Popen(
            [sys.executable, str(RUNNERS / "ray_nodes.py"), str(place)], env={**os.environ, **self.variables},
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.address = self.answer()

    def answer(self, line: str = "") -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        if line:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, "the nodes are gone"
        return answer


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    place = Path(tempfile.mkdtemp(prefix="kills-", dir="/tmp"))
    cluster = Nodes(place)
    yield cluster
    cluster.process.communicate(timeout=60)
    ray_guard.clear(str(place), os.getpid())


def started(place: str, name: str = "") -> list[int]:
    """Processes that this test started, by a part of their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={place}".encode() in (entry / "environ").read_bytes() and name in line_of(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def update_of(folder: Path) -> int:
    """The last update in the ledger that was learned from."""
    lines = [json.loads(line) for line in text_of(folder / "ledger.jsonl").splitlines() if line.endswith("}")]
    return max((line["update"] for line in lines if line["event"] == "trained"), default=0)


def kill(run: Run, nodes: Nodes, kind: str, rng: random.Random) -> bool:
    """Kills one of a kind; False where there is none at this moment."""
    if kind == "node":
        hit = nodes.answer("kill") != "0"
        nodes.answer("add")
        return hit
    pids = [run.process.pid] if kind == "driver" else started(nodes.variables[MARK], NAMES[kind])
    if not pids:
        return False
    try:
        os.kill(rng.choice(pids), signal.SIGKILL)
    except ProcessLookupError:  # it ended by itself in the meantime
        return False
    return True


def test_kills_of_all_kinds_lose_no_episode(tmp_path: Path, nodes: Nodes) -> None:
    rng, folder = random.Random(0), tmp_path / "run"
    order = [kind for kind, count in KILLS.items() for _ in range(count)]
    rng.shuffle(order)
    flags = (
        "--workers",
        "ray:2",
        "--staleness",
        "1",
        "--learner",
        "ddp:2",
        "--updates",
        str(UPDATES),
        "--eval-every",
        "40",
    )
    flags += ("--faults.max-rate", "1", "--ray.address", nodes.address)
    run = Run(folder, *flags, **nodes.variables)
    killed: Counter[str] = Counter()
    places, before = [run.place], 0
    for kind in order:
        until(lambda: update_of(folder) > before or run.process.poll() is not None)  # noqa: B023
        if run.process.poll() is not None:
            run.end()
            pytest.fail(f"after {dict(killed)}: {run.said}")
        time.sleep(rng.random())
        until(lambda: kill(run, nodes, kind, rng))  # noqa: B023
        killed[kind] += 1
        before = update_of(folder)
        if kind in ("driver", "rank"):
            code = run.end()
            assert code == (-signal.SIGKILL if kind == "driver" else 2), run.said
            assert kind == "driver" or "of the learner was lost" in run.said, run.said
            run = Run(folder, **nodes.variables)
            places.append(run.place)
    assert run.end() == 0, run.said
    assert killed == KILLS

    found = events(folder)
    dropped = found.get("dropped", Counter())  # none, where no kill met a host in the middle of an episode
    assert found["dispatched"] == found["trained"] + dropped, "each once, and none is lost"
    assert set(found["dispatched"].values()) == {1} and len(found["trained"]) > 0.9 * UPDATES * 16
    assert max(lags(folder)) <= 1
    own = [NAMES["host"], NAMES["rank"], NAMES["worker"]]
    until(lambda: not any(started(nodes.variables[MARK], name) for name in own), 60)
    assert not (Path.home() / ".ray" / "auth_token").exists()
    left = [path for place in places for path in place.iterdir()]
    assert not left, "temporary folders"
    print(f"{sum(killed.values())} kills: " + ", ".join(f"{kind} {count}" for kind, count in killed.items()))
