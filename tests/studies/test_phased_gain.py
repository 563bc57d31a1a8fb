"""The table of phased training, from made-up rounds and on a small network."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from studies import phased_gain
from studies.phase_times import LoopTime, MeasuredRound, PhaseTimes


def made_up(wall_over_cpu: float, slower: float = 1) -> MeasuredRound:
    """Two phases whose loops take the predicted time, the naive one `slower` times as long."""
    phase = PhaseTimes(4, 1, 2, 1, 0, 0, 2)
    cpu = {(n, phased_gain.SERIALISED): 2 * phase.serialised_s(n) for n in phased_gain.STEPS}
    cpu |= {(n, phased_gain.NAIVE): 2 * phase.naive_s(n) * slower for n in phased_gain.STEPS}
    return MeasuredRound([phase, phase], {key: LoopTime(wall_over_cpu * s, s) for key, s in cpu.items()})


def test_a_row_has_the_gain_and_the_error_of_its_prediction() -> None:
    rounds = [made_up(1.5, 1.25)]
    *numbers, difference, busy = phased_gain.row(rounds, rounds[0].phases, 2)
    assert numbers == ["2", "45.0000", "36.0000", "28.0000", "28.0000", "1.61", "1.29"]
    assert (difference, busy) == ("-20.0 %", "1.50")


def test_the_median_round_counts() -> None:
    rounds = [made_up(1), made_up(1, 100), made_up(1)]
    assert phased_gain.row(rounds, phased_gain.phase_medians(rounds), 64)[-2] == "+0.0 %"


def test_a_busy_round_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([made_up(2), made_up(1.5), made_up(1.1), made_up(1)])
    monkeypatch.setattr(phased_gain, "run_alone", lambda *_, **__: type("Ran", (), {"result": next(rounds)}))
    assert phased_gain.busy(phased_gain.measure_round(phased_gain.FULL)) == pytest.approx(1.1)
    assert phased_gain.busy(next(rounds)) == 1


def test_the_budget_is_below_the_bytes_of_weights_and_optimiser() -> None:
    assert phased_gain.FULL.network.trained_bytes > phased_gain.FULL.budget_bytes


@pytest.mark.slow
def test_every_number_of_steps_has_its_row(run_script: Callable[..., list[str]]) -> None:
    header, *rows, last = run_script("phased_gain", "--quick")
    assert header.split() == " ".join(phased_gain.COLUMNS).split()
    assert [int(row.split()[0]) for row in rows] == list(phased_gain.STEPS)
    assert last.startswith("Weights and optimiser 0.2 MiB, budget 8.0 MiB by RLIMIT_DATA")
