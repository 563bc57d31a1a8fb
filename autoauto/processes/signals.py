"""SIGINT and SIGTERM that end a process also while C++ computes: `catch`, `put_back`, `watch`; `same_signal_stack`.

Python runs the handler of a signal between two of its own instructions, so not before a function of a library in C++
returns. What the kernel does by itself needs no Python:

    first signal   Python's handler is noted, and the signal has its default effect from now on (SA_RESETHAND)
        Python runs     ─▶ the handler runs, and catches the signal again
        C++ computes    ─▶ a second signal ends the process, with the exit code 130 or 143 of a shell
                        ─▶ after `END_S` the process of `watch` sends it
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

END_S = 5.0
"""Time after which a signal is sent again that Python has not handled."""
_SA_RESETHAND = -0x80000000  # as the `int` of `struct sigaction`
_HANDLED = b"\0"
_wakeup: list[int] = []  # the end of the pipe to the watching process


class _SigAction(ctypes.Structure):
    """`struct sigaction` of Linux with 64 bits."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class SignalStack(ctypes.Structure):
    """`stack_t` of Linux."""

    _fields_ = (("pointer", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def same_signal_stack() -> Iterator[None]:
    """A context after which this thread handles signals on the stack that it had before.

    OpenVINO's plugin for CPUs gives the thread that compiles a stack of the plugin's own. Once the plugin is gone, the
    next signal would end the process, since that memory is.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    libc = ctypes.CDLL(None)
    before = SignalStack()
    libc.sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        libc.sigaltstack(ctypes.byref(before), None)


Handler = Callable[[int, FrameType | None], object]


class _Caught:
    """A handler that catches the next signal, says that Python runs, and then does what another one does."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        put_back(number, self)
        if _wakeup:
            with suppress(OSError):
                os.write(_wakeup[0], _HANDLED)
        self._handler(number, frame)


def catch(number: int, handler: Handler) -> None:
    """Have a signal handled by Python; a second one ends the process where the handler of the first has not run."""
    put_back(number, _Caught(handler))


def put_back(number: int, handler: Handler | int) -> None:
    """Install a handler as it was before, that of `catch` or any other."""
    signal.signal(number, handler)
    if not isinstance(handler, _Caught) or not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return
    # The signal gets its default effect once Python has noted it.
    libc = ctypes.CDLL(None)
    action = _SigAction()
    if libc.sigaction(number, None, ctypes.byref(action)) == 0:
        action.flags |= _SA_RESETHAND
        libc.sigaction(number, ctypes.byref(action), None)


def watch() -> None:
    """Start a process that sends this one a signal again which Python has not handled after `END_S`.

    It is forked, so that it costs little; call this before there are threads. It ends with this process.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    watched = os.getpid()
    if os.fork() == 0:
        os.close(writing)
        _send_again(watched, reading)
    os.close(reading)
    _wakeup[:] = [writing]
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """Close the pipe in a forked process: the watching process watches its parent only."""
    for descriptor in _wakeup:
        signal.set_wakeup_fd(-1)
        os.close(descriptor)
    _wakeup.clear()


def _send_again(watched: int, reading: int) -> NoReturn:
    """Wait for the numbers of signals that arrive, and for `_HANDLED` after each, until the watched process ends."""
    with suppress(BaseException):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # whoever reads what the watched process writes must see its end
            os.dup2(nowhere, stream)
        pending = 0
        while os.getppid() == watched:
            ready, _, _ = select.select([reading], [], [], END_S if pending else None)
            if ready:
                received = os.read(reading, 512)
                if not received:
                    break
                pending = received[-1]
            else:
                os.kill(watched, pending)
    os._exit(0)
