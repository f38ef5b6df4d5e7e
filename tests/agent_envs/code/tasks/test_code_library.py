"""The library: what every reference must be, and that the splits share none."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from agent_envs.code.tasks.catalogue import LEAST_POOL, POOL, Program, programs, split_of
from agent_envs.code.tasks.inputs import args, between, chain
from agent_envs.code.tasks.reference import about, reference
from agent_envs.core import SPLITS
from agent_envs.scoring import is_cjk

ALL = list(programs().values())
SINGLE = [program for program in ALL if len(program.files) == 1]


def test_there_are_enough_in_every_split() -> None:
    assert len(SINGLE) >= 120
    count = Counter(program.split for program in SINGLE)
    assert count["valid"] >= 20 and count["test"] >= 20 and count["train"] >= 80
    # Families that are not built for a split have their part in each of them.
    families = {program.family for program in SINGLE}
    assert {(p.family, p.split) for p in SINGLE} == {(family, split) for family in families for split in SPLITS}


def unlike(program: Program) -> list[str]:
    """What a reference has that none should have."""
    english, chinese = program.statements["main.py"]["en"], program.statements["main.py"]["zh"]
    found = []
    if not english.isprintable() or any(map(is_cjk, english)) or len(english.split()) > 30 or english[-1] not in ".…)":
        found.append("English")
    if not any(map(is_cjk, chinese)) or chinese[-1] != "。":
        found.append("Chinese")
    for text in program.files.values():
        rows = [row for row in text.splitlines() if row and not row.startswith("from ")]
        if not 2 <= len(rows) <= 12 or max(map(len, rows)) > 60:
            found.append("size")
        if "@" in text or "return" not in text:
            found.append("text")
    return found


def test_every_reference_is_short_and_says_what_it_does_in_both_languages() -> None:
    assert {program.name: unlike(program) for program in ALL if unlike(program)} == {}
    odd = replace(ALL[0], files={"main.py": "x = 1\n" * 13}, statements={"main.py": {"en": "去掉", "zh": "Drops."}})
    assert unlike(odd) == ["English", "Chinese", "size", "text"]


def faults(program: Program) -> list[str]:
    """What is wrong with the checks of a program."""
    values = [case.expected for case in program.pool]
    found = []
    if not LEAST_POOL <= len(values) <= POOL or len({case.expression for case in program.pool}) < len(values):
        found.append("too few different checks")
    if any(ast.literal_eval(repr(value)) != value or value is None for value in values):
        found.append("a value that is no literal, or that an empty function gives")
    if max(Counter(map(repr, values)).values()) > POOL // 2:
        found.append("one value is right too often")
    return found


def test_every_pool_tells_right_from_wrong() -> None:
    assert {program.name: faults(program) for program in ALL if faults(program)} == {}


def test_a_bad_pool_is_noticed() -> None:
    @reference("Always 1.", "总是 1。", args(between(1, 99)))
    def same(n: int) -> int:
        return 1

    @reference("None.", "无。", args(between(1, 99)))
    def none(n: int) -> None:
        return None

    program = ALL[0]
    for code, fault in (
        (same, "too few different checks"),
        (none, "a value that is no literal, or that an empty function gives"),
    ):
        odd = Program(code, "strings", "train", program.files, program.statements, program.signatures)
        assert fault in faults(odd)


def test_what_a_reference_gives_does_not_change() -> None:
    for program in ALL:
        for case in program.pool[:4]:
            assert eval(case.expression, {program.name: program.code}) == case.expected


def shape(text: str, *, named: bool) -> str:
    """The tree of a text without names of its own and without constants; what it imports keeps its name."""
    tree = ast.parse(text)
    kept = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom)]
    names: dict[str, str] = defaultdict(lambda: f"name{len(names)}")
    for node in ast.walk(tree):
        for field in ("id", "arg", "name", "attr"):
            value = getattr(node, field, None)
            if isinstance(value, str) and value not in kept and named:
                setattr(node, field, names[value])
        if isinstance(node, ast.Constant):
            node.value = type(node.value).__name__
    return ast.dump(tree)


def shared(programs: Iterable[tuple[str, str]]) -> list[str]:
    """Of (split, text) the shapes that stand in several splits."""
    splits: dict[str, set[str]] = defaultdict(set)
    for split, text in programs:
        splits[shape(text, named=True)].add(split)
    return [text for text, found in splits.items() if len(found) > 1]


def test_no_reference_is_one_of_another_split_under_other_names() -> None:
    assert shared((program.split, program.files["main.py"]) for program in ALL) == []
    renamed = [("train", "def f(a):\n    return a[1:]\n"), ("test", "def g(items):\n    return items[2:]\n")]
    assert len(shared(renamed)) == 1  # the check can fail


def test_what_a_program_is_built_on_is_of_its_split() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for program in ALL:
        for signature in program.signatures.values():
            places[signature.partition("(")[0]].add(program.split)
    assert len(places) == len(ALL) and all(len(splits) == 1 for splits in places.values())
    for program in ALL:
        told = about(program.code)
        assert told is not None and {split_of(used) for used in told.uses} <= {program.split}
        assert len(program.files) <= 3
    assert Counter(len(program.files) for program in ALL if len(program.files) > 1).keys() == {2, 3}


def test_the_vocabulary_is_small() -> None:
    words = set()
    for program in ALL:
        for text in (*program.files.values(), program.statements["main.py"]["en"]):
            words |= set(re.findall("[a-z]+", text.lower()))
    assert len(words) <= 600


def test_inputs_are_drawn_from_the_name_alone() -> None:
    draw = chain(args(), {"add": args(between(1, 5))}, "total")
    assert draw(Random("a")) == draw(Random("a"))
    assert len({draw(Random(seed)) for seed in range(20)}) > 5
    assert re.fullmatch(r"\(\)(\.add\([1-5]\)){1,4}\.total", draw(Random(0)))
