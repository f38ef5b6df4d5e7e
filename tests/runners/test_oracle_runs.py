"""Runs that record what the environment knows: who asks, where it is written, and who cannot be asked."""

import json
from pathlib import Path
from typing import Any

import pytest
from run_cases import SMALL, training

from agent_envs import registry
from agent_envs.identity.env import IdentityEnv
from runners.command_line.errors import UserError

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]


class BlindEnv(IdentityEnv):
    name = "blind"

    def oracle(self) -> Any:
        return None


def episodes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("argv", "told"),
    [(("--react.oracle",), True), (("--algo", "exact_critic"), True), ((), False)],
    ids=["asked", "needed", "neither"],
)
def test_episodes_record_the_oracle_of_every_state(tmp_path: Path, argv: tuple[str, ...], told: bool) -> None:
    with training(tmp_path / "run", "--updates", "1", "--test-tasks", "0", "--eval-every", "0", *argv) as run:
        run.run()
    for episode in episodes(tmp_path / "run"):
        chances = [episode["oracle"], *(turn["oracle"] for turn in episode["turns"])]
        if not told:
            assert not any(chance is not None for chance in chances)
            continue
        assert chances[0] == pytest.approx(0.5**3) and chances[-1] == float(episode["success"])
        for before, after, turn in zip(chances, chances[1:], episode["turns"], strict=False):
            right = turn["reward"] > 0
            # From a state without hope nothing rises; an invalid turn leaves the chance while there are turns to spare.
            assert after > before or before == 0 if right else after <= before


def test_whoever_asks_plays_the_same_episodes(tmp_path: Path) -> None:
    """What the oracle tells is never seen by the agent."""
    seen = []
    for name, argv in (("asked", ("--react.oracle",)), ("not", ())):
        with training(tmp_path / name, "--updates", "2", "--test-tasks", "0", "--eval-every", "0", *argv) as run:
            run.run()
        seen.append([[turn["tokens"] for turn in e["turns"]] for e in episodes(tmp_path / name)])
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("argv", "who"), [(("--react.oracle",), "--react.oracle"), (("--algo", "exact_critic"), "--algo exact_critic")]
)
def test_an_environment_without_one_is_refused_before_a_model_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], who: str
) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(registry.ENVS, "blind", f"{__name__}:BlindEnv")
    text = SMALL.replace("env: identity", "env: blind")
    with pytest.raises(UserError, match=f"^{who} needs an oracle, and the environment blind has none$"):
        training(tmp_path / "run", *argv, text=text)
    assert not (tmp_path / "cache").exists() and not (tmp_path / "run" / "episodes.jsonl").exists()
