"""The study's own machinery, on a small network."""

from __future__ import annotations

from types import ModuleType

import pytest

from autoauto.runtimes.phased_training.phase_times import LoopTime, Measured, PhaseTimes


def made_up(study: ModuleType, wall_over_cpu: float, slower: float = 1) -> Measured:
    """Two phases whose loops take what is predicted, but for a factor in the naive loop."""
    phase = PhaseTimes(4, 1, 2, 1, 0, 0, 2)
    cpu = {(n, study.SERIALISED): 2 * phase.serialised_s(n) for n in study.STEPS}
    cpu |= {(n, study.NAIVE): 2 * phase.naive_s(n) * slower for n in study.STEPS}
    return Measured([phase, phase], {key: LoopTime(wall_over_cpu * s, s) for key, s in cpu.items()})


def test_a_row_tells_the_gain_and_the_error(study: ModuleType) -> None:
    rounds = [made_up(study, 1.5, 1.25)]
    *numbers, difference, busy = study.row(rounds, rounds[0].phases, 2)
    assert numbers == ["2", "45.0000", "36.0000", "28.0000", "28.0000", "1.61", "1.29"]
    assert (difference, busy) == ("-20.0 %", "1.50")


def test_the_median_round_counts(study: ModuleType) -> None:
    rounds = [made_up(study, 1), made_up(study, 1, 100), made_up(study, 1)]
    assert study.row(rounds, study.phase_medians(rounds), 64)[-2] == "+0.0 %"


def test_a_busy_round_is_measured_again(study: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([made_up(study, 2), made_up(study, 1.5), made_up(study, 1.1), made_up(study, 1)])
    monkeypatch.setattr(study, "run_alone", lambda *_, **__: type("Ran", (), {"result": next(rounds)}))
    assert study.busy(study.measure_round(study.FULL)) == pytest.approx(1.1)
    assert study.busy(next(rounds)) == 1


def test_the_budget_is_below_what_is_learned(study: ModuleType) -> None:
    assert study.FULL.network.learned_bytes > study.FULL.budget_bytes


def test_every_number_of_steps_has_its_row(study: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    study.main(["--quick"])
    header, *rows, last = capsys.readouterr().out.splitlines()
    assert header.split() == " ".join(study.COLUMNS).split()
    assert [int(row.split()[0]) for row in rows] == list(study.STEPS)
    assert last.startswith("Weights and optimiser 0.2 MiB, budget 8.0 MiB by RLIMIT_DATA")
