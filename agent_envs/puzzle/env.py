"""The puzzle environment: one move is one turn, and a move can be taken back.

Invariants: a state is an immutable value, so a fork shares it; a move that is not legal is explained and changes
nothing; every turn counts, one without a move too, and to run out of those that are shown is a failure and not a cut.

With UNDO a wrong move costs two turns, so "still solvable" is a matter of the turns that are left; without it
(`undo` false) a board from which there is no way is lost, and an episode with no legal move left is over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, ActionError, Args, Grammar, Verb, render
from agent_envs.core import Outcome, Task, TaskSet, TextEnv
from agent_envs.puzzle import tasks
from agent_envs.puzzle.config import PuzzleConfig
from agent_envs.puzzle.puzzles import puzzle_of
from agent_envs.puzzle.reward import chance, still_solvable, turns_needed

_UNDO = Verb("UNDO", "", Args.NONE)


@dataclass(frozen=True)
class PuzzleState:
    """Where an episode stands."""

    line: tuple[Any, ...]
    """Boards from the start to the present one, without those that were taken back."""
    undone: int = 0
    """Moves that were taken back."""


class PuzzleEnv(TextEnv):
    """Solve a puzzle move by move. The reward is 1 when it is solved, and nothing before."""

    name: ClassVar[str] = "puzzle"
    Config: ClassVar[type[Any]] = PuzzleConfig
    config: PuzzleConfig

    def __init__(self, config: PuzzleConfig | None = None) -> None:
        super().__init__(config)
        tasks.check_turns(self.config)
        self.puzzle = puzzle_of(self.config)
        # Every kind has a verb of its own, so the grammar belongs to the instance.
        self.grammar = Grammar(self.puzzle.verb, *([_UNDO] if self.config.undo else []))  # type: ignore[misc]

    def tasks(self, split: str) -> TaskSet:
        return tasks.tasks_of(self.config, split)

    def prepare(self) -> None:
        _ = self.tasks("train")

    def instructions(self, language: str) -> str:
        return self.puzzle.goal

    def lexicon(self) -> Sequence[str]:
        return self.puzzle.words()

    @property
    def task_turns(self) -> int:
        return int(self.task.data.turns)

    @property
    def turns_left(self) -> int:
        """Turns in which the puzzle can still be solved."""
        return self.task_turns - self.turn

    @property
    def still_solvable(self) -> bool:
        """Whether a perfect agent would still succeed."""
        return still_solvable(self.puzzle, self._state.line, self.turns_left, undo=self.config.undo)

    def legal_moves(self) -> Sequence[str]:
        """The moves that can be made here, as the argument of an action."""
        return self.puzzle.moves(self._state.line[-1])

    def valid_turns(self) -> Sequence[str]:
        moves = [render(self.puzzle.verb.name, move) for move in self.legal_moves()]
        can_undo = self.config.undo and len(self._state.line) > 1
        return [*moves, *([render(_UNDO.name)] if can_undo else [])]

    def _begin(self, task: Task) -> PuzzleState:
        return PuzzleState((task.data.board,))

    def _copy_state(self, state: PuzzleState) -> PuzzleState:
        return state

    def _act(self, action: Action) -> Outcome:
        state = self._state
        if action.name == _UNDO.name:
            state = self._undone(state)
        else:
            state = replace(state, line=(*state.line, self.puzzle.play(state.line[-1], action.args)))
        self._state = state
        if self.puzzle.solved(state.line[-1]):
            return Outcome("", 1.0, terminated=True, success=True)
        stuck = not self.config.undo and not self.puzzle.moves(state.line[-1])
        shown = tasks.show(self.config, state.line[-1], self.turns_left)
        return Outcome("", terminated=True) if stuck else Outcome(shown)

    def _undone(self, state: PuzzleState) -> PuzzleState:
        if len(state.line) == 1:
            raise ActionError("there is no move to take back", "没有可以撤回的一步")
        return PuzzleState(state.line[:-1], state.undone + 1)

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        return {"undone": float(self._state.undone), "turns": float(self.turn)} if over else {}

    def oracle(self) -> float:
        needed = turns_needed(self.puzzle, self._state.line, undo=self.config.undo)
        return chance(needed, self.turns_left, self.config.skill)

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        line = self._state.line
        wrong = self.puzzle.mistake(line[-1]) if rng is not None and rng.random() < flaw else None
        if wrong is not None:
            return self._turn(wrong)
        here = self.puzzle.distance(line[-1])
        if self.config.undo and len(line) > 1:
            before = turns_needed(self.puzzle, line[:-1], undo=True)
            if here is None or (before is not None and before + 1 < here):
                return render(_UNDO.name)
        best = self.puzzle.best(line[-1])
        return self._turn(best if best is not None else self.puzzle.moves(line[-1])[0])

    def _turn(self, move: str) -> str:
        return render(self.puzzle.verb.name, move, self.puzzle.thought(self._state.line[-1], move))
