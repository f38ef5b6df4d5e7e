"""What a comparison makes of numbers: areas and curves by hand, verdicts, plots, and the choice of settings."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from runners.command_line.errors import UserError
from runners.comparison import pictures
from runners.comparison.claims import Claim, ClaimKind, Verdict, judge, judge_all, read_claims, verdict
from runners.comparison.curves import Clock, History, area, area_between, binned, reached, read_history
from runners.comparison.findings import Findings, turn_by_turn
from runners.comparison.markdown import _short
from runners.comparison.measures import measured, task_figures
from runners.comparison.report import page
from runners.comparison.tuning import candidates
from runners.comparison.tuning import judge as choose
from runners.reporting.tables import literal, markdown_table
from runners.statistics.intervals import Interval

# -- curves ----------------------------------------------------------------------------------------------------------


def test_an_area_weighs_each_batch_by_its_steps() -> None:
    assert area([10, 30, 40], [0.0, 0.5, 1.0], 40) == pytest.approx((0 * 10 + 0.5 * 20 + 1 * 10) / 40)
    assert area([10, 30, 50], [0.0, 0.5, 1.0], 40) == pytest.approx(0.5)  # of the last batch only what the budget holds
    assert area([10, 30], [0.0, 0.5], 40) == pytest.approx((0.5 * 20 + 0.5 * 10) / 40)  # the last one holds on
    assert area([10, 30, 40], [0.0, 0.5, 1.0], 5) == 0.0
    for ends, limit in (([], 10.0), ([1.0], 0.0)):
        with pytest.raises(ValueError, match="needs a batch"):
            area(ends, [1.0] * len(ends), limit)


def test_the_area_does_not_depend_on_how_steps_are_cut_into_batches() -> None:
    assert area([10, 20, 30], [0.2, 0.2, 0.8], 30) == pytest.approx(area([20, 30], [0.2, 0.8], 30))
    assert np.mean([0.2, 0.2, 0.8]) != pytest.approx(np.mean([0.2, 0.8])), "a mean over updates would"


def test_an_area_between_evaluations() -> None:
    assert area_between([0, 10], [0.0, 1.0], 10) == pytest.approx(0.5)
    assert area_between([5], [0.3], 10) == pytest.approx(0.3)
    assert area_between([4, 8], [0.0, 1.0], 10) == pytest.approx((0 * 4 + 0.5 * 4 + 1 * 2) / 10)
    assert area_between([4, 20], [0.0, 1.0], 12) == pytest.approx(0.25 * 8 / 12)
    assert area_between([], [], 10) is None


def test_a_curve_in_bins_has_the_area_of_the_batches() -> None:
    ends, success = [3.0, 11.0, 20.0], [0.1, 0.7, 0.4]
    bins = binned(ends, success, 20.0, 7)
    assert np.mean(bins) == pytest.approx(area(ends, success, 20.0))
    assert bins[0] == pytest.approx(0.1) and bins[-1] == pytest.approx(0.4)
    late = binned(ends, success, 40.0, 4)
    assert late[:2] == pytest.approx([0.1 * 0.3 + 0.7 * 0.7, 0.7 * 0.1 + 0.4 * 0.9]) and all(map(math.isnan, late[2:]))


def test_where_a_height_is_reached() -> None:
    ends, success = [1, 2, 3, 4, 5, 6, 7], [0, 1, 0, 0, 1, 1, 1]
    assert reached(ends, success, 0.6, window=3) == 6
    assert reached(ends, success, 1.0, window=3) == 7
    assert reached(ends, success, 1.1) is None
    assert reached([1, 2], [1, 1], 0.5, window=5) == 2


def test_a_history_is_read_from_the_metrics(tmp_path: Path) -> None:
    times = {"seconds_rollout": 1.0, "seconds_forward": 0.25, "seconds_update": 0.5}
    entries = [
        {"kind": "evaluation", "update": 0, "split": "test", "mode": "sampled", "mean": 0.9},
        {"kind": "update", "update": 1, "env_steps": 10, "success": 0.2, **times},
        {"kind": "update", "update": 2, "env_steps": 25, "success": 0.4, "seconds_judge": 1.0, **times},
        {"kind": "evaluation", "update": 2, "split": "valid", "mode": "sampled", "mean": 0.3},
        {"kind": "evaluation", "update": 2, "split": "valid", "mode": "greedy", "mean": 0.5},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, entries)))
    history = read_history(tmp_path)
    assert history.column("busy_seconds") == [1.75, 4.5] and history.column("env_steps") == [10, 25]
    assert history.valid == [{"env_steps": 25, "sampled": 0.3, "greedy": 0.5}]
    with pytest.raises(UserError, match="without processor seconds: --clock wall"):
        read_history(tmp_path, Clock.PROCESSOR)
    entries[2] |= {"seconds_processor": 3.0}
    entries[1] |= {"seconds_processor": 2.0}
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, entries)))
    assert read_history(tmp_path, Clock.PROCESSOR).column("busy_seconds") == [2.0, 5.0]
    assert read_history(tmp_path).column("busy_seconds") == [1.75, 4.5]
    # A mean is over the updates that tell a figure, and no number where none does.
    assert history.mean("seconds_judge") == 1.0 and history.mean("success") == pytest.approx(0.3)
    assert math.isnan(history.mean("entropy_rise_10"))
    # What was no number is null: a figure that an update cannot tell, and one in which every episode broke.
    broken = {"kind": "update", "update": 3, "env_steps": 25, "success": None, **times}
    entries = [
        entries[1],
        {**entries[2], "entropy_rise_10": None},
        broken,
        {**entries[2], "update": 4, "env_steps": 30},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, entries)))
    history = read_history(tmp_path)
    assert math.isnan(history.mean("entropy_rise_10")) and history.column("update") == [1, 2, 4]
    assert history.column("busy_seconds") == [1.75, 4.5, 9.0], "its seconds were spent"


def test_test_results_become_figures() -> None:
    result = {"sampled": [1.0, None, 0.0], "greedy": [1.0, 1.0, 0.0], "pass": {"right_of": [[1, 4], [0, 4], [2, 3]]}}
    found = task_figures(result)
    assert found["final_sampled"][::2] == [1.0, 0.0] and math.isnan(found["final_sampled"][1])
    assert found["pass@2"] == pytest.approx([0.5, 0.0, 1.0])
    assert found["pass@4"][:2] == [1.0, 0.0] and math.isnan(found["pass@4"][2])
    assert [key for key in measured(4) if key.startswith("pass")] == ["pass@1", "pass@2", "pass@4"]


def test_credit_by_turn_is_a_mean_over_seeds_while_all_can_tell() -> None:
    def run(*told: float | None) -> dict[str, Any]:
        return {"a": {"by_turn": [{"auc": x, "value_solvable": None} for x in told]}}

    found = turn_by_turn({"base": [run(0.5, 0.7, 1.0, 1.0), run(0.7, 0.9, None)]})
    assert found["base"]["auc"]["a"] == ([0.0, 1.0], pytest.approx([0.6, 0.8]))
    assert found["base"]["value_solvable"]["a"] == ([], [])


# -- claims ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "bound", "expected"),
    [
        (0.10, 0.3, {"at_least": 0.1}, Verdict.HOLDS),
        (0.09, 0.3, {"at_least": 0.1}, Verdict.UNDECIDED),
        (-0.1, 0.09, {"at_least": 0.1}, Verdict.FAILS),
        (0.3, 0.6, {"at_most": 0.6}, Verdict.HOLDS),
        (0.3, 0.7, {"at_most": 0.6}, Verdict.UNDECIDED),
        (0.61, 0.7, {"at_most": 0.6}, Verdict.FAILS),
    ],
)
def test_the_interval_decides(low: float, high: float, bound: dict[str, float], expected: Verdict) -> None:
    claim = Claim("auc", "a", "b", **bound)  # type: ignore[arg-type]
    assert verdict(Interval((low + high) / 2, low, high), claim) is expected
    assert verdict(None, claim) is Verdict.UNDECIDED


def runs(*of_seed: float) -> dict[int, dict[str, list[float]]]:
    return {seed: {"auc": [value]} for seed, value in enumerate(of_seed)}


def test_claims_are_judged_in_pairs_of_seeds() -> None:
    figures: Any = {
        "low": runs(0.1, 0.3, 0.5, 0.7, 0.9),
        "high": runs(0.3, 0.5, 0.7, 0.9, 1.1),
        "half": runs(0.2, 0.4, 0.6, 0.8, 1.0),
    }
    more = judge(Claim("auc", "high", "low", at_least=0.19), figures)
    assert more.verdict is Verdict.HOLDS and more.value is not None and more.value.mean == pytest.approx(0.2)
    ratio = judge(Claim("auc", "high", "low", ClaimKind.RATIO, at_most=1.1), figures)
    assert ratio.verdict is Verdict.FAILS and ratio.value is not None and ratio.value.mean == pytest.approx(1.4)
    share = judge(Claim("auc", "half", "low", ClaimKind.SHARE, "high", at_least=0.49), figures)
    assert share.verdict is Verdict.HOLDS and share.value is not None and share.value.mean == pytest.approx(0.5)
    few = {name: dict(list(mine.items())[:4]) for name, mine in figures.items()}
    assert judge(Claim("auc", "high", "low", at_least=0.19), few).verdict is Verdict.UNDECIDED
    unpaired = {**figures, "high": runs(1.1, 0.9, 0.7, 0.5, 0.3)}
    assert judge(Claim("auc", "high", "low", at_least=0.19), unpaired).verdict is Verdict.UNDECIDED


def test_a_claim_among_others_counts_as_one_of_several() -> None:
    gains = [0.30, 0.01, 0.32, 0.20, 0.05, 0.28]  # t = 3.547
    figures: Any = {"a": runs(*gains), "b": runs(*[0.0] * 6)}
    claim = Claim("auc", "a", "b", at_least=0)
    (alone,) = judge_all([claim], figures)
    assert alone.verdict is alone.corrected is Verdict.HOLDS and alone.chance == pytest.approx(0.0082, abs=1e-4)
    others = [Claim("auc", "a", "b", at_least=bound) for bound in (0.30, 0.15, 0.35)]
    among = judge_all([claim, *others], figures)[0]
    assert among.verdict is Verdict.HOLDS and among.corrected is Verdict.UNDECIDED
    assert among.chance == pytest.approx(4 * 0.0082, abs=4e-4)
    first = judge_all([replace(claim, primary=True), *others], figures)
    assert first[0].corrected is Verdict.HOLDS and first[0].chance == alone.chance, "chosen beforehand: tested alone"
    assert first[1].chance == 1.0 and first[1].fieller is None


def test_ratios_and_shares_are_tested_by_what_is_left() -> None:
    figures: Any = {
        "low": runs(0.1, 0.2, 0.1, 0.3, 0.2),
        "half": runs(0.31, 0.38, 0.32, 0.52, 0.39),
        "high": runs(0.5, 0.6, 0.5, 0.7, 0.6),
    }
    share = judge(Claim("auc", "half", "low", ClaimKind.SHARE, "high", at_least=0.4), figures)
    other = judge(Claim("auc", "half", "high", ClaimKind.SHARE, "low", at_most=0.6), figures)  # the same, from above
    assert share.fieller is not None and 0.4 < share.fieller.low < 0.51 < share.fieller.high
    assert share.verdict is other.verdict is Verdict.HOLDS and share.chance == pytest.approx(other.chance)
    wide = judge(Claim("auc", "high", "even", ClaimKind.RATIO, at_least=0), figures | {"even": runs(1, -1, 1, -1, 0.1)})
    assert wide.fieller is None, "what is divided by may be 0"


@pytest.mark.parametrize("below", [(0.0,) * 5, (0.0, 0.0, 0.0, 0.0, 0.1)])
def test_a_ratio_whose_lower_part_may_be_0_has_no_bounds(below: tuple[float, ...]) -> None:
    figures = {
        name: {seed: {"auc": [value]} for seed, value in enumerate(values)}
        for name, values in (("a", (0.1,) * 5), ("b", below))
    }
    judged = judge(Claim("auc", "a", "b", ClaimKind.RATIO, at_most=100.0), figures)
    assert judged.value is None and judged.verdict is Verdict.UNDECIDED
    difference = judge(Claim("auc", "a", "b", at_least=0.0), figures)
    assert difference.value is not None and difference.verdict is Verdict.HOLDS


def test_one_claim_can_be_the_primary_one() -> None:
    claim = {"measure": "auc", "entrant": "a", "against": "b", "at_least": 0, "primary": True}
    assert read_claims([claim, claim | {"primary": False}], ["a", "b"], measured(0))[0].primary
    with pytest.raises(UserError, match="only one of them"):
        read_claims([claim, claim], ["a", "b"], measured(0))


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"measure": "auc", "entrant": "a", "against": "b", "at_least": 0, "primary": 1}, "true or false"),
        ({"measure": "auc", "entrant": "a", "against": "c", "at_least": 0}, "no entrant 'c'"),
        ({"measure": "auk", "entrant": "a", "against": "b", "at_least": 0}, "no measure 'auk'"),
        ({"measure": "auc", "entrant": "a", "against": "b"}, "either at_least or at_most"),
        ({"measure": "auc", "entrant": "a", "against": "b", "at_least": 0, "at_most": 1}, "either at_least or at_most"),
        ({"measure": "auc", "entrant": "a", "against": "b", "at_least": "much"}, "must be a number"),
        ({"measure": "auc", "entrant": "a", "against": "b", "kind": "rato", "at_least": 0}, "rato"),
        ({"measure": "auc", "entrant": "a", "against": "b", "kind": "share", "at_least": 0}, "no entrant ''"),
        ({"measure": "auc", "entrant": "a", "at_least": 0}, "against"),
        ({"measure": "auc", "entrant": "a", "against": "b", "at_least": 0, "source": 2512.17008}, "in quotes"),
        ({"measure": "auc", "entrant": "a", "against": "b", "at_least": 0, "text": None}, "in quotes"),
        ({"measur": "auc"}, "must hold some of measure"),
    ],
)
def test_a_claim_that_cannot_be_read_is_told_in_one_line(claim: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        read_claims([claim], ["a", "b"], measured(0))
    assert "claim 1" in str(error.value) and "\n" not in str(error.value)


# -- tuning ----------------------------------------------------------------------------------------------------------

SIX: list[dict[str, Any]] = [{"lr": lr} for lr in (1, 2, 3, 4, 5, 6)]


def test_everyone_gets_as_many_tries() -> None:
    assert candidates({"all": SIX, "a": SIX[::-1]}, ["a", "b"]) == {"a": SIX[::-1], "b": SIX}
    for tune, said in (
        ({"a": SIX}, "the same number of settings, at least 6; here: a 6, b 0"),
        ({"all": SIX[:5]}, "here: a 5, b 5"),
        ({"all": SIX, "a": [*SIX, {"lr": 7}]}, "here: a 7, b 6"),
        ({"all": SIX, "c": SIX}, "no entrant 'c'"),
        ({"all": {"lr": 1}}, "needs a list"),
        ([1], "by entrant"),
    ):
        with pytest.raises(UserError, match=said):
            candidates(tune, ["a", "b"])


def test_the_best_area_on_validation_tasks_is_chosen(tmp_path: Path) -> None:
    folders = []
    for i, valid in enumerate((0.3, 0.6, 0.6)):
        (folder := tmp_path / str(i)).mkdir()
        entries = [
            {"kind": "update", "update": 1, "env_steps": 10, "success": 1 - valid},  # training batches say otherwise
            {"kind": "evaluation", "update": 1, "split": "valid", "mode": "sampled", "mean": valid},
        ]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, entries)))
        folders.append([folder])
    tried = choose({"a": SIX[:3]}, {"a": folders}, 10)
    assert [one.chosen for one in tried] == [False, True, False] and [one.area for one in tried] == [0.3, 0.6, 0.6]
    # With a second seed, the mean decides.
    twice = choose({"a": SIX[:2]}, {"a": [[*folders[0], *folders[1]], [*folders[0], *folders[0]]]}, 10)
    assert [one.area for one in twice] == pytest.approx([0.45, 0.3]) and [one.chosen for one in twice] == [True, False]
    (tmp_path / "0" / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="never evaluated on validation tasks"):
        choose({"a": SIX[:3]}, {"a": folders}, 10)


# -- report ----------------------------------------------------------------------------------------------------------


def test_what_a_study_says_stays_text(tmp_path: Path) -> None:
    said = '<script>alert("自评")</script> | *a* `b` [c](http://x.y) ![d](e)'
    html = page(markdown_table(["", literal(said)], [["x", "**1**"]]), tmp_path)
    table = ElementTree.fromstring(html[html.index("<table>") : html.index("</table>") + 8])
    head = table.find("thead/tr")
    assert head is not None and [cell.text for cell in head] == [None, said] and not any(len(cell) for cell in head)
    assert table.find(".//strong") is not None  # ours is markup


def compared(names: list[str]) -> Findings:
    """Entrants that are all alike."""
    figures = {name: {0: {"auc": [0.4]}, 1: {"auc": [0.6]}} for name in names}
    rows = [{"env_steps": 10 * i, "sampled_tokens": i, "update": i, "busy_seconds": i, "success": 0.1} for i in (1, 2)]
    histories = {name: {0: History(rows, []), 1: History(rows, [])} for name in names}
    means = {"auc": dict.fromkeys(names, Interval(0.5, 0.4, 0.6))}
    nothing: Any = {}
    return Findings(names[0], (0, 1), 20, figures, ["auc"], means, nothing, nothing, (), (), histories, *[nothing] * 5)


def size(file: Path) -> list[float]:
    """(width, height) of a picture."""
    root = ElementTree.fromstring(file.read_text("utf-8"))
    return [float(root.attrib[side].removesuffix("pt")) for side in ("width", "height")]


def test_a_picture_of_many_entrants_has_room_for_their_names(tmp_path: Path) -> None:
    """Where it had none, matplotlib warned, and drew them over each other."""
    names = [f"selfac_bare_detached_td2_replay_{i}" for i in range(32)]
    for count in (12, 32):
        (tmp_path / str(count)).mkdir()
        files = pictures.draw(compared(names[:count]), tmp_path / str(count))
        assert len(files["curves"]) == 4
    few, many = (size(tmp_path / str(count) / "pictures" / "success-update.svg") for count in (12, 32))
    assert many[1] / 72 >= 32 * 0.2 and many[0] > few[0]
    assert few == size(tmp_path / "12" / "pictures" / "auc.svg")


def test_a_picture_is_part_of_the_page_and_keeps_names_as_text(tmp_path: Path) -> None:
    names = ["<b>自评</b>", "$x_1^", *(f"n{i}" for i in range(10))]
    result = compared(names)
    files = pictures.draw(result, tmp_path)
    assert [name for _, name in files["measures"]] == ["pictures/auc.svg"] and not files["pass"] and not files["credit"]
    text = (tmp_path / "pictures" / "auc.svg").read_text("utf-8")
    ElementTree.fromstring(text)
    assert "&lt;b&gt;自评&lt;/b&gt;" in text and "$x_1^" in text
    drawn = (tmp_path / "pictures" / "success-env_steps.svg").read_text("utf-8")
    assert "stroke-dasharray" in drawn  # the eleventh line has the colour of the first
    assert pictures.draw(result, tmp_path) == files and text == (tmp_path / "pictures" / "auc.svg").read_text("utf-8")
    html = page("\n".join(f"![{about}]({name})" for about, name in files["curves"]), tmp_path)
    assert html.count("src='data:image/svg+xml;base64,") == len(files["curves"]) == 4


def test_the_short_table_has_a_row_for_each_entrant_and_marks_what_is_certain() -> None:
    better, worse, open_ = Interval(0.1, 0.05, 0.2), Interval(-0.1, -0.2, -0.05), Interval(0.1, -0.1, 0.2)
    names = ["base", "a*b", "low", "open"]
    result = replace(
        compared(names), differences={"auc": dict(zip(names[1:], (better, worse, open_), strict=True))}, judged=()
    )
    head, _, *rows, note = [line for line in "\n".join(_short(result)).splitlines()[1:] if line]
    text = "0.500 [0.400, 0.600]"
    assert head == "|  | area under the curve |"
    assert rows == [
        f"| base | {text} |", rf"| a\*b | **{text}** |", f"| low | *{text}* |", f"| open | {text} |",
    ]  # fmt: skip
    assert "better than base" in note
