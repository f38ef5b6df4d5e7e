"""A headless Chromium over its debugging pipe: no driver, no package and no socket is needed.

Invariant: everything the page did wrong is kept in ``problems`` (console errors, exceptions, refused content) and
what it asked for in ``requests``, and ``close`` ends the browser that was started here and removes its profile.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 60.0
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]
for end, wanted in zip(ends, (3, 4)):
    os.dup2(end, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium speaks its protocol on file descriptors 3 and 4: this puts ours there."""


def chromium() -> str | None:
    """The system's Chromium, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser with one page. Use as a context manager."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.mkdtemp(prefix="viewer-")
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        self._process = subprocess.Popen(
            [
                sys.executable, "-c", START, str(to_read), str(to_write), program,
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--no-first-run", "--disable-background-networking", "--disable-component-update", "--lang=en",
                "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank",
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, ""
        self.problems: list[str] = []
        self.requests: list[str] = []
        pages = self._call("Target.getTargets")["targetInfos"]
        page = next(p["targetId"] for p in pages if p["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._to)  # the browser ends when its pipe does
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        shutil.rmtree(self.profile, ignore_errors=True)

    # -- what a test does ----------------------------------------------------------------------------------------

    def open(self, file: Path, fragment: str = "") -> None:
        """Loads a file and waits until it has been drawn."""
        url = f"{file.resolve().as_uri()}{fragment}"
        self._call("Page.navigate", url="about:blank")  # another fragment alone would load nothing
        self._call("Page.navigate", url=url)
        end = time.monotonic() + PATIENCE
        while self("[location.href, document.readyState].join()") != f"{url},complete":
            assert time.monotonic() < end, "the page did not load"
            time.sleep(0.02)

    def __call__(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def enter(self, selector: str, text: str) -> None:
        """Gives a field a value, as typing or choosing does."""
        node = f"document.querySelector({json.dumps(selector)})"
        self(f"{node}.value = {json.dumps(text)}")
        for event in ("input", "change"):
            self(f"{node}.dispatchEvent(new Event('{event}'))")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key)
        self._settle()

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of the first such element."""
        node = f"document.querySelector({json.dumps(selector)})"
        self(f"{node}.scrollIntoView({{block: 'center'}})")
        self._settle()
        box = self(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({node}.getBoundingClientRect())")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)
        self._settle()

    def show(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """Size and colours of the window."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._settle()

    def screenshot(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def _settle(self) -> None:
        self("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    # -- the protocol --------------------------------------------------------------------------------------------

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self._notice(answer.get("method", ""), answer.get("params", {}))

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._from, 1 << 20)
            assert more, "the browser ended"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def _notice(self, event: str, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
