"""Why a server was not reached, in words: `unreached`."""

from __future__ import annotations

import os
from socket import gaierror


def unreached(error: Exception) -> str:
    """The reason of an error of aiohttp: of a connection that was not made what the system says, else its text.

    >>> unreached(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"))
    'Connection refused; check the address, or whether the server runs'
    """
    cause = getattr(error, "os_error", error)
    if isinstance(cause, gaierror):
        return f"{cause.strerror}; check the address"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return f"{os.strerror(cause.errno)}; check the address, or whether the server runs"
    return str(error)
