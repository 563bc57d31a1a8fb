"""The command `autoauto`, also `python -m autoauto`: one line for Ctrl-C and SIGTERM, also during imports."""

from __future__ import annotations

import _thread
import io
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from autoauto.processes.circles import collect_no_more, collect_seldom
from autoauto.processes.signals import catch, watch

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType

LOST_S = 0.05
"""Time after which a lost interrupt is sent again: by then the destructor that it fell into has ended."""


def main() -> int:
    """Import the CLI, then run one command; see `autoauto.cli.main`."""
    open_closed_streams()
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = lasting_stream(sys.stderr)
    try:
        caught = [
            number
            for number, before in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))
            if signal.getsignal(number) is before  # the caller may have it ignored
        ]
        if caught:
            watch()
        for number in caught:
            catch(number, interrupt)
        send_lost_interrupts_again()
        collect_seldom()
        from autoauto.cli.main import main as run

        code = run()
        for number in (signal.SIGINT, signal.SIGTERM):  # the work is done, and its result printed
            signal.signal(number, signal.SIG_IGN)
    except KeyboardInterrupt:
        print("autoauto: interrupted", file=sys.stderr)
        code = 130
    # When Ctrl-C interrupts an `exec`, for example that of a dataclass, Python ends with this signal even though the
    # KeyboardInterrupt was caught. The next `exec` resets that state.
    exec("")
    collect_no_more()
    return code


def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the command, as Python does at Ctrl-C."""
    raise KeyboardInterrupt


def send_lost_interrupts_again() -> None:
    """Send SIGINT again when Python drops the KeyboardInterrupt of one: destructors and callbacks cannot raise it."""
    report, main_thread = sys.unraisablehook, threading.get_ident()

    def send() -> None:
        time.sleep(LOST_S)
        signal.pthread_kill(main_thread, signal.SIGINT)

    def on_unraisable(lost: UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            _thread.start_new_thread(send, ())
        else:
            report(lost)

    sys.unraisablehook = on_unraisable


def open_closed_streams() -> None:
    """Lead streams that the caller has closed (`>&-`) nowhere: the next file would get their number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)  # or processes that this one starts would have closed streams again
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 (open until the process ends)


def lasting_stream(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """A stream that ignores write errors: a closed pipe or a full disk must not end a search."""
    file = io.BufferedWriter(_LastingFile(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(file, stream.encoding, "backslashreplace", line_buffering=True)


class _LastingFile(io.FileIO):
    """A file that drops what cannot be written."""

    def write(self, data: Any, /) -> int:
        """Write what can be written."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


if __name__ == "__main__":
    raise SystemExit(main())
