"""Questions of a file: the columns that are read, splits that share no question and no page, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_envs import SettingsError
from agent_envs.core import SPLITS
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.places import Backend
from agent_envs.wiki.tasks import Gold

ROWS: dict[str, tuple[dict[str, Any], tuple[str, ...], int]] = {
    "plain": ({"question": "Q?", "answers": ["a", "b", "a"], "title": "T"}, ("a", "b"), 1),
    "hotpotqa": (
        {"_id": "1", "question": "Q?", "answer": "yes", "type": "comparison", "level": "hard",
         "supporting_facts": [["A", 0], ["B", 1], ["A", 2]], "context": [["A", ["x"]]]}, ("yes",), 2,
    ),
    "hotpotqa of a hub": (
        {"question": "Q?", "answer": "x", "supporting_facts": {"title": ["A", "B", "C"], "sent_id": [0, 0, 1]}},
        ("x",), 3,
    ),
    "2wiki": (
        {"_id": "1", "type": "compositional", "question": "Q?", "answer": "1923", "evidences": [["a", "b", "c"]],
         "supporting_facts": [["A", 0], ["B", 0]]}, ("1923",), 2,
    ),
    "musique": (
        {"id": "3hop1__1", "question": "Q?", "answer": "x", "answer_aliases": ["y", "z"], "answerable": True,
         "question_decomposition": [{}, {}, {}], "paragraphs": []}, ("x", "y", "z"), 3,
    ),
    "nq open": ({"question": "Q?", "answer": ["x", "y"]}, ("x", "y"), 1),
    "natural questions": (
        {"question_text": "Q?", "document_text": "<P> The sea is <B> deep blue </B> .", "document_title": "Sea",
         "annotations": [{"short_answers": [{"start_token": 5, "end_token": 7}], "yes_no_answer": "NONE"},
                         {"short_answers": [], "yes_no_answer": "YES"}]}, ("deep blue", "yes"), 1,
    ),
    "bamboogle": ({"Question": "Q?", "Answer": "x"}, ("x",), 1),
    "golden answers": ({"id": "0", "question": "Q?", "golden_answers": ["x"]}, ("x",), 1),
    "a number": ({"question": "Q?", "answer": 7}, ("7",), 1),
}  # fmt: skip


def written(folder: Path, rows: list[dict[str, Any]], name: str = "questions.jsonl") -> str:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def config(source: str, **settings: Any) -> WikiConfig:
    return WikiConfig(source=source, **{"backend": Backend.ZIM, "path": "x.zim", "languages": ("en", "zh"), **settings})


def tasks(chosen: WikiConfig) -> list[Any]:
    env = WikiEnv(chosen)
    return [task for split in SPLITS for task in env.tasks(split)]


@pytest.mark.parametrize("name", ROWS)
def test_columns(tmp_path: Path, name: str) -> None:
    row, answers, level = ROWS[name]
    (task,) = tasks(config(written(tmp_path, [row])))
    assert (task.prompt, task.level, task.language) == ("Q?", level, "en")
    assert task.data == Gold("en", (), answers[0], answers)


def test_splits_share_no_question_and_no_page(tmp_path: Path) -> None:
    rows = [{"question": f"Question {n}?", "answer": "x", "title": f"Page {n % 40}"} for n in range(400)]
    env = WikiEnv(config(written(tmp_path, [*rows, *rows])))
    page_of = {row["question"]: row["title"] for row in rows}
    found = {split: [task.prompt for task in env.tasks(split)] for split in SPLITS}
    assert sorted(prompt for prompts in found.values() for prompt in prompts) == sorted(page_of), "each once"
    pages = [{page_of[prompt] for prompt in prompts} for prompts in found.values()]
    assert all(pages) and sum(map(len, pages)) == len(set.union(*pages)) == 40
    assert len(found["train"]) > len(found["test"])
    for split in SPLITS:
        for task in env.tasks(split):
            assert env.tasks(split).find(task.id) == task
    assert env.tasks("train").find("wiki-test-0") is None


def test_files_of_a_folder_are_its_splits(tmp_path: Path) -> None:
    for split, count in (("train", 30), ("test", 5)):
        written(tmp_path, [{"question": f"{split} {n}?", "answer": "x"} for n in range(count)], f"{split}.jsonl")
    env = WikiEnv(config(str(tmp_path)))
    assert len(env.tasks("test")) == 5 and len(env.tasks("train")) + len(env.tasks("valid")) == 30


def test_languages_and_partitions(tmp_path: Path) -> None:
    source = written(
        tmp_path, [{"question": "首都是什么？", "answer": "巴黎"}, {"question": "Capital?", "answer": "Paris"}]
    )
    assert {task.language: task.data.partition for task in tasks(config(source))} == {"en": "en", "zh": "zh"}
    only = tasks(config(source, languages=("zh",), backend=Backend.OFFLINE, path="", corpus="geo"))
    assert [task.data.partition for task in only] == ["geo-zh"]


def test_what_has_no_answer_is_left_out(tmp_path: Path) -> None:
    rows = [
        {"question": "A?", "answer": "x", "answerable": False},
        {"question_text": "B?", "document_text": "x", "annotations": [{"short_answers": [], "yes_no_answer": "NONE"}]},
        {"question": "C?", "answer": "x"},
    ]
    assert [task.prompt for task in tasks(config(written(tmp_path, rows)))] == ["C?"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "Q?"}, "line 1 has no 'answers' or"),
        ({"answer": "x"}, "line 1 has no 'question' or"),
        ({"question": "  ", "answer": "x"}, "line 1 has an empty question"),
        ({"question": "Q?", "answer": ""}, "line 1 has an empty answer"),
        ({"question": "Q?", "answers": []}, "line 1 has an empty answer"),
        ({"question": "Q?", "answer": True}, "'answers' must be a text"),
        ({"question": "Q?", "answer": {"a": 1}}, "'answers' must be a text"),
        ({"question": ["Q?"], "answer": "x"}, "'question' must be a text"),
        ({"question": "Q\ud800", "answer": "x"}, "characters that no file can hold"),
        ({"question": "Q?", "annotations": []}, "no 'document_text'"),
        ({"question": "Q?", "annotations": [3], "document_text": "x"}, "are not those of Natural Questions"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        tasks(config(written(tmp_path, [row])))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"backend": Backend.OFFLINE, "path": ""}, "a source asks about a real wiki"),
        ({"evidence": 0.5}, "have no gold lines: leave evidence 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        config("x.jsonl", **settings)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no questions at '.*nowhere.jsonl': name a .jsonl"):
        tasks(config(str(tmp_path / "nowhere.jsonl")))


def test_there_is_no_expert_for_them(tmp_path: Path) -> None:
    env = WikiEnv(config(written(tmp_path, [{"question": "Q?", "answer": "x"}])))
    (split,) = [split for split in SPLITS if len(env.tasks(split))]
    _, info = env.reset(options={"task": env.tasks(split)[0], "oracle": True})
    assert not env.has_expert and info["oracle"] is None
    with pytest.raises(SettingsError, match="have no scripted expert"):
        env.expert()
    *_, info = env.step("SUBMIT(The X.)")
    assert info["success"] and info["metrics"]["em"] == 1.0
