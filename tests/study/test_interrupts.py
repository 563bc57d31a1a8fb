"""Where SIGINT and SIGTERM raise KeyboardInterrupt."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from autoauto.study.interrupts import Interrupts

SIGNALS = [signal.SIGINT, signal.SIGTERM]


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_inside_interruptible_raises_at_once(number: signal.Signals) -> None:
    reached = []

    def body() -> None:
        with Interrupts() as interrupts, interrupts.interruptible():
            send(number)
            reached.append("after the signal")

    with pytest.raises(KeyboardInterrupt):
        body()
    assert not reached


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_elsewhere_raises_at_the_next_interruptible(number: signal.Signals) -> None:
    reached = []

    def body() -> None:
        with Interrupts() as interrupts:
            send(number)
            reached.append("written")
            with interrupts.interruptible():
                reached.append("evaluated")

    with pytest.raises(KeyboardInterrupt):
        body()
    assert reached == ["written"]


def test_a_signal_after_the_last_interruptible_raises_at_the_end() -> None:
    reached = []

    def body() -> None:
        with Interrupts() as interrupts:
            with interrupts.interruptible():
                reached.append("evaluated")
            send(signal.SIGTERM)
            reached.append("written")

    with pytest.raises(KeyboardInterrupt):
        body()
    assert reached == ["evaluated", "written"]


def test_a_second_signal_does_not_disturb_the_handling_of_the_first() -> None:
    reached = []

    def body() -> None:
        with Interrupts() as interrupts:
            try:
                with interrupts.interruptible():
                    send(signal.SIGINT)
            except KeyboardInterrupt:
                send(signal.SIGINT)
                reached.append("handled")
                raise

    with pytest.raises(KeyboardInterrupt):
        body()
    assert reached == ["handled"]


class Dying:
    """Gets a signal, or an error of its own, while Python runs its destructor."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __del__(self) -> None:
        if self.error is not None:
            raise self.error
        send(signal.SIGINT)
        for _ in range(1000):
            pass


def test_a_signal_during_a_destructor_raises_at_the_next_interruptible(capfd: pytest.CaptureFixture[str]) -> None:
    reached = []

    def body() -> None:
        with Interrupts() as interrupts:
            with interrupts.interruptible():
                Dying()
                reached.append("evaluated")
            with interrupts.interruptible():
                reached.append("evaluated again")

    with pytest.raises(KeyboardInterrupt):
        body()
    assert reached == ["evaluated"]
    assert capfd.readouterr().err == ""


def test_a_second_signal_raises_after_one_during_a_destructor() -> None:
    reached = []

    def body() -> None:
        with Interrupts() as interrupts, interrupts.interruptible():
            Dying()
            reached.append("evaluated")
            send(signal.SIGINT)
            reached.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        body()
    assert reached == ["evaluated"]


def test_other_errors_of_destructors_reach_the_hook_that_was_there() -> None:
    reported: list[object] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda lost: reported.append(lost.exc_type)
    try:
        with Interrupts() as interrupts, interrupts.interruptible():
            Dying(ZeroDivisionError())
    finally:
        sys.unraisablehook = before
    assert reported == [ZeroDivisionError]


def test_another_exception_is_not_replaced() -> None:
    def body() -> None:
        with Interrupts():
            send(signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()


def test_interruptible_decorates_a_function_for_every_call() -> None:
    def double(number: int) -> int:
        return 2 * number

    with Interrupts() as interrupts:
        interruptible = interrupts.interruptible()(double)
        assert [interruptible(1), interruptible(2)] == [2, 4]


def test_handlers_are_put_back_and_ignored_signals_stay_ignored() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts, interrupts.interruptible():
            send(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, old)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_outside_the_main_thread_nothing_changes() -> None:
    seen = []

    def work() -> None:
        with Interrupts() as interrupts, interrupts.interruptible():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def test_a_signal_during_an_import_raises_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupted_import.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nDONE = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with Interrupts() as interrupts:
        with interrupts.interruptible():
            assert importlib.import_module("interrupted_import").DONE
        with pytest.raises(KeyboardInterrupt), interrupts.interruptible():
            pass
        interrupts._pending = False
