import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.records.units import Precision
from autoauto.targets.ipu.tiling import planner
from autoauto.targets.ipu.tiling.planner import Bounded, plan, plan_each
from autoauto.targets.ipu.tiling.price import costs
from autoauto.targets.ipu.tiling.split import Product, ProductCodelet, SplitCandidates, candidates, in_series
from tests.drawn import daily, n_examples

ONE, THREE = (1, 1), (3, 3)
TILES, TILE_BYTES = 1472, 638976


def gemm(rows: int, inputs: int, outputs: int, groups: int = 1) -> Product:
    return Product(ProductCodelet.GEMM, groups, 1, 1, rows, inputs, outputs, ONE, ONE, Precision.FP16)


def convolution(
    batch: int, side: int, channels: int, engine: ProductCodelet = ProductCodelet.CONVOLUTION, groups: int = 1
) -> Product:
    return Product(engine, groups, batch, side, side, channels, channels, THREE, ONE, Precision.FP16)


SHAPES = [
    gemm(128, 64, 128, groups=12),
    gemm(2048, 768, 3072),
    gemm(1, 2048, 1000),
    convolution(4, 28, 128),
    convolution(2, 14, 4, ProductCodelet.SLIDING_WINDOW, groups=16),
    convolution(2, 14, 4, ProductCodelet.VECTOR, groups=16)._replace(precision=Precision.FP32),
]

products = st.builds(
    gemm,
    rows=st.integers(1, 5000),
    inputs=st.integers(1, 2000),
    outputs=st.integers(1, 2000),
    groups=st.sampled_from([1, 1, 12, 96]),
) | st.builds(convolution, batch=st.integers(1, 16), side=st.integers(1, 56), channels=st.integers(16, 256))


@pytest.mark.parametrize("product", SHAPES, ids=lambda p: p.engine.value)
@pytest.mark.parametrize("bound", daily([20_000, TILE_BYTES, 100_000], 2))
def test_the_plan_is_the_best_of_all_candidates(product: Product, bound: int) -> None:
    """Brute force: every candidate priced on its own, the cheapest that meets the bound."""
    n_tiles = 64
    _, columns = in_series(product, candidates(product, n_tiles))
    best = math.inf
    for row in zip(*columns, strict=True):
        alone = costs(product, SplitCandidates(*(np.array([value]) for value in row)), n_tiles)
        if math.ceil(alone.tile_bytes[0]) <= bound:
            best = min(best, math.ceil(alone.exchange_cycles[0]) + math.ceil(alone.compute_cycles[0]))
    chosen = plan(Bounded(product, bound), n_tiles)
    assert chosen.within_bound == (best < math.inf)
    if chosen.within_bound:
        assert chosen.cycles == best


@given(st.lists(st.tuples(products, st.floats(0.001, 1.0)), min_size=1, max_size=4), st.sampled_from(Precision))
@settings(deadline=None, max_examples=n_examples(60))
def test_products_planned_together_are_the_fastest_of_all_candidates_that_fit(
    wanted: list[tuple[Product, float]], precision: Precision
) -> None:
    """Of equally fast ones that of the fewest bytes; most candidates are not priced, and none of these is better."""
    bounded = [Bounded(product._replace(precision=precision), TILE_BYTES * share) for product, share in wanted]
    for (product, bound_bytes), chosen in zip(bounded, plan_each(bounded, TILES), strict=True):
        _, every = in_series(product, candidates(product, TILES))
        cost = costs(product, every, TILES)
        cycles, n_bytes = np.ceil(cost.exchange_cycles) + np.ceil(cost.compute_cycles), np.ceil(cost.tile_bytes)
        fitting = n_bytes <= bound_bytes if chosen.within_bound else np.full(len(n_bytes), True)
        assert chosen.within_bound == (n_bytes <= bound_bytes).any()
        best = np.lexsort((cost.tile_bytes[fitting], cycles[fitting]))[0]
        assert (chosen.cycles, chosen.tile_bytes) == (cycles[fitting][best], n_bytes[fitting][best])
        assert chosen.exchange_cycles == math.ceil(cost.exchange_cycles[fitting][best])


