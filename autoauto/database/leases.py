"""Rows that one process at a time works on: `LeasedRows`; and which processes are gone, `is_gone`.

    free ──take──▶ held ──renew──▶ held for another 30 s
      ▲              │
      ╰──────────────╯ the lease ran out, its process is gone, or its token was deleted

Times are those of the database (`Backend.clock_s`): of the server, or of the one machine that uses a file. So a worker
whose clock is set forward or back ends no lease. After a restart of the machine, or when the server's clock is set, a
lease may end early, which costs time only; none lasts longer.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, or_, select, update

LEASE_S = 30.0


@dataclass(frozen=True, slots=True)
class LeasedRows:
    """The rows of a table with the columns `token`, `process` and `expires_s`.

    Attributes:
        table: of them. A row without a token is free.
    """

    table: Table
    lease_s: float = LEASE_S

    def are_free(self, now_s: ColumnElement[float]) -> ColumnElement[bool]:
        """True of rows that nobody holds, by the time of the database."""
        return or_(self.table.c.token.is_(None), self.have_run_out(now_s))

    def have_run_out(self, now_s: ColumnElement[float]) -> ColumnElement[bool]:
        """True of leases that were not renewed; one that would last longer was written before a clock was set back."""
        ends_s = self.table.c.expires_s
        return or_(ends_s < now_s, ends_s > now_s + 2 * LEASE_S)

    def taken(self, now_s: ColumnElement[float], process: str) -> dict[str, Any]:
        """The values of a row that a process takes; its token is a random name that only this lease has."""
        return {"token": uuid.uuid4().hex, "process": process, **self.renewed(now_s)}

    def renewed(self, now_s: ColumnElement[float]) -> dict[str, Any]:
        """The values of a row that is held from now on."""
        return {"expires_s": now_s + self.lease_s}

    def free_those_of_gone_processes(self, connection: Connection, among: ColumnElement[bool]) -> bool:
        """End the leases of processes of this machine that are gone; returns True if there were any.

        Without this a worker that was killed would delay its work by a lease.
        """
        held = and_(among, self.table.c.token.is_not(None))
        processes = connection.scalars(select(self.table.c.process).where(held).distinct()).all()
        gone = [process for process in processes if is_gone(process)]
        if gone:
            connection.execute(update(self.table).where(held, self.table.c.process.in_(gone)).values(token=None))
        return bool(gone)


def this_process() -> str:
    """This process among those of all machines: its machine and its process number."""
    return f"{_machine_id()}:{os.getpid()}"


def is_gone(process: str) -> bool:
    """True if a process of this machine has ended; False for one of another machine, of which nothing is known."""
    machine_id, _, number = process.rpartition(":")
    if machine_id != _machine_id():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


@cache
def _machine_id() -> str:
    """An id of the boot of this machine and of its container: within both, a process number names one process."""
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return "/".join(facts)
