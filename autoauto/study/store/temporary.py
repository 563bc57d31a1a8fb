"""The database of a search without storage: `temporary_database`."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "autoauto-trials-"
_DATABASE = "trials.db"


@contextmanager
def temporary_database() -> Iterator[str]:
    """The URL of a database that is deleted at the end; deletes first what killed processes left.

    A process holds a lock on its folder as long as it lives: whoever can lock a folder may delete it. It gets the name
    by which others look for it once it is locked.
    """
    parent = Path(tempfile.gettempdir())
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _delete_unless_locked(folder)
    made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
    lock = _lock(made)
    folder = made.rename(parent / made.name[1:])
    try:
        yield f"sqlite:///{folder / _DATABASE}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _delete_unless_locked(folder: Path) -> None:
    """Delete a folder that nobody has locked and that holds a database and nothing else.

    Raises:
        OSError: it is locked, of another user, or no folder.
    """
    lock = _lock(folder)
    try:
        if all(file.name.startswith(_DATABASE) for file in folder.iterdir()):
            shutil.rmtree(folder)
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
