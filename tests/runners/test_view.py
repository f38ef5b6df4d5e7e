"""What the viewer reads, chooses and embeds; the page itself is opened in test_view_page.py."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from view_cases import ATTACK, SNEAKY, Recorded, record

from agents.tree import Kind
from agents.tree.merge import grow
from runners.command_line.errors import UserError, run_program
from runners.view import main
from runners.viewer import build as view
from runners.viewer.merge import merge
from runners.viewer.page import embed, render
from runners.viewer.pieces import read_pieces
from runners.viewer.read import Group, Index, choose, evenly, index_episodes, load

HERE = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("view") / "run")


@pytest.fixture
def copied(recorded: Recorded, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded.folder, tmp_path / "run"))


class Scripts(HTMLParser):
    """What a browser takes for elements: their names, and the contents of the scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.scripts: list[str] = []
        self.attributes: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.names and self.names[-1] == "script":
            self.scripts[-1] += data


def data_of(page: str) -> dict[str, Any]:
    return dict(json.loads(Scripts(page).scripts[0]))


# -- what is read ----------------------------------------------------------------------------------------------------


def test_the_page_holds_what_was_recorded(recorded: Recorded) -> None:
    page, chosen = view.build(recorded.folder, 200)
    data = data_of(page)
    assert chosen == f"All {recorded.lines} recorded episodes."
    assert [len(group["episodes"]) for group in data["groups"]] == [1, 1, 5]
    chain = data["groups"][0]["episodes"][0]
    assert [t["value"] for t in chain["turns"]] == [0.5, 0.625, 0.75] and chain["end_value"] == 0.875
    assert [t["advantage"] for t in chain["turns"]] == [0.5, 0.25, -0.125]
    assert [t["observation"] for t in chain["turns"]] == [ATTACK, SNEAKY, ""]
    assert [t["tokens"] for t in chain["turns"]] == [list(a.tokens) for a, _ in recorded.chain.turns]
    broken = next(e for e in data["groups"][2]["episodes"] if e["turns"] is None)
    assert broken["fault"] == {"kind": "hung", "stage": "step", "message": recorded.fault.message}
    assert [e["attempt"] for e in data["groups"][2]["episodes"]] == [0, 0, 1, 0, 0]
    assert data["updates"][1]["explained_variance"] is None and len(data["evaluations"]) == 2
    assert ["seed", "7"] in data["settings"] and ["identity.length", "3"] in data["settings"]


def test_lines_of_earlier_versions_are_read(copied: Path) -> None:
    """Values, advantages and attempts were not always recorded."""
    file = copied / "episodes.jsonl"
    old = []
    for line in file.read_text("utf-8").split("\n")[:-1]:  # splitlines would also split at U+2028
        row = json.loads(line)
        if "turns" not in row:
            continue
        for name in ("attempt", "end_value"):
            del row[name]
        row["turns"] = [{k: v for k, v in t.items() if k not in ("value", "advantage")} for t in row["turns"]]
        old.append(json.dumps(row))
    file.write_text("\n".join(old) + "\n", "utf-8")
    data = data_of(view.build(copied, 200)[0])
    chain = data["groups"][0]["episodes"][0]
    assert chain["end_value"] is None and chain["attempt"] == 0
    assert {t["value"] for t in chain["turns"]} == {t["advantage"] for t in chain["turns"]} == {None}


def test_the_merged_tree_is_the_one_that_is_trained(recorded: Recorded) -> None:
    index = index_episodes(recorded.folder / "episodes.jsonl")
    for group, episodes in zip(load(index, index.groups), ([recorded.chain], [], recorded.group), strict=True):
        states = merge(group)
        trees = grow(episodes)
        trained = [node for tree in trees for node in tree.root.walk() if node.kind is Kind.STATE]
        assert len(states) == max(1, len(trained))
        assert [s.count for s in states[1:]] == [
            node.count for tree in trees for node in tree.root.walk() if node.kind is Kind.ACTION
        ]
        ended = sorted(i for s in states for i in s.ends)
        assert ended == [i for i, e in enumerate(group) if e.turns is not None]
        for i, state in enumerate(states[1:], 1):
            assert 0 <= state.parent < i
    assert len(states) == 6, "the shared first turn is one state"


