"""Settings of the mathematics environment."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges, check_share

LANGUAGES = ("en", "zh")
OPERATIONS = ("+", "-", "×")
GENERATED = "generated"
MOST_STEPS = 6


class Verifier(StrEnum):
    """Who says whether an answer is the right one."""

    MATH_VERIFY = "math-verify"
    EXACT = "exact"


@dataclass(frozen=True)
class MathConfig:
    """Settings of the mathematics environment."""

    source: str = GENERATED
    """Where tasks come from: `generated`; `reasoning-gym:FAMILY` (arithmetic and algebra families); a .jsonl,
    .jsonl.gz or .parquet file, or a folder with train and test files; or `datasets:NAME` with an optional `:CONFIG`."""
    seed: int = 0
    """Seed of the tasks (episodes have their own seeds)."""
    min_steps: int = 2
    """Fewest steps of a generated problem; a task's level is its number of steps."""
    max_steps: int = 3
    """Most steps of a generated problem (at most 6)."""
    digits: int = 2
    """Digits of every operand and result of a generated problem (1 to 4): 2 is operands to 99."""
    operations: tuple[str, ...] = ("+", "-")
    """What a step of a generated problem may do: +, - and × (by one digit)."""
    carries: float = 0.6
    """Share of a generated problem's steps that carry or borrow, where the operation can."""
    languages: tuple[str, ...] = LANGUAGES
    """Languages of the tasks, en, zh or both; of other sources, tasks in another language are left out."""
    train_tasks: int = 20000
    """Training tasks; other sources may have fewer."""
    held_out_tasks: int = 1000
    """Validation tasks, and the same number of test tasks; other sources may have fewer."""
    max_turns: int = 16
    """Thoughts within which the answer must be given; the last one goes on to the end of the message."""
    verifier: Verifier = Verifier.MATH_VERIFY
    """`math-verify` (extra `math`) takes every notation of the right value; `exact` numbers and fractions only."""
    verify_seconds: int = 2
    """Processor time for checking one answer; an answer that takes longer is unverified and counts as wrong."""
    skill: float = 0.8
    """Skill of the oracle's agent: the chance that it gets a step right, and that it notices a mistake."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            SettingsError,
            "math: ",
            min_steps=(1, self.max_steps),
            max_steps=(1, MOST_STEPS),
            digits=(1, 4),
            train_tasks=(1, 10_000_000),
            held_out_tasks=(1, 1_000_000),
            max_turns=(1, 10_000),
            verify_seconds=(1, 600),
            carries=(0, 1),
        )
        check_share(self, SettingsError, "math: ", "skill")
        for name, known in (("languages", LANGUAGES), ("operations", OPERATIONS)):
            value = getattr(self, name)
            if not value or set(value) - set(known) or len(set(value)) < len(value):
                raise SettingsError(f"math: {name} must be distinct ones of {', '.join(known)}, not {value}")
