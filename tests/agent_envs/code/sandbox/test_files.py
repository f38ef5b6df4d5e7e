"""What is put into a run's folder and taken out of it, in folders of this machine."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from agent_envs.code.sandbox.zygote import files
from agent_envs.code.sandbox.zygote.cage import Bounds
from agent_envs.code.sandbox.zygote.process import ProcessCage


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder as a hostile program leaves it, beside a secret."""
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "fine").write_text("fine")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    os.mknod(folder / "\udcff".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"))
    (folder / "large").write_bytes(bytes(5000))
    deep = folder
    for _ in range(50):
        deep /= "d"
        deep.mkdir()
    (deep / "x").write_text("deep")
    return folder


def test_nothing_is_followed(trap: Path) -> None:
    found = files.take(str(trap), {"was": b""}, 4096)
    assert found.changed == {"fine": b"fine"}
    assert found.deleted == ["was"]
    assert {"fifo", "large", "link"} <= set(found.skipped) and not any("secret" in name for name in found.skipped)


def test_one_that_follows_reads_the_secret(trap: Path) -> None:
    naive = {path.name: path.read_text() for path in trap.iterdir() if path.name == "link"}
    assert naive == {"link": "secret"}


def test_what_comes_back_is_bounded_together(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(bytes(600))
    found = files.take(str(tmp_path), {}, 1300)
    assert sorted(found.changed) == ["a", "b"] and found.skipped == ["c"]


def test_files_that_are_as_they_were_do_not_count(tmp_path: Path) -> None:
    given = {"a/b": bytes(5000), "c": b"c"}
    files.put(str(tmp_path), given)
    assert (tmp_path / "a/b").read_bytes() == bytes(5000)
    assert files.take(str(tmp_path), given, 0) == ({}, [], [])


def test_everything_is_removed_and_nothing_else(trap: Path) -> None:
    (trap / "closed").mkdir()
    (trap / "closed" / "x").write_text("")
    (trap / "closed").chmod(0)
    before = os.getcwd()
    os.chdir(trap)
    try:
        for _ in range(1010):  # deeper than Python recurses, and than a path can be long
            os.mkdir("deeper")
            os.chdir("deeper")
    finally:
        os.chdir(before)
    files.remove(str(trap))
    assert not trap.exists()
    assert (trap.parent / "secret").read_text() == "secret"
    files.remove(str(trap))  # what is not there is removed


def test_folders_that_grow_faster_than_they_are_counted_are_too_many(tmp_path: Path) -> None:
    cage = ProcessCage(str(tmp_path))
    bounds = Bounds(seconds=1, memory=1, processes=1, disk=1 << 20, inodes=100_000, output=1, collected=1, open_files=1)
    cage.enter(bounds)
    folder = os.open(cage.work, os.O_RDONLY)
    for _ in range(2 * sys.getrecursionlimit()):  # as deep as a program makes them while their supervisor counts
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    time.sleep(cage.tick())
    try:
        assert cage.crowded(bounds)
    finally:
        cage.leave()  # no other program here removes so deep a folder
    assert not os.listdir(tmp_path)
