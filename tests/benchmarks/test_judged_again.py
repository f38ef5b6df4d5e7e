"""Claims of recorded studies, judged together: which studies and claims are read, and that the file is up to date."""

import json
from pathlib import Path

import yaml

from benchmarks.judged_again import JudgedAgain, judged, plain
from runners.command_line.plain import dump_json

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_recorded_file_is_what_the_studies_say() -> None:
    settings = JudgedAgain(ROOT / "benchmarks" / "studies", ROOT / "benchmarks" / "results")
    found = {study: [plain(one) for one in claims] for study, claims in judged(settings)}
    recorded = json.loads((ROOT / "benchmarks" / "results" / "claims.json").read_text("utf-8"))
    fresh = json.loads(dump_json(found))
    assert fresh.keys() == recorded.keys()
    for study, claims in fresh.items():
        verdicts = [(c["claim"], c["verdict"], c["corrected"]) for c in claims]
        assert verdicts == [(c["claim"], c["verdict"], c["corrected"]) for c in recorded[study]]
    assert sum(c["verdict"] == "holds" for claims in fresh.values() for c in claims) == 124
    assert sum(c["corrected"] == "holds" for claims in fresh.values() for c in claims) == 75


def test_what_a_study_has_no_runs_of_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "results" / "one").mkdir(parents=True)
    rows = [f"{who},grpo,{seed},{seed / 10 + gain}" for who, gain in (("a", 0.3), ("b", 0.0)) for seed in range(6)]
    (tmp_path / "results" / "one" / "runs.csv").write_text("\n".join(["entrant,algo,seed,auc", *rows]))
    claims = [{"measure": "auc", "entrant": who, "against": "b", "at_least": 0} for who in ("a", "later")]
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"claims": claims}))
    ((study, found),) = judged(JudgedAgain(tmp_path, tmp_path / "results"))
    assert study == "one" and [one.claim.entrant for one in found] == ["a"]
    assert found[0].corrected.value == "holds"
