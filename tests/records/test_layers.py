"""Layers and tensors, sub-models, and which activations a backward pass needs."""

from collections.abc import Callable, Sequence

import pytest

from autoauto.records.layers import Layer, LayerGraph, LayerRange, Port, Tensor, derivative
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

    assert [n_bytes("float", p) for p in Precision] == [20, 40, 10, 20, 40]
    assert [n_bytes("float16", p) for p in Precision] == [20] * 5
    assert [n_bytes("bool", p) for p in Precision] == [10] * 5
    assert [n_bytes("int64", p) for p in Precision] == [40] * 5  # the device has no 64-bit integers


def test_a_weight_that_two_layers_read_counts_once(chain: Callable[..., LayerGraph]) -> None:
    assert chain(kinds=["a", "b"]).n_weight_bytes(Precision.FP16) == 2 * 64 * 64 * 2
    assert chain(kinds=["a", "b"], tie=(0, 1)).n_weight_bytes(Precision.FP16) == 64 * 64 * 2


def test_attributes_by_name() -> None:
    layer = Layer("conv", "Conv", (("group", 2), ("strides", (1, 1))), (), (), (), (), "k", None)
    assert (layer.attribute("group"), layer.attribute("pads")) == (2, None)


SHAPE = (1, 8)
Row = tuple[str, Sequence[str]]


def graph(*rows: Row) -> LayerGraph:
    """Layers by operator and operands: "x" is an input, a digit a layer, "w" a weight, "c" a constant of one element.

    An operand with a prime is a view: "x'".
    """
    tensors: list[Tensor] = []
    indices: dict[str, int] = {}
    last = {name.rstrip("'"): i for i, (_, operands) in enumerate(rows) for name in operands}

    def index_of(name: str) -> int:
        root = name.rstrip("'")
        if name not in indices:
            producer = int(root) if root.isdecimal() else -1
            constant = root[0] in "wc"
            shape = (1,) if root[0] == "c" else SHAPE if name == root else (8, 1)
            dtype = "int64" if root[0] == "i" else "float"
            span = (producer, last.get(root, len(rows)))
            tensors.append(Tensor(name, shape, None if constant else 0, dtype, *span))
            indices[name] = len(tensors) - 1
        return indices[name]

    layers = []
    for i, (op, operands) in enumerate(rows):
        roots = list(dict.fromkeys(name.rstrip("'") for name in operands))
        inputs, weights = (
            tuple(index_of(n) for n in roots if (n[0] in "wc") == constant) for constant in (False, True)
        )
        operand_ids = tuple(index_of(name) for name in operands)
        layers.append(Layer(str(i), op, (), inputs, (index_of(str(i)),), weights, operand_ids, op, None))
    return LayerGraph("hand", tuple(layers), tuple(tensors), None, "hand")


def stashes(*rows: Row) -> list[str]:
    """The stash of every layer, as names in alphabetical order."""
    model = graph(*rows)
    backward = derivative(model)
    return [" ".join(sorted(model.tensors[i].name for i in backward.stashed(layer))) for layer in range(len(rows))]


def test_layers_that_depend_on_no_parameter_have_no_backward_pass() -> None:
    model = graph(("Sub", "cx"), ("Relu", "0"), ("MatMul", "xw"), ("Mul", "12"), ("Cast", "3"))
    backward = derivative(model)
    assert backward.trained == {2, 3, 4}
    assert [backward.needs_gradient(layer.inputs[0]) for layer in model.layers] == [False, False, False, False, True]


def test_integers_and_rounded_operators_stop_the_gradient() -> None:
    assert derivative(graph(("Gather", "wi"), ("QLinearConv", "0w"), ("MatMulInteger", "0w"))).trained == {0}


def test_parameters_are_constants_of_several_floats() -> None:
    model = graph(("Gemm", ["x", "w1", "w2"]), ("Mul", "0c"), ("BatchNormalization", ["1", "w3", "w4", "w5", "w6"]))
    backward = derivative(model)
    names = [[model.tensors[i].name for i in backward.parameters(layer)] for layer in model.layers]
    assert names == [["w1", "w2"], [], ["w3", "w4"]]


@pytest.mark.parametrize(
    ("op", "operands", "stash"),
    [
        ("Relu", "0", "1"),
        ("Softmax", "0", "1"),
        ("Gelu", "0", "0"),
        ("MaxPool", "0", "0 1"),
        ("Add", "0w", ""),
        ("Transpose", "0", ""),
        ("MatMul", "0w", "0"),
        ("MatMul", "0x", "x"),  # x needs no gradient, so its factor is not needed
        ("Mul", "0c", ""),
        ("Mul", "00", "0"),
        ("LayerNormalization", ["0", "w1", "w2"], "0"),
        ("Gather", "wi", "i"),
        ("Where", "i0", "i"),
        ("NoSuchOperator", "0x", "0 x"),
    ],
)
def test_a_layer_stashes_what_its_derivative_reads(op: str, operands: Sequence[str], stash: str) -> None:
    assert stashes(("MatMul", "xw"), (op, operands)) == ["x", stash]


def test_a_layer_that_reads_a_view_stashes_the_viewed_tensor() -> None:
    assert stashes(("MatMul", ["x'", "w'"]), ("MatMul", ["0'", "w"])) == ["x", "0"]


def test_a_port_has_the_bytes_of_its_type() -> None:
    ports = [Port("x", (), "int64"), Port("x", (2, 3), "bool"), Port("x", (5,), "float16")]
    assert [port.n_bytes for port in ports] == [8, 6, 10]
