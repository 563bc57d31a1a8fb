"""Which process holds something, and whether it is gone, as far as one machine can tell."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path


def myself() -> str:
    """This process among all machines: its machine, and its number there."""
    return f"{_place()}:{os.getpid()}"


def is_gone(owner: str) -> bool:
    """Whether a process was on this machine and is no more; of other machines nothing is known."""
    place, _, number = owner.rpartition(":")
    if place != _place():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


@cache
def _place() -> str:
    """Where process numbers mean the same: one boot of one machine, and of its containers the same one."""
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return "/".join(facts)
