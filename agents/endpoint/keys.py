"""Keys of endpoints: one variable for each host, so that no settings file can send a key elsewhere."""

import json
import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address

import httpx2

VENDORS = {"aliyuncs.com": "DASHSCOPE_API_KEY", "openai.com": "OPENAI_API_KEY"}
"""Domains whose keys have a name of their own."""


def key_name(host: str) -> str:
    """The environment variable that holds the key of ``host``: a vendor's own, or TURNWISE_KEY_ and the host."""
    for domain, name in VENDORS.items():
        if host == domain or host.endswith(f".{domain}"):
            return name
    return "TURNWISE_KEY_" + re.sub(r"[^A-Z0-9]", "_", host.upper())


def key_for(host: str, environ: Mapping[str, str]) -> str:
    """The key that ``host`` may see; "" where there is none."""
    return environ.get(key_name(host), "").strip()


def is_loopback(host: str) -> bool:
    """Whether the host is this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def usable_key(
    url: httpx2.URL, environ: Mapping[str, str], who: str, flag: str, error: Callable[[str], Exception]
) -> str:
    """The key for ``who`` at ``url``, the address of ``flag``; "" where there is none. Raises ``error``."""
    key, name = key_for(url.host, environ), key_name(url.host)
    if not key and name in VENDORS.values():
        raise error(f"{who} at {url.host} needs a key: export {name}=…")
    if not (key.isascii() and key.isprintable()):
        raise error(f"{who}'s key holds characters that no key has: check {name}")
    if key and url.scheme != "https" and not is_loopback(url.host):
        raise error(f"{flag} would send the key of {url.host} over plain http: give an https address, or unset {name}")
    return key


def without_key(text: str, key: str) -> str:
    """``text`` with stars where the key was, also as JSON writes it."""
    for shape in filter(None, (key, json.dumps(key)[1:-1])):
        text = text.replace(shape, "***")
    return text
