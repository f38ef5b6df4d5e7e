"""A model behind an OpenAI-compatible endpoint. Its episodes are kept, as those of an evaluation are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.core import Task
from agents.endpoint.client import EndpointError
from agents.endpoint.served import ServedModel
from runners.benching.fingerprints import FixedTasks
from runners.benching.results import TaskResult
from runners.benching.settings import Bench
from runners.command_line.blame import blamed
from runners.command_line.errors import UserError
from runners.served.kept import Kept
from runners.served.play import Play
from runners.served.program import check_tools
from runners.served.settings import EvaluateServed, fingerprint, measured

GREEDY = "greedy"


@dataclass(frozen=True)
class ServedPlayer:
    """Plays with requests to a server."""

    bench: Bench
    parts: Mapping[str, Any]
    model: ServedModel
    settings: Mapping[str, Any]

    @property
    def agent(self) -> Mapping[str, Any]:
        return {"kind": "endpoint", "model": self.bench.model}

    def play(self, fixed: FixedTasks, tasks: Sequence[Task], on_end: Callable[[], None]) -> list[TaskResult]:
        bench, env = self.bench, fixed.entry.env
        evaluate = EvaluateServed(bench.endpoint, bench.model, (env,), fixed.entry.split, seed=bench.seed)
        parts = {**self.parts, env: fixed.env.config}
        folder = folder_of(bench, self.settings) / fixed.entry.name
        with blamed(env, "to prepare"):
            fixed.env.prepare()
        kept = Kept(folder, {env: measured(evaluate, parts, env)})
        try:
            played = Play(evaluate, parts, env, self.model, kept, on_end, modes=(GREEDY,)).play(tasks)
        except EndpointError as error:
            raise UserError(f"{error}; the episodes that ended are kept in {folder}") from None
        finally:
            kept.close()
        return [TaskResult.of(outcome) for outcome in played[GREEDY].outcomes]


@contextmanager
def served_player(bench: Bench, parts: Mapping[str, Any], suite: Sequence[FixedTasks]) -> Iterator[ServedPlayer]:
    """The served model of ``bench``. Raises UserError."""
    check_tools({fixed.entry.env: fixed.env for fixed in suite}, parts)
    try:
        model = ServedModel(bench.endpoint, bench.model, parts["served"])
        model.check()
    except EndpointError as error:
        raise UserError(str(error)) from None
    try:
        env = suite[0].entry.env
        asked = measured(EvaluateServed(bench.endpoint, bench.model), {**parts, env: None}, env)
        how = {"decoding": "greedy", "react": asked["react"], "served": asked["served"]}
        yield ServedPlayer(bench, parts, model, how)
    finally:
        model.close()


def folder_of(bench: Bench, settings: Mapping[str, Any]) -> Path:
    """The folder of the episodes: the one that is named, or one that the same command always leads to."""
    if bench.kept is not None:
        return bench.kept
    what = {"suite": bench.suite, "endpoint": bench.endpoint, "seed": bench.seed, **settings}
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", bench.model).strip(".-")
    return Path("runs") / f"bench-{bench.suite}-{name}-{fingerprint(what)}"
