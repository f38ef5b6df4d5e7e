"""A whole run on questions made of a ZIM file's own pages, the tiny model included."""

import json
from pathlib import Path

import pytest

pytest.importorskip("libzim", reason="needs the extra zim")

from run_cases import rows, training

from agent_envs.wiki.world import build_world
from benchmarks.wiki_zim import write_zim

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]
RUN = """
env: wiki
updates: 2
episodes: 8
minibatches: 2
eval_every: 0
test_tasks: 4
react: {max_action_tokens: 48, max_tokens: 1200}
envs: {processes: 1}
wiki: {backend: zim, path: "%s", crawl: 40, max_turns: 6, max_hops: 2}
pretrain:
  {flaw: 0.5, demonstrations: 300, steps: 300, drill_texts: 50, shape: {width: 64, mlp: 128}}
"""


def test_the_tiny_model_trains_on_a_wiki_of_its_own_links(tmp_path: Path) -> None:
    world = build_world(0, "train", 0, 40)
    file = write_zim(tmp_path / "wiki.zim", (world.page(at, "en") for at in range(40)))
    with training(tmp_path / "run", text=RUN % file) as run:
        run.run()
    updates = [row for row in rows(tmp_path / "run") if row["kind"] == "update"]
    assert len(updates) == 2 and all(row["faults"] == 0 and row["turns"] > 1 for row in updates)
    episodes = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    assert len(episodes) >= 16 and all(one["task"].startswith("page0-") for one in episodes)
