"""Replays of measured questions by hand, and the program on few rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import exp
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from autoauto.records.costs.decoder import Workload
from autoauto.records.units import FloatArray
from autoauto.study.methods.engines.ratios import Likeness
from studies.truth_loop import Replayed, Rows, bounded, cases_of, replay, rough_log_tpot, share_of_best
from tests.studies.test_gpu_accuracy import written

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def rows_of(tpot_s: Sequence[float], forecasts_s: Sequence[float] | None = None) -> Rows:
    """One GPU, batches of 1 to 128."""
    n_sequences = np.array(BATCHES, dtype=float)
    log_forecasts = np.full(len(BATCHES), np.nan) if forecasts_s is None else np.log(forecasts_s)
    return Rows(
        ("model", "system", "engine", "", "1024", "512"),
        tuple(f"row{batch}" for batch in BATCHES),
        tuple(Likeness(batch) for batch in BATCHES),
        np.zeros((len(BATCHES), 1)),
        n_sequences,
        log_forecasts,
        np.array(tpot_s),
    )


TPOT_S = tuple(0.01 + 0.0005 * batch for batch in BATCHES)


def replayed(rows: Rows, bound_s: float, measurements: int = 5, noise: float = 0.0, *, stop: bool = False) -> Replayed:
    budget = SimpleNamespace(measurements=measurements, noise=noise, stop=stop)
    return replay(rows, bound_s, budget, np.random.default_rng(1))


def test_an_exact_forecast_finds_the_best_at_once_and_stops_where_asked() -> None:
    rows = rows_of(TPOT_S, TPOT_S)
    assert replayed(rows, 0.034).answers == [5] * 5
    assert len(replayed(rows, 0.034, stop=True).measured) < 4


def test_a_forecast_that_is_off_by_a_factor_is_fitted() -> None:
    rows = rows_of([3 * each for each in TPOT_S], TPOT_S)
    assert replayed(rows, 0.081).answers[-1] == 5


def test_without_forecasts_the_best_is_found_in_few() -> None:
    for bound_s in (0.013, 0.019, 0.027, 0.05):
        assert replayed(rows_of(TPOT_S), bound_s).shares[-1] == 1.0


def changed(tpot_s: FloatArray, measured: Sequence[int]) -> FloatArray:
    """Other values wherever nothing was measured."""
    return np.where(np.isin(np.arange(len(tpot_s)), measured), tpot_s, 7.0 * tpot_s[::-1])


@pytest.mark.parametrize("forecasts_s", [None, tuple(1.2 * each for each in TPOT_S)])
def test_nothing_is_known_of_what_is_not_measured(forecasts_s: Sequence[float] | None) -> None:
    rows = rows_of(TPOT_S, forecasts_s)
    first = replayed(rows, 0.019, 3, 0.03)
    again = replayed(rows._replace(tpot_s=changed(rows.tpot_s, first.measured)), 0.019, 3, 0.03)
    assert (again.measured, again.answers) == (first.measured, first.answers)


def test_shares_are_of_the_best_that_keeps_the_bound() -> None:
    rows = rows_of(TPOT_S)
    assert share_of_best(rows, 0.0181, 4, 0.0) == 1.0
    assert share_of_best(rows, 0.0181, 3, 0.0) == pytest.approx(8 / 0.014 / (16 / 0.018))
    assert share_of_best(rows, 0.0181, 5, 0.0) == 0.0
    assert share_of_best(rows, 0.0181, None, 0.0) == 0.0
    assert share_of_best(rows, 0.0255, 5, 0.03) == 1.0, "26 ms break 25.5 by less than 6 %"


def test_a_row_is_measured_once_and_no_more_than_there_are() -> None:
    measured = replayed(rows_of(TPOT_S), 0.02, 20, 0.05).measured
    assert sorted(measured) == list(range(len(BATCHES)))


def test_the_program_prints_what_was_measured_and_the_answers(
    run_script: Callable[..., list[str]], tmp_path: Path
) -> None:
    line = "{}b{} vllm zhipuai/GLM-5 b200_sxm agg 1024 1024 fp8 {} 8 1 1 1 90 {}"
    lines = [line.format("x", batch, batch, 10 + batch / 2) for batch in BATCHES]
    lines += [line.format("few", 1, 1, 9).replace("b200", "h200")]
    lines += ["d vllm zhipuai/GLM-5 b200_sxm disagg 1024 1024 fp8 - - - - - 90 5"]
    rows = written(tmp_path / "rows.csv", lines)
    options = ("--rows", str(rows), "--measurements", "4", "--noise", "0.03", "--seed", "2")
    answers = json.loads("".join(run_script("truth_loop", *options, "--json")))
    assert [answer["bound_s"] for answer in answers] == pytest.approx(
        np.quantile([0.010 + batch / 2000 for batch in BATCHES], (0.3, 0.5, 0.7))
    )
    for answer in answers:
        assert answer.keys() == {"question", "bound_s", "measured", "answers", "answer"}
        assert answer["question"]["system"] == "b200_sxm"
        assert len(set(answer["measured"])) == len(answer["answers"]) == 4
        for k, best in enumerate(answer["answers"]):
            assert best is None or best in answer["measured"][: k + 1]
        assert answer["answer"] == answer["answers"][-1]
    assert run_script("truth_loop", *options, "--intervals")[0].startswith(
        "all: 3 questions with a bound, 4.00 measured"
    )


def test_a_case_has_enough_rows_and_three_bounds() -> None:
    assert cases_of([]) == []
    assert len(list(bounded([rows_of(TPOT_S)]))) == 3


def test_more_sequences_take_longer_and_give_more() -> None:
    batches = [1, 2, 8, 64, 256]
    tpot = np.exp(rough_log_tpot([Likeness(batch, 4) for batch in batches], Workload(1024, 1024)))
    assert (np.diff(tpot) > 0).all()
    assert (np.diff(batches / tpot) > 0).all()


def test_longer_prompts_make_sequences_cost_more() -> None:
    def growth(requests: Workload) -> float:
        single, many = rough_log_tpot([Likeness(1), Likeness(64)], requests)
        return exp(many - single)

    assert growth(Workload(8192, 1024)) > 1.3 * growth(Workload(1024, 1024))