@given(products, st.floats(0.02, 1.0), st.floats(0.02, 1.0))
@settings(deadline=None, max_examples=n_examples(60))
def test_a_looser_bound_is_never_slower_and_a_bound_that_can_be_met_is_met(
    product: Product, first: float, second: float
) -> None:
    tight, loose = (plan(Bounded(product, TILE_BYTES * p), TILES) for p in sorted((first, second)))
    if tight.within_bound:
        assert tight.tile_bytes <= TILE_BYTES * min(first, second)
        assert loose.within_bound
        assert loose.cycles <= tight.cycles
    if not loose.within_bound:
        assert loose == plan(Bounded(product), TILES)._replace(within_bound=False)


@given(products)
@settings(deadline=None, max_examples=n_examples(60))
def test_no_plan_beats_the_matrix_units(product: Product) -> None:
    multiplications = product.groups * product.batch * product.height * product.width * product.inputs * product.outputs
    multiplications *= product.taps[0] * product.taps[1]
    best = plan(Bounded(product), TILES)
    assert best.compute_cycles * best.n_tiles * 64 >= multiplications


def test_a_large_product_trades_cycles_for_memory_as_a_planner_like_poplins() -> None:
    """Cycles of 16384 x 768 x 3072 from a separate implementation of the formulas of [poplibs]."""
    for proportion, cycles in ((0.1, 1_065_000), (0.2, 910_000), (0.4, 727_000), (0.6, 668_000), (1.0, 600_000)):
        chosen = plan(Bounded(gemm(16384, 768, 3072), TILE_BYTES * proportion), TILES)
        assert chosen.within_bound
        assert chosen.cycles == pytest.approx(cycles, rel=0.05)


def test_when_nothing_meets_the_bound_the_fastest_is_taken_and_says_so() -> None:
    chosen = plan(Bounded(gemm(2048, 768, 3072), 1000), TILES)
    assert not chosen.within_bound
    assert chosen.cycles == plan(Bounded(gemm(2048, 768, 3072)), TILES).cycles


@pytest.mark.parametrize(
    "product", [gemm(16384, 768, 3072), gemm(2048, 3072, 768), convolution(16, 56, 64), convolution(64, 7, 512)]
)
def test_cycles_fall_as_the_bound_rises(product: Product) -> None:
    plans = [plan(Bounded(product, TILE_BYTES * tenths / 10), TILES) for tenths in range(1, 11)]
    assert all(split.within_bound for split in plans)
    assert [split.cycles for split in plans] == sorted((split.cycles for split in plans), reverse=True)
    assert [split.tile_bytes for split in plans] == sorted(split.tile_bytes for split in plans)


def test_more_work_takes_more_cycles() -> None:
    sizes = [plan(Bounded(gemm(rows, 1024, 1024), TILE_BYTES), TILES).cycles for rows in (64, 512, 4096, 32768)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 8 * sizes[0]


def test_single_precision_is_slower() -> None:
    half = gemm(2048, 768, 768)
    single = half._replace(precision=Precision.FP32)
    assert plan(Bounded(single, TILE_BYTES), TILES).cycles > 2 * plan(Bounded(half, TILE_BYTES), TILES).cycles


def test_a_full_memory_of_plans_forgets_none_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that compiles many programs fills it, and a product may be known while its neighbour is new."""
    known, new = gemm(196, 768, 384), gemm(197, 768, 384)
    wanted = [Bounded(known), Bounded(new), Bounded(known, 1000.0)]
    expected = [plan(each, TILES) for each in wanted]
    monkeypatch.setattr(planner, "_PLANS", {(wanted[0], TILES): expected[0]})
    monkeypatch.setattr(planner, "_MAX_PLANS", 0)
    assert plan_each(wanted, TILES) == expected
