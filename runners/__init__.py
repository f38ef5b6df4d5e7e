"""Programs: train, evaluate, pretrain."""

import importlib.util
import sys
from pathlib import Path
from typing import NoReturn

_NEEDED = ("torch", "transformers", "peft", "gymnasium", "tantivy", "rapidfuzz", "tyro", "rich", "yaml", "matplotlib")


def check_install() -> None:
    """Ends the program with one line when something it needs is missing or hidden by another package."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        _stop(f"{', '.join(missing)} not installed: run `make install`, or `pip install -e .`, in this folder")
    here = Path(__file__).resolve().parent.parent
    for name in ("agent_envs", "agents", "algorithms"):
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if found != here:
            _stop(
                f"the package {name!r} comes from {found}, not from {here}: another installed package has the "
                "same name (openai-agents does); use an environment of its own"
            )


def _stop(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
