"""A small twin of a MediaWiki's API on loopback: the pages of a test, and whatever goes wrong with a server.

Its answers have the shape of those that a real MediaWiki gives; `tests/mediawiki` runs the same contract on that one.
"""

import gzip
import html
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agent_envs.wiki.backend import Page
from benchmarks.wiki_zim import html_of

_NAMES = {"-2": "Media", "-1": "Special", "0": "", "1": "Talk", "2": "User", "6": "File", "14": "Category"}


def _html(page: Page) -> str:
    return html_of(page, lambda title: f"/w/index.php/{title.replace(' ', '_')}")


@dataclass
class Twin:
    """The server's state; tests read and change it while it runs."""

    pages: dict[str, Page]
    redirects: dict[str, str]
    asked: list[dict[str, str]] = field(default_factory=list)
    """The parameters of every request."""
    agents: list[str] = field(default_factory=list)
    """The user agent of every request."""
    at_once: int = 0
    """Requests being answered; and the most there were."""
    most_at_once: int = 0
    delay: float = 0.0
    """Seconds that each answer takes."""
    faults: list[Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=list)
    """What is sent for the next requests, one each, instead of the answer."""
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/w/api.php"

    def answer(self, asked: dict[str, str]) -> Any:
        if asked["action"] == "parse":
            return self._parse(asked["page"])
        kinds = asked.get("list", "").split("|")
        result: dict[str, Any] = {}
        if "meta" in asked:
            spaces = {key: {"id": int(key), "name": name} for key, name in _NAMES.items()}
            result |= {"namespaces": spaces, "namespacealiases": [{"id": 6, "alias": "Image"}]}
        if "titles" in asked:
            titles = asked["titles"].split("|")
            changed = [{"from": one, "to": _upper(one)} for one in titles if _upper(one) != one]
            there = [one for one in map(_upper, titles) if one in self.pages or one in self.redirects]
            rows = [{"ns": 0, "title": one, "pageid": 1} for one in there]
            for row in rows if asked.get("prop") == "redirects" else ():
                row |= {
                    "redirects": [
                        {"title": one} for one in sorted(self.redirects) if self.redirects[one] == row["title"]
                    ]
                }
            result |= {"normalized": changed, "pages": rows}
        if "search" in kinds:
            words = asked["srsearch"].casefold().split()
            found = [page for page in self.pages.values() if all(word in _body(page) for word in words)]
            start = int(asked.get("sroffset", 0))
            rows = found[start : start + int(asked["srlimit"])]
            result["search"] = [
                {"ns": 0, "title": row.title, "snippet": html.escape(row.lines[0].text)} for row in rows
            ]
        if "prefixsearch" in kinds:
            names = [title for title in self.pages if title.startswith(asked["pssearch"])]
            result["prefixsearch"] = [{"ns": 0, "title": title} for title in names[: int(asked["pslimit"])]]
        if "allpages" in kinds:
            names = sorted(title for title in self.pages if title >= asked.get("apfrom", ""))
            result["allpages"] = [{"ns": 0, "title": title} for title in names[: int(asked["aplimit"])]]
        return {"query": result}

    def _parse(self, asked: str) -> Any:
        title = _upper(asked)
        page = self.pages.get(self.redirects.get(title, title))
        if page is None:
            return {"error": {"code": "missingtitle", "info": "The page you specified doesn't exist."}}
        links = [{"ns": 0, "title": one.title, "exists": one.title in self.pages} for one in page.links]
        return {"parse": {"title": page.title, "revid": 7, "text": _html(page), "links": links}}


def _upper(title: str) -> str:
    title = " ".join(title.replace("_", " ").split())
    return title[:1].upper() + title[1:]


def _body(page: Page) -> str:
    return " ".join([page.title, *(line.text for line in page.lines)]).casefold()


@contextmanager
def twin_of(pages: Iterable[Page], port: int = 0) -> Iterator[Twin]:
    """A running server of these pages on a loopback port (0: any free one)."""
    pages = list(pages)
    redirects = {alias: page.title for page in pages for alias in page.aliases}
    twin = Twin({page.title: page for page in pages}, redirects)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
            with twin.lock:
                twin.asked.append(asked)
                twin.agents.append(self.headers["User-Agent"])
                twin.at_once += 1
                twin.most_at_once = max(twin.most_at_once, twin.at_once)
                fault = twin.faults.pop(0) if twin.faults else None
            try:
                time.sleep(twin.delay)
                with suppress(BrokenPipeError, ConnectionResetError):
                    if fault is not None:
                        fault(self)
                    else:
                        send(twin.answer(asked))(self)
            finally:
                with twin.lock:
                    twin.at_once -= 1

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    twin.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield twin
    finally:
        server.shutdown()
        server.server_close()


def send(
    what: Any, status: int = 200, headers: dict[str, str] | None = None, *, packed: bool = False
) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer: bytes as they are, anything else as JSON."""
    body = what if isinstance(what, bytes) else json.dumps(what).encode()
    body = gzip.compress(body) if packed else body

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            handler.send_header(name, value)
        if packed:
            handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        handler.wfile.write(body)

    return write
