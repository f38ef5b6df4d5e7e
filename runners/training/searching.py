"""Runs whose tasks are searched (``--agent tot``): requirements, costs and records."""

from collections.abc import Sequence
from typing import Any

from agents.rollout.search.settings import ScorerKind, Scoring, SearchPlan, ToTSettings
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Searched
from runners.command_line.errors import UserError
from runners.settings.run_settings import RunSettings
from runners.statistics.intervals import mean


def search_of(settings: RunSettings) -> SearchPlan | None:
    """How the run searches; None where it does not. Raises UserError."""
    train, algorithm, tot = settings.train, settings.algorithm, settings.agent
    if not isinstance(tot, ToTSettings):
        return None
    if not algorithm.needs.search:
        hint = "leave --selfac.literal out" if train.algo == "selfac" else "try selfac"
        raise UserError(
            f"--agent tot needs an algorithm that learns from a search tree, and {train.algo} does not: {hint}"
        )
    if algorithm.sampling.group != 1:
        raise UserError("--agent tot searches a task once: leave the algorithm's group at 1 and set --tot.branch")
    if tot.seconds:
        raise UserError("--tot.seconds makes a run that cannot be repeated: set --tot.nodes or --tot.tokens to train")
    check_slots(tot, train.slots)
    return SearchPlan(tot, Scoring(ScorerKind.VALUE, discount=algorithm.values.discount))


def check_slots(tot: ToTSettings, slots: int) -> None:
    """Raises UserError when the engine could not hold one search."""
    if tot.sessions > slots:
        raise UserError(f"--slots {slots} must hold the {tot.sessions} actions that a search samples at once: raise it")


def search_costs(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a search takes, and how much of it was found to be the same, by name."""
    searches = [e for e in episodes if isinstance(e, Searched)]
    sampled = sum(e.nodes for e in searches)
    return {
        "searched_nodes": mean([float(e.nodes) for e in searches]),
        "searched_rounds": mean([float(e.rounds) for e in searches]),
        "searched_alike": 1 - sum(len(e.own_turns) for e in searches) / max(1, sampled),
        "sampled_tokens_per_task": mean([float(e.sampled_tokens) for e in searches]),
    }


def search_record(episode: Searched) -> dict[str, Any]:
    """Every state of a search, depth first; ``parent`` is the number of the state that its action was taken in."""
    number: dict[int, int] = {}
    states = []
    led: dict[int, tuple[Node, Node]] = {}
    for node in episode.root.walk():
        if node.kind is not Kind.STATE:
            continue
        number[id(node)] = len(number)
        for action in node.children:
            led[id(action.children[0])] = (node, action)
        record: dict[str, Any] = {
            "observation_tokens": node.tokens,
            "terminated": node.terminated,
            "truncated": node.truncated,
            "success": node.success,
            "oracle": node.oracle,
        }
        if (came := led.get(id(node))) is not None:
            parent, action = came
            record |= {
                "parent": number[id(parent)],
                "tokens": action.tokens,
                "logp": [round(x, 6) for x in action.logp],
                "count": action.count,
                "reward": action.reward,
            }
        states.append(record)
    settled = [number[id(state)] for state in (episode.root, *(state for _, state in episode.turns))]
    return {"rounds": episode.rounds, "nodes": episode.nodes, "settled": settled, "states": states}
