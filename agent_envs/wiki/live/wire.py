"""One answer of a MediaWiki, bounded in time and size; the only file that imports the extra `wikipedia`.

Invariants: only the given host is asked, no redirect is followed; an answer over `MOST_BYTES`, packed or unpacked, is
an error; a request ends at its deadline whatever the wiki sends, because the caller keeps it and not the HTTP library,
which counts from the last byte. wikipedia-api's own way of asking again has no upper bound, so it is switched off.
"""

import ipaddress
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import wikipediaapi

MOST_BYTES = 8 << 20


class Later(Exception):  # noqa: N818 (the wiki's wish, not a mistake)
    """Asking again may help."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after
        """Seconds that the wiki asks to be left alone for."""


class Broken(Exception):  # noqa: N818
    """Asking again would not help."""


class _Transport(httpx.HTTPTransport):
    """Bounds every answer, and remembers how long the wiki asks to be left alone for."""

    def __init__(self, host: str) -> None:
        super().__init__(retries=0)
        self._host = host
        self.deadline = 0.0
        self.after: float | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host != self._host:
            raise httpx.UnsupportedProtocol(f"not the host {self._host}")
        left = max(self.deadline - time.monotonic(), 0.001)
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), left)
        response = super().handle_request(request)
        try:
            self.after = _seconds(response.headers.get("retry-after"))
            body = b"".join(self._pieces(response))
        finally:
            response.close()
        kept = [(k, v) for k, v in response.headers.multi_items() if k not in ("content-encoding", "content-length")]
        return httpx.Response(response.status_code, headers=kept, content=body)

    def _pieces(self, response: httpx.Response) -> Iterator[bytes]:
        packing = response.headers.get("content-encoding", "identity")
        if packing not in ("identity", "gzip"):
            raise httpx.DecodingError("an encoding that was not asked for")
        unpack, room, came = zlib.decompressobj(31), MOST_BYTES, 0
        for piece in response.iter_raw():
            came += len(piece)
            try:
                data = piece if packing == "identity" else unpack.decompress(piece, room + 1)
            except zlib.error as error:
                raise httpx.DecodingError("broken gzip") from error
            room -= len(data)
            if room < 0 or came > MOST_BYTES or unpack.unconsumed_tail:
                raise httpx.DecodingError(f"more than {MOST_BYTES >> 20} MiB")
            yield data


class Wire:
    """A connection to the api.php of one wiki."""

    def __init__(self, url: str, agent: str, private_hosts: tuple[str, ...]) -> None:
        """Raises ValueError for a host in a private network that nobody named."""
        host = httpx.URL(url).host
        _check_host(host, httpx.URL(url).port or 443, private_hosts)

        class Wiki(wikipediaapi.Wikipedia):
            @staticmethod
            def _build_url(language: str) -> str:
                return url

        self._host, self._agent, self._kind = host, agent, Wiki
        self._connect()

    def _connect(self) -> None:
        self._transport = _Transport(self._host)
        packed = {"Accept-Encoding": "gzip"}
        self._wiki = self._kind(self._agent, "any", headers=packed, max_retries=0, transport=self._transport)

    def get(self, params: dict[str, Any], deadline: float) -> Any:
        """The JSON that the wiki answers. Raises Later, Broken."""
        self._transport.deadline, self._transport.after = deadline, None
        result: Future[Any] = Future()
        # A thread that nobody waits for ends with its connection, at the latest with the process.
        threading.Thread(target=_fulfil, args=(result, self._wiki, params), daemon=True).start()
        try:
            return result.result(max(deadline - time.monotonic(), 0.001))
        except TimeoutError as error:
            self._connect()
            raise Later("does not answer in time") from error
        except wikipediaapi.WikiRateLimitError as error:
            raise Later("answers 429, too many requests", self.after) from error
        except wikipediaapi.WikiHttpError as error:
            if error.status_code >= 500:
                raise Later(f"answers {error.status_code}", self.after) from error
            raise Broken(f"answers {error.status_code}") from error
        except wikipediaapi.WikiHttpTimeoutError as error:
            raise Later("does not answer in time") from error
        except wikipediaapi.WikiInvalidJsonError as error:
            raise Broken("answers something that is no JSON") from error
        except wikipediaapi.WikiConnectionError as error:
            cause = error.__cause__
            if isinstance(cause, httpx.DecodingError | httpx.UnsupportedProtocol):
                raise Broken(f"sends {cause}") from error
            raise Later(f"cannot be reached ({type(cause).__name__})") from error
        except RecursionError as error:
            raise Broken("answers JSON that is nested too deeply") from error

    @property
    def after(self) -> float | None:
        """Seconds that the wiki's last answer asks to be left alone for."""
        return self._transport.after


def _fulfil(result: Future[Any], wiki: wikipediaapi.Wikipedia, params: dict[str, Any]) -> None:
    try:
        result.set_result(wiki._get("any", params))
    except Exception as error:
        result.set_exception(error)


def _seconds(header: str | None) -> float | None:
    """A Retry-After header, in either of its forms."""
    if not header:
        return None
    if header.isascii() and header.isdecimal():
        return float(header[:9])
    try:
        return max(parsedate_to_datetime(header).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


def _check_host(host: str, port: int, private_hosts: tuple[str, ...]) -> None:
    """An address in digits and localhost were named by being written; another name must not lead inside unasked."""
    if host in private_hosts or host == "localhost" or _is_address(host):
        return
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return  # the request will say so
    for *_, address in found:
        if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_global:
            raise ValueError(f"{host} is at {address[0]}, in a private network: name it in private_hosts to allow that")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
