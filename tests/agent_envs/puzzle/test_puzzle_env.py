"""Every kind keeps the contract; solver, scorer and fork agree; literal episodes."""

from dataclasses import replace

import numpy as np
import puzzle_walks
import pytest

from agent_envs import SettingsError
from agent_envs.contract.check import HOSTILE, check_text_env
from agent_envs.puzzle.arithmetic import Numbers
from agent_envs.puzzle.config import PuzzleConfig, PuzzleKind
from agent_envs.puzzle.countdown import Countdown
from agent_envs.puzzle.env import PuzzleEnv
from agent_envs.puzzle.reward import UNDO, chance, reward, turns_needed
from agent_envs.puzzle.tasks import Problem

KINDS = sorted(PuzzleKind)
ODD = ("١+٢", "r١c٢=٣", "ＵＰ", "up\x00", "9**9**9", "()()", "-1+-1", "a to a", "1/0", "r1c1", "1=1", "table to a")


@pytest.mark.parametrize("kind", KINDS)
def test_contract(kind: PuzzleKind) -> None:
    check_text_env(lambda: PuzzleEnv(PuzzleConfig(kind=kind, levels=(1, 2, 3))), tasks=2)


@pytest.mark.parametrize("kind", [PuzzleKind.COUNTDOWN, PuzzleKind.SOKOBAN])
def test_contract_without_undo_and_with_hints(kind: PuzzleKind) -> None:
    check_text_env(lambda: PuzzleEnv(PuzzleConfig(kind=kind, undo=False, hints=True, spare=1)), tasks=1)


@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_solver_scorer_and_fork_agree(kind: PuzzleKind, undo: bool) -> None:
    can, cannot = puzzle_walks.agreement(PuzzleEnv(PuzzleConfig(kind=kind, levels=(1, 2, 3), spare=2, undo=undo)), 80)
    assert can > 5 and (cannot > 5 or kind is PuzzleKind.BLOCKS)


@pytest.mark.parametrize("name", ["turns_needed", "reward", "chance"])
def test_the_agreement_notices_what_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(puzzle_walks, name)
    monkeypatch.setattr(puzzle_walks, name, lambda *given, **named: (right(*given, **named) or 0) + 1)
    with pytest.raises(puzzle_walks.DisagreementError):
        puzzle_walks.agreement(PuzzleEnv(PuzzleConfig(levels=(2,))), 20)


def playing(env: PuzzleEnv, left: tuple[int, ...], target: int, turns: int) -> PuzzleEnv:
    """The environment at the beginning of that game of countdown."""
    task = replace(env.tasks("train")[0], data=Problem(Numbers(left, target), len(left) - 1, turns))
    env.reset(options={"task": task, "oracle": True})
    return env


def test_an_episode_with_a_mistake_taken_back() -> None:
    env = playing(PuzzleEnv(), (9, 6, 5, 2), 6, 5)
    text, *_, info = env.step("COMBINE(9+6)")
    assert text == "numbers: 15 5 2, target: 6, 4 turns left"
    # 15/5*2 is 6: at least two of the four turns that are left must be perfect.
    assert info["oracle"] == pytest.approx(0.7**4 + 4 * 0.7**3 * 0.3 + 6 * 0.7**2 * 0.3**2)
    assert env.oracle() == chance(2, 4, 0.7)
    assert env.step("COMBINE(15+5)")[0] == "numbers: 20 2, target: 6, 3 turns left"
    assert env.still_solvable and env.expert() == "<think></think><action>UNDO()</action>"
    assert env.step("UNDO()")[0] == "numbers: 15 5 2, target: 6, 2 turns left"
    assert env.expert().endswith("<action>COMBINE(15/5)</action>")
    assert env.step("<think>3</think><action>COMBINE(15 ÷ 5)</action>")[0] == "numbers: 3 2, target: 6, 1 turn left"
    text, earned, terminated, truncated, info = env.step("COMBINE(2×3)")
    assert (text, earned, terminated, truncated, info["success"]) == ("", 1.0, True, False, True)
    assert info["metrics"] == {"invalid": 0.0, "undone": 1.0, "turns": 5.0}


def test_to_run_out_of_turns_is_a_failure_and_no_cut() -> None:
    env = playing(PuzzleEnv(), (9, 6, 5, 2), 6, 2)
    assert env.oracle() == 0.0 and not env.still_solvable
    env.step("COMBINE(9+6)")
    assert env.step("COMBINE(8+6)")[2:4] == (True, False), "an illegal move in the last turn ends it, too"
    env = playing(PuzzleEnv(), (9, 6, 5, 2), 6, 2)
    env.step("COMBINE(9+6)")
    assert env.step("COMBINE(15+5)")[2:4] == (True, False)
    env = playing(PuzzleEnv(), (6, 2), 12, 2)
    assert env.step("no action")[2:4] == (False, False)
    twin = env.fork()
    assert env.step("no action")[:4] == ("", 0.0, True, False), "a turn without a move is a turn, the last one too"
    assert twin.step("COMBINE(6*2)")[1:3] == (1.0, True), "the last turn still counts"


def test_without_undo_a_board_can_be_lost_and_a_dead_end_is_the_end() -> None:
    env = playing(PuzzleEnv(PuzzleConfig(undo=False)), (6, 2), 12, 5)
    assert "UNDO" not in env.system_prompt() and "UNDO" in PuzzleEnv().system_prompt()
    assert env.step("UNDO()")[4]["error"] == "unknown name"
    twin = env.fork()
    assert env.step("COMBINE(6+2)")[2:4] == (True, False)
    assert twin.step("COMBINE(6*2)")[4]["success"]


