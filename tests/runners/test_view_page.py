"""The viewer's page in a real browser: it shows what was recorded, as text, and does nothing else.

Continuous integration must have a Chromium; elsewhere these tests are skipped without one.
"""

import io
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium
from PIL import Image
from view_cases import ATTACK, QUESTION_ZH, Recorded, record
from view_screenshots import pictures

from runners import view
from runners.crediting.page import CreditedEpisodes, write_episodes
from runners.crediting.played_values import PlayedValues
from runners.crediting.settings import Credit
from runners.training.credited import Credited

pytestmark = pytest.mark.runs

WIDE, PHONE = (1280, 860), (390, 844)
VIEWS = ("", "#episodes", "#settings", *(f"#episode-{i}" for i in range(7)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        missing = "no Chromium on this machine: install the package chromium to open the viewer's page"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    with Browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("page") / "run")


@pytest.fixture(scope="module")
def page(recorded: Recorded) -> Path:
    file = recorded.folder / "view.html"
    file.write_text(view.build(recorded.folder, 200)[0], "utf-8")
    return file


@pytest.fixture(autouse=True)
def nothing_wrong(browser: Browser) -> Iterator[None]:
    browser.problems.clear()
    browser.requests.clear()
    browser.show(*WIDE)
    yield
    assert browser.problems == []
    assert {url.split("#")[0].rpartition("/")[2] for url in browser.requests if url != "about:blank"} <= {
        "view.html",
        "credit.html",
    }


def count(browser: Browser, selector: str) -> int:
    return int(browser(f"document.querySelectorAll({json.dumps(selector)}).length"))


def texts(browser: Browser, selector: str) -> list[str]:
    return list(browser(f"Array.from(document.querySelectorAll({json.dumps(selector)}), e => e.textContent)"))


def assert_drawn(png: bytes) -> None:
    """A picture with more in it than a background and a few lines."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    colours = image.getcolors(1 << 24) or []
    assert len(colours) > 100, "hardly any colours: the page is blank"
    assert max(n for n, _ in colours) < 0.98 * image.width * image.height


def test_a_blank_page_is_noticed(browser: Browser) -> None:
    browser("document.documentElement.innerHTML = ''")
    with pytest.raises(AssertionError, match="blank"):
        assert_drawn(browser.screenshot())


# -- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [WIDE, PHONE])
@pytest.mark.parametrize("fragment", VIEWS)
def test_every_view_is_drawn_and_fits(
    browser: Browser, page: Path, fragment: str, size: tuple[int, int], dark: bool
) -> None:
    browser.show(*size, dark=dark, phone=size is PHONE)
    browser.open(page, fragment)
    assert_drawn(browser.screenshot())
    assert browser("document.documentElement.scrollWidth") <= size[0], "it must be scrolled sideways"
    luminance = browser("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
    assert (max(luminance) < 64) is dark


def test_the_curves(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert texts(browser, ".legend li") == ["training episodes, sampled", "test tasks, sampled", "test tasks, greedy"]
    assert count(browser, ".series .whisker") == 2
    shown = texts(browser, ".small-plots figcaption strong")
    browser.click(".chips ~ h2 ~ .chips .chip:last-child")
    assert texts(browser, ".small-plots figcaption strong") == [*shown, "grad norm"]
    assert texts(browser, ".figures tbody tr")[0] == "0testsampled0.5000.250 to 0.7502"


def test_the_settings(browser: Browser, page: Path) -> None:
    browser.open(page, "#settings")
    rows = texts(browser, ".settings tr")
    assert {"envidentity", "seed7", "length3", "wordsred, blue, green, white, black, gold"} <= set(rows)


def test_the_table_of_episodes(browser: Browser, page: Path, recorded: Recorded) -> None:
    browser.open(page, "#episodes")
    assert count(browser, ".episodes tbody tr") == recorded.lines
    assert texts(browser, "td:first-child") == ["✓", "✗", "✓", "✗", "✓", "⚠", "✗"]
    assert "All 7 recorded episodes." in texts(browser, ".count")[0]
    browser.click(".episodes th:nth-child(8) button")  # by reward; what has none is last
    assert texts(browser, "td:nth-child(8)") == ["0.00", "0.00", "0.00", "0.75", "1.00", "1.00", "–"]
    browser.click(".episodes th:nth-child(8) button")
    assert texts(browser, "td:nth-child(8)")[-1] == "0.00"
    browser.enter("#search", "SUBMIT(BOB)")
    assert count(browser, ".episodes tbody tr") == 1
    browser.enter("#search", "")
    browser.enter("select", "environment fault")
    assert texts(browser, "td:first-child") == ["⚠"]


def test_a_chain_with_its_values(browser: Browser, page: Path, recorded: Recorded) -> None:
    browser.open(page, "#episode-0")
    assert count(browser, ".tree .state") == len(recorded.chain.turns) + 1 == 4
    assert texts(browser, ".tree .value text") == ["V 0.50", "V 0.63", "V 0.75", "V 0.88"]
    assert texts(browser, ".tree .credit") == ["A +0.50", "r −0.25 · A +0.25", "r +1.00 · A −0.13"]
    heads = texts(browser, ".turn-head")
    assert "reward −0.25" in heads[1] and "V 0.63" in heads[1] and "advantage +0.25" in heads[1]
    assert texts(browser, ".block.trained .text") == [action for action, _ in recorded.chain.texts]
    assert "V of the last state 0.88" in texts(browser, ".end")[0]


def test_credit_beside_the_true_values(browser: Browser, recorded: Recorded) -> None:
    chain, nan = recorded.chain, math.nan
    truth = PlayedValues((0.4, 0.7, None, 0.0), (0.05, 0.1, None, 0.0), (0.3, nan, nan))
    chain.root.oracle, chain.turns[0][1].oracle = 0.25, 0.125
    scored = {
        "mine": {chain.job.id: Credited((0.5, 0.625, 0.75, 0.875), (0.5, 0.25, -0.125))},
        "other": {chain.job.id: Credited(None, (-1.0, 1.0, 1.0))},
    }
    policy = CreditedEpisodes(60, [chain], {chain.job.id: truth}, scored)
    write_episodes([policy], Credit(recorded.folder), str(recorded.folder.parent / "model"), recorded.folder)
    browser.open(recorded.folder / "credit.html", "#episode-0")
    first, second, third = texts(browser, ".turn-truth")
    assert "oracle 0.25 → 0.13" in first and "oracle" not in second
    assert "played on 0.40 ± 0.05 → 0.70 ± 0.10" in first and "progress +0.30" in first
    assert "played on 0.70 ± 0.10 → –" in second and "progress" not in second and "played" not in third
    assert "mine V 0.50, advantage +0.50" in first and "other advantage −1.00" in first
    assert "advantage" not in texts(browser, ".turn-head")[0], "nobody's"
    assert texts(browser, ".tree .value text")[0] == "V 0.50", "the first one's colours the tree"
    browser.open(recorded.folder / "credit.html")
    assert texts(browser, "nav a") == ["Episodes", "Settings"] and count(browser, "td:first-child") == 1
    browser.open(recorded.folder / "credit.html", "#settings")
    assert "credit" not in texts(browser, "h1")[0] and "continuations" in browser("document.body.textContent")


def test_a_group_is_a_tree_and_its_paths_open_episodes(browser: Browser, page: Path, recorded: Recorded) -> None:
    browser.open(page, "#episode-2")
    assert count(browser, ".tree .state") == 6 and count(browser, ".tree .edge") == 5
    assert sorted(texts(browser, ".tree .leaf")) == ["✓ success ×2", "✗ failure", "✗ truncated"]
    assert count(browser, ".branch.chosen .state") == 3
    assert "4 episodes of this task" in texts(browser, ".tree-figure figcaption")[0]
    assert "1 more was broken by the environment" in texts(browser, ".tree-figure figcaption")[0]
    assert QUESTION_ZH in texts(browser, ".block.read .text")
    browser.click('.branch[data-episode="1"] .state')
    assert browser("location.hash") == "#episode-3"
    assert "SUBMIT(Bob)" in texts(browser, ".block.trained .text")


def test_what_has_no_turns(browser: Browser, page: Path, recorded: Recorded) -> None:
    browser.open(page, "#episode-1")
    assert "No turn was played" in texts(browser, ".detail .empty")[0] and count(browser, ".tree .state") == 1
    browser.open(page, "#episode-5")
    assert texts(browser, ".fault-box dd")[:2] == ["hung", "step"]
    assert texts(browser, ".fault-box dd")[2] == recorded.fault.message


def test_token_by_token(browser: Browser, page: Path, recorded: Recorded) -> None:
    browser.open(page, "#episode-2")
    action = recorded.group[0].turns[0][0]
    assert count(browser, ".token") == 0
    browser.press("t")
    first = ".turn:first-child .block.trained .token"
    assert "".join(texts(browser, first)) == "SEARCH(it)<|end|>"
    ids = browser(f"Array.from(document.querySelectorAll('{first}'), e => Number(e.dataset.id))")
    assert tuple(ids) == action.tokens
    assert count(browser, ".block.read .token.trained") == 0 and count(browser, ".block.read .token.control") > 0
    browser.click(f"{first}:nth-child(2)")
    (tip,) = texts(browser, "#tip")
    assert "sampled and trained" in tip and "log-prob −0.2000 (p 0.8187)" in tip
    browser.click(".block.read .token.control")
    assert "put there by the chat template" in texts(browser, "#tip")[0]
    heat = f"Array.from(document.querySelectorAll('{first}'), e => e.style.getPropertyValue('--heat'))"
    before = browser(heat)
    browser.click(".detail .chips .chip:nth-of-type(3)")
    assert browser(heat) != before
    browser.press("t")
    assert count(browser, ".token") == 0


def test_without_a_tokenizer_tokens_are_numbers(
    browser: Browser, page: Path, recorded: Recorded, tmp_path: Path
) -> None:
    bare = tmp_path / "view.html"
    text = (
        page.read_text("utf-8")
        .replace('"text": {', '"text": {}, "none": {')
        .replace('"missing": ""', '"missing": "No tokenizer."')
    )
    bare.write_text(text, "utf-8")
    browser.open(bare, "#episode-2")
    browser.press("t")
    tokens = recorded.group[0].turns[0][0].tokens
    assert texts(browser, ".turn:first-child .block.trained .token") == [f"⟨{i}⟩" for i in tokens]
    assert "No tokenizer." in texts(browser, ".warning")


def test_the_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, "#episodes")
    for key, where in (("j", 0), ("j", 1), ("ArrowRight", 2), ("k", 1), ("ArrowLeft", 0), ("k", 0)):
        browser.press(key)
        assert browser("location.hash") == f"#episode-{where}", key
    browser.press("/")
    assert browser("document.activeElement.id") == "search"
    browser.press("j")
    assert browser("location.hash") == "#episode-0", "a letter that is typed is no command"
    browser.press("Escape")
    assert browser("location.hash") == "#episodes"


# -- what must not happen --------------------------------------------------------------------------------------------


def test_text_of_a_run_is_shown_and_never_executed(browser: Browser, page: Path) -> None:
    for fragment in VIEWS:
        browser.open(page, fragment)
        browser.press("t")
        assert browser("window.hacked") is None and count(browser, "img") == 0
    browser.open(page, "#episode-0")
    shown = texts(browser, ".turn .block.read .text")
    assert shown[0] == ATTACK
    assert shown[1] == ("abc⟨U+202E⟩desrever⟨U+202C⟩ ⟨U+200B⟩zero ⟨U+001B⟩[31mred⟨U+0000⟩⟨U+0007⟩ ⟨U+2028⟩ end")
    assert ATTACK in texts(browser, "h2.task-id")[0] and ATTACK in texts(browser, ".block.read .text")[1]


def test_the_attack_works_where_nothing_protects(browser: Browser, tmp_path: Path) -> None:
    naive = tmp_path / "view.html"
    naive.write_text(f'<meta charset="utf-8"><script type="application/json">{json.dumps([ATTACK])}</script>', "utf-8")
    browser.open(naive)
    end = time.monotonic() + 20
    while browser("window.hacked") != 1:
        assert time.monotonic() < end, "the attack does not work"
    browser.problems.clear()
    browser.requests.clear()


def test_the_policy_is_a_second_wall(browser: Browser, page: Path) -> None:
    """Even markup that found its way into the page runs nothing and fetches nothing."""
    browser.open(page)
    browser(f"document.body.insertAdjacentHTML('beforeend', {json.dumps(ATTACK)})")
    browser("document.body.insertAdjacentHTML('beforeend', '<p id=\"p\" style=\"color: red\">x</p>')")
    browser(
        "(s => { s.textContent = 'window.hacked = 1'; document.body.append(s); })(document.createElement('script'))"
    )
    time.sleep(0.2)
    assert browser("window.hacked") is None
    assert browser("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
    assert any("Content Security Policy" in problem for problem in browser.problems)
    browser.problems.clear()
    browser.requests.clear()


def test_the_pictures_of_the_documentation(browser: Browser, recorded: Recorded, tmp_path: Path) -> None:
    files = pictures(recorded.folder, tmp_path, "identity")
    assert [f.name for f in files] == [f"view-identity-{what}.png" for what in ("curves", "tree", "tokens")]
    for file in files:
        assert_drawn(file.read_bytes())
        assert file.stat().st_size < 300_000
