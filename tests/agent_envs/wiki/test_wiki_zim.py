"""Files of Kiwix: what their HTML does beyond the contract, and files that cannot be used."""

import os
from pathlib import Path

import pytest

pytest.importorskip("libzim", reason="needs the extra zim")

from wiki_cases import PAGES, page

from agent_envs import SettingsError
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.places import Backend, Place
from agent_envs.wiki.zim import ZimBackend
from benchmarks.wiki_zim import item, write_zim

PART = "en"


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> ZimBackend:
    links = (
        "<p><a href='Freedonia#Economy'>a</a> <a href='./AC/DC'>b</a> <a href='../../../etc/passwd'>c</a>"
        " <a href='//x/y'>d</a>"
        " <a href='geo:1,2'>e</a> <a href='#cite'>f</a> <a href='javascript:x()'>g</a> <a href='pic.png'>h</a>"
        " <a href='Old_Freedonia'>i</a> <a href='Nowhere'>j</a> <a href='http://[bad'>k</a> <a href='Moved'>l</a></p>"
    )
    further = [
        item("Links", "Links", links),
        item("Moved", "Moved", "<html><head><meta http-equiv='refresh' content='0;url=./Freedonia'></head></html>"),
        item("Loop", "Loop", "<html><head><meta http-equiv='refresh' content='0;url=Loop'></head></html>"),
        item("pic.png", "A picture", b"\x89PNG", "image/png"),
    ]
    file = tmp_path_factory.mktemp("zim") / "wiki.zim"
    return ZimBackend(Place(Backend.ZIM, str(write_zim(file, PAGES, further=further))))


def test_links_lead_to_pages_of_the_file_or_are_text(wiki: ZimBackend) -> None:
    found = wiki.page("Links", PART)
    assert found is not None and found.lines[0].text == "a b c d e f g h i j k l"
    shown = {found.lines[0].text[link.start : link.end]: link.title for link in found.links}
    assert shown == {"a": "Freedonia", "b": "AC/DC", "i": "Freedonia", "l": "Freedonia"}


def test_redirects_written_as_html_are_followed_within_a_bound(wiki: ZimBackend) -> None:
    assert wiki.resolve("Moved", PART) == "Freedonia" and wiki.resolve("Loop", PART) is None


def test_other_things_than_pages_are_no_pages(wiki: ZimBackend) -> None:
    assert wiki.resolve("A picture", PART) is None and wiki.resolve("pic.png", PART) is None
    assert all(hit.title != "A picture" for hit in wiki.search("picture", PART))


def test_forks_and_processes(wiki: ZimBackend) -> None:
    env = WikiEnv(WikiConfig(), wiki)
    assert env.fork().backend is wiki
    wiki.page("Freedonia", PART)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if wiki.page("Sylvania", PART) and wiki.search("planet", PART) else 1)
    assert os.waitpid(pid, 0)[1] == 0 and wiki.similar("Freedonya", PART)[0] == "Freedonia"


def test_equal_files_by_their_own_name_and_another_one(wiki: ZimBackend, tmp_path: Path) -> None:
    other = ZimBackend(Place(Backend.ZIM, str(write_zim(tmp_path / "other.zim", [page("A", "b")]))))
    assert wiki.fingerprint == ZimBackend(wiki.place).fingerprint != other.fingerprint


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "text.zim").write_text("no file of ZIM " * 100)
    bare = write_zim(tmp_path / "bare.zim", PAGES, indexed=False)
    cases = {
        tmp_path / "nowhere.zim": "not a file of ZIM",
        tmp_path / "text.zim": "not a file of ZIM",
        bare: "full-text",
    }
    for file, said in cases.items():
        with pytest.raises(SettingsError, match=said):
            ZimBackend(Place(Backend.ZIM, str(file))).prepare(["en"])
