"""Which of two configurations that were measured in turns is better."""

import pytest

from autoauto.space.knobs import Knobs
from autoauto.space.study_summary import Repeated, Verdict
from autoauto.space.table import simplicity
from autoauto.study.analysis.verification import TieBreak, break_tie, is_decided

SIMPLE, LARGE = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4), Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4)


def row(knobs: Knobs, *scores: float | None) -> Repeated:
    return Repeated("", knobs, scores, scores)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (row(LARGE, 10.0, 10.1, 9.9), row(SIMPLE, 9.0, 9.1, 8.9), TieBreak(second=False)),
        (row(LARGE, 9.0, 9.1, 8.9), row(SIMPLE, 10.0, 10.1, 9.9), TieBreak(second=True)),
        (row(LARGE, 10.0, 10.1, 9.9), row(SIMPLE, 10.05, 10.0, 9.92), TieBreak(True, Verdict.TIE)),
        (row(SIMPLE, 10.0, 10.1, 9.9), row(LARGE, 10.05, 10.0, 9.92), TieBreak(False, Verdict.TIE)),
        (row(LARGE, 10.3, 10.1, 9.9), row(SIMPLE, 9.7, 10.1, 9.9), TieBreak(False, Verdict.UNSURE)),
        (row(SIMPLE, 9.7, 10.1, 9.9), row(LARGE, 10.3, 10.1, 9.9), TieBreak(True, Verdict.UNSURE)),
        (row(LARGE, 10.0), row(SIMPLE, 11.0), TieBreak(second=False)),
        (row(LARGE, None, None), row(SIMPLE, 1.0, 1.0), TieBreak(second=True)),
        (row(LARGE, 10.0, None, 10.0), row(SIMPLE, 10.0, 99.0, 10.0), TieBreak(True, Verdict.TIE)),
        (row(SIMPLE, 20.0, 26.0, 17.0), row(LARGE, 30.0, 26.0, 35.0), TieBreak(True, Verdict.UNSURE)),
        (row(LARGE, 30.0, 26.0, 35.0), row(SIMPLE, 20.0, 26.0, 17.0), TieBreak(False, Verdict.UNSURE)),
    ],
)
def test_the_better_or_the_simpler_of_a_tie_wins(first: Repeated, second: Repeated, expected: TieBreak) -> None:
    assert break_tie(first, second, 0.01) == expected


@pytest.mark.parametrize(
    ("second", "decided"),
    [
        (row(SIMPLE, 9.0, 9.01), True),  # clearly worse
        (row(SIMPLE, 10.0, 10.001), True),  # as good, by less than the noise
        (row(SIMPLE, 9.9, 9.96), False),  # it may be worse by more
        (row(SIMPLE, 5.0, None), False),  # measured once
    ],
)
def test_turns_are_enough_when_two_differ_clearly_or_by_less_than_the_noise(second: Repeated, decided: bool) -> None:
    assert is_decided(row(LARGE, 10.0, 10.0), second, 0.01) is decided


def test_a_drift_of_the_machine_hides_no_difference() -> None:
    """Every turn is slower than the one before, by more than the two differ."""
    first, second = row(LARGE, 30.0, 20.0, 10.0), row(SIMPLE, 29.0, 19.1, 9.0)
    assert break_tie(first, second, 0.01) == TieBreak(second=False)


def test_fewer_devices_come_before_fewer_replicas_and_smaller_batches() -> None:
    ordered = [
        Knobs(n_ipu=1, memory_proportion=1.0, batch_size=64),
        Knobs(n_ipu=2, memory_proportion=0.3, batch_size=8),
        Knobs(n_ipu=1, memory_proportion=0.3, batch_size=2, replicas=2),
        Knobs(n_ipu=1, memory_proportion=0.3, batch_size=4, replicas=2),
        Knobs(n_ipu=4, memory_proportion=1.0, batch_size=1),
    ]
    assert list(map(simplicity, ordered)) == sorted(map(simplicity, ordered))
