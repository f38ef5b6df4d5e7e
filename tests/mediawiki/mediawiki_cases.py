"""The real MediaWiki that scripts/mediawiki_suite.sh installed and serves."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / "tests" / "runners"), str(ROOT / "scripts")]


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}/w/api.php"


@dataclass(frozen=True)
class MediaWiki:
    """An installed wiki, and where it is served."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return url_of(self.port)

    def marked(self, name: str) -> Path:
        """The file that makes it answer as a busy wiki."""
        return self.folder / name

    @contextmanager
    def served(self, port: int) -> Iterator[None]:
        """The same wiki at another port, until the end of the block."""
        server = self.serve(port)
        try:
            yield
        finally:
            kill(server)

    def serve(self, port: int) -> subprocess.Popen[bytes]:
        command = [ROOT / "scripts" / "mediawiki.sh", "serve", self.folder, str(port)]
        server = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
        for _ in range(200):
            try:
                # The first answer is slow: PHP compiles the wiki.
                urllib.request.urlopen(f"{url_of(port)}?action=query&meta=siteinfo&format=json", timeout=30).close()
                return server
            except OSError:
                time.sleep(0.05)
        kill(server)
        raise AssertionError("the wiki does not come up")


def kill(server: subprocess.Popen[bytes]) -> None:
    """The whole group: the workers outlive the server otherwise."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def mediawiki() -> MediaWiki:
    given = os.environ.get("TURNWISE_MEDIAWIKI", "")
    if not given:
        pytest.skip("needs a MediaWiki: scripts/mediawiki_suite.sh brings one up")
    folder, _, port = given.rpartition(":")
    return MediaWiki(Path(folder), int(port))
