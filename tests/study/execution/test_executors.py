"""Executors: this process, other processes, and the end of a search whose measurements all fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoauto.records.errors import MeasurementsFailed
from autoauto.records.knobs import Knobs
from autoauto.records.trial import Status, Trial
from autoauto.study.execution.executors import ConsecutiveFailures, InlineExecutor, ProcessExecutor
from autoauto.study.execution.process import Bounds, failed_trial, finished_trial

if TYPE_CHECKING:
    from tests.study.conftest import Fake

A, B, C = (Knobs(1, 0.3, batch_size) for batch_size in (1, 2, 3))


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
    return measured(Knobs(1, 0.3, knobs.batch_size // 0))


def test_an_exception_of_the_target_is_raised_after_it_was_recorded() -> None:
    inline = InlineExecutor(divides_by_zero)
    inline.submit(A)
    inline.wait(0.0)
    [trial] = inline.finished()
    assert trial.status is Status.BUG
    with pytest.raises(ZeroDivisionError):
        inline.on_recorded(trial)


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
