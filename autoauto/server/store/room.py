"""Whether a server can work: room for what it writes, `check_room`, `no_room`; what it stands on, `check_lines`."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from time import monotonic

from sqlalchemy import and_, func, not_, select

from autoauto.records.units import MIB, format_bytes
from autoauto.server.store.searches import SearchState, count_states
from autoauto.server.store.tables import LEASES, SCHEMA, SEARCHES, ServiceDatabase, StorageFull
from autoauto.server.store.users import list_tokens

MIN_FREE_BYTES = 16 * MIB
"""Room that a disk of the server has at least where all is well."""
REMEMBERED_S = 60.0
"""How long `check_room` remembers that the database had no room, on a disk that this machine does not see."""
_TRIED_BYTES = 4096
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HINTS = {"temporary files": "free some of it, or set TMPDIR to another folder", "the database": "free some of it"}


def check_room(database: ServiceDatabase) -> None:
    """Make sure that temporary files can be written, and that the database has room, as far as it is known.

    Raises StorageFull where this is not so.
    """
    try:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(_TRIED_BYTES))
        for what, folder in folders(database):
            free_bytes = shutil.disk_usage(folder).free
            if free_bytes < MIN_FREE_BYTES:
                raise StorageFull(
                    f"the server's disk for {what} must have {format_bytes(MIN_FREE_BYTES)} free, it has "
                    f"{format_bytes(free_bytes)}; {_HINTS[what]}"
                )
    except OSError as error:
        raise no_room(error) from error
    if monotonic() - database.last_full_s < REMEMBERED_S:
        raise StorageFull(
            f"the disk of the server's database must have room, within the last {REMEMBERED_S:g} s it had none; "
            "free some of it, or delete uploads and searches"
        )


def folders(database: ServiceDatabase) -> Iterator[tuple[str, str]]:
    """What the server writes on this machine, and the folder of each."""
    yield "temporary files", tempfile.gettempdir()
    if database.file is not None:
        yield "the database", str(database.file.parent)


def no_room(error: OSError) -> StorageFull:
    """The error of a temporary file that cannot be written."""
    return StorageFull(
        f"the server must be able to write temporary files, it cannot: {error.strerror}; free space on its disk, or "
        "set TMPDIR to another folder"
    )


def full_disk_in(text: str) -> int:
    """The number of the error in a text which says that a disk has no room; 0 where none does."""
    return next((number for number in _FULL if os.strerror(number) in text), 0)


def check_lines(database: ServiceDatabase) -> Iterator[str]:
    """The database and its schema, which were opened; tokens, searches, workers that run one, and free disk space."""
    yield f"database: {database.shown} answers"
    yield f"schema: {SCHEMA}"
    states = [token.state for token in list_tokens(database)]
    yield f"tokens: {states.count('in force')} in force, {len(states) - states.count('in force')} ended"
    yield f"searches: {', '.join(f'{n} {state}' for state, n in count_states(database).items())}"
    held = and_(SEARCHES.c.state == SearchState.RUNNING, not_(LEASES.are_free(database.now())))
    n_workers = database.scalar(select(func.count(SEARCHES.c.process.distinct())).where(held))
    yield f"workers: {n_workers} run a search now; those that wait for one leave no trace"
    for what, folder in folders(database):
        yield f"disk: {format_bytes(shutil.disk_usage(folder).free)} free for {what}"
