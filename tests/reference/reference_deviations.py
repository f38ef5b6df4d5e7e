"""Where we differ from the code that made the reference vectors, on purpose. Nothing else may differ.

A test asks `deviation` for its case; where it gets one, it asserts what we do instead.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from reference_cases import Case

from agents.judge.parse import parse_judgments


@dataclass(frozen=True)
class Deviation:
    """One difference: for which cases of which files, why, and what we do instead."""

    files: tuple[str, ...]
    applies: Callable[[Case], bool]
    reason: str
    ours: str


def _groups(case: Case) -> list[list[float]]:
    scores = case.tensor("token_level_rewards").sum(-1).tolist()
    index = case.inputs["index"]
    return [[s for s, g in zip(scores, index, strict=True) if g == group] for group in dict.fromkeys(index)]


def _single(case: Case) -> bool:
    return any(len(group) == 1 for group in _groups(case))


def _equal(case: Case) -> bool:
    return any(len(group) > 1 and max(group) - min(group) <= 1e-8 for group in _groups(case))


def _empty_rows(case: Case) -> bool:
    return bool((case.tensor("mask" if "mask" in case.inputs else "response_mask").sum(-1) == 0).any())


def _all_masked(case: Case) -> bool:
    names = ("loss_mask", "response_mask", "mask")
    return not any(case.tensor(name).any() for name in names if name in case.inputs)


def _loss_type(*names: str) -> Callable[[Case], bool]:
    return lambda case: case.hyper["loss_type"] in names


def _gap(case: Case, old: str, new: str) -> torch.Tensor:
    return (case.tensor(new) - case.tensor(old)) * case.tensor("mask" if "mask" in case.inputs else "response_mask")


VERL_GROUPS = (
    *("adv_grpo", "adv_grpo_vectorized", "adv_rloo", "adv_rloo_vectorized"),
    *("adv_opo", "adv_grpo_passk", "adv_reinforce_plus_plus_baseline"),
)
VERL_LOSSES = ("policy_loss_clip", "policy_loss_gspo", "policy_loss_cispo", "policy_loss_geo_mean")
TRL = ("trl_grpo_loss", "trl_rloo_loss")
ADCA = ("adca_decouple", "adca_allocation", "adca_entry")


_TAG = "</?(?:think|search|python|answer|result)>"
_FREE = rf"(?:(?!{_TAG}).)*"
_BOX = rf"\\boxed\s*\{{(?=\s*[^\s}}])(?:(?!{_TAG})[^{{}}]|\{{[^{{}}<]*\}})+\}}"
_THOUGHT = rf"{_FREE}<think>{_FREE}</think>"
_CALL = rf"{_FREE}<(?:search>{_FREE}</search|python>{_FREE}</python)>\s*<result>(?:(?!</result>).)*</result>"
STRICT = re.compile(
    rf"(?:{_CALL})*{_THOUGHT}(?:{_THOUGHT}|{_CALL})*"
    rf"{_FREE}<answer>{_FREE}{_BOX}(?:(?!{_TAG}|\\boxed\s*\{{).)*</answer>\s*",
    re.DOTALL,
)
"""The form that the default rules ask for, once more, as one pattern (boxes up to two braces deep)."""


def _steps(case: Case) -> list[int]:
    return [max(ids) + 1 for ids in case.inputs["step_ids"]]


DEVIATIONS = {
    "group of one": Deviation(
        VERL_GROUPS,
        _single,
        "without others there is no baseline, and the peer's score as advantage rewards whatever was done",
        "advantage exactly 0",
    ),
    "equal rewards": Deviation(
        VERL_GROUPS,
        _equal,
        "rounding noise of equal rewards, divided by a tiny deviation, becomes an advantage of up to 0.2",
        "advantage exactly 0",
    ),
    "all masked": Deviation(
        ("agg_loss", *VERL_LOSSES, "value_loss", "trl_grpo_loss", "trl_rloo_loss"),
        _all_masked,
        "the peer's mean over nothing is NaN, which would end a run",
        "loss 0",
    ),
    "length + 1e-8": Deviation(
        ("agg_loss", *VERL_LOSSES, "value_loss", "tree_soft_hard_advantage"),
        lambda case: case.hyper.get("loss_agg_mode", "seq-mean-token-mean") == "seq-mean-token-mean",
        "the peer divides by length + 1e-8 so as not to divide by 0",
        "exact division; rows without tokens are no part of the mean. Agreement within a further 1e-8 of the numbers",
    ),
    "global normaliser": Deviation(
        ("policy_loss_clip", "policy_loss_gspo", "policy_loss_cispo", "agg_loss"),
        lambda case: bool(case.hyper.get("global_batch_info")) or "dp_size" in case.hyper,
        "the peer is told the token and row counts of all workers, because it sees a micro-batch",
        "a loss is over the whole batch, cut later by exact adjoints; a global count is a factor on the weights",
    ),
    "weights from the rollout": Deviation(
        VERL_LOSSES,
        lambda case: case.inputs.get("rollout_is_weights") is not None,
        "the peer multiplies token losses by importance weights between engine and trainer",
        "no option; the weights of the credit take the factor (token ratio)",
    ),
    "advantages that differ within an episode": Deviation(
        ("policy_loss_gspo", "policy_loss_geo_mean"),
        lambda case: (
            case.inputs.get("rollout_is_weights") is not None
            or bool((case.tensor("advantages") != case.tensor("advantages")[:, :1]).any())
        ),
        "the peer gives each token the gradient of its own advantage or weight",
        "one ratio, one gradient: shared evenly by the tokens of the episode. Loss and gradient per episode agree",
    ),
    "rows without tokens": Deviation(
        (*TRL, "policy_loss_geo_mean", "adv_reinforce_plus_plus_baseline"),
        _empty_rows,
        "the peer divides by all rows, also by those in which nothing was said",
        "they are no part of the mean: the peer's loss times all rows / rows with tokens",
    ),
    "log-ratio beyond 20": Deviation(
        TRL,
        lambda case: bool((_gap(case, "old_log_prob", "log_prob").abs() > 20).any()),
        "the peer does not bound the log-ratio",
        "clamped to +-20, gradient 0 beyond",
    ),
    "k3 above 10": Deviation(
        ("trl_grpo_loss",),
        lambda case: case.hyper["beta"] > 0 and bool((_k3(_gap(case, "ref_log_prob", "log_prob")) > 10).any()),
        "the peer does not bound the KL estimate of a token",
        "clamped to 10, gradient 0 beyond",
    ),
    "delta below 1 + epsilon": Deviation(
        ("trl_grpo_loss",),
        lambda case: case.hyper.get("delta") is not None and case.hyper["delta"] < 1 + case.hyper["epsilon_high"],
        "the peer's delta then cuts good tokens too",
        "dual_clip bounds the ratio of bad tokens only",
    ),
    "KL in the reward": Deviation(
        ("trl_rloo_loss",),
        lambda case: case.hyper["beta"] > 0,
        "the peer's RLOO takes the KL off the reward, and only reports it in its loss",
        "the KL is a term of the loss, switched off for the comparison",
    ),
    "float32 temperatures": Deviation(
        ("trl_grpo_loss",),
        _loss_type("sapo"),
        "the peer holds SAPO's two temperatures in float32",
        "float64; compared with them rounded to float32",
    ),
    "padding in luspo": Deviation(
        ("trl_grpo_loss",),
        lambda case: (
            case.hyper["loss_type"] == "luspo"
            and (case.hyper["importance_sampling_level"] != "sequence" or case.hyper["beta"] > 0)
        ),
        "the peer's luspo averages over padding as soon as a loss differs between the tokens of a row",
        "sum over the tokens of an episode, mean over episodes",
    ),
    "bias-corrected KL at sequence level": Deviation(
        ("trl_grpo_loss",),
        lambda case: (
            bool(case.hyper.get("use_bias_correction_kl"))
            and case.hyper["importance_sampling_level"] != "token"
            and case.hyper["beta"] > 0
        ),
        "the peer weighs a token's KL by the ratio of its episode",
        "by the token's own ratio",
    ),
    "not shipped": Deviation(
        ("trl_grpo_loss",),
        _loss_type("cispo", "vespo"),
        "the peer's cispo has no lower bound, and its vespo is not among the options of GRPO",
        "verl's CISPO",
    ),
    "ratio above e^10": Deviation(
        ("policy_loss_gspo",),
        lambda case: bool(
            (
                _gap(case, "old_log_prob", "log_prob").sum(-1) / case.tensor("response_mask").sum(-1).clamp_min(1) > 10
            ).any()
        ),
        "the peer bounds an episode's mean log-ratio at 10",
        "clamped to +-20, like every log-ratio",
    ),
    "whitening one number": Deviation(
        ("gae", "masked_stats", "adv_reinforce_plus_plus"),
        lambda case: "error" in case.outputs,
        "the peer raises ValueError when the mask holds one entry",
        "a single advantage stays as it is",
    ),
    "mean over count + 1e-8": Deviation(
        ("masked_stats", "gae", "adv_reinforce_plus_plus", "adv_reinforce_plus_plus_baseline"),
        lambda case: "error" not in case.outputs,
        "the peer divides by count + 1e-8",
        "exact mean. Agreement within a further 2e-8 of the numbers",
    ),
    "off the mask": Deviation(
        ("gae",),
        lambda case: bool((case.tensor("response_mask") == 0).any()),
        "the peer carries advantages and returns through positions at which nothing was said",
        "those positions are no turns and have no number; a reward paid there has no turn to pay",
    ),
    "shift_mean false": Deviation(
        ("masked_stats",),
        lambda case: not case.hyper["shift_mean"],
        "the peer centres, scales and adds the mean again",
        "no such option: compared after adding the mean",
    ),
    "similar observations": Deviation(
        ("gigpo",),
        lambda case: bool(case.hyper.get("enable_similarity")),
        "the peer can also group observations whose texts are nearly the same",
        "a tree keeps only the identity of an observation: compared with the peer's groups as identities",
    ),
    "a turn or trajectory alone": Deviation(
        ("gigpo",),
        lambda case: True,
        "the peer gives a task with one row, or one trajectory, its score as advantage",
        "advantage exactly 0",
    ),
    "noise of equal returns": Deviation(
        ("gigpo",),
        lambda case: True,
        "the peer's float32 statistics make noise of equal returns, divided by a tiny deviation",
        "advantage exactly 0",
    ),
    "count of clipped values": Deviation(
        ("value_loss",),
        lambda case: True,
        "the peer reports how many values are clipped",
        "not reported",
    ),
    "PACS alone in its group": Deviation(
        ("pacs_loss",),
        lambda case: case.hyper["rollout_n"] == 1 and case.hyper["adv_estimator"] != "naive",
        "the peer divides by n - 1 = 0: NaN",
        "refused as a setting; an episode whose group broke is no part of the loss",
    ),
    "rows of a group apart": Deviation(
        ("pacs_grouping",),
        lambda case: case.outputs != "ok",
        "the peer asserts that the rows of a prompt stand together, rollout_n at a time, and ends the run where not",
        "the episodes of a task are one tree: no row can stand elsewhere, and a group that lost one goes on",
    ),
    "sums over padding": Deviation(
        ("pacs_loss",),
        lambda case: bool((case.tensor("response_mask") == 0).any() and any(map(any, case.outputs["grad_log_prob"]))),
        "the peer sums a row's log-ratios over all columns, right only where the padding holds zeros",
        "sums over sampled tokens. Scores and loss agree, and the gradient on the mask; off it ours is 0",
    ),
    "labels that are no verdict": Deviation(
        ("pacs_loss",),
        lambda case: bool(((case.tensor("labels") != 0) & (case.tensor("labels") != 1)).any()),
        "the peer takes any score as a label; outside 0..1 its loss has no lower bound",
        "labels are the environment's verdicts, 1 or 0. Put in by hand, the loss agrees",
    ),
    "length normalisation under allocation": Deviation(
        ("adca_allocation",),
        lambda case: case.hyper["enable_length_normalization"],
        "the peer takes the switch and passes over it",
        "refused as a setting; compared with it off",
    ),
    "labels that are not one per step": Deviation(
        ADCA,
        lambda case: [len(flags) for flags in case.inputs["step_flags"]] != _steps(case),
        "the peer cuts a judge's labels to the number of steps, or fills them up with GOOD or with the outcome",
        "such an episode is not judged: counted, left out of the statistics, credited with its outcome. Compared "
        "after cutting and filling by hand",
    ),
    "episodes without a step": Deviation(
        ADCA,
        lambda case: 0 in _steps(case),
        "the peer standardises the outcome over episodes in which nothing was said, too",
        "they are no part of any mean. The formulas agree where they are told to count them",
    ),
    "a ratio to nothing": Deviation(
        ADCA,
        lambda case: any(x > 1e3 for name, x in case.outputs["metrics"].items() if name.endswith("alpha_effective")),
        "the peer divides an episode's labels by its outcome + 1e-12: 3e11 where the outcome is 0",
        "an episode enters that mean with 100 at most",
    ),
    "the sign of a sum of zero": Deviation(
        ADCA,
        lambda case: any(abs(sum(c)) < 1e-9 for c in case.outputs.get("step_rewards", ()) if c),
        "the peer compares the outcome with the sign of a sum that is 0 but for rounding",
        "the same comparison, with our rounding; not compared",
    ),
    "a looser form": Deviation(
        ("validate_format",),
        lambda case: case.outputs["valid"] and not STRICT.fullmatch(case.inputs["text"]),
        "the peer lets calls share a result, tags close before they open, blocks nest, a box be wrong, text follow the "
        "answer: a policy that is paid for it learns it",
        "refused by the default rules; `arpo` repeats the peer's checks",
    ),
    "results of tools are not read": Deviation(
        ("validate_format",),
        lambda case: not case.outputs["valid"] and bool(STRICT.fullmatch(case.inputs["text"])),
        "the peer reads what tools returned as if the policy had written it: a page that shows a tag costs -1",
        "only what the model wrote is checked by the default rules; `arpo` repeats the peer's checks",
    ),
    "errors in words": Deviation(
        ("boxed", "arpo_compute_score"),
        lambda case: "error" in case.outputs or case.outputs.get("reason", "").startswith("find box error: "),
        "the peer fails with Python's own TypeError or AssertionError, whose text depends on the version",
        "ValueError, and a reason in words after the same beginning",
    ),
    "step ids of another length": Deviation(
        ("adca_entry",),
        lambda case: any(len(ids) != case.inputs["response_length"] for ids in case.inputs["step_ids"]),
        "the peer finds steps in a padded matrix, which it cuts or fills up to the length of the responses",
        "steps are the actions that were recorded. Compared after cutting and filling by hand",
    ),
    "stale first entropy": Deviation(
        ("arpo_stale_entropy",),
        lambda case: True,
        "the peer keeps the entropy of the first turn by a row's number for ever: from the second batch on, rows are "
        "compared with the first turns of other tasks",
        "a row is compared with the first turn of its own path (or, on request, with its own first turn)",
    ),
    "forced end": Deviation(
        ("arpo_branching",),
        lambda case: any(response[-2:] == [6, 1] for response in case.outputs["responses"]),
        "at the limit of calls the peer appends an end token that nobody sampled, and trains on it",
        "the episode ends as truncated, with the tokens that were sampled",
    ),
    "labels outside judgment lines": Deviation(
        ("adca_parse_judgments",),
        lambda case: len(_numbers(case)) != case.inputs["num_steps"],
        "where its judgment lines are not as many as the steps, the peer takes the first words GOOD and BAD of the "
        "whole reply, also those of an analysis",
        "labels come from judgment lines that number all steps; all others are None",
    ),
    "other spellings of a judgment line": Deviation(
        ("adca_parse_judgments",),
        lambda case: (
            len(_numbers(case)) != case.inputs["num_steps"]
            and None not in parse_judgments(case.inputs["response"], case.inputs["num_steps"])
        ),
        "the peer knows `Step i Judgment: GOOD` alone; emphasis, the spelling Judgement and a full-width colon "
        "reach it by its fallback, the first words GOOD and BAD",
        "they are judgment lines; the labels are the same",
    ),
    "steps from 1": Deviation(
        ("adca_parse_judgments",),
        lambda case: _numbers(case) == set(range(1, case.inputs["num_steps"] + 1)) != set(),
        "the peer counts from 0 only: a reply that counts from 1 raises, and all its labels become the outcome's",
        "both are read",
    ),
    "replies that cannot be read": Deviation(
        ("adca_parse_judgments",),
        lambda case: "error" in case.outputs,
        "the peer raises, and then takes the outcome for the label of every step",
        "every label is None: counted, and part of no statistic",
    ),
    "both words at once": Deviation(
        ("adca_parse_judgments",),
        lambda case: bool(re.search(r"(good|bad)\s*(/|\||or\b|and\b)", case.inputs["response"], re.IGNORECASE)),
        "the peer reads the first word of GOOD/BAD, which is the form that the judge was given, or of GOOD or BAD",
        "no label",
    ),
    "a longer word": Deviation(
        ("adca_parse_judgments",),
        lambda case: bool(re.search(r"judgment:\s*(good|bad)\w", case.inputs["response"], re.IGNORECASE)),
        "the peer reads the beginning of GOODNESS or BADLY",
        "no label",
    ),
    "the words of the question": Deviation(
        ("adca_prompt_structure",),
        lambda case: True,
        "the peer's words, and so its length and number of lines",
        "our own words; the frame, the score, the marks of steps and of cut texts are the same",
    ),
    "an advantage among tokens": Deviation(
        ("adca_score_helpers",),
        lambda case: "advantages" in case.inputs,
        "the peer looks an episode's advantage up at its first sampled token, or at the first that is not 0",
        "an episode has one advantage, which all its tokens share. Compared where they do",
    ),
}


def _numbers(case: Case) -> set[int]:
    """The steps that have a judgment line, as the peer reads one."""
    lines = r"Step\s+(\d+)\s+Judgment:\s*(?:GOOD|BAD)"
    return {int(number) for number in re.findall(lines, case.inputs["response"], re.IGNORECASE)}


def _k3(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-x) + x - 1


def deviation(case: Case, name: str) -> bool:
    """Whether the deviation called ``name`` applies to ``case``."""
    entry = DEVIATIONS[name]
    return case.file in entry.files and entry.applies(case)