def test_illegal_moves_are_explained_and_change_nothing() -> None:
    env = playing(PuzzleEnv(), (9, 7, 7, 2), 12, 40)
    for text, reason in (
        ("UNDO()", "there is no move to take back"),
        ("COMBINE(7-9)", "7-9 is negative: write 9-7"),
        ("COMBINE(9/7)", "9/7 is not whole"),
        ("COMBINE(9+9)", "9 and 9 are not both left; left are 9 7 7 2"),
        ("COMBINE(9+7+2)", "a move is two numbers with"),
        ("COMBINE(9**7)", "a move is two numbers with"),
        ("COMBINE(__import__('os'))", "a move is two numbers with"),
        (f"COMBINE({'9' * 61}+2)", "a move has at most 60 characters"),
    ):
        before = env._state
        seen, earned, terminated, _, info = env.step(text)
        assert info["invalid"] and info["error"].startswith(reason) and reason in seen
        assert (earned, terminated) == (0.0, False) and env._state is before
    assert not env.step("COMBINE(7+7)")[4]["invalid"], "two of a kind may be combined"


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_texts_do_nothing(kind: PuzzleKind) -> None:
    env = PuzzleEnv(PuzzleConfig(kind=kind))
    verb = env.puzzle.verb.name
    for text in (*HOSTILE, "9" * 5000 + "+1", *ODD):
        env.reset(seed=1)
        before = env._state
        for turn in (text, f"{verb}({text})"):
            assert env.step(turn)[4]["invalid"] and env._state is before
    assert not env.step(env.expert())[4]["invalid"]


def test_scorer_by_hand() -> None:
    puzzle, start = Countdown(), Numbers((9, 6, 5, 2), 6)
    good = ["9+6", "15/5", "3*2"]
    assert reward(puzzle, start, good, 3) == 1.0
    assert reward(puzzle, start, good, 2) == 0.0, "too late"
    assert reward(puzzle, start, ["9+6", "15+5", UNDO, "15/5", "3*2"], 5) == 1.0
    assert reward(puzzle, start, [UNDO, "nonsense", *good], 4) == 0.0, "what is refused costs its turn"
    assert reward(puzzle, start, [UNDO, "nonsense", *good], 5) == 1.0
    assert reward(puzzle, start, good[:2], 9) == 0.0


def test_turns_needed_by_hand() -> None:
    puzzle, start = Countdown(), Numbers((9, 6, 5, 2), 6)
    line = [start, puzzle.play(start, "9+6")]
    line.append(puzzle.play(line[-1], "15+5"))
    assert [turns_needed(puzzle, line[:n], undo=True) for n in (1, 2, 3)] == [3, 2, 3]
    assert turns_needed(puzzle, line, undo=False) is None


def test_chance_by_hand() -> None:
    assert chance(None, 9, 0.5) == 0.0 == chance(3, 2, 0.5)
    assert chance(0, 0, 0.5) == 1.0 and chance(2, 2, 0.7) == pytest.approx(0.49)
    assert chance(1, 3, 0.7) == pytest.approx(1 - 0.3**3)


def played(env: PuzzleEnv, skill: float, rng: np.random.Generator) -> tuple[float, float]:
    """(what the oracle said, the verdict) for an agent that wastes its turn unless it is perfect."""
    env.reset(seed=int(rng.integers(1 << 30)))
    said, over = env.oracle(), False
    while not over:
        _, earned, terminated, truncated, _ = env.step(env.expert() if rng.random() < skill else "no action")
        over = terminated or truncated
    return said, earned


@pytest.mark.parametrize(("skill", "holds"), [(0.7, True), (0.6, False)])
def test_the_oracle_is_the_chance_of_an_agent_of_its_skill_and_of_no_other(skill: float, holds: bool) -> None:
    env, rng = PuzzleEnv(PuzzleConfig(levels=(1, 2))), np.random.default_rng(0)
    said, came = np.array([played(env, skill, rng) for _ in range(1500)]).T
    assert (abs(came.mean() - said.mean()) < 3 * came.std() / len(came) ** 0.5) == holds


def test_the_flawed_demonstrator_is_wrong_where_it_can_be_and_recovers() -> None:
    env, rng = playing(PuzzleEnv(), (9, 8, 2, 2), 5, 8), np.random.default_rng(0)
    assert env.expert() == "<think>9-8=1</think><action>COMBINE(9-8)</action>", "then 2+2, and 4+1 is 5"
    wrong = env.expert(flaw=1.0, rng=rng)
    assert wrong == "<think>9+8=17</think><action>COMBINE(9+8)</action>"
    env.step(wrong)
    assert env.expert() == env.expert(flaw=1e-9, rng=rng) == "<think></think><action>UNDO()</action>"
    with pytest.raises(ValueError, match="needs an rng"):
        env.expert(flaw=0.5)


@pytest.mark.parametrize(
    "settings",
    [
        {"levels": (1, 1)},
        {"levels": (4,)},
        {"numbers": 7},
        {"largest": 101},
        {"kind": PuzzleKind.GAME24, "numbers": 5},
        {"kind": PuzzleKind.SOKOBAN, "largest": 12},
        {"kind": PuzzleKind.GAME24, "train_tasks": 100},
        {"kind": PuzzleKind.GAME24, "largest": 13, "train_tasks": 100},
        {"kind": PuzzleKind.GAME24, "largest": 12},
        {"kind": PuzzleKind.COUNTDOWN, "largest": 5},
        {"spare": -1},
        {"skill": 1.0},
        {"train_tasks": 0},
        {"max_turns": 4},
    ],
)
def test_bad_settings(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="puzzle: "):
        PuzzleEnv(PuzzleConfig(**settings))  # type: ignore[arg-type]
