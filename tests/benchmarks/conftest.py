"""The benchmarks are programs beside the packages, not installed with them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
