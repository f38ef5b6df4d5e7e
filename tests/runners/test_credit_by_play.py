"""Credit against the policy's own values: by hand, and the program on a run of the identity environment."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from run_cases import training
from test_credit import BAD, CREDITED, GOOD

from agents.tree.episode import EpisodeId
from agents.tree.merge import Tree, grow
from algorithms import algorithm_class
from algorithms.vineppo import VinePPO
from runners.command_line.errors import UserError
from runners.crediting.page import CreditedEpisodes, records
from runners.crediting.played_values import PlayedValues, played_values
from runners.crediting.program import measure, scorers, show
from runners.crediting.quality import WHEN, credited_turns, quality
from runners.crediting.settings import Credit
from runners.training.continuations import Estimate

VALUES = {"good": [(0.5, 0.1), (0.6, 0.1), (0.9, 0.05)], "bad": [(0.5, 0.1), (0.1, 0.05), (0.0, 0.0)]}


def estimates(trees: list[Tree]) -> list[Estimate]:
    return [
        Estimate(node, *known)
        for tree in trees
        for episode, path in tree.paths
        for node, known in zip((tree.root, *(s for _, s in path[:-1])), VALUES[episode.job.task.id], strict=True)
    ]


def valued() -> dict[EpisodeId, PlayedValues]:
    trees = grow([GOOD, BAD])
    return played_values(trees, estimates(trees))


def test_progress_is_a_change_of_what_the_policy_gets_beyond_two_standard_errors() -> None:
    good, bad = valued()[GOOD.job.id], valued()[BAD.job.id]
    assert good.values == (0.5, 0.6, 0.9, 0.0) and bad.values == (0.5, 0.1, 0.0, 0.0)
    # 0.6 - 0.5 is within 2 x 0.141; a last action that is rewarded with 1 gains 1 + 0 - 0.9, with an error of 0.05.
    assert good.progress == pytest.approx((0.0, 0.3, 0.0)) and bad.progress == pytest.approx((-0.4, 0.15, 0.0))
    trees = grow([GOOD])
    nearly = [replace(one, error=0.04 if one.mean == 0.9 else one.error) for one in estimates(trees)]
    assert played_values(trees, nearly)[GOOD.job.id].progress == pytest.approx((0.0, 0.3, 0.1))


def test_an_episode_with_a_state_that_could_not_be_valued_is_left_out() -> None:
    trees = grow([GOOD, BAD])
    broken = [replace(one, error=None) if one.mean == 0.6 else one for one in estimates(trees)]
    played = played_values(trees, broken)
    assert played[GOOD.job.id].values[1] is None and math.isnan(played[GOOD.job.id].progress[0])
    assert (
        len(credited_turns([GOOD, BAD], CREDITED, played))
        == len(BAD.turns)
        < len(credited_turns([GOOD, BAD], CREDITED, valued()))
    )


def test_the_record_has_the_truth_and_everyones_credit() -> None:
    policy = CreditedEpisodes(
        3, [GOOD, BAD], valued(), {"mine": CREDITED, "other": {GOOD.job.id: CREDITED[GOOD.job.id]}}
    )
    good, bad = records(policy)
    assert (good["update"], good["played"], good["played_error"]) == (3, 0.5, 0.1)
    told = [(turn["played"], turn["played_error"], turn["progress"]) for turn in good["turns"]]
    assert told == [(0.6, 0.1, 0.0), (0.9, 0.05, pytest.approx(0.3)), (0.0, 0.0, 0.0)]
    assert good["turns"][1]["advantages"] == {"mine": 0.2, "other": 0.2} and good["turns"][1]["advantage"] == 0.2
    assert [turn["values"] for turn in bad["turns"]] == [{"mine": 0.4}, {"mine": 0.1}, {"mine": 0.1}]


def test_figures_go_by_the_played_values() -> None:
    turns = credited_turns([GOOD, BAD], CREDITED, valued())
    assert turns.target.tolist() == turns.returns.tolist() == [1.0, 1.0, 1.0, 0.25, 0.25, 0.0]
    found = quality(turns, draws=20)
    assert found["auc"] is not None and found["auc"].mean == 1.0  # 0.2 and 0.1 against -0.3
    by_oracle = quality(credited_turns([GOOD, BAD], CREDITED), draws=20)["auc"]
    assert by_oracle is not None and by_oracle.mean != found["auc"].mean


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("runs")
    with training(parent / "selfac", "--updates", "2", "--test-tasks", "0") as run:
        run.run()
    return parent / "selfac"


@pytest.mark.runs
@pytest.mark.usefixtures("own_cache")
def test_the_program_plays_on_with_seeds_that_no_algorithm_sees(folder: Path) -> None:
    credit = Credit(folder, ("selfac", "gigpo", "vineppo"), episodes=48, group=4, split="train", continuations=24)
    others = {"gigpo": algorithm_class("gigpo")(), "vineppo": VinePPO(continuations=24)}
    console = Console(file=io.StringIO(), width=200)
    measured = measure(credit, scorers(credit, others, console), console)
    found = measured.figures
    for when in WHEN:
        assert 0 < found[when]["error"] < 0.15
        figures = {name: one["figures"] for name, one in found[when]["scorers"].items()}
        # It credits by values of the same policy with the same error: nearly right, and not the truth itself.
        assert figures["vineppo"]["auc"].mean > 0.9 and figures["vineppo"]["auc"].mean >= figures["gigpo"]["auc"].mean
        assert 0.6 < figures["vineppo"]["value_rank"].mean < 0.999
    show(found, console, credit.continuations)
    assert isinstance(console.file, io.StringIO) and "standard error" in console.file.getvalue()
    # The control: with the oracle the same episodes have another truth.
    exact = measure(replace(credit, continuations=0), scorers(credit, others, console), console).figures
    assert exact["base"]["error"] is None and exact["base"]["counts"] != found["base"]["counts"]


def test_one_continuation_has_no_standard_error_and_is_refused() -> None:
    with pytest.raises(ValueError, match="2 or more"):
        Credit(continuations=1)


@pytest.mark.runs
@pytest.mark.usefixtures("own_cache")
def test_without_an_oracle_the_error_names_continuations(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.crediting.program.has_oracle", lambda *_: False)
    credit, console = Credit(folder, episodes=8, group=4, split="train"), Console(file=io.StringIO())
    with pytest.raises(UserError, match="--continuations 16") as error:
        measure(credit, scorers(credit, {}, console), console)
    assert "\n" not in str(error.value)
