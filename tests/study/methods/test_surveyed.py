"""Searches of a space whose measurements give what forecasts say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.methods.protocol import Observation, drive
from autoauto.study.methods.surveyed import Survey, surveyed, users_front

SPACE = SearchSpace(
    (1, 2),
    batch_size=(1, 2, 4, 8),
    engine=("vllm", "sglang"),
    tensor_parallel=(1, 2),
    input_tokens=(8,),
    output_tokens=(8,),
)


def speed(knobs: Knobs) -> float:
    """More for larger batches up to 4, for two stages, and a little more of sglang."""
    is_sglang = bool(knobs.session.values["engine"] == "sglang")
    return 100.0 * knobs.n_ipu + min(knobs.batch_size, 4) + is_sglang


def forecast(knobs: Knobs) -> Trial:
    tokens_per_s = speed(knobs)
    trial = Trial(knobs, Status.OK, samples_per_s=tokens_per_s, tokens_per_s=tokens_per_s, tpot_s=knobs.batch_size / 10)
    return trial if knobs.batch_size < 8 else replace(trial, status=Status.INFEASIBLE, excess=0.5)


def tried(scores: Mapping[Knobs, float | None], nothing_fits: bool = False) -> list[Knobs]:
    """The configurations that are measured, with other scores than forecasts where they are given."""
    asked: list[Knobs] = []

    def observe(knobs: Knobs) -> Observation:
        asked.append(knobs)
        return Observation(None if nothing_fits else scores.get(knobs, speed(knobs)), measured=True)

    def forecasts(cell: Sequence[Knobs]) -> list[Trial]:
        every = list(map(forecast, cell))
        return (
            [replace(t, status=Status.CONSTRAINED, violation=t.tokens.tpot_s or 0) for t in every]
            if nothing_fits
            else every
        )

    drive(surveyed(SPACE, {}, Survey(forecasts, Objective.THROUGHPUT)), observe)
    return asked


def test_the_best_forecast_is_measured_first_and_then_the_best_of_every_choice() -> None:
    first, *others = tried({})
    assert (first.n_ipu, first.batch_size, first.session.values["engine"]) == (2, 4, "sglang")
    assert {knobs.session.values["engine"] for knobs in others} >= {"vllm"}
    assert {knobs.session.group_size for knobs in (first, *others)} == {1, 2}
    assert any(knobs.n_ipu == 1 for knobs in others)
    assert len(others) <= 4
    assert all(knobs.batch_size == 4 for knobs in others)


def test_while_forecasts_are_above_the_best_the_next_is_measured() -> None:
    first = tried({})[0]
    again = tried({first: None})
    assert again[0] == first
    assert speed(again[1]) == max(speed(k) for cell in SPACE.cells for k in cell if k != first and k.batch_size < 8)


def test_where_nothing_works_those_nearest_to_it_are_measured() -> None:
    nearest = tried({}, nothing_fits=True)
    assert {knobs.batch_size for knobs in nearest} == {1}


def test_the_front_has_what_none_beats_in_both_the_fastest_first() -> None:
    def made(tokens_per_s: float, tpot_s: float) -> Trial:
        return Trial(SPACE.cells[0][0], Status.OK, samples_per_s=tokens_per_s, tpot_s=tpot_s)

    slow, middle, fast = made(900.0, 0.1), made(500.0, 0.05), made(100.0, 0.01)
    beaten, equal = made(400.0, 0.06), made(500.0, 0.05)
    assert users_front([beaten, fast, slow, middle, equal]) == [fast, middle, slow]
    assert users_front([]) == []
