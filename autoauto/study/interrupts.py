"""Ctrl-C and SIGTERM, heard only where nothing is lost by it: `Interrupts`."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


class Interrupts:
    """While entered, SIGINT and SIGTERM raise KeyboardInterrupt inside `heard()` and elsewhere wait for it.

    Optuna alone books a trial as failed at SIGINT only and leaves it running at SIGTERM (SEARCH.md section 1), and an
    interrupt in the middle of a database write would lose a finished measurement. Signals that the process ignores stay
    ignored; outside the main thread Python hears no signals and nothing changes. One that arrives while Python runs a
    destructor, which cannot raise, or imports a module, which may print it and fail, is heard at the next `heard()`.
    """

    _entered: ClassVar[list[Self]] = []

    def __init__(self) -> None:
        self._pending = False
        self._hearing = False
        self._replaced: dict[signal.Signals, signal.Handlers] = {}
        self._tell_unraisable = sys.unraisablehook

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: not Python's, cannot be put back
                    self._replaced[number] = signal.signal(number, self._arrived)  # type: ignore[assignment]
            self._entered.append(self)
            self._tell_unraisable, sys.unraisablehook = sys.unraisablehook, self._not_raised
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._replaced.items():
            signal.signal(number, handler)
        if self in self._entered:
            self._entered.remove(self)
            sys.unraisablehook = self._tell_unraisable
        if self._pending and exc_type is None:
            raise KeyboardInterrupt

    @classmethod
    def check(cls) -> None:
        """Raise KeyboardInterrupt when a signal waits to be heard: for waits deep inside, in the main thread."""
        if threading.current_thread() is threading.main_thread() and any(one._pending for one in cls._entered):
            raise KeyboardInterrupt

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Raise KeyboardInterrupt here: at once when one waits, else as soon as one arrives."""
        self._hearing = True
        try:
            if self._pending:
                raise KeyboardInterrupt
            yield
        finally:
            self._hearing = False

    def _arrived(self, _number: int, frame: FrameType | None) -> None:
        self._pending = True
        if self._hearing and not _imports(frame):
            self._hearing = False  # a second signal must not disturb the handling of the first
            raise KeyboardInterrupt

    def _not_raised(self, lost: UnraisableHookArgs) -> None:
        if self._pending and issubclass(lost.exc_type, KeyboardInterrupt):
            self._hearing = True  # it was raised where signals are heard; a second one still is
        else:
            self._tell_unraisable(lost)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
