"""The benchmarks of GPUs and of peak memory: that they run, what they count, and that their conditions can fail."""

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agents.tree.packing import pack
from benchmarks import gpu, gpu_run, peak_memory, variants
from benchmarks.timing import Spread

ROOT = Path(__file__).resolve().parents[2]


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.runs
def test_the_program_runs_on_a_cpu_with_tiny_shapes(tmp_path: Path) -> None:
    ran = run("benchmarks/gpu.py", "--quick", "--rounds", "1", "--out", str(tmp_path / "gpu.json"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads((tmp_path / "gpu.json").read_text())
    cells = {(c["workload"], c["way"]): c for c in result["cells"]}
    assert len(cells) == 6 and all(c["seconds"] and c["tokens"] for c in cells.values())
    assert cells["group of 16", "padded"]["tokens"] == 16 * 80
    assert cells["group of 16", "tree"]["tokens"] == 60 + 16 * 20
    assert all(c["holds"] for c in result["conditions"]) and len(result["conditions"]) == 2


@pytest.mark.runs
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line() -> None:
    ran = run("benchmarks/gpu.py")
    assert ran.returncode == 1 and ran.stdout == ""
    wanted = "error: no CUDA device is here: run it on a GPU, or --quick to try the program on the CPU\n"
    assert ran.stderr.endswith(wanted)


@pytest.mark.runs
def test_a_whole_run_on_a_cpu_with_a_tiny_shape(tmp_path: Path) -> None:
    small = ("--updates", "2", "--episodes", "4", "--answer", "4")
    ran = run("benchmarks/gpu_run.py", "--quick", *small, "--out", str(tmp_path / "run.json"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (one,) = json.loads((tmp_path / "run.json").read_text())["runs"]
    assert one["sampled"] == 4 * 10 * 4 and one["said"] > 0 and one["peak"] is None
    assert all(one["seconds"][phase] > 0 for phase in gpu_run.PHASES)


def test_conditions_of_whole_runs_can_fail() -> None:
    good = gpu_run.Measured("4B", "flex", {}, 10.0, 1.0, gap=0.001, peak=100, said=110)
    assert [holds for _, holds in gpu_run.conditions([good])] == [True, True]
    low, high, apart = replace(good, said=80), replace(good, said=120), replace(good, gap=0.02)
    held = [[holds for _, holds in gpu_run.conditions([bad])] for bad in (low, high, apart)]
    assert held == [[True, False], [True, False], [False, True]]


def test_flops_are_those_that_torch_counts() -> None:
    """Of a forward without LoRA; attention is left out there, and counted by hand here."""
    from torch.utils.flop_counter import FlopCounterMode

    model = gpu.model_of(gpu.TINY["tiny"], "cpu")
    batch = pack([variants.episode(3, random.Random(0))])
    with FlopCounterMode(display=False) as counted:
        model.reference(batch)
    config = model.causal_model.config
    pairs = float((batch.pos_T + 1).sum())
    attention = 4 * pairs * config.num_attention_heads * config.head_dim * config.num_hidden_layers
    ours = (gpu.flops(model, batch) - 3 * attention) / 2
    assert counted.get_total_flops() == pytest.approx(ours, rel=0.01)


def test_a_wrong_tree_is_apart_from_padded_rows() -> None:
    """The control of the condition that both compute the same: branches that see each other."""
    model = gpu.model_of(gpu.TINY["tiny"], "cpu")
    batch = pack([variants.group(60, [20] * 8, random.Random(0))])
    wrong = replace(batch, end_T=torch.full_like(batch.end_T, len(batch)))
    padded, tree, spoiled = (
        gpu.once(model, way, rows, "cpu")[0]
        for way, rows in ((variants.padded_rows, batch), (variants.packed, batch), (variants.packed, wrong))
    )
    assert gpu.apart(tree, padded) <= 0.1 < gpu.apart(spoiled, padded)


def cell(way: str, workload: str, seconds: float, **change: object) -> gpu.Cell:
    spread = Spread(seconds, seconds, seconds)
    off = 0.01 if way == "padded" else None
    return replace(gpu.Cell("4B", workload, way, 1000, 1e15, off, spread, None), **change)


def test_conditions_of_speed_can_fail() -> None:
    good = [
        cell("grpo", "episodes", 2.0),
        cell("self-ac", "episodes", 2.4, tokens=1160),
        cell("tree", "group of 16", 1.0),
        cell("padded", "group of 16", 3.5),
    ]
    assert [holds for _, holds in gpu.conditions(good, 989.0, quick=False)] == [True] * 4
    bad = [
        cell("grpo", "episodes", 3.0),
        cell("self-ac", "episodes", 4.0, tokens=1160),
        cell("tree", "group of 16", 1.0),
        cell("padded", "group of 16", 2.5, off=0.3),
    ]
    assert [holds for _, holds in gpu.conditions(bad, 989.0, quick=False)] == [False] * 4
    full = [cell("tree", "group of 16", 1.0), replace(cell("padded", "group of 16", 0.0, off=None), seconds=None)]
    assert list(gpu.conditions(full, 989.0, quick=False)) == []
    assert gpu.row(full[1], 989.0)[1] == "out of memory"


def test_conditions_of_memory_can_fail() -> None:
    fine = peak_memory.Peak("grpo", 10, weights=100, activations=100, peak=250)
    more = peak_memory.Peak("selfac", 12, weights=100, activations=120, peak=400)
    assert [holds for _, holds in peak_memory.conditions(fine, fine, quick=False)] == [True] * 3
    assert [holds for _, holds in peak_memory.conditions(fine, more, quick=False)] == [True, False, False]


@pytest.mark.runs
def test_peak_memory_runs(tmp_path: Path) -> None:
    ran = run("benchmarks/peak_memory.py", "--quick", "--out", str(tmp_path / "peak.json"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
