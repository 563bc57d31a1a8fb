"""Temporary folders that killed processes leave, and that the next process deletes: `temporary_folder`."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def _any(_: Path) -> bool:
    return True


@contextmanager
def temporary_folder(prefix: str, is_ours: Callable[[Path], bool] = _any) -> Iterator[Path]:
    """A folder that is deleted at the end; deletes first those with this prefix that killed processes left.

    A process holds a lock on its folder as long as it lives: whoever can lock a folder may delete it. It gets the name
    by which others look for it once it is locked. Only a folder of this user that `is_ours` is deleted.
    """
    parent = Path(tempfile.gettempdir())
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            _delete_unless_locked(left, is_ours)
    made = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=parent))
    lock = _lock(made)
    folder = made.rename(parent / made.name[1:])
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _delete_unless_locked(folder: Path, is_ours: Callable[[Path], bool]) -> None:
    """Delete a folder of this user that nobody has locked, and that is ours.

    Raises:
        OSError: it is locked, of another user, or no folder.
    """
    lock = _lock(folder)
    try:
        if os.fstat(lock).st_uid == os.getuid() and is_ours(folder):
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
