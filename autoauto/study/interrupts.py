"""Ctrl-C and SIGTERM as KeyboardInterrupt, raised only where no result is lost: `Interrupts`."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, ClassVar, Self

from autoauto.processes.signals import Handler, catch, put_back

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


class Interrupts:
    """Inside its `with` block, SIGINT and SIGTERM raise KeyboardInterrupt in or at the next `interruptible()`.

    An interrupt in the middle of a database write would lose a finished measurement; and Optuna alone marks a trial as
    failed at SIGINT only, and leaves it running at SIGTERM. Signals that the process ignores stay ignored. Outside the
    main thread, where Python delivers no signals, nothing changes. A second signal ends the process where C++ computes
    and keeps Python from handling the first (`autoauto/processes/signals.py`); finished trials are in the database.
    A signal that arrives while Python runs a destructor, which cannot raise, or imports a module, which may print the
    exception and fail, raises at the next `interruptible()`.
    """

    _active: ClassVar[list[Self]] = []

    def __init__(self) -> None:
        self._pending = False
        self._interruptible = False
        self._replaced: dict[signal.Signals, Handler | int] = {}
        self._previous_hook = sys.unraisablehook

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                previous = signal.getsignal(number)
                if previous is not None and previous is not signal.SIG_IGN:  # None: not Python's, cannot be put back
                    self._replaced[number] = previous
                    catch(number, self._on_signal)
            self._active.append(self)
            self._previous_hook, sys.unraisablehook = sys.unraisablehook, self._on_unraisable
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._replaced.items():
            put_back(number, handler)
        if self in self._active:
            self._active.remove(self)
            sys.unraisablehook = self._previous_hook
        if self._pending and exc_type is None:
            raise KeyboardInterrupt

    @classmethod
    def check(cls) -> None:
        """Raise KeyboardInterrupt when a signal is pending; for long waits outside `interruptible()`."""
        if threading.current_thread() is threading.main_thread() and any(active._pending for active in cls._active):
            raise KeyboardInterrupt

    @classmethod
    def may_have_raised(cls) -> bool:
        """True if a KeyboardInterrupt may come from a signal: one is pending, or none of ours handles them."""
        return not cls._active or any(active._pending for active in cls._active)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise KeyboardInterrupt in this context: at once when a signal is pending, else when one arrives.

        Also a decorator, since a context manager of `contextlib` is one.
        """
        self._interruptible = True
        try:
            if self._pending:
                raise KeyboardInterrupt
            yield
        finally:
            self._interruptible = False

    def _on_signal(self, _number: int, frame: FrameType | None) -> None:
        self._pending = True
        if self._interruptible and not _is_importing(frame):
            self._interruptible = False  # a second signal must not disturb the handling of the first
            raise KeyboardInterrupt

    def _on_unraisable(self, lost: UnraisableHookArgs) -> None:
        if self._pending and issubclass(lost.exc_type, KeyboardInterrupt):
            self._interruptible = True  # it was raised inside `interruptible()`, where a second signal may raise
        else:
            self._previous_hook(lost)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
