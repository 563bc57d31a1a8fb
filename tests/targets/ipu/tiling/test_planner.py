import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.records.units import Precision
from autoauto.targets.ipu.tiling import planner
from autoauto.targets.ipu.tiling.planner import pareto_front, plan
from autoauto.targets.ipu.tiling.price import costs
from autoauto.targets.ipu.tiling.split import Engine, Product, SplitCandidates, candidates

ONE, THREE = (1, 1), (3, 3)
TILES, TILE_BYTES = 1472, 638976


def gemm(rows: int, inputs: int, outputs: int, groups: int = 1) -> Product:
    return Product(Engine.GEMM, groups, 1, 1, rows, inputs, outputs, ONE, ONE, Precision.FP16)


def convolution(batch: int, side: int, channels: int, engine: Engine = Engine.CONVOLUTION, groups: int = 1) -> Product:
    return Product(engine, groups, batch, side, side, channels, channels, THREE, ONE, Precision.FP16)


SHAPES = [
    gemm(128, 64, 128, groups=12),
    gemm(2048, 768, 3072),
    gemm(1, 2048, 1000),
    convolution(4, 28, 128),
    convolution(2, 14, 4, Engine.SLIDING_WINDOW, groups=16),
    convolution(2, 14, 4, Engine.VECTOR, groups=16)._replace(precision=Precision.FP32),
]

products = st.builds(
    gemm,
    rows=st.integers(1, 5000),
    inputs=st.integers(1, 2000),
    outputs=st.integers(1, 2000),
    groups=st.sampled_from([1, 1, 12, 96]),
) | st.builds(convolution, batch=st.integers(1, 16), side=st.integers(1, 56), channels=st.integers(16, 256))


@pytest.mark.parametrize("product", SHAPES, ids=lambda p: p.engine.value)
@pytest.mark.parametrize("bound", [20_000, 100_000, TILE_BYTES])
def test_the_plan_is_the_best_of_all_candidates(product: Product, bound: int) -> None:
    """Brute force: every candidate priced on its own, the cheapest that meets the bound."""
    n_tiles = 64
    columns = candidates(product, n_tiles)
    best = math.inf
    for row in zip(*columns, strict=True):
        alone = costs(product, SplitCandidates(*(np.array([value]) for value in row)), n_tiles)
        if math.ceil(alone.tile_bytes[0]) <= bound:
            best = min(best, math.ceil(alone.exchange_cycles[0]) + math.ceil(alone.compute_cycles[0]))
    chosen = plan(product, n_tiles, bound)
    assert chosen.within_bound == (best < math.inf)
    if chosen.within_bound:
        assert chosen.cycles == best


@given(products, st.floats(0.02, 1.0), st.floats(0.02, 1.0))
@settings(deadline=None, max_examples=60)
def test_a_looser_bound_is_never_slower_and_a_bound_that_can_be_met_is_met(
    product: Product, first: float, second: float
) -> None:
    tight, loose = (plan(product, TILES, TILE_BYTES * p) for p in sorted((first, second)))
    if tight.within_bound:
        assert tight.tile_bytes <= TILE_BYTES * min(first, second)
        assert loose.within_bound
        assert loose.cycles <= tight.cycles
    if not loose.within_bound:
        assert loose == pareto_front(product, TILES)[0]._replace(within_bound=False)


@given(products)
@settings(deadline=None, max_examples=60)
def test_no_plan_beats_the_matrix_units(product: Product) -> None:
    multiplications = product.groups * product.batch * product.height * product.width * product.inputs * product.outputs
    multiplications *= product.taps[0] * product.taps[1]
    best = plan(product, TILES, math.inf)
    assert best.compute_cycles * best.n_tiles * 64 >= multiplications


def test_the_pareto_front_trades_cycles_for_memory() -> None:
    front = pareto_front(gemm(16384, 768, 3072), TILES)
    assert [split.cycles for split in front] == sorted(split.cycles for split in front)
    assert [split.tile_bytes for split in front] == sorted((split.tile_bytes for split in front), reverse=True)
    assert front[0].serial < front[-1].serial


def test_a_large_product_trades_cycles_for_memory_as_a_planner_like_poplins() -> None:
    """Cycles of 16384 x 768 x 3072 from a separate implementation of the formulas of [poplibs]."""
    for proportion, cycles in ((0.1, 1_065_000), (0.2, 910_000), (0.4, 727_000), (0.6, 668_000), (1.0, 600_000)):
        chosen = plan(gemm(16384, 768, 3072), TILES, TILE_BYTES * proportion)
        assert chosen.within_bound
        assert chosen.cycles == pytest.approx(cycles, rel=0.05)


def test_when_nothing_meets_the_bound_the_fastest_is_taken_and_says_so() -> None:
    chosen = plan(gemm(2048, 768, 3072), TILES, 1000)
    assert not chosen.within_bound
    assert chosen.cycles == plan(gemm(2048, 768, 3072), TILES, math.inf).cycles


@pytest.mark.parametrize(
    "product", [gemm(16384, 768, 3072), gemm(2048, 3072, 768), convolution(16, 56, 64), convolution(64, 7, 512)]
)
def test_cycles_fall_as_the_bound_rises(product: Product) -> None:
    plans = [plan(product, TILES, TILE_BYTES * tenths / 10) for tenths in range(1, 11)]
    assert all(split.within_bound for split in plans)
    assert [split.cycles for split in plans] == sorted((split.cycles for split in plans), reverse=True)
    assert [split.tile_bytes for split in plans] == sorted(split.tile_bytes for split in plans)


def test_more_work_takes_more_cycles() -> None:
    sizes = [plan(gemm(rows, 1024, 1024), TILES, TILE_BYTES).cycles for rows in (64, 512, 4096, 32768)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 8 * sizes[0]


def test_single_precision_is_slower() -> None:
    half = gemm(2048, 768, 768)
    single = half._replace(precision=Precision.FP32)
    assert plan(single, TILES, TILE_BYTES).cycles > 2 * plan(half, TILES, TILE_BYTES).cycles


def test_a_full_memory_of_plans_forgets_none_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that compiles many programs fills it, and a product may be known while its neighbour is new."""
    known, new = gemm(196, 768, 384), gemm(197, 768, 384)
    expected = [planner.unbounded(known, TILES), planner.unbounded(new, TILES)]
    monkeypatch.setattr(planner, "_UNBOUNDED", {(known, TILES): expected[0]})
    monkeypatch.setattr(planner, "_MAX_UNBOUNDED", 0)
    assert planner.unbounded_each([known, new], TILES) == expected
