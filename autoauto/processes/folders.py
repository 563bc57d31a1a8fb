"""Temporary folders that killed processes leave, and that the next process deletes: `temporary_folder`."""

from __future__ import annotations

import atexit
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_folder(
    prefix: str, is_ours: Callable[[Path], bool] = lambda _: True, parent: Path | None = None
) -> Iterator[Path]:
    """A folder that is deleted at the end; deletes first those with this prefix that killed processes left.

    A process holds a lock on its folder as long as it lives: whoever can lock a folder may delete it. It gets the name
    by which others look for it once it is locked; where the file system has no locks, it never does. Only a folder of
    this user that `is_ours` is deleted.
    """
    parent = parent or Path(tempfile.gettempdir())
    delete_left(prefix, is_ours, parent)
    folder = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=parent))
    with ExitStack() as at_end:
        with suppress(OSError):
            at_end.callback(os.close, _lock(folder))
            folder = folder.rename(parent / folder.name[1:])
        at_end.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def delete_left(prefix: str, is_ours: Callable[[Path], bool] = lambda _: True, parent: Path | None = None) -> None:
    """Delete the folders that `temporary_folder` made in processes that were killed."""
    for left in (parent or Path(tempfile.gettempdir())).glob(f"{glob.escape(prefix)}*"):
        with suppress(OSError):  # it is locked, of another user, or no folder
            lock = _lock(left)
            try:
                if os.fstat(lock).st_uid == os.getuid() and is_ours(left):
                    shutil.rmtree(left)
            finally:
                os.close(lock)


def folder_until_exit(prefix: str) -> Path:
    """A `temporary_folder` that is deleted when this process ends."""
    with ExitStack() as opened:
        folder = opened.enter_context(temporary_folder(prefix))
        atexit.register(opened.pop_all().close)
    return folder


def _lock(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
