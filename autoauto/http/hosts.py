"""The `Host` header of a request: a page in a browser reaches this machine by a name of its own (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address

from autoauto.records.errors import BadInput


def is_allowed_host(header: str, names: Collection[str]) -> bool:
    """True if a `Host` header names this server: an address, localhost, or one of its names; the port does not matter.

    >>> [is_allowed_host(header, ["models.example"]) for header in ("127.0.0.1:80", "[::1]", "Models.example.:80")]
    [True, True, True]
    >>> [is_allowed_host(header, ["models.example"]) for header in ("rebound.example", "127.0.0.1.example", "")]
    [False, False, False]
    """
    name = header.strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0].removesuffix(".")
    if name == "localhost" or name.endswith(".localhost") or name in {each.lower() for each in names}:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def check_host(header: str, names: Collection[str], option: str) -> None:
    """Raise BadInput for a request whose `Host` header does not name this server; `option` adds a name."""
    if not is_allowed_host(header, names):
        raise BadInput(
            f"the Host header must be an address, localhost or a name of this server, got {header!r:.80}; try {option}"
        )
