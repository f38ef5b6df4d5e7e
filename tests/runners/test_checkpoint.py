"""A checkpoint is there whole or not at all; what was damaged is named and left out."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.command_line.errors import UserError
from runners.run_folder import checkpoint


def fill(text: str) -> Callable[[Path], None]:
    def into(folder: Path) -> None:
        (folder / "weights").write_text(text * 1000)
        (folder / "state.json").write_text(json.dumps({"text": text}))

    return into


def made(parent: Path, *updates: int) -> list[Path]:
    for update in updates:
        checkpoint.write(parent / checkpoint.name_of(update), fill(f"u{update}"))
    return checkpoint.checkpoints(parent)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def add(path: Path) -> None:
    (path.parent / "stranger").write_text("?")


DAMAGE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "one flipped byte": ("weights", flip, "weights was changed or cut short"),
    "a cut file": ("weights", cut, "weights was changed or cut short"),
    "a missing file": ("state.json", Path.unlink, "state.json is missing"),
    "a missing manifest": ("MANIFEST.json", Path.unlink, "MANIFEST.json is missing"),
    "a cut manifest": ("MANIFEST.json", cut, "MANIFEST.json cannot be read"),
    "a strange file": ("weights", add, "stranger is not in the manifest"),
}


def test_what_is_whole_verifies(tmp_path: Path) -> None:
    for folder in made(tmp_path, 1, 2, 10):
        checkpoint.verify(folder)
    assert [checkpoint.update_of(p) for p in checkpoint.checkpoints(tmp_path)] == [1, 2, 10]
    assert checkpoint.newest_sound(tmp_path, pytest.fail).name == "update-10"


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_and_the_newest_sound_one_is_used(tmp_path: Path, damage: str) -> None:
    name, harm, said = DAMAGE[damage]
    folders = made(tmp_path, 1, 2)
    if harm is cut and name == "MANIFEST.json":
        folders[1].joinpath(name).write_text('{"weights"')
    else:
        harm(folders[1] / name)
    with pytest.raises(checkpoint.Damaged, match=said):
        checkpoint.verify(folders[1])
    heard: list[str] = []
    assert checkpoint.newest_sound(tmp_path, heard.append) == folders[0]
    assert len(heard) == 1 and said in heard[0] and "update-1 is used" in heard[0]
    harm(folders[0] / name) if harm is not cut else cut(folders[0] / "weights")
    with pytest.raises(UserError, match="no sound checkpoint"):
        checkpoint.newest_sound(tmp_path, heard.append)


def test_a_damaged_one_is_kept_aside_when_its_update_comes_again(tmp_path: Path) -> None:
    (folder,) = made(tmp_path, 3)
    flip(folder / "weights")
    made(tmp_path, 3)
    checkpoint.verify(folder)
    assert (tmp_path / "damaged-update-3" / "weights").exists()
    assert checkpoint.checkpoints(tmp_path) == [folder]


def test_only_what_is_kept_stays(tmp_path: Path) -> None:
    made(tmp_path, 1, 2, 3, 4)
    checkpoint.prune(tmp_path, {2, 4})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["update-2", "update-4"]


WRITER = """
import sys
from pathlib import Path
from runners.run_folder import checkpoint
parent = Path(sys.argv[1])
def fill(folder):
    for i in range(20):
        (folder / f"part-{i}").write_bytes(bytes(20000))
n = 0
print("ready", flush=True)
while True:
    n += 1
    checkpoint.write(parent / checkpoint.name_of(n), fill)
    checkpoint.prune(parent, {n, n - 1})
"""


def test_a_killed_writer_leaves_whole_folders_only(tmp_path: Path) -> None:
    unfinished = 0
    for round_ in range(12):
        parent = tmp_path / str(round_)
        parent.mkdir()
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(parent)], stdout=subprocess.PIPE)
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        time.sleep(0.02 + 0.007 * round_)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        for folder in checkpoint.checkpoints(parent):
            checkpoint.verify(folder)
        unfinished += len(list(parent.glob(".new-*")))
        checkpoint.clear_unfinished(parent)
        assert not list(parent.glob(".new-*"))
    assert unfinished, "no kill came while a folder was being filled: the test showed nothing"


def test_a_full_disk_loses_nothing(small_disk: Path) -> None:
    def large(folder: Path) -> None:
        (folder / "weights").write_bytes(bytes(400_000))

    for update in (1, 2):
        checkpoint.write(small_disk / checkpoint.name_of(update), large)
    with pytest.raises(UserError, match=r"No space left on device.*update-2 is kept: make room") as caught:
        checkpoint.write(small_disk / checkpoint.name_of(3), large)
    assert "\n" not in str(caught.value)
    assert sorted(p.name for p in small_disk.iterdir()) == ["update-1", "update-2"]
    assert checkpoint.newest_sound(small_disk, pytest.fail).name == "update-2"
    checkpoint.prune(small_disk, {2})
    checkpoint.write(small_disk / checkpoint.name_of(3), large)
