"""The episodes that were credited, with their true values: as records, and as a page of the viewer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.tree.episode import Episode, EpisodeId
from runners.command_line.plain import dump_json, plain
from runners.crediting.played_values import PlayedValues
from runners.crediting.settings import Credit
from runners.run_folder.folder import write_whole
from runners.training.credited import Credited
from runners.training.records import outcome_record
from runners.viewer.build import page_of, write_page
from runners.viewer.read import RunRecords, flat, index_episodes

RECORD, PAGE = "credit.jsonl", "credit.html"


@dataclass(frozen=True)
class CreditedEpisodes:
    """The episodes of one policy."""

    update: int
    """After which the policy was saved; 0 for the untrained one."""
    episodes: Sequence[Episode]
    values: Mapping[EpisodeId, PlayedValues] | None
    """Where continuations were played."""
    credits: Mapping[str, Mapping[EpisodeId, Credited]]
    """By scorer."""


def write_episodes(policies: Sequence[CreditedEpisodes], credit: Credit, source: str, folder: Path) -> None:
    """credit.jsonl and credit.html; the tokenizer of the model ``source`` made the ids. Raises UserError, OSError."""
    lines = [dump_json(row, indent=None).rstrip("\n") + "\n" for policy in policies for row in records(policy)]
    write_whole(folder / RECORD, "".join(lines))
    run = RunRecords(folder, flat(plain(credit)), (), (), (), source)
    page, _ = page_of(credit.model.resolve().name, run, index_episodes(folder / RECORD))
    write_page(page, folder / PAGE, follow=False)


def records(policy: CreditedEpisodes) -> Iterator[dict[str, Any]]:
    """A line of episodes.jsonl for each episode: V and advantage of the first scorer, and of each by its name."""
    first = next(iter(policy.credits.values()))
    for episode in policy.episodes:
        name = episode.job.id
        row = outcome_record(policy.update, episode, first)
        of_scorer = {scorer: credits[name] for scorer, credits in policy.credits.items() if name in credits}
        for k, turn in enumerate(row["turns"]):
            turn["values"] = {scorer: one.values[k] for scorer, one in of_scorer.items() if one.values}
            turn["advantages"] = {scorer: one.advantages[k] for scorer, one in of_scorer.items() if one.advantages}
        if policy.values is not None:
            known = policy.values[name]
            for place, value, error in zip((row, *row["turns"]), known.values, known.errors, strict=True):
                place |= {"played": value, "played_error": error}
            for turn, progress in zip(row["turns"], known.progress, strict=True):
                turn["progress"] = progress
        yield row
