"""Optuna's samplers as methods."""

from collections.abc import Callable
from typing import Any

import pytest
from optuna.samplers import RandomSampler, TPESampler

from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.space import SearchSpace
from autoauto.study.methods.protocol import Observation
from autoauto.study.methods.sampled import MAX_DRAWS_PER_MEASUREMENT, sampled
from autoauto.targets.host.runtimes.registry import SESSIONS
from autoauto.targets.host.runtimes.session import PRECISIONS


def drive(
    space: SearchSpace, sampler: RandomSampler | TPESampler, n: int, score: Callable[[Knobs], Observation]
) -> list[Knobs]:
    drawn: list[Knobs] = []
    proposals, observation = sampled(space, sampler, n), None
    while True:
        try:
            knobs = proposals.send(observation).knobs
        except StopIteration:
            return drawn
        assert knobs is not None
        drawn.append(knobs)
        observation = score(knobs)


def speed(knobs: Knobs) -> Observation:
    return Observation(-((knobs.batch_size - 40) ** 2) + 5000.0 + 100 * knobs.n_ipu, True)


SPACE = SearchSpace((1, 2, 4), (0.3, 0.6, 1.0), tuple(range(1, 129)))


def test_the_requested_number_of_different_configurations_is_measured() -> None:
    drawn = drive(SPACE, RandomSampler(seed=0), 25, speed)
    assert len(set(drawn)) == 25
    assert all(knobs in SPACE for knobs in drawn)


def test_a_runtime_is_drawn_with_the_formats_that_it_computes_in_only() -> None:
    space = SearchSpace((1,), (1.0,), (1, 2, 4), runtime=tuple(SESSIONS), precision=PRECISIONS)
    drawn = drive(space, RandomSampler(seed=0), 21, speed)
    assert set(drawn) == {knobs for cell in space.cells for knobs in cell}
    assert len(set(drawn)) == 21


def test_a_configuration_without_a_plan_does_not_count() -> None:
    drawn = drive(
        SPACE, RandomSampler(seed=0), 10, lambda k: speed(k) if k.batch_size < 64 else Observation(None, False)
    )
    assert len({knobs for knobs in drawn if knobs.batch_size < 64}) == 10
    assert any(knobs.batch_size >= 64 for knobs in drawn)


def test_a_sampler_ends_in_a_space_that_is_too_small_or_in_which_nothing_fits() -> None:
    tiny = SearchSpace((1,), (0.6,), (1, 2))
    assert set(drive(tiny, TPESampler(seed=0), 5, speed)) == {
        Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1),
        Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2),
    }
    assert (
        len(drive(SPACE, RandomSampler(seed=0), 2, lambda _: Observation(None, False))) == 2 * MAX_DRAWS_PER_MEASUREMENT
    )


def test_tpe_improves_and_random_does_not() -> None:
    def late(drawn: list[Knobs]) -> float:
        return sum(abs(knobs.batch_size - 40) for knobs in drawn[-20:]) / 20

    assert late(drive(SPACE, TPESampler(seed=0), 60, speed)) < 0.5 * late(
        drive(SPACE, RandomSampler(seed=0), 60, speed)
    )


@pytest.mark.parametrize(
    "space",
    [
        SearchSpace(
            (2, 4),
            (0.6,),
            (1, 2),
            schedule=(Order.GPIPE, Order.ONE_F_ONE_B),
            recompute=(False, True),
            n_micro_batches=(8, 16),
        ),
        SearchSpace((1, 2), (0.6,), (1, 2), strategy=(Strategy.PIPELINE, Strategy.PHASED), steps=(4, 8)),
        SearchSpace((1, 2), (1.0,), (1, 2), replicas=(1, 2, 4)),
    ],
)
def test_all_knobs_are_drawn(space: SearchSpace) -> None:
    drawn = drive(space, RandomSampler(seed=0), space.n_configurations, lambda _: Observation(1.0, True))
    assert set(drawn) == {knobs for cell in space.cells for knobs in cell}


def test_equal_random_seeds_draw_the_same_configurations(world: Callable[..., Any]) -> None:
    a_world = world(5)
    runs = [list(a_world.run(sampled(a_world.space, TPESampler(seed=1), 8))) for _ in range(2)]
    assert runs[0] == runs[1]
