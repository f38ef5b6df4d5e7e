"""What imports what, and how quickly."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
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
    assert "agent_envs.identity.env" in modules
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


def test_a_circle_is_found_between_annotations_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "going_round"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("import going_round.b\n")
    (package / "b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import going_round.a\n")
    rules = (HERE / "pyproject.toml").read_text("utf-8")
    (contract,) = (c for c in rules.split("[[tool.importlinter.contracts]]") if "acyclic_siblings" in c)
    contract = re.sub(r"ancestors = .*", 'ancestors = ["going_round"]', contract)
    head = '[tool.importlinter]\nroot_packages = ["going_round"]\n\n[[tool.importlinter.contracts]]'
    (tmp_path / "pyproject.toml").write_text(head + contract, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cli.lint_imports(config_filename=str(tmp_path / "pyproject.toml")) == 1
    (package / "b.py").write_text("")
    assert cli.lint_imports(config_filename=str(tmp_path / "pyproject.toml"), cache_dir=None) == 0
