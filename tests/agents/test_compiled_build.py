"""How C gets compiled and loaded, and that it touches no memory that is not its own."""

import os
import platform
import shutil
import subprocess
import sys
from ctypes import CDLL
from pathlib import Path

import pytest
from changed_c import changed
from tree_cases import actor_critic, base, trees

from agents.compiled import adapted, build, layers, transformer, tree_attention
from agents.compiled.build import CompileError, library, processor
from agents.model.attention.backends import choose
from agents.model.attention.blocks import TreePlan
from agents.model.settings import Attention
from agents.text.errors import ModelError
from agents.tree.packing import pack


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing compiled in this process yet."""
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    library.cache_clear()
    yield tmp_path  # type: ignore[misc]
    library.cache_clear()


def compiler(folder: Path, script: str) -> str:
    path = folder / "fakecc"
    path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    path.chmod(0o755)
    return str(path)


def test_without_a_compiler_blocks_compute_and_say_why(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fresh))
    assert choose(Attention.AUTO, base()) == (Attention.BLOCKS, "since there is no C compiler (cc)")
    assert isinstance(actor_critic().plan_of(pack(trees("chain"))), TreePlan)
    with pytest.raises(ModelError, match=r"compiled: there is no C compiler \(cc\); set --attention blocks"):
        choose(Attention.COMPILED, base())


@pytest.mark.runs
def test_all_is_compiled_beside_what_else_a_process_does(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.begin().join()
    monkeypatch.setenv("PATH", str(fresh))
    for source in sorted(layers.SOURCE.parent.glob("*.c")):
        assert isinstance(library(source), CDLL)


def test_what_cannot_be_compiled_is_told_where_it_is_asked_for(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fresh))
    build.begin().join()
    with pytest.raises(CompileError, match="no C compiler"):
        library(layers.SOURCE)


def test_what_was_compiled_once_needs_no_compiler(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(Attention.AUTO, base())[0] is Attention.COMPILED
    library.cache_clear()
    monkeypatch.setenv("PATH", str(fresh))
    assert choose(Attention.AUTO, base())[0] is Attention.COMPILED
    library.cache_clear()
    monkeypatch.setattr(build, "processor", lambda: "another")
    assert choose(Attention.AUTO, base())[0] is Attention.BLOCKS


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'x.c:1: error: no' >&2; exit 1", r"fakecc cannot compile tree_attention.c \(x.c:1: error: no\)"),
        ("exit 3", r"fakecc cannot compile tree_attention.c \(it failed\)"),
        ("sleep 60", "fakecc did not end within 1 seconds"),
    ],
)
def test_a_compiler_that_fails(fresh: Path, script: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PATIENCE", 1)
    monkeypatch.setenv("CC", compiler(fresh, script))
    with pytest.raises(CompileError, match=why):
        library(tree_attention.SOURCE)
    assert not list((fresh / "compiled").glob("*/library.so"))


def test_a_compiler_that_knows_no_native_processor(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuses = 'for x in "$@"; do case "$x" in -march=native|-mcpu=native) exit 1;; esac; done; exec cc "$@"'
    monkeypatch.setenv("CC", compiler(fresh, refuses))
    assert isinstance(library(tree_attention.SOURCE), CDLL)


def test_what_cannot_be_loaded_or_written(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler(fresh, 'while [ "$1" != -o ]; do shift; done; echo no library > "$2"'))
    with pytest.raises(CompileError, match=r"library.so"):
        library(tree_attention.SOURCE)
    (fresh / "file").write_text("")
    monkeypatch.setenv("TURNWISE_CACHE", str(fresh / "file"))
    with pytest.raises(CompileError, match="set TURNWISE_CACHE to a writable folder"):
        library(tree_attention.SOURCE)


def test_a_library_of_another_user_is_not_loaded(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tree_attention.SOURCE)
    library.cache_clear()
    owner = os.geteuid()
    monkeypatch.setattr(build.os, "geteuid", lambda: owner + 1)
    if owner == 0:  # root may put it there for others
        assert isinstance(library(tree_attention.SOURCE), CDLL)
        place = next((fresh / "compiled").glob("tree_attention-*[0-9a-f]"))
        os.chown(place, 12345, -1)
        library.cache_clear()
    with pytest.raises(CompileError, match="belongs to another user"):
        library(tree_attention.SOURCE)


@pytest.mark.runs
@pytest.mark.parametrize(
    "source", [adapted.SOURCE, layers.SOURCE, tree_attention.SOURCE, transformer.SOURCE], ids=lambda path: path.stem
)
def test_no_warnings_for_any_width_of_vectors(source: Path, tmp_path: Path) -> None:
    here = [(), ("-mavx2", "-mfma"), ("-mavx512f",)] if platform.machine() == "x86_64" else [()]
    for flags in here:
        strict = ["-O1", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]  # no vector is passed between files
        command = ["cc", *build.FLAGS, *flags, *strict, "-o", str(tmp_path / "x.so"), str(source), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_processor_has_a_name() -> None:
    assert len(processor()) > 5 and processor() == processor()


def sanitized(folder: Path, source: Path) -> subprocess.CompletedProcess[str]:
    """The comparison with dense attention in a process whose C ends at the first access to memory that is not its."""
    library = folder / f"{source.stem}.so"
    checks = ["-fsanitize=address,undefined", "-fno-sanitize=alignment", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *build.FLAGS, "-O1", "-march=native", *checks, "-o", library, source, "-lm"], check=True)
    found = [
        subprocess.run(["gcc", f"-print-file-name=lib{name}.so"], capture_output=True, text=True, check=True)
        for name in ("asan", "ubsan")
    ]
    preload = " ".join(path.stdout.strip() for path in found)
    child, paths = Path(__file__).with_name("sanitized_child.py"), os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, str(child), source.stem, str(library)],
        env=os.environ | {"LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.runs
@pytest.mark.skipif(shutil.which("gcc") is None, reason="the sanitizers are gcc's")
@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        (adapted.SOURCE, "most(forward_room(w), back_room(w))", "forward_room(w)"),
        (layers.SOURCE, "memcpy(to, &x, 4 * k)", "memcpy(to, &x, 4 * k + 4)"),
        (tree_attention.SOURCE, "4 * z->T * whole(z->D)", "4 * z->T * whole(z->D) - 4096"),
        (transformer.SOURCE, "whole(b->D) * step", "whole(b->D) * step - 4096"),
    ],
    ids=["adapted", "layers", "tree attention", "transformer"],
)
def test_no_access_beyond_its_memory(source: Path, right: str, wrong: str, tmp_path: Path) -> None:
    done = sanitized(tmp_path, source)
    assert done.returncode == 0 and done.stdout == "nothing was touched that should not be\n", done.stderr[-2000:]
    (tmp_path / "wrong").mkdir()
    done = sanitized(tmp_path / "wrong", changed(source, right, wrong, tmp_path / "wrong"))
    assert done.returncode != 0 and "AddressSanitizer" in done.stderr
