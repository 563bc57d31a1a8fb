"""Predicted times against sums over the order of actions, and measured parts and loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.programs.phased_training.network import Network, read_samples
from autoauto.programs.phased_training.training import Moment, UpdateLoop, overlapped, serial
from autoauto.records.plans.phased import IoMode
from studies.phase_times import PhaseTimes, measure, medians

parts = st.builds(PhaseTimes, *[st.integers(0, 20)] * 7)


def moment_s(moment: Moment, times: PhaseTimes) -> float:
    """Seconds of a moment: moves share one thread, and computation has the other."""
    seconds = {"load": times.load_s, "store": times.store_s}
    computes = sum(times.compute_s + times.add_s for kind, _ in moment if kind == "compute")
    return max(computes, sum(seconds.get(kind, 0) for kind, _ in moment))


@given(parts, st.integers(1, 9))
def test_predicted_times_are_sums_over_the_moments(times: PhaseTimes, steps: int) -> None:
    fixed = times.variables_s + times.update_s
    in_turn = sum(moment_s(moment, times) for moment in serial(range(steps))) - times.add_s
    assert times.serialised_s(steps) == fixed + in_turn
    reloads = (steps - 1) * (times.variables_s + times.sums_s)
    assert times.naive_s(steps) == fixed + in_turn + reloads
    if steps > 1:
        assert times.overlapped_s(steps) == fixed + sum(moment_s(moment, times) for moment in overlapped(range(steps)))


def test_a_single_step_takes_the_same_time_in_every_loop() -> None:
    times = PhaseTimes(1, 2, 3, 4, 5, 6, 7)
    assert times.serialised_s(1) == times.naive_s(1) == times.overlapped_s(1) == 1 + 2 + 3 + 4 + 7


def test_predicted_times_of_the_documented_cases(vectors: Callable[[str], Any]) -> None:
    cases = vectors("batch_serialise")["time_model"]["cases"]
    assert cases
    for case in cases:
        times = PhaseTimes(0, case["L"], case["C"], case["S"], 0, 0, 0)
        assert times.serialised_s(case["N"]) == case["serial"]
        assert times.overlapped_s(case["N"]) == case["overlapped"]


def test_every_phase_and_loop_is_measured() -> None:
    network, loops = (
        Network(n_hidden=16, steps=4),
        [UpdateLoop(True), UpdateLoop(False), UpdateLoop(True, IoMode.IO_OVERLAPPED)],
    )
    phases, times = measure(network, read_samples(Path("data/samples/digits.csv.gz")), [1, 4], loops, repeats=2)
    assert set(times) == {(steps, loop) for steps in (1, 4) for loop in loops}
    assert min(min(time) for time in times.values()) > 0
    assert len(phases) == len(network.calls)
    assert all(phase.compute_s > 0 for phase in phases)


def test_medians_of_no_runs_are_an_error() -> None:
    with pytest.raises(IndexError):
        medians([])
