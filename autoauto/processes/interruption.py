"""An end of what the main thread does, when something else than a signal asks for it: `interrupted_when`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_PERIOD_S = 0.2
_SIGNAL = signal.SIGUSR1


@contextmanager
def interrupted_when(is_wanted: Callable[[], bool] | None) -> Iterator[None]:
    """A context of the main thread that raises KeyboardInterrupt soon after an end is wanted, also while it waits.

    A thread asks `is_wanted`, five times a second. It sends the main thread a signal, because a wait for a process or a
    connection ends with nothing else. Outside of the context no signal arrives.
    """
    if is_wanted is None:
        yield
        return
    main = threading.main_thread()
    has_ended = threading.Event()
    lock = threading.Lock()

    def watch() -> None:
        while not has_ended.wait(_PERIOD_S):
            if is_wanted():
                with lock:  # no signal is sent once the context has ended
                    if not has_ended.is_set() and main.ident is not None:
                        signal.pthread_kill(main.ident, _SIGNAL)
                return

    before = signal.signal(_SIGNAL, _interrupt)
    watching = threading.Thread(target=watch, name="autoauto interruption", daemon=True)
    watching.start()
    try:
        yield
    finally:
        try:
            with lock:
                has_ended.set()
            watching.join()
        finally:  # a signal that was sent just now is handled above
            signal.signal(_SIGNAL, before)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
