"""Executors: this process, other processes, and the end of a search whose measurements all fail."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from autoauto.records.errors import MeasurementsFailed
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status, Trial
from autoauto.study.execution.executors import ConsecutiveFailures, InlineExecutor, ProcessExecutor
from autoauto.study.execution.process import Bounds, failed_trial, finished_trial
from autoauto.study.interrupts import Interrupts

if TYPE_CHECKING:
    from tests.study.conftest import Fake

A, B, C = (Knobs(n_ipu=1, memory_proportion=0.3, batch_size=batch_size) for batch_size in (1, 2, 3))


def measured(knobs: Knobs) -> Trial:
    return Trial(knobs, Status.INFEASIBLE, "no plan")


def test_the_inline_executor_measures_one_configuration_during_wait(fake: Fake) -> None:
    inline = InlineExecutor(fake)
    inline.submit(A)
    assert (inline.n_slots, inline.n_free, fake.calls) == (1, 0, [])
    inline.wait(60.0)
    [trial] = inline.finished()
    assert (trial.knobs, trial.status, fake.calls) == (A, Status.OK, [A])
    assert inline.n_free == 1
    inline.wait(0.0)
    assert inline.finished() == []


def divides_by_zero(knobs: Knobs) -> Trial:
    return measured(Knobs(n_ipu=1, memory_proportion=0.3, batch_size=knobs.batch_size // 0))


def test_an_exception_of_the_target_is_raised_after_it_was_recorded() -> None:
    inline = InlineExecutor(divides_by_zero)
    inline.submit(A)
    inline.wait(0.0)
    [trial] = inline.finished()
    assert trial.status is Status.BUG
    with pytest.raises(ZeroDivisionError):
        inline.on_recorded(trial)


class Strange(BaseException):
    """What nobody should raise."""


@pytest.mark.parametrize(
    "error", [SystemExit(0), GeneratorExit("early"), KeyboardInterrupt("typed by nobody"), Strange("at all")]
)
def test_what_is_no_exception_is_recorded_and_ends_the_search_with_one_line(error: BaseException) -> None:
    def stops(_: Knobs) -> Trial:
        raise error

    inline = InlineExecutor(stops)
    inline.submit(A)
    with Interrupts() as interrupts:
        with interrupts.interruptible():
            inline.wait(0.0)
        [trial] = inline.finished()
        assert (trial.status, trial.reason) == (Status.BUG, f"{type(error).__name__}: {error}")
        assert "in stops" in " ".join(trial.log)
        with pytest.raises(MeasurementsFailed, match=f"^a measurement must .* got {trial.reason}; its trial holds"):
            inline.on_recorded(trial)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_measurement_interrupts_and_leaves_no_trial(number: signal.Signals) -> None:
    def is_interrupted(_: Knobs) -> Trial:
        signal.raise_signal(number)
        raise AssertionError("the signal raised nothing")

    inline = InlineExecutor(is_interrupted)
    inline.submit(A)
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.interruptible():
        inline.wait(0.0)
    assert inline.finished() == []


def test_without_handled_signals_an_interrupt_is_one() -> None:
    def is_interrupted(_: Knobs) -> Trial:
        raise KeyboardInterrupt

    inline = InlineExecutor(is_interrupted)
    inline.submit(A)
    with pytest.raises(KeyboardInterrupt):
        inline.wait(0.0)


def test_a_closed_executor_measures_nothing(fake: Fake) -> None:
    inline = InlineExecutor(fake)
    inline.submit(A)
    inline.close()
    inline.wait(0.0)
    assert (inline.finished(), fake.calls) == ([], [])


@pytest.mark.slow
def test_processes_measure_several_configurations() -> None:
    processes = ProcessExecutor(measured, 2, Bounds())
    assert (processes.n_slots, processes.n_free) == (2, 2)
    seen: list[Trial] = []
    left = [C]
    try:
        for knobs in (A, B):
            processes.submit(knobs)
        assert processes.n_free == 0
        while len(seen) < 3:
            processes.wait(10.0)
            seen += processes.finished()
            if left and processes.n_free:
                processes.submit(left.pop())
    finally:
        processes.close()
    assert {trial.knobs for trial in seen} == {A, B, C}
    assert {trial.status for trial in seen} == {Status.INFEASIBLE}


FAILED = failed_trial(A, Status.CRASH, "died of SIGSEGV", [], 1.0)
MEASURED = finished_trial(A, measured(A), 1.0)


def test_a_search_ends_after_few_failures_at_its_start() -> None:
    failures = ConsecutiveFailures()
    failures.count(FAILED)
    failures.count(FAILED)
    with pytest.raises(MeasurementsFailed, match=r"^3 measurements in a row failed, the last by crash"):
        failures.count(FAILED)


def test_a_search_ends_after_more_failures_later() -> None:
    failures = ConsecutiveFailures()
    for trial in [FAILED, FAILED, MEASURED, *[FAILED] * 9, MEASURED, *[FAILED] * 9]:
        failures.count(trial)
    with pytest.raises(MeasurementsFailed, match=r"^10 measurements in a row failed"):
        failures.count(FAILED)
