"""Addresses of endpoints. Settings are written down: an address must carry no secret."""

from urllib.parse import urlsplit


def check_address(url: str, name: str) -> None:
    """Raises ValueError, which calls the setting ``name``, unless ``url`` is an address and holds no secret."""
    try:
        parts = urlsplit(url)
        port_is_a_number = parts.port is None or parts.port > 0
    except ValueError:
        raise ValueError(f"{name} is not an address") from None
    if not (port_is_a_number and parts.scheme in ("http", "https") and parts.hostname):
        raise ValueError(f"{name} must be an address like https://host/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            f"{name} must hold no user, password or query, because settings are written down: keys belong into the "
            "environment (docs/judges.md)"
        )
