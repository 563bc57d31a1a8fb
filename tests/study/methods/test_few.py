"""Few measurements of a space of which all is forecast."""

from collections.abc import Callable

import pytest

from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.study.methods.few import few
from autoauto.study.methods.protocol import Forecast, Observation, Predictor, Proposer, drive, limited

SPACE = SearchSpace(n_ipu=(1,), replicas=(1, 2), batch_size=(1, 2, 4, 8, 16), memory_proportion=(0.6,))
EVERY = [knobs for cell in SPACE.cells for knobs in cell]


def searched(
    forecast: Callable[[Knobs], float | None],
    truth: Callable[[Knobs], float | None],
    most: int = 8,
    known: dict[Knobs, Observation] | None = None,
) -> list[Knobs]:
    """What a search measures, in order."""
    seen = []

    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        return Forecast(forecast(knobs), 0.5 if forecast(knobs) is None else -0.5)

    def observe(knobs: Knobs) -> Observation:
        seen.append(knobs)
        return Observation(truth(knobs), measured=True)

    method = Proposer(lambda space, before: few(space, before, Predictor(predict, refine=predict), 0.01))
    drive(limited(method, most).start(SPACE, known or {}), observe)
    return seen


def rate(knobs: Knobs) -> float:
    """Tokens/s of slots that share a fixed time of a step."""
    return knobs.batch_size / (4 + knobs.batch_size)


def test_the_best_forecast_comes_first_and_none_is_measured_twice() -> None:
    seen = searched(rate, rate)
    assert seen[0].batch_size == 16
    assert len(seen) == len(set(seen)) <= 8


def test_of_equal_forecasts_the_simplest_comes_first() -> None:
    assert searched(lambda _: 1.0, lambda _: 1.0, most=1) == [Knobs(1, 1)]


def test_a_choice_that_is_better_than_forecast_is_found() -> None:
    def truth(knobs: Knobs) -> float:
        return rate(knobs) * (1.3 if knobs.replicas == 2 else 1.0)

    seen = searched(rate, truth)
    assert max(seen, key=truth) == Knobs(1, 16, replicas=2)


def test_what_fails_is_left_out() -> None:
    seen = searched(rate, lambda knobs: None if knobs.batch_size == 16 else rate(knobs))
    assert max(seen, key=rate).batch_size == 16
    assert any(knobs.batch_size == 8 for knobs in seen)


def test_what_a_rule_excludes_meanwhile_is_not_measured() -> None:
    failed: list[Knobs] = []

    def truth(knobs: Knobs) -> float | None:
        failed.append(knobs)
        return None

    def forecast(knobs: Knobs) -> float | None:
        return None if failed and knobs.batch_size >= 4 else rate(knobs)

    seen = searched(forecast, truth)
    assert [knobs.batch_size >= 4 for knobs in seen] == [True] + [False] * (len(seen) - 1)


def test_where_nothing_runs_by_forecast_one_is_tried_for_its_reason() -> None:
    assert len(searched(lambda _: None, lambda _: None)) == 1


@pytest.mark.parametrize("n_known", [1, 3])
def test_a_search_continues_with_what_is_known(n_known: int) -> None:
    whole = searched(rate, rate)
    known = {knobs: Observation(rate(knobs), measured=True) for knobs in whole[:n_known]}
    assert searched(rate, rate, known=known) == whole[n_known:]
