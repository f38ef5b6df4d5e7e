"""No text is in two splits, whatever a source has of its own."""

from collections import Counter
from collections.abc import Iterable

import pytest

from agent_envs.core import SPLITS, Task
from agent_envs.rows import Row
from agent_envs.splits import Wanted, hashed_split, tasks_by_split

TEXTS = [f"text {number}" for number in range(60)]


def placed(parts: dict[str, Iterable[str]], **wanted: object) -> dict[str, list[str]]:
    """Split → texts. What begins with "bad" cannot be used."""

    def read(row: Row, where: str) -> tuple[str, str]:
        assert where == "here"
        return row["text"], row["text"].upper()

    def make(name: str, split: str, language: str, found: str) -> Task | None:
        return None if found.startswith("BAD") else Task(name, split, found.lower(), language)

    settings = {"languages": ("en", "zh"), "train_tasks": 99, "held_out_tasks": 99} | wanted
    rows = {part: [("here", {"text": text}) for text in texts] for part, texts in parts.items()}
    found = tasks_by_split(Wanted("x", **settings), rows, read, make)  # type: ignore[arg-type]
    assert tuple(found) == SPLITS
    for split, tasks in found.items():
        assert [(task.id, task.split) for task in tasks] == [(f"x-{split}-{n}", split) for n in range(len(tasks))]
    return {split: [task.prompt for task in tasks] for split, tasks in found.items()}


def test_a_hash_is_the_same_everywhere() -> None:
    assert [hashed_split(text) for text in TEXTS[:10]] == [
        "train", "test", "test", "train", "train", "train", "valid", "train", "train", "train",
    ]  # fmt: skip
    shares = Counter(hashed_split(str(number)) for number in range(5000))
    assert all(abs(shares[split] / 5000 - share) < 0.03 for split, share in (("train", 0.6), ("valid", 0.2)))


def test_what_is_for_all_splits_is_cut_by_its_hash() -> None:
    found = placed({"": [*TEXTS, TEXTS[0]]})
    assert found == {split: [text for text in TEXTS if hashed_split(text) == split] for split in SPLITS}
    assert all(found.values())


def test_what_stands_twice_is_not_trained_on() -> None:
    parts = {"train": TEXTS[:30], "valid": TEXTS[20:40], "test": TEXTS[30:45]}
    assert placed(parts) == {"train": TEXTS[:20], "valid": TEXTS[20:30], "test": TEXTS[30:45]}
    assert placed(parts, fill=True) == placed(parts)


@pytest.mark.parametrize("fill", [True, False])
def test_splits_that_are_not_there_come_from_train_where_that_is_asked_for(fill: bool) -> None:
    found = placed({"train": TEXTS[:30], "test": TEXTS[30:40]}, fill=fill)
    valid = [text for text in TEXTS[:30] if fill and hashed_split(text) == "valid"]
    assert found["valid"] == valid and bool(valid) is fill
    assert found["test"] == TEXTS[30:40] and found["train"] == [text for text in TEXTS[:30] if text not in valid]


def test_languages_and_bounds() -> None:
    parts = {"train": ["bad", "bad", "one", "二", "three"], "test": ["bad", "四", "five", "六"]}
    assert placed(parts) == {"train": ["one", "二", "three"], "valid": [], "test": ["四", "five", "六"]}
    assert placed(parts, languages=("zh",)) == {"train": ["二"], "valid": [], "test": ["四", "六"]}
    assert placed(parts, train_tasks=2, held_out_tasks=1) == {"train": ["one", "二"], "valid": [], "test": ["四"]}


def test_what_there_is_no_room_for_is_left_to_no_other_split() -> None:
    parts = {"test": ["a", "b", "shared"], "train": ["c", "shared"]}
    assert placed(parts, held_out_tasks=2) == {"train": ["c"], "valid": [], "test": ["a", "b"]}


def test_rows_that_belong_together_stay_in_one_split_of_a_source_with_parts() -> None:
    parts = {split: [("here", {"text": text, "page": page}) for text, page in rows] for split, rows in (
        ("train", [("A", "Paris"), ("B", "Rome")]), ("test", [("C", "Paris"), ("D", "Oslo"), ("E", "Oslo")]),
    )}  # fmt: skip
    found = tasks_by_split(
        Wanted("x", ("en",), 99, 99), parts, lambda row, _: (row["text"], row["page"]),
        lambda name, split, language, _: Task(name, split, "", language), lambda _, page: page,
    )  # fmt: skip
    assert {split: len(tasks) for split, tasks in found.items()} == {"train": 1, "valid": 0, "test": 3}
