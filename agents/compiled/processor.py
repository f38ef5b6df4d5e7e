"""What the system says of its processors."""

import platform
from pathlib import Path


def told() -> list[tuple[str, str]]:
    """(name, value), one processor after another; nothing where there is no ``/proc/cpuinfo``."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return []
    return [(name.strip(), value.strip()) for name, colon, value in (line.partition(":") for line in lines) if colon]


def maker() -> str:
    """Who made them, as they say it: GenuineIntel, AuthenticAMD."""
    known = dict(told())
    return known.get("vendor_id", "") if known else platform.processor()
