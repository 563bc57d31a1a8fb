"""The guided search against exhaustive search, in worlds where the estimate errs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import mean
from typing import TYPE_CHECKING

import pytest

from autoauto.records.schedule import Order
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.space import SearchSpace
from autoauto.study.methods.guided import guided
from autoauto.study.methods.protocol import Forecast, Observation, Predictor
from autoauto.study.methods.protocol import drive as run_method
from tests.drawn import n_drawn

if TYPE_CHECKING:
    from tests.study.conftest import World

Worlds = Callable[..., "World"]


def best_share_and_tries(world: World, noise: float = 0.0) -> tuple[float, int]:
    """The best that guided finds as a share of the best there is, and the number of configurations that it tries."""
    tried = world.run(guided(world.space, {}, Predictor(world.predict), noise))
    best = max((t.score or 0.0 for t in tried.values()), default=0.0)
    return (best / world.best if world.best else 1.0), len(tried)


def test_an_exact_estimate_finds_the_best_at_once(world: Worlds) -> None:
    for seed in range(100):
        exact = world(seed, cell_error=0.0, own_error=0.0, memory_error=0.0)
        share, n_tried = best_share_and_tries(exact)
        assert share >= 0.997, seed
        assert n_tried <= max(9, 2 * len(exact.space.cells))


@pytest.mark.drawn
def test_the_best_is_found_where_the_estimate_errs(world: Worlds) -> None:
    worlds = [world(seed) for seed in range(n_drawn(200))]
    shares, n_tried = zip(*map(best_share_and_tries, worlds), strict=True)
    assert min(shares) > 0.97
    assert sum(share < 0.995 for share in shares) <= 2
    assert mean(n_tried) < 0.1 * mean(world.space.n_configurations for world in worlds)


def test_a_poor_estimate_costs_measurements_not_the_search(world: Worlds) -> None:
    worlds = [world(seed, cell_error=0.06, own_error=0.02, memory_error=0.12) for seed in range(100)]
    shares, n_tried = zip(*map(best_share_and_tries, worlds), strict=True)
    assert mean(shares) > 0.99
    assert max(n_tried) <= 30


@pytest.mark.parametrize(("memory_error", "share"), [(0.0, 1.0), (0.06, 0.98)])
def test_where_memory_never_falls_fewer_forecasts_give_the_answer(
    world: Worlds, memory_error: float, share: float
) -> None:
    n_asked = {True: 0, False: 0}
    for seed in range(100):
        best = {}
        for never_falls in n_asked:
            seen = world(seed, memory_error=memory_error, most_drop=0.0)
            tried = seen.run(guided(seen.space, {}, Predictor(seen.predict, memory_never_falls=never_falls), 0.0))
            best[never_falls] = max((t.score or 0.0 for t in tried.values()), default=0.0)
            n_asked[never_falls] += len(seen.predicted)
        assert best[True] >= share * best[False], seed
    assert n_asked[True] < n_asked[False]


def test_differences_within_the_noise_cost_no_measurements(world: Worlds) -> None:
    for seed in range(60):
        noisy = world(seed, cell_error=0.0, own_error=0.0, memory_error=0.0)
        random = Random(seed)
        truth = {k: t.score for k, t in noisy.truth.items() if t.score is not None}
        noisy.truth |= {k: Observation(score * random.gauss(1, 0.01), True) for k, score in truth.items()}
        tried = noisy.run(guided(noisy.space, {}, Predictor(noisy.predict), 0.02))
        fitting = [k for k, t in tried.items() if t.score is not None]
        assert len(tried) <= 14
        assert not truth or max(truth[k] for k in fitting) >= 0.97 * max(truth.values())


def flat(space: SearchSpace, score: Callable[[Knobs], float | None]) -> Predictor:
    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        value = score(knobs)
        return Forecast(value, 0.1 if value is None else -0.1)

    return Predictor(predict)


def drive(space: SearchSpace, score: Callable[[Knobs], float | None], noise: float = 0.0) -> list[Knobs]:
    """The configurations that are tried when the estimate is exact."""
    tried: list[Knobs] = []

    def answer(knobs: Knobs) -> Observation:
        tried.append(knobs)
        return Observation(score(knobs), True)

    run_method(guided(space, {}, flat(space, score), noise), answer)
    return tried


def test_one_configuration_is_tried() -> None:
    only = SearchSpace((2,), (0.6,), (7,))
    assert drive(only, lambda knobs: 5.0) == [Knobs(n_ipu=2, memory_proportion=0.6, batch_size=7)]
    assert drive(only, lambda knobs: None) == [Knobs(n_ipu=2, memory_proportion=0.6, batch_size=7)]


def test_where_nothing_fits_the_smallest_batch_of_every_cell_is_tried() -> None:
    space = SearchSpace((1, 2), (0.3, 0.6), (4, 8, 64))
    tried = drive(space, lambda knobs: None)
    assert {(k.n_ipu, k.values["memory_proportion"], k.batch_size) for k in tried} >= {
        (n, proportion, 4) for n in (1, 2) for proportion in (0.3, 0.6)
    }
    assert len(tried) <= 2 * 4


def test_of_a_runtime_that_does_not_run_the_model_one_configuration_is_tried() -> None:
    refusing = "openvino"
    space = SearchSpace((1, 2), (1.0,), (4, 8), runtime=("onnxruntime", refusing))

    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        return (
            Forecast(None, 0.0, unsupported=True)
            if knobs.session.runtime is refusing
            else Forecast(9.0 / knobs.n_ipu, -0.1)
        )

    tried: dict[Knobs, Observation] = {}

    def answer(knobs: Knobs) -> Observation:
        tried[knobs] = Observation(predict(knobs).score, predict(knobs).score is not None)
        return tried[knobs]

    run_method(guided(space, {}, Predictor(predict), 0.0), answer)
    assert [knobs for knobs in tried if knobs.session.runtime is refusing] == [
        Knobs(n_ipu=1, memory_proportion=1.0, batch_size=4, runtime=refusing)
    ]
    n_tried = len(tried)
    run_method(guided(space, dict(tried), Predictor(predict), 0.0), answer)
    assert len(tried) == n_tried


def test_of_equal_configurations_the_simplest_is_tried_first() -> None:
    space = SearchSpace((1, 2, 4), (0.6,), (1, 2, 4, 8))
    assert drive(space, lambda knobs: 5.0)[0] == Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1)


def test_a_simpler_configuration_that_ties_within_the_noise_is_tried_too() -> None:
    space = SearchSpace((1, 2, 4), (0.6,), (8,))
    scores = {1: 5.0, 2: 9.0, 4: 10.0}
    assert drive(space, lambda knobs: scores[knobs.n_ipu], noise=0.0) == [
        Knobs(n_ipu=4, memory_proportion=0.6, batch_size=8)
    ]
    assert drive(space, lambda knobs: scores[knobs.n_ipu], noise=0.11) == [
        Knobs(n_ipu=4, memory_proportion=0.6, batch_size=8),
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8),
    ]


def test_a_simple_use_is_tried_although_other_configurations_say_that_it_is_worse() -> None:
    space = SearchSpace((1, 2, 4), (0.6,), (8,), replicas=(1, 2, 4), constraints=(Constraint("n_devices <= 4"),))
    expected = {(4, 1): 7.5, (1, 4): 9.0, (1, 1): 3.0}

    def score(knobs: Knobs) -> float:
        return expected.get((knobs.n_ipu, knobs.replicas), 10.0 if knobs.n_ipu == knobs.replicas == 2 else 1.0)

    tried = [(knobs.n_ipu, knobs.replicas) for knobs in drive(space, score)]
    assert sorted(tried) == [(1, 4), (2, 2), (4, 1)]  # one device is too far from the best


def test_of_batch_sizes_within_the_noise_the_smallest_is_measured_first() -> None:
    space = SearchSpace((1,), (1.0,), (1, 2, 4, 8, 16))

    def score(knobs: Knobs) -> float:
        return {1: 8.0, 2: 9.5, 4: 9.95}.get(knobs.batch_size, 9.99 + knobs.batch_size / 1e4)

    assert drive(space, score, noise=0.01)[0].batch_size == 4
    assert drive(space, score)[0].batch_size == 16


def test_what_is_no_better_at_best_is_neither_refined_nor_tried() -> None:
    """One device is the best; two give 8 at best, which is less, and four 12, which turns out to be 11."""
    space = SearchSpace((1, 2, 4), (1.0,), (8,))
    refined, tried = list[Knobs](), list[Knobs]()
    scores, limits = {1: 10.0, 2: 7.0, 4: 11.0}, {2: 8.0, 4: 12.0}

    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        limit = limits.get(knobs.n_ipu)
        return Forecast(limit or scores[knobs.n_ipu], -0.1, is_bound=limit is not None)

    def refine(knobs: Knobs) -> Forecast:
        refined.append(knobs)
        return Forecast(scores[knobs.n_ipu], -0.1)

    def answer(knobs: Knobs) -> Observation:
        tried.append(knobs)
        return Observation(scores[knobs.n_ipu], True)

    run_method(guided(space, {}, Predictor(predict, refine=refine), 0.0), answer)
    assert [knobs.n_ipu for knobs in refined] == [4]
    assert [knobs.n_ipu for knobs in tried] == [1, 4]


def test_of_a_session_of_all_cores_one_batch_size_is_tried_although_others_say_that_it_is_worse() -> None:
    space = SearchSpace((1,), (), (1, 2, 4, 8), replicas=(1,), cores_per_device=(1, 2), runtime=("onnxruntime",))
    tried = drive(space, lambda k: 10.0 if k.session.group_size == 1 else 8.0 + k.batch_size / 8)
    assert [k.batch_size for k in tried if k.session.group_size == 2] == [8]


def test_of_a_simple_use_that_is_tried_late_the_smallest_of_equal_batch_sizes_is_measured() -> None:
    space = SearchSpace((1,), (), (1, 2, 4, 8), replicas=(1,), cores_per_device=(1, 2), runtime=("onnxruntime",))

    def score(knobs: Knobs) -> float:
        return 10.0 if knobs.session.group_size == 1 else {1: 8.0, 2: 8.5}.get(knobs.batch_size, 9.0)

    tried = drive(space, score, noise=0.01)
    assert [k.batch_size for k in tried if k.session.group_size == 2] == [4]


def test_a_lonely_peak_among_the_multiples_of_eight_is_found() -> None:
    space = SearchSpace((1,), (1.0,), tuple(range(1, 129)))

    def score(knobs: Knobs) -> float:
        n = knobs.batch_size
        return n / (20 + n) * (1.0 if n % 8 == 0 else 0.9) - (0.1 if n > 70 else 0.0)

    assert Knobs(n_ipu=1, memory_proportion=1.0, batch_size=64) in drive(space, score)


def test_configurations_that_the_estimate_rules_out_are_found_when_they_fit() -> None:
    space = SearchSpace((1,), (1.0,), tuple(range(1, 41)))
    tried: list[int] = []

    def answer(knobs: Knobs) -> Observation:
        n = knobs.batch_size
        tried.append(n)
        return Observation(n / (30 + n) if n <= 31 else None, True)

    estimate = flat(space, lambda k: k.batch_size / (30 + k.batch_size) if k.batch_size <= 12 else None)
    run_method(guided(space, {}, estimate, 0.0), answer)
    assert tried[:2] == [12, 13]
    assert 31 in tried
    assert len(tried) <= 14


@pytest.mark.parametrize(
    "space",
    [
        SearchSpace(
            (2, 4),
            (0.6,),
            tuple(range(1, 30)),
            schedule=(Order.GPIPE, Order.ONE_F_ONE_B),
            recompute=(False, True),
            n_micro_batches=(8, 16),
        ),
        SearchSpace((1, 2), (0.6,), (1, 2, 3), strategy=(Strategy.PIPELINE, Strategy.PHASED), steps=(4, 8)),
        SearchSpace((1, 2), (1.0,), (1, 2, 4, 8, 16, 32), replicas=(1, 2, 4)),
        SearchSpace((3,), (0.2, 0.9), (1, 2, 50, 51, 52, 1000)),
    ],
)
def test_the_best_is_found_in_unusual_spaces(space: SearchSpace) -> None:
    def score(knobs: Knobs) -> float | None:
        n, speed = knobs.batch_size, 1 + 0.1 * knobs.n_devices + 0.07 * len(knobs.mode.order)
        return n * speed / (3 + n) * (0.8 if knobs.mode.recompute else 1.0) if n < 60 else None

    best = max((score(knobs) or 0.0) for cell in space.cells for knobs in cell)
    assert max(score(knobs) or 0.0 for knobs in drive(space, score)) >= 0.997 * best


def test_known_configurations_are_not_proposed_again(world: Worlds) -> None:
    for seed in range(40):
        first, second = world(seed), world(seed)
        tried = first.run(guided(first.space, {}, Predictor(first.predict), 0.0))
        half = dict(list(tried.items())[: len(tried) // 2])
        rest = second.run(guided(second.space, half, Predictor(second.predict), 0.0))
        assert not half.keys() & rest.keys()
        assert max((t.score or 0.0 for t in (half | rest).values()), default=0.0) >= 0.99 * max(
            (t.score or 0.0 for t in tried.values()), default=0.0
        )


@pytest.mark.parametrize(("cell_error", "share"), [(0.0, 0.997), (0.02, 0.98)])
def test_limits_of_the_estimate_spare_forecasts_and_change_no_answer(
    world: Worlds, cell_error: float, share: float
) -> None:
    n_spared = n_bounded = 0
    for seed in range(40):
        seen = world(seed, cell_error=cell_error, own_error=0.0, memory_error=0.0)
        asked: set[Knobs] = set()
        bounded: set[Knobs] = set()

        def exact(knobs: Knobs, world: World = seen) -> Forecast:
            return world.predict(knobs)

        def predict(
            knobs: Knobs,
            worth: float = 0.0,
            world: World = seen,
            asked: set[Knobs] = asked,
            bounded: set[Knobs] = bounded,
        ) -> Forecast:
            asked.add(knobs)
            forecast = world.predict(knobs)
            if (forecast.score or 0.0) >= worth:
                return forecast
            bounded.add(knobs)
            return Forecast(worth, 0.0, is_bound=True)

        def limit(knobs: Knobs, world: World = seen) -> float:
            return 1.05 * (world.predict(knobs).score or 0.0)

        tried = seen.run(guided(seen.space, {}, Predictor(predict, limit, exact), 0.0))
        best = max((t.score or 0.0 for t in tried.values()), default=0.0)
        assert best >= share * seen.best
        n_spared += sum(not asked & set(cell) for cell in seen.space.cells)
        n_bounded += len(bounded)
    assert n_spared > 40
    assert n_bounded > 100
