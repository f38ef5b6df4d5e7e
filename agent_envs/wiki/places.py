"""Settings that say where the pages of a wiki are; part of the wiki's own."""

import re
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges

LANGUAGE = "{language}"
WIKIPEDIA = f"https://{LANGUAGE}.wikipedia.org/w/api.php"


class Backend(StrEnum):
    """What answers for the wiki."""

    OFFLINE = "offline"
    LIVE = "live"
    ZIM = "zim"


@dataclass(frozen=True)
class Place:
    """Where the pages of a wiki are."""

    backend: Backend = Backend.OFFLINE
    """`offline`: the pages of `corpus`, built once on this machine; `live`: a MediaWiki, by default Wikipedia (extra
    `wikipedia`); `zim`: a file of Kiwix (extra `zim`)."""
    path: str = ""
    """The file of `backend zim`."""
    api_url: str = ""
    """Address of the api.php of `backend live`; `{language}` in it is replaced. Empty: that of Wikipedia. No other host
    is ever asked, and redirects to one are not followed."""
    edition: str = ""
    """Language of the live wiki, as in its address (`de`). Empty: that of the task."""
    contact: str = ""
    """Mail or web address that the live wiki is told in the user agent, as Wikipedia asks for."""
    patience: float = 8.0
    """Most seconds that one answer of the live wiki may take, waiting and asking again included; then the episode is a
    fault. A turn needs up to three answers and must end within 30 seconds."""
    spacing: float = 0.1
    """Fewest seconds between two requests to the live wiki."""
    in_flight: int = 1
    """Most requests at a time to the live wiki, over all processes of this machine."""
    cache_days: float = 30.0
    """Days for which what the live wiki answered is kept on the disk; 0: not at all."""
    private_hosts: tuple[str, ...] = ()
    """Names of hosts in private networks that the live wiki may be at. An address in digits, or localhost, in `api_url`
    needs no such permission."""
    record: str = ""
    """File that all answers of the wiki are written to; what it holds already is not asked for again."""
    replay: str = ""
    """File that `record` wrote: it answers for the wiki, which is never asked."""

    def check_place(self) -> None:
        """Raises SettingsError."""
        check_ranges(
            self,
            SettingsError,
            "wiki: ",
            patience=(0.1, 3600),
            spacing=(0, 60),
            in_flight=(1, 16),
            cache_days=(0, 3650),
        )
        live = ("api_url", "edition", "contact", "patience", "spacing", "in_flight", "cache_days", "private_hosts")
        for name in live if self.backend != Backend.LIVE else ():
            if getattr(self, name) != getattr(Place, name):
                raise SettingsError(f"wiki: {name} acts with backend live only")
        if bool(self.path) != (self.backend == Backend.ZIM):
            raise SettingsError("wiki: backend zim needs a path to a file .zim, and no other backend takes one")
        if self.record and self.replay:
            raise SettingsError("wiki: a run either records or replays: leave out record or replay")
        if self.backend == Backend.LIVE:
            self._check_live()

    def _check_live(self) -> None:
        address = urlsplit(self.url("en"))
        if address.scheme not in ("http", "https") or not address.hostname or address.username is not None:
            raise SettingsError(f"wiki: api_url must be like https://wiki.example.org/w/api.php, not {self.api_url!r}")
        if LANGUAGE in self.api_url and LANGUAGE in (urlsplit(self.api_url).path + urlsplit(self.api_url).query):
            raise SettingsError(f"wiki: api_url takes {LANGUAGE} in the name of the host only")
        if self.edition and not re.fullmatch("[a-z][a-z0-9-]{1,15}", self.edition):
            raise SettingsError(f"wiki: edition must be the code of a language, as de or zh, not {self.edition!r}")
        if not re.fullmatch(r"[!-'*-~]{0,100}", self.contact):
            raise SettingsError("wiki: contact must be one mail or web address")

    def url(self, language: str) -> str:
        """The address of the live wiki's api.php."""
        return (self.api_url or WIKIPEDIA).replace(LANGUAGE, self.edition or language)

    def place(self) -> "Place":
        """These settings alone: what opens a backend."""
        return Place(**{field.name: getattr(self, field.name) for field in fields(Place)})

    @property
    def file(self) -> Path:
        return Path(self.path).expanduser()