# -- what is chosen --------------------------------------------------------------------------------------------------


def index(updates: int, groups: int, size: int, length: int = 10) -> Index:
    return Index(
        Path("none"),
        [Group(u, f"t{u}-{g}", [(0, 0)] * size, size * length) for u in range(1, updates + 1) for g in range(groups)],
    )


def test_all_is_chosen_where_it_fits() -> None:
    assert choose(index(3, 4, 2), 24, 10**9) == index(3, 4, 2).groups


@pytest.mark.parametrize("limit", [1, 7, 40, 200, 1000])
@pytest.mark.parametrize(
    ("updates", "groups", "size"), [(60, 16, 8), (60, 128, 1), (2, 3, 64), (1000, 1, 1), (1, 50, 4)]
)
def test_a_choice_is_spread_over_the_run(limit: int, updates: int, groups: int, size: int) -> None:
    run = index(updates, groups, size)
    chosen = choose(run, limit, 10**9)
    seen = sorted({g.update for g in chosen})
    assert chosen and all(len(g.places) == size for g in chosen), "a group was cut"
    assert sum(len(g.places) for g in chosen) <= max(limit, size * len(seen))
    assert seen[-1] == updates and (len(seen) == 1 or seen[0] == 1)
    assert len(seen) >= min(5, limit, updates)
    assert [g.task for g in chosen] == [g.task for g in run.groups if g in chosen], "the order of the file"
    if limit >= 5 * size and limit < updates * groups * size:
        assert sum(len(g.places) for g in chosen) >= limit / 2


def test_a_choice_keeps_below_the_size_of_a_page() -> None:
    run = index(60, 16, 8, length=50_000)
    chosen = choose(run, 200, 8_000_000)
    assert 4_000_000 < sum(g.size for g in chosen) <= 8_000_000
    assert len(choose(run, 200, 10)) == 1, "one group is shown, however large"


def test_evenly() -> None:
    assert evenly([1, 2, 3, 4, 5], 3) == [1, 3, 5]
    assert evenly([1, 2, 3], 1) == [3] and evenly([1, 2], 5) == [1, 2]


def test_the_choice_is_said(copied: Path) -> None:
    page, chosen = view.build(copied, 2)
    assert chosen.startswith("6 of 7 recorded episodes, whole groups spread evenly over updates 1, 2 (2 of 2)")
    assert data_of(page)["chosen"] == chosen and chosen.endswith("--episodes N takes more or fewer.")


def test_a_page_without_room_says_so(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_BYTES", 5000)
    assert view.build(copied, 200)[1].endswith("a page has no room for more.")


# -- what is embedded ------------------------------------------------------------------------------------------------


def test_no_text_of_a_run_becomes_an_element(recorded: Recorded) -> None:
    page, _ = view.build(recorded.folder, 200)
    found = Scripts(page)
    assert len(found.scripts) == 2 and "img" not in found.names
    assert not [name for name in found.attributes if name.startswith("on") or name in ("src", "style")]
    assert not re.search("https?://(?!www.w3.org/2000/svg)", page), "something outside is named"
    # The negative control: JSON alone does end the element that it stands in.
    assert "img" in Scripts(f'<script type="application/json">{json.dumps([ATTACK])}</script>').names


def test_what_is_embedded_comes_back() -> None:
    text = ATTACK + SNEAKY + "\u2028\u2029\ufeff\x85\ud83d" + '哈库 {{data}} \\ " \\u003c'
    made = embed([text])
    assert json.loads(made) == [text]
    assert not set("<>&\u2028\u2029\ufeff\u202e\x85\ud83d") & set(made)


def test_the_policy_names_the_scripts_by_hash() -> None:
    page = render("a <title>", {"x": "{{script}}"})
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)
    assert policy and "default-src 'none'" in policy[1] and "unsafe" not in policy[1]
    assert policy[1].count("sha256-") == 2
    assert "a &lt;title&gt;" in page and data_of(page) == {"x": "{{script}}"}


