"""The benchmarks are programs beside the packages, not installed with them; runs are made as those of tests/runners."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "runners"))
