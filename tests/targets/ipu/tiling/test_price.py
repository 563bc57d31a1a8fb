import numpy as np
import pytest

from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.tiling.price import SplitCosts, costs
from autoauto.targets.ipu.tiling.split import Product, ProductCodelet, SplitCandidates

ONE = (1, 1)
PRODUCT = Product(ProductCodelet.GEMM, 1, 1, 1, 256, 64, 64, ONE, ONE, Precision.FP16)


def price(product: Product = PRODUCT, **parts: int) -> SplitCosts:
    """The costs of one way to cut: one part along every axis that is not named."""
    columns = (np.array([float(parts.get(name, 1))]) for name in SplitCandidates._fields)
    return costs(product, SplitCandidates(*columns), 1472)


def test_one_tile_runs_the_kernel_on_all_of_it() -> None:
    alone = price()
    assert alone.compute_cycles[0] == float(kernels.gemm(256, 4, 4, Precision.FP16))
    assert alone.tile_bytes[0] == 256 * 64 * 2 + 256 * 64 * 2  # inputs and outputs; the weights lie here


def test_weights_are_exchanged_among_the_tiles_that_share_them() -> None:
    halves = price(width=2)
    assert halves.compute_cycles[0] == float(kernels.gemm(128, 4, 4, Precision.FP16))
    assert halves.tile_bytes[0] == 128 * 64 * 2 * 2 + 64 * 64 * 2
    received = 64 * 64 * 2 / 2 * (1 - 1 / 2)  # inputs and half of the weights are here, neighbours share a bus
    assert halves.exchange_cycles[0] == float(kernels.exchange(received, halves.n_sources[0]))


def test_cut_inputs_leave_partial_sums_to_add() -> None:
    quarters = price(inputs=4)
    added = float(kernels.reduce(256 * 64 / 4, 4, Precision.FP16))
    assert quarters.compute_cycles[0] == float(kernels.gemm(256, 1, 4, Precision.FP16)) + added
    arriving = kernels.exchange(0, quarters.n_sources[0])
    combined = kernels.exchange(256 * 64 * 2 * 3 / 4, 3)
    assert quarters.exchange_cycles[0] == arriving + combined


@pytest.mark.parametrize("axis", ["serial_inputs", "serial_outputs"])
def test_serial_steps_trade_memory_for_time(axis: str) -> None:
    large = PRODUCT._replace(width=512, inputs=1024, outputs=1024)
    whole, steps = (price(large, width=4, **{axis: n}) for n in (1, 4))
    assert steps.tile_bytes[0] < whole.tile_bytes[0]
    assert steps.compute_cycles[0] > whole.compute_cycles[0]
    assert steps.exchange_cycles[0] > whole.exchange_cycles[0]


def test_a_field_is_received_with_its_halo() -> None:
    image = Product(ProductCodelet.CONVOLUTION, 1, 1, 16, 16, 16, 16, (3, 3), ONE, Precision.FP16)
    rows = price(image, height=4)
    assert rows.tile_bytes[0] == (6 * 18 * 16 + 4 * 16 * 16 + 16 * 16 * 9) * 2


def test_narrow_groups_run_without_matrix_units() -> None:
    for engine in (ProductCodelet.SLIDING_WINDOW, ProductCodelet.VECTOR):
        narrow = Product(engine, 8, 1, 14, 14, 4, 4, (3, 3), ONE, Precision.FP16)
        assert price(narrow, groups=8).compute_cycles[0] < price(narrow).compute_cycles[0] / 4
