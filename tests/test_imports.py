"""What imports what, and how quickly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from importlinter import cli

HERE = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "peft", "tantivy", "matplotlib")
TIMED = """
import json, sys, time
started = time.process_time()
import agent_envs
took = time.process_time() - started
agent_envs.make("identity")
print(json.dumps([took, sorted(sys.modules)]))
"""


def test_importing_agent_envs_is_quick_and_pulls_in_no_model() -> None:
    done = subprocess.run([sys.executable, "-c", TIMED], cwd=HERE, capture_output=True, text=True, check=True)
    took, modules = json.loads(done.stdout)
    assert took < 1.0
    assert "agent_envs.identity" in modules
    assert [name for name in HEAVY if name in modules] == []


def test_the_packages_import_in_one_direction_only() -> None:
    assert cli.lint_imports(config_filename=str(HERE / "pyproject.toml")) == 0


def test_the_direction_is_really_checked(tmp_path: Path) -> None:
    rules = (HERE / "pyproject.toml").read_text("utf-8")
    turned = rules.replace(
        'layers = ["runners", "algorithms", "agents", "agent_envs"]',
        'layers = ["agent_envs", "agents", "algorithms", "runners"]',
    )
    assert turned != rules
    (tmp_path / "pyproject.toml").write_text(turned, "utf-8")
    assert cli.lint_imports(config_filename=str(tmp_path / "pyproject.toml")) == 1
