"""Random walks through puzzles, and what solver, scorer and fork must agree on wherever one ends."""

from random import Random

from agent_envs.puzzle.env import PuzzleEnv
from agent_envs.puzzle.reward import UNDO, chance, reward, still_solvable, turns_needed


class DisagreementError(AssertionError):
    """Solver, scorer and fork say different things of a state."""


def agreement(env: PuzzleEnv, states: int, seed: int = 0) -> tuple[int, int]:
    """Checks that many random states; returns how many could and how many could not be solved any more."""
    rng, tasks, found = Random(seed), env.tasks("train"), [0, 0]
    while sum(found) < states:
        env.reset(options={"task": tasks[rng.randrange(len(tasks))]})
        moves = _wander(env, rng, rng.randrange(env.task.data.turns))
        if env._over:
            continue
        left = env.turns_left
        line, undo, start = env._state.line, env.config.undo, env.task.data.board
        needed = turns_needed(env.puzzle, line, undo=undo)
        can = still_solvable(env.puzzle, line, left, undo=undo)
        _need(can == env.still_solvable == (needed is not None and needed <= left), env, "still solvable")
        _need(can == (env.oracle() > 0) and env.oracle() == chance(needed, left, env.config.skill), env, "the oracle")
        before, twin, more, success = (env._state, env.turn), env.fork(), [], False
        while not twin._over:
            turn = twin.expert()
            more.append(_move(turn))
            success = twin.step(turn)[4]["success"]
        _need(bool(success) == can, env, f"the expert, which makes {more}")
        _need(not can or len(more) == needed, env, f"the turns that are needed: {needed}, and the expert makes {more}")
        _need(reward(env.puzzle, start, moves + more, env.task.data.turns) == float(can), env, "the scorer")
        _need((env._state, env.turn) == before, env, "the origin of the fork")
        found[not can] += 1
    return found[0], found[1]


def _wander(env: PuzzleEnv, rng: Random, turns: int) -> list[str]:
    """Legal moves, undos and an illegal move now and then."""
    moves: list[str] = []
    while len(moves) < turns and not env._over:
        legal = list(env.puzzle.moves(env._state.line[-1]))
        move = rng.choice([*legal, *([UNDO] * env.config.undo), "nonsense"])
        env.step("UNDO()" if move == UNDO else f"{env.puzzle.verb.name}({move})")
        moves.append(move)
    return moves


def _move(turn: str) -> str:
    call = turn.partition("<action>")[2].removesuffix("</action>")
    return UNDO if call == "UNDO()" else call.partition("(")[2].removesuffix(")")


def _need(holds: bool, env: PuzzleEnv, what: str) -> None:
    if not holds:
        raise DisagreementError(f"{env.config.kind}: {what}: {env._state}, {env.turns_left} turns left")
