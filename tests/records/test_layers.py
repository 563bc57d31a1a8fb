from collections.abc import Callable

from autoauto.records.layers import Layer, LayerGraph, LayerRange, Tensor
from autoauto.records.units import Precision


def test_a_range_prints_half_open() -> None:
    assert str(LayerRange(3, 7)) == "[3, 7)"


def test_only_the_batch_axis_grows() -> None:
    merged = Tensor("scores", (12, 128, 128), 0, "float", 0, 1)
    weight = Tensor("w", (768, 768), None, "float", -1, 1)
    assert merged.shape_at(3) == (36, 128, 128)
    assert weight.shape_at(3) == (768, 768)
    assert merged.n_elements(3) == 3 * 12 * 128 * 128


def test_precision_decides_the_width_of_floats_only() -> None:
    def n_bytes(dtype: str, precision: Precision) -> int:
        return Tensor("x", (10,), None, dtype, -1, 0).n_bytes(1, precision)

    assert [n_bytes("float", p) for p in Precision] == [20, 40, 10]
    assert [n_bytes("float16", p) for p in Precision] == [20, 20, 20]
    assert [n_bytes("bool", p) for p in Precision] == [10, 10, 10]
    assert [n_bytes("int64", p) for p in Precision] == [40, 40, 40]  # the device has no 64-bit integers


def test_a_weight_that_two_layers_read_counts_once(chain: Callable[..., LayerGraph]) -> None:
    assert chain(kinds=["a", "b"]).n_weight_bytes(Precision.FP16) == 2 * 64 * 64 * 2
    assert chain(kinds=["a", "b"], tie=(0, 1)).n_weight_bytes(Precision.FP16) == 64 * 64 * 2


def test_attributes_by_name() -> None:
    layer = Layer("conv", "Conv", (("group", 2), ("strides", (1, 1))), (), (), (), (), "k", None)
    assert (layer.attribute("group"), layer.attribute("pads")) == (2, None)