# -- token pieces ----------------------------------------------------------------------------------------------------


def test_every_id_has_its_piece(recorded: Recorded) -> None:
    data = data_of(view.build(recorded.folder, 200)[0])
    pieces = data["pieces"]
    assert pieces["missing"] == ""
    action = recorded.group[0].turns[0][0].tokens
    assert "".join(pieces["text"][str(i)] for i in action) == "SEARCH(it)<|end|>"
    assert action[-1] in pieces["control"] and action[0] not in pieces["control"]


def test_a_part_of_a_character_is_shown_by_its_bytes(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = pre_tokenizers.ByteLevel.alphabet()
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(letters))}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.save(str(tmp_path / "tokenizer.json"))
    ids = made.encode("é a").ids
    text = read_pieces(str(tmp_path), ids).text
    assert [text[i] for i in ids] == ["<0xC3>", "<0xA9>", " ", "a"]


@pytest.mark.parametrize("source", [None, "/none/there", "some/model", "not a name", "{tmp}"])
def test_without_the_tokenizer_ids_are_shown(source: str | None, copied: Path) -> None:
    named = source and source.replace("{tmp}", str(copied))
    (copied / "base.json").write_text(json.dumps({"source": named}), "utf-8")
    pieces = data_of(view.build(copied, 200)[0])["pieces"]
    assert pieces["text"] == {} and "tokens are shown as numbers" in pieces["missing"]


# -- mistakes --------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run folder: it has no config.yaml"):
        view.build(tmp_path, 200)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"update": 1,', "line 2 is damaged"),
        ("[]", r"line 2 is damaged \(it is not a JSON object\)"),
        ('{"update": 1}', r"line 2 is damaged \(it has no 'update' or no 'task'\)"),
        ('{"update": 1, "task": "t"}', "neither 'turns' nor a 'fault'"),
        ('{"update": 1, "task": "t", "turns": [7]}', "no list of turns"),
        ('{"update": 1, "task": "t", "turns": [{"action": 1}]}', "turn 0 has no text"),
        ('{"update": 1, "task": "t", "turns": [{"action": "", "observation": ""}]}', "turn 0 has no token ids"),
        (
            '{"update": 1, "task": "t", "turns": [{"action": "", "observation": "", "tokens": [1], "logp": [],'
            ' "entropy": [0], "observation_tokens": []}]}',
            "not one log-probability",
        ),
        ("\udcff", "line 2 is damaged"),
    ],
)
def test_a_damaged_line_is_named(line: str, why: str, copied: Path) -> None:
    file = copied / "episodes.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines.insert(1, line.encode("utf-8", "surrogateescape") + b"\n")
    file.write_bytes(b"".join(lines))
    with pytest.raises(UserError, match=why) as error:
        view.build(copied, 200)
    assert "\n" not in str(error.value) and "episodes.jsonl" in str(error.value)


def test_a_damaged_metric_is_named(copied: Path) -> None:
    with (copied / "metrics.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(UserError, match=r"metrics.jsonl: line 5 is damaged \(it has no 'update'\)"):
        view.build(copied, 200)


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
WRONG: tuple[Any, ...] = (None, True, -1, 2**40, 10**400, 1e308, "x", "1", [], ["x"], {}, {"a": []}, [[1]], [10**30])
"""What stands in place of every value of a recorded line, in turn."""


def replaced(value: Any, wrong: Any) -> Iterator[Any]:
    """The value with one of its parts replaced, for every part; of a list, its first element and the last turn."""
    yield wrong
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: other} for other in replaced(part, wrong))
    elif isinstance(value, list) and value:
        yield from ([other, *value[1:]] for other in replaced(value[0], wrong))


