"""All text the wiki shows an agent, in both languages. It is short on purpose: a small model pays for every token.

Invariant: pages and titles are inserted as plain text; nothing here is ever parsed again.
"""

from collections.abc import Sequence

from agent_envs.wiki.backend import Hit, Page

_TEXTS: dict[str, tuple[str, str]] = {
    "page": ("{title} ({lines} lines, {links} links)", "{title} ({lines}行, {links}链接)"),
    "rest": (
        "(lines {first}-{last} of {lines}; NAVIGATE({title}#{next}) or FIND(text) for the rest)",
        "(第{first}-{last}行, 共{lines}行; 打开({title}#{next}) 或 查找(文字) 看其余)",
    ),
    "rest_tags": (
        "(lines {first}-{last} of {lines}; search {title}#{next} for the rest)",
        "(第{first}-{last}行, 共{lines}行; 搜索 {title}#{next} 看其余)",
    ),
    "also": ("other pages: {titles}", "其他页面: {titles}"),
    "missing": ("no such page", "不存在这个页面"),
    "similar": ("no such page, similar pages: {titles}", "不存在这个页面, 相似页面: {titles}"),
    "section": ("no such section, sections: {titles}", "没有这一节, 各节: {titles}"),
    "results": ("results {first}-{last}", "结果 {first}-{last}"),
    "more": ("results {first}-{last}, more: page={next}", "结果 {first}-{last}, 更多: page={next}"),
    "nothing": ("no results", "没有结果"),
    "nolink": ("no such link", "没有这个链接"),
    "links": ("no such link, links: 1-{links}", "没有这个链接, 链接: 1-{links}"),
    "nopage": ("no page is open", "没有打开的页面"),
    "notfound": ("not found", "没有找到"),
    "further": ("({left} more: FIND(text, next))", "(还有{left}处: 查找(文字, next))"),
    "back": ("nothing to go back to", "没有可返回的页面"),
    "saved": ("{ids}: saved, {count} lines", "{ids}: 保存成功, 共计{count}行"),
    "saved1": ("{ids}: saved, 1 line", "{ids}: 保存成功, 共计1行"),
    "nolines": ("{ids}: no such lines (page has {lines})", "{ids}: 没有这些行 (本页共{lines}行)"),
    "partly": (
        "{ids}: saved, {count} lines; no such lines: {missing} (page has {lines})",
        "{ids}: 保存成功, 共计{count}行; 没有这些行: {missing} (本页共{lines}行)",
    ),
}


def say(key: str, language: str, **values: object) -> str:
    """One fixed text with its values filled in."""
    return _TEXTS[key][language == "zh"].format(**values)


def show_page(page: Page, first: int, language: str, max_lines: int, max_chars: int, rest: str = "rest") -> str:
    """A page from line `first` (1-based) on, cut at line ends (one line at least); the last row, the reply ``rest``,
    says what is left."""
    head = _head(page, language)
    last = last_shown(page, first, language, max_lines, max_chars)
    rows = [head, *page.shown[first - 1 : last]]
    if first > 1 or last < len(page.lines):
        following = last + 1 if last < len(page.lines) else 1
        rows.append(
            say(rest, language, first=first, last=last, lines=len(page.lines), title=page.title, next=following)
        )
    return "\n".join(rows)


def last_shown(page: Page, first: int, language: str, max_lines: int, max_chars: int) -> int:
    """Number of the last line that `show_page` shows."""
    room, last = max_chars - len(_head(page, language)), first - 1
    for row in page.shown[first - 1 : first - 1 + max_lines]:
        room -= len(row) + 1
        if room < 0 and last >= first:
            break
        last += 1
    return last


def _head(page: Page, language: str) -> str:
    return say("page", language, title=page.title, lines=len(page.lines), links=len(page.links))


def show_hits(hits: Sequence[Hit], offset: int, more: int | None, language: str) -> str:
    """Search results numbered like links; `more` is the number of the next page of results, if there is one."""
    if not hits:
        return say("nothing", language)
    head = say("results" if more is None else "more", language, first=offset + 1, last=offset + len(hits), next=more)
    return "\n".join([head, *(f"{{{number}:{hit.title}}} {hit.snippet}" for number, hit in enumerate(hits, 1))])


def saved_range(first: int, last: int, lines: int, language: str) -> tuple[range, str]:
    """The ids of a range that exist on a page of `lines` lines, and the reply for it. Costs nothing for huge ranges."""
    ids = range(max(first, 1), min(last, lines) + 1)
    shown = _ids(first, last)
    if not ids:
        return ids, say("nolines", language, ids=shown, lines=lines)
    if len(ids) == last - first + 1:
        return ids, say("saved1" if len(ids) == 1 else "saved", language, ids=shown, count=len(ids))
    missing = [_ids(*gap) for gap in ((first, ids.start - 1), (ids.stop, last)) if gap[0] <= gap[1]]
    return ids, say("partly", language, ids=shown, count=len(ids), missing=", ".join(missing), lines=lines)


def _ids(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
