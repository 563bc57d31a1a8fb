from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.records.units import Precision
from autoauto.targets.ipu.entry import IPU
from autoauto.targets.ipu.tiling.split import Product, ProductCodelet, candidates, in_series
from tests.drawn import n_examples

ONE, THREE = (1, 1), (3, 3)


def product(engine: ProductCodelet, sizes: tuple[int, ...], taps: tuple[int, int], precision: Precision) -> Product:
    groups, batch, height, width, inputs, outputs = sizes
    return Product(engine, groups, batch, height, width, inputs, outputs, taps, ONE, precision)


products = st.builds(
    product,
    engine=st.sampled_from(ProductCodelet),
    sizes=st.tuples(*(st.integers(1, most) for most in (96, 64, 56, 4000, 2000, 2000))),
    taps=st.sampled_from([ONE, THREE, (1, 7)]),
    precision=st.sampled_from(IPU.precisions),
)


@given(products)
@settings(deadline=None, max_examples=n_examples(60))
def test_every_candidate_uses_tiles_that_exist_and_cuts_no_axis_finer_than_it_is_long(product: Product) -> None:
    steps_of, split = in_series(product, candidates(product, 1472))
    assert sorted(set(steps_of)) == list(range(len(candidates(product, 1472).tiles)))
    assert len(split.tiles) > 0
    assert split.tiles.min() >= 1
    assert split.tiles.max() <= 1472
    in_groups, out_groups = product.panels
    assert (split.inputs * split.serial_inputs).max() <= in_groups
    assert (split.outputs * split.serial_outputs).max() <= out_groups
    for parts, length in ((split.groups, product.groups), (split.batch, product.batch), (split.width, product.width)):
        assert parts.max() <= length


def test_a_panel_holds_512_bytes_of_weights_and_less_for_narrow_groups() -> None:
    sizes = 1, 1, 1, 100, 40, 40
    grains = {each: product(ProductCodelet.GEMM, sizes, ONE, each).grain for each in IPU.precisions}
    assert grains == {Precision.FP8: (32, 16), Precision.FP16: (16, 16), Precision.FP32: (8, 16)}
    assert product(ProductCodelet.GEMM, (1, 1, 1, 100, 40, 40), ONE, Precision.FP8).panels == (2, 3)
    mixed = product(ProductCodelet.GEMM, (1, 1, 1, 100, 40, 40), ONE, Precision.FP16)._replace(partials=Precision.FP32)
    assert mixed.panels == (3, 5)  # half the units rest
    assert product(ProductCodelet.VECTOR, (8, 1, 1, 100, 4, 4), ONE, Precision.FP16).panels == (1, 1)


def test_single_precision_sums_in_single_precision() -> None:
    half, single = (product(ProductCodelet.GEMM, (1, 1, 1, 8, 8, 8), ONE, p) for p in (Precision.FP16, Precision.FP32))
    assert (half.sums, single.sums) == (Precision.FP16, Precision.FP32)
    assert half._replace(partials=Precision.FP32).sums is Precision.FP32
    assert half._replace(precision=Precision.FP8).sums is Precision.FP16


def test_outputs_see_a_halo() -> None:
    wide = product(ProductCodelet.CONVOLUTION, (1, 1, 8, 8, 16, 16), THREE, Precision.FP16)
    assert [wide.reach(n, 0) for n in (1, 8)] == [3, 10]
    assert [wide._replace(stride=(2, 2)).reach(n, 1) for n in (1, 8)] == [3, 17]
    assert wide._replace(taps=ONE, stride=(2, 2)).reach(8, 0) == 8
