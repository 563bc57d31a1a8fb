from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from autoauto.profile.kept import gradient_pattern, kept
from autoauto.records.derivative import Derivative, derivative
from autoauto.records.layers import Layer, LayerGraph, Tensor
from autoauto.records.units import Precision

Choice = tuple[str, int, int]  # operator, and which tensor each operand is


def graph(choices: Sequence[Choice]) -> LayerGraph:
    """Layer i makes tensor i + 1 of i + 2 floats from the input or what was made before; a product has a weight."""
    n = len(choices)
    last = list(range(-1, n))
    layers = []
    for i, (op, *picks) in enumerate(choices):
        operands = [pick % (i + 1) for pick in (picks[:1] if op == "MatMul" else picks)]
        for operand in operands:
            last[operand] = max(last[operand], i)
        inputs, weights = tuple(dict.fromkeys(operands)), (n + 1,) * (op == "MatMul")
        layers.append(Layer(str(i), op, (), inputs, (i + 1,), weights, (*operands, *weights), op, None))
    made = (Tensor(f"t{i}", (1, i + 1), 0, "float", i - 1, use) for i, use in enumerate(last))
    return LayerGraph("hand", tuple(layers), (*made, Tensor("w", (7,), None, "float", -1, n)), None, "hand")


graphs = st.lists(
    st.tuples(st.sampled_from(["MatMul", "Relu", "Add", "Gelu", "MaxPool"]), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=9,
).map(graph)


def test_a_tensor_counts_where_it_is_kept_first_and_is_kept_again_further_on() -> None:
    found = derivative(graph([("MatMul", 0, 0), ("Relu", 1, 1), ("Gelu", 2, 2), ("Add", 3, 3), ("MatMul", 2, 2)]))
    keeps = kept(found, 1, Precision.FP16)
    assert keeps.first_bytes == [2, 6, 0, 0, 0]  # the input, and what Relu makes
    assert keeps.input_bytes == [0, 0, 6, 6, 6]  # Gelu and the last product read that, too


@given(model=graphs, batch_size=st.integers(1, 3))
def test_a_range_keeps_at_most_what_its_parts_add_up_to(model: LayerGraph, batch_size: int) -> None:
    found, n = derivative(model), len(model)
    keeps = kept(found, batch_size, Precision.FP16)
    for start in range(n):
        for stop in range(start + 1, n + 1):
            tensors = frozenset[int]().union(*(found.kept(i) for i in range(start, stop)))
            n_bytes = sum(model.tensors[i].n_bytes(batch_size, Precision.FP16) for i in tensors)
            bound = sum(keeps.first_bytes[start:stop]) + keeps.input_bytes[start]
            assert n_bytes <= bound
            assert n_bytes == bound or stop < n
    for first, here, following in zip(keeps.first_bytes, keeps.input_bytes, keeps.input_bytes[1:], strict=False):
        assert following - here <= first


def test_inference_keeps_nothing() -> None:
    model = graph([("MatMul", 0, 0), ("Relu", 1, 1)])
    assert kept(Derivative(model, frozenset()), 1, Precision.FP16) == ([0, 0], [0, 0])


def test_layers_differ_by_which_operands_have_gradients() -> None:
    model = graph([("MatMul", 0, 0), ("Add", 0, 1), ("Add", 2, 1), ("Relu", 0, 0)])
    assert [gradient_pattern(derivative(model), layer) for layer in model.layers] == ["00", "01", "11", "00"]
