"""The scripted expert, and the demonstrator with a systematic flaw that a small model is cloned from.

Invariants: a turn depends on the environment's state only; each thought quotes the line that the action is made from
(on the pages of a fictional world it says first by which relation the page was reached, "capital's mayor: {2:Ana}",
so that the next relation always follows from two words that stand side by side in the question); without a flaw the
expert is right from every state that leaves it enough turns. The flawed one takes one relation for another (`MISTAKES`;
on a wiki whose relations nobody knew, the next of its kind) and then goes on as if it were right, reading its position
in the chain off the pages behind it.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agent_envs.actions import render
from agent_envs.wiki.backend import Page
from agent_envs.wiki.relations import MISTAKES, RELATIONS
from agent_envs.wiki.tasks import Gold

_POSSESSIVE = {"en": "{}'s ", "zh": "{}的"}
_WORLDLY = frozenset([*RELATIONS, *RELATIONS.values()])
_EARLY = 0.1
"""Share of the flaw that stops a hop too early."""
_MISTAKEN = MISTAKES | {RELATIONS[asked]: RELATIONS[taken] for asked, taken in MISTAKES.items()}


@dataclass(frozen=True)
class Situation:
    """What the expert sees: the state of an episode."""

    gold: Gold
    language: str
    trail: Sequence[str | None]
    """Titles of the open page and the pages behind it, oldest first; None stands for a list of search results."""
    saved: Sequence[tuple[str, int]]
    """Saved (title, line id), oldest first."""
    turns_left: int
    """Turns left, this one included."""
    save_all: bool
    """Whether every gold line is to be saved, not only the answer's."""
    page_of: Callable[[str], Page]
    """Page of a title in the trail."""
    strange: bool = False
    """Whether the relations are whatever a wiki has."""


def expert_turn(now: Situation, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
    """The next turn. `rng` is needed when `flaw` > 0."""
    if flaw > 0 and rng is None:
        raise ValueError("an expert with a flaw needs an rng")
    hops = now.gold.hops
    at = _position(now, flawed=flaw > 0)
    if at is None:
        return _return(now)
    title = now.trail[-1]
    assert title is not None
    page = now.page_of(title)
    right = hops[at].line if hops[at].title == title else _find(page, hops[at].relation)
    if right is None:
        return render("SUBMIT", title, title)
    wrong = _mistaken(now, page, hops[at].relation) if flaw > 0 else None
    line = next((id for where, id in reversed(now.saved) if where == title and id in (right, wrong)), None)
    is_saved = line is not None
    if line is None:
        line = wrong if wrong is not None and rng is not None and rng.random() < flaw else right
    quote = page.shown[line - 1].partition(" ")[2]
    thought = f"{_came_by(now, at)}{quote}"
    last = at == len(hops) - 1
    if not is_saved and (last or now.save_all) and now.turns_left > len(hops) - at:
        also = hops[at].also if now.save_all and hops[at].title == title else ()
        lines = [f"{thought} [{line}]", *(page.shown[id - 1].partition(" ")[2] + f" [{id}]" for id in also)]
        return render("SAVE_LINE_IDS", ", ".join(map(str, (line, *also))), " ".join(lines))
    on_path = line == right and hops[at].title == title
    target = None if last else _link(page, line, hops[at + 1].title if on_path else None)
    early = not last and rng is not None and flaw > 0 and rng.random() < flaw * _EARLY
    if target is not None and not early:
        return render("CLICK", str(target), thought)
    if on_path and not last and not early:
        return render("NAVIGATE", hops[at + 1].title, f"{quote}; {hops[at + 1].title}")
    answer = now.gold.answer if last and on_path else page.lines[line - 1].text.partition(": ")[2] or title
    return render("SUBMIT", answer, quote if is_saved else thought)


def _came_by(now: Situation, at: int) -> str:
    """The relation that led to the open page (at the start of the chain, the page's name) in the possessive."""
    hops, here = now.gold.hops, now.trail[-1] or ""
    if hops[at].relation not in _WORLDLY:
        return ""
    by = here
    if at > 0:
        by = relation = hops[at - 1].relation
        before = now.trail[-2] if len(now.trail) > 1 else None
        line = _find(now.page_of(before), _MISTAKEN.get(relation)) if before is not None else None
        if before is not None and line and here in [link.title for link in now.page_of(before).lines[line - 1].links]:
            by = _MISTAKEN[relation]
    return _POSSESSIVE[now.language].format(by)


def _position(now: Situation, *, flawed: bool) -> int | None:
    """The hop that the open page serves, None when the agent is lost."""
    if not now.trail or now.trail[-1] is None:
        return None
    titles = [hop.title for hop in now.gold.hops]
    if flawed:  # its own way first: a mistake may lead it back to a page of the chain, which it does not notice
        for start, title in enumerate(now.trail):
            if title == titles[0] and (believed := _believed(now, start)) is not None:
                return believed
    return titles.index(now.trail[-1]) if now.trail[-1] in titles else None


def _believed(now: Situation, start: int) -> int | None:
    """The position of one who followed right and confused links from trail number `start` on."""
    hops, at = now.gold.hops, 0
    for here, following in itertools.pairwise(now.trail[start:]):
        if here is None or following is None or at + 1 >= len(hops):
            return None
        page = now.page_of(here)
        relation = hops[at].relation
        lines = [_find(page, relation), _mistaken(now, page, relation)]
        if not any(
            link.title == following for line in lines if line is not None for link in page.lines[line - 1].links
        ):
            return None
        at += 1
    return at


def _return(now: Situation) -> str:
    """From a wrong place: one step back when that is a page of the chain, else to its beginning."""
    titles = [hop.title for hop in now.gold.hops]
    if len(now.trail) > 1 and now.trail[-2] in titles:
        return render("BACK", "", now.trail[-2] or "")
    return render("NAVIGATE", titles[0], titles[0])


def _find(page: Page, relation: str | None) -> int | None:
    """Line id of the page's line about a relation."""
    for at, line in enumerate(page.lines, 1):
        if relation is not None and line.text.startswith(f"{relation}: "):
            return at
    return None


def _mistaken(now: Situation, page: Page, relation: str) -> int | None:
    """Line id of what the flawed demonstrator takes for a relation."""
    if not now.strange or relation in _WORLDLY:
        return _find(page, _MISTAKEN.get(relation))
    asked = _find(page, relation)
    if asked is None:
        return None
    linked = bool(page.lines[asked - 1].links)
    below = enumerate(page.lines[asked:], asked + 1)
    return next((at for at, line in below if ": " in line.text and bool(line.links) == linked), None)


def _link(page: Page, line: int, title: str | None) -> int | None:
    """Number of the link of a line that leads to `title` (None: of its first link)."""
    before = sum(len(row.links) for row in page.lines[: line - 1])
    for at, link in enumerate(page.lines[line - 1].links, 1):
        if title is None or link.title == title:
            return before + at
    return None