@pytest.mark.parametrize("name", ["episodes.jsonl", "metrics.jsonl", "base.json", "versions.json"])
def test_a_foreign_value_is_shown_or_refused_in_one_line(name: str, copied: Path) -> None:
    file = copied / name
    text = file.read_text("utf-8") if file.exists() else '{"python": "3"}'
    lines, refused, shown = [text] if name.endswith("n") else text.rstrip("\n").split("\n"), 0, 0
    rows = [json.loads(line) for line in lines]
    for at, row in enumerate(rows[:2]):
        for wrong in WRONG:
            for other in replaced(row, wrong):
                changed = [*rows[:at], other, *rows[at + 1 :]]
                file.write_text("".join(json.dumps(each) + "\n" for each in changed), "utf-8")
                try:
                    data_of(view.build(copied, 200)[0])
                    shown += 1
                except UserError as error:
                    assert "\n" not in str(error) and str(copied) in str(error)
                    refused += 1
    assert shown and (refused or name in ("base.json", "versions.json"))


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("config.yaml", BOMB, "aliases"),
        ("config.yaml", "a: " + "[" * 20_000, "nested too deeply"),
        ("config.yaml", "a: " + "[" * 400 + "]" * 400, "nested too deeply|config.yaml"),
        ("config.yaml", "a: " + "1" * 5000, "config.yaml"),
        ("metrics.jsonl", '{"update": ' + "[" * 100_000, "metrics.jsonl|nested"),
        ("episodes.jsonl", '{"update": 1, "task": "t", "fault": ' + '{"a": ' * 600 + "1" + "}" * 601, "nested"),
        ("episodes.jsonl", '{"update": 1, "task": "t", "fault": ' + "[" * 100_000 + "\n", "episodes.jsonl|nested"),
    ],
)
def test_endless_values_are_one_line(name: str, text: str, why: str, copied: Path) -> None:
    (copied / name).write_text(text + "\n", "utf-8")
    try:
        page, _ = view.build(copied, 200)
    except UserError as error:
        assert re.search(why, str(error)) and "\n" not in str(error)
    else:
        assert len(page) < 2_000_000


def test_nothing_is_written_through_a_link(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (copied / "view.html").symlink_to(precious)
    with pytest.raises(UserError, match="symbolic link"):
        view.write_page("<page>", copied / "view.html", follow=False)
    assert precious.read_text() == "mine"
    # A link that the user names is the user's own.
    view.write_page("<page>", copied / "view.html", follow=True)
    assert precious.read_text() == "<page>"


def test_a_run_that_is_still_written_is_shown(copied: Path) -> None:
    for name in ("episodes.jsonl", "metrics.jsonl"):
        with (copied / name).open("a") as file:
            file.write('{"update": 3, "ta')
    page, chosen = view.build(copied, 200)
    assert chosen == "All 7 recorded episodes; the last line, not finished yet, is left out."
    assert len(data_of(page)["updates"]) == 2


def test_a_run_without_episodes_has_its_curves(copied: Path) -> None:
    (copied / "episodes.jsonl").unlink()
    page, chosen = view.build(copied, 200)
    assert chosen == "No episode is recorded." and data_of(page)["groups"] == []


def test_the_program(copied: Path, tmp_path: Path) -> None:
    program = [sys.executable, str(HERE / "runners" / "view.py"), str(copied)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("All 7 recorded episodes.\n") and str(copied / "view.html") in done.stdout
    assert (copied / "view.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["{tmp}"], "is not a run folder"),
        (["{run}", "--out", "{tmp}/none/x.html"], "cannot write"),
        (["{run}", "--episodes", "0"], "episodes must be at least 1"),
        (["{run}", "--episode", "3"], "--episodes"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], why: str, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    argv = [a.replace("{run}", str(copied)).replace("{tmp}", str(tmp_path)) for a in arguments]
    monkeypatch.setattr(sys, "argv", ["view.py", *argv])
    with pytest.raises(SystemExit) as stop:
        run_program(main)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.startswith("error: ") and said.count("\n") == 1 and why in said, said
