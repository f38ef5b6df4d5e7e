"""HTML as numbered lines: what a line is, what is left out, and bounds that no page gets past."""

import time

import pytest

pytest.importorskip("lxml", reason="needs the extra wikipedia or zim")

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_envs.wiki import markup
from agent_envs.wiki.backend import PageLine


def texts(html: str) -> list[str]:
    return [line.text for line in markup.lines_of(html, lambda a: a.get("title"))]


@pytest.mark.parametrize(
    ("html", "lines"),
    [
        ("<p>One. Two! Three?</p>", ["One.", "Two!", "Three?"]),
        ("<p>Dr. A. B. Foo of St. Ives, e.g. in vol. 3.</p>", ["Dr. A. B. Foo of St. Ives, e.g. in vol. 3."]),
        ("<p>It has 3.5 m. and so on</p>", ["It has 3.5 m. and so on"]),
        ('<p>"One." (Two.) Three</p>', ['"One."', "(Two.)", "Three"]),
        ("<p>首都是萤火城。它在海边！「好。」完</p>", ["首都是萤火城。", "它在海边！", "「好。」", "完"]),
        ("<ul><li>one<ul><li>two</li></ul></li><li>three</li></ul>", ["one", "two", "three"]),
        ("<table><tr><th>Capital</th><td>Paris</td></tr></table>", ["Capital: Paris"]),
        ("<table><tr><th>In</th><td><ul><li>A</li><li>B</li></ul></td></tr></table>", ["In: A; B"]),
        ("<table><tr><td>a</td><td>b</td><td>c</td></tr><tr><td>d</td></tr></table>", ["a | b | c", "d"]),
        ("<dl><dt>Term</dt><dd>what it is</dd></dl>", ["Term", "what it is"]),
        ("<p>a<br>b</p>c", ["a", "b", "c"]),
        ("<p>x<sup class='reference'>[1]</sup>y<style>p {}</style><script>z</script>!</p>", ["xy!"]),
        ("<div class='navbox'>n</div><div id='toc'>t</div><span style='display: none'>h</span>ok", ["ok"]),
        ("<p><span class='mwe-math-element'><math>m</math><img class='mwe-math-img' alt='E=m'></span></p>", ["E=m"]),
        ("<!-- a --><p>b<!-- c -->d</p><?php e ?>", ["bd"]),
        ("&lt;b&gt; &amp;amp; &#27;[31m &nbsp;x", ["<b> &amp; [31m x"]),
        ("", []), ("   ", []), ("<p></p>", []), ("<<<>>>&&&;;;", ["<<<>>>&&&;;;"]),
    ],
)  # fmt: skip
def test_lines(html: str, lines: list[str]) -> None:
    assert texts(html) == lines


def test_headings_have_levels_and_links_places() -> None:
    html = (
        "<h2>A. B</h2><p>See <a title='X'> the x </a>, <a title='Y'><b>yes</b></a>. "
        "<a title='Z'>Zoo.</a> End <a>no</a></p>"
    )
    first, second, third, fourth = markup.lines_of(html, lambda a: a.get("title"))
    assert first == PageLine("A. B", level=2)
    assert [(second.text[link.start : link.end], link.title) for link in second.links] == [("the x", "X"), ("yes", "Y")]
    assert [third.text[link.start : link.end] for link in third.links] == ["Zoo."] and fourth.text == "End no"


def test_a_long_sentence_is_cut_at_blanks_and_never_in_a_link() -> None:
    html = "<p>" + "word " * 70 + "<a title='T'>" + "link " * 30 + "</a>" + "word " * 200 + "</p>"
    lines = markup.lines_of(html, lambda a: a.get("title"))
    assert all(len(line.text) <= markup.MOST_CHARS for line in lines)
    assert [line.text[link.start : link.end] for line in lines for link in line.links] == [("link " * 30).strip()]
    assert " ".join(line.text for line in lines).split() == ["word"] * 70 + ["link"] * 30 + ["word"] * 200


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 100_000, "<!--" * 100_000, "<a " * 100_000, "<p>" + "a. B" * 200_000, "<a title=t>x. Y</a> " * 30_000,
        "<table><tr><td>" + "x<br>" * 100_000, "(a" * 200_000 + ". B", "<p>x" * 100_000, "&" * 500_000, "." * 500_000,
    ],
    ids=range(10),
)  # fmt: skip
def test_no_page_takes_long_or_grows_without_bound(html: str) -> None:
    begin = time.process_time()
    lines = markup.lines_of(html, lambda a: a.get("title"))
    assert time.process_time() - begin < 10
    assert len(lines) <= markup.MOST_LINES + 1 and all(len(line.text) <= markup.MOST_CHARS for line in lines)


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters() | st.sampled_from(list("<>&/;.!?。\x1b\u2028\u202e\x00")), max_size=200))
def test_any_text_gives_printable_lines(html: str) -> None:
    for line in markup.lines_of(html, lambda a: "T"):
        assert line.text == line.text.strip() != "" and "\n" not in line.text
        assert not any(char in line.text for char in "\x1b\u2028\u202e\x00\x85")
        assert all(0 <= link.start < link.end <= len(line.text) for link in line.links)
