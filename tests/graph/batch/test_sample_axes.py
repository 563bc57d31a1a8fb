from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.graph.batch.sample_axes import NodeStep, SampleAxis
from autoauto.graph.shapes.values import Value
from autoauto.records.errors import BadInput

NODE = onnx.helper.make_node("Reshape", ["x", "s"], ["y"], "view")


def step(source: tuple[int, ...], target: tuple[int, ...], n_samples: int = 1) -> NodeStep:
    ends = (Value(onnx.TensorProto.FLOAT, shape, None, False) for shape in (source, target))
    read, written = ends
    return NodeStep(NODE, 17, n_samples, [read, None], [written], [SampleAxis(0, 1), None])


@pytest.mark.parametrize(
    ("source", "samples", "target", "expected"),
    [
        ((1, 128, 768), SampleAxis(0, 1), (128, 768), SampleAxis(0, 128)),
        ((128, 768), SampleAxis(0, 128), (1, 128, 12, 64), SampleAxis(0, 1)),
        ((1, 12, 128, 64), SampleAxis(0, 1), (12, 128, 64), SampleAxis(0, 12)),
        ((5, 1, 6), SampleAxis(1, 1), (5, 2, 3), SampleAxis(1, 2)),  # sequence first, heads split
        ((5, 2, 3), SampleAxis(1, 2), (5, 6), SampleAxis(0, 1)),  # and joined to rows
        ((5, 6), SampleAxis(0, 1), (5, 1, 6), SampleAxis(1, 1)),
        ((1, 1, 4), SampleAxis(1, 1), (1, 1, 2, 2), SampleAxis(1, 1)),
    ],
)
def test_samples_after_a_reshape(source: Any, samples: SampleAxis, target: Any, expected: SampleAxis) -> None:
    assert step(source, target).after_reshape(samples) == expected


def test_a_reshape_that_mixes_samples_is_refused() -> None:
    with pytest.raises(BadInput, match=r"node 'view' \(Reshape\) mixes samples when it turns \[2, 3\] into \[3, 2\]"):
        step((2, 3), (3, 2), n_samples=2).after_reshape(SampleAxis(0, 1))


@given(
    st.integers(1, 3),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.data(),
)
def test_samples_lie_on_the_axis_after_any_reshape(
    count: int, before: list[int], after: list[int], data: st.DataObject
) -> None:
    """Mark every element with its sample, reshape, and look for the marks on the axis of `after_reshape`."""
    axis = data.draw(st.integers(0, len(before) - 1))
    inner = data.draw(st.sampled_from([number for number in range(1, before[axis] + 1) if before[axis] % number == 0]))
    source = [length * count if position == axis else length for position, length in enumerate(before)]
    position = np.arange(source[axis]) // inner % count
    marks = np.broadcast_to(position.reshape(-1, *[1] * (len(source) - axis - 1)), source)
    target = (*after, marks.size // int(np.prod(after))) if marks.size % int(np.prod(after)) == 0 else (marks.size,)
    try:
        samples = step(tuple(source), target, count).after_reshape(SampleAxis(axis, inner))
    except BadInput:
        return
    seen = np.moveaxis(marks.reshape(target), samples.axis, -1)
    expected = np.arange(target[samples.axis]) // samples.inner % count
    assert (seen == expected).all()


def test_attributes_and_operands() -> None:
    node = onnx.helper.make_node("Split", ["x", "s"], ["a", "b"], axis=-1)
    sizes = Value(onnx.TensorProto.INT64, (2,), np.array([1, 2]), True)
    some = NodeStep(
        node,
        13,
        1,
        [Value(1, (1, 3), None, False), sizes],
        [None, Value(1, (1, 2), None, False)],
        [SampleAxis(0, 1), None],
    )
    assert (some.axis(0), some.integer("num_outputs", 5), some.integers("split", 1)) == (1, 5, (1, 2))
    assert (some.output_shape, some.only(), some.reads_shape) == ((1, 2), SampleAxis(0, 1), False)
    some.grow(1, (4, 1, 3), 1)
    assert some.literals[1](6).tolist() == [4, 6, 3]


def test_samples_as_a_shared_operand_are_refused() -> None:
    two = NodeStep(NODE, 17, 1, [None, None], [], [SampleAxis(0, 1), SampleAxis(0, 1)])
    with pytest.raises(BadInput, match="must share"):
        two.only()
