"""Advice from the numbers of an update, each piece printed once."""

from collections import deque
from collections.abc import Iterator, Mapping

from rich.console import Console

from algorithms.formulas.mismatch import sampling_warning
from runners.settings.old_logp import AGREE
from runners.settings.train_settings import Train
from runners.statistics.intervals import mean

STUCK = 2
"""Updates in a row without anything to learn, after which that is said."""
UNFAILED = 3
"""Updates in a row in which nothing failed but by being cut off, after which that is said."""
WAITS = 0.3
"""Of an update's time: how much the wait for environments must take, beside half of the time of playing."""
WINDOW = 3
"""Updates whose mean is compared with the best mean of so many before."""
FELL, ROSE = 0.15, 0.4
"""By how much success must fall, or the share of invalid actions rise, for a run to have broken down."""
SLOW = 3
"""Times the seconds of learning: from where on another engine is worth while."""


class Advisor:
    """Reads the row of every update; ``gpu``: the run's model is on one."""

    def __init__(self, train: Train, console: Console, *, gpu: bool = False) -> None:
        self.train, self.console, self.gpu = train, console, gpu
        self.given: set[str] = set()
        self.stuck: dict[str, int] = {}
        """Updates in a row in which nothing could be learned, by the reason."""
        self.unfailed = 0
        """Updates in a row whose episodes all succeeded or were cut off, some of them cut."""
        self.last: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        """(success, share of invalid actions) of the last updates."""
        self.best, self.cleanest = 0.0, 1.0
        """The highest success and the lowest share of invalid actions, means over so many updates."""

    def look_at(self, row: Mapping[str, float]) -> None:
        reasons = set(self.nothing_learned(row))
        self.stuck = {reason: self.stuck.get(reason, 0) + 1 for reason in reasons}
        cut = row.get("truncated", 0.0)
        self.unfailed = self.unfailed + 1 if cut > 0 and row["success"] + cut > 1 - 1e-9 else 0
        self.last.append((row["success"], row["invalid"]))
        for about, advice in self.advice(row):
            if about not in self.given:
                self.given.add(about)
                self.console.print(advice, soft_wrap=True)

    def advice(self, row: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        """(subject, advice) pairs; the advice may quote numbers of this update."""
        if row.get("clip_fraction", 0.0) > 0.4:
            # Most of what such large steps teach is clipped away.
            yield (
                "clipping",
                f"[bold]more than 40 % of the ratios were clipped:[/] lower --lr, or set --{self.train.algo}.ratio to "
                "one that grows less with the length of a turn (token, or a mean)",
            )
        if row.get("out_of_memory"):
            budget = f"{row['token_budget']:.0f}"
            yield (
                f"memory {budget}",
                f"[bold]memory ran out:[/] from now on {budget} tokens a pass, with the same gradient. Set "
                f"--token-budget {budget} to begin with that, or --gradient-checkpointing to fit more",
            )
        if "old_logp_engine" in row and not self.train.staleness:
            yield (
                "old log-probabilities",
                f"old log-probabilities: the engine's from now on, which differ from the trainer's by at most "
                f"{row['mismatch_max_abs']:.0e} (--old-logp trainer computes them again)",
            )
        elif "old log-probabilities" in self.given:
            yield (
                "old log-probabilities again",
                f"old log-probabilities: computed again where they differ from the engine's by more than {AGREE:g}",
            )
        for reason, count in self.stuck.items():
            if count == STUCK:
                yield reason, f"[bold]{STUCK} updates in a row taught nothing:[/] {reason}"
        if "explained_variance" in row and self.unfailed == UNFAILED:
            yield (
                "no failure",
                f"[bold]no episode failed in {UNFAILED} updates:[/] each was a success or was cut off at a limit. A "
                "critic that values a cut episode by its last state may learn that nothing fails, and the advantages "
                "vanish. Where the limit is part of the task, let the environment say so: task_turns, --gym.limited",
            )
        if (fall := self.broke_down()) is not None:
            yield (
                "broke down",
                f"[bold]the run broke down:[/] {fall} (means of {WINDOW} updates). An update went too far: begin again "
                "with a lower --lr, or try --max-kl 0.02, which takes such steps back",
            )
        truncated = "mismatch_kept_mass" in row
        if truncated and (line := sampling_warning(self.train.top_p, self.train.top_k, dict(row))):
            yield "sampling", line
        if row.get("judge_parsed", 1.0) < 0.5:
            yield (
                "judge",
                "[bold]more than half of the judged episodes got no labels[/] (judge_unparsed) and learn from their "
                "outcome alone: see docs/judges.md",
            )
        learning = row.get("seconds_forward", 0.0) + row.get("seconds_update", 0.0)
        waits = row["seconds_env"] > max(0.5 * row["seconds_rollout"], WAITS * (row["seconds_rollout"] + learning))
        if self.train.exact and not self.train.ahead and waits:
            yield (
                "waiting",
                "[bold]the engine waits for environments more than half of the time:[/] raise --envs.processes, or set "
                "--no-exact: slow environments then delay no others, but the run's last bits depend on timing",
            )

        if self.gpu and self.train.engine == "hf" and row["seconds_rollout"] - row["seconds_env"] > SLOW * learning:
            yield (
                "engine",
                "[bold]sampling takes most of the time:[/] the default engine starts every kernel of every token by "
                "itself. Try vLLM, which replays them: --engine vllm --workers 1 (docs/vllm.md)",
            )

    def broke_down(self) -> str | None:
        """What got much worse than it was before, if anything did."""
        if len(self.last) < WINDOW:
            return None
        success, invalid = (mean(numbers) for numbers in zip(*self.last, strict=True))
        best, cleanest = self.best, self.cleanest
        self.best, self.cleanest = max(best, success), min(cleanest, invalid)
        if invalid - cleanest >= ROSE:
            return f"invalid actions rose from {cleanest:.0%} to {invalid:.0%}, success is {success:.2f}"
        if best - success >= FELL and success < 0.7 * best:
            return f"success fell from {best:.2f} to {success:.2f}"
        return None

    def nothing_learned(self, row: Mapping[str, float]) -> Iterator[str]:
        """Why this update could teach the policy nothing, and what to do about it."""
        if row["turns"] > 0 and row["invalid"] > 0.999:
            yield (
                "every action was invalid. The model does not write the environment's actions: look at episodes "
                "(turnwise view RUN), or train one that does (--model tiny)"
            )
        elif row["success"] == 0 and row["reward_std"] == 0:
            yield "no episode had success and all had the same reward: begin with easier tasks, or a better model"
        if row.get("left_out_steps", 0.0) >= self.train.minibatches * self.train.epochs:
            yield "the first step already went further than --max-kl and was taken back: lower --lr, or raise --max-kl"
        if row.get("grad_norm") == 0:
            yield "the gradient was zero, so that the adapter never moved: nothing in these episodes differs in reward"
