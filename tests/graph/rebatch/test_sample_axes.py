from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.graph.read.trace import Value
from autoauto.graph.rebatch.sample_axes import Place, Step
from autoauto.records.errors import BadInput

NODE = onnx.helper.make_node("Reshape", ["x", "s"], ["y"], "view")


def step(source: tuple[int, ...], target: tuple[int, ...], n_samples: int = 1) -> Step:
    ends = (Value(onnx.TensorProto.FLOAT, shape, None, False) for shape in (source, target))
    read, written = ends
    return Step(NODE, 17, n_samples, [read, None], [written], [Place(0, 1), None])


@pytest.mark.parametrize(
    ("source", "place", "target", "expected"),
    [
        ((1, 128, 768), Place(0, 1), (128, 768), Place(0, 128)),
        ((128, 768), Place(0, 128), (1, 128, 12, 64), Place(0, 1)),
        ((1, 12, 128, 64), Place(0, 1), (12, 128, 64), Place(0, 12)),
        ((5, 1, 6), Place(1, 1), (5, 2, 3), Place(1, 2)),  # sequence first, heads split
        ((5, 2, 3), Place(1, 2), (5, 6), Place(0, 1)),  # and joined to rows
        ((5, 6), Place(0, 1), (5, 1, 6), Place(1, 1)),
        ((1, 1, 4), Place(1, 1), (1, 1, 2, 2), Place(1, 1)),
    ],
)
def test_where_samples_land(source: Any, place: Place, target: Any, expected: Place) -> None:
    assert step(source, target).land(place) == expected


def test_samples_that_cannot_land_are_refused() -> None:
    with pytest.raises(BadInput, match=r"node 'view' \(Reshape\) mixes samples when it turns \[2, 3\] into \[3, 2\]"):
        step((2, 3), (3, 2), n_samples=2).land(Place(0, 1))


@given(
    st.integers(1, 3),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.data(),
)
def test_landing_finds_the_samples_again(count: int, before: list[int], after: list[int], data: st.DataObject) -> None:
    """Mark every element with its sample, reshape, and look for the marks where `land` says they are."""
    axis = data.draw(st.integers(0, len(before) - 1))
    inner = data.draw(st.sampled_from([number for number in range(1, before[axis] + 1) if before[axis] % number == 0]))
    source = [length * count if position == axis else length for position, length in enumerate(before)]
    position = np.arange(source[axis]) // inner % count
    marks = np.broadcast_to(position.reshape(-1, *[1] * (len(source) - axis - 1)), source)
    target = (*after, marks.size // int(np.prod(after))) if marks.size % int(np.prod(after)) == 0 else (marks.size,)
    try:
        found = step(tuple(source), target, count).land(Place(axis, inner))
    except BadInput:
        return
    seen = np.moveaxis(marks.reshape(target), found.axis, -1)
    expected = np.arange(target[found.axis]) // found.inner % count
    assert (seen == expected).all()


def test_attributes_and_operands() -> None:
    node = onnx.helper.make_node("Split", ["x", "s"], ["a", "b"], axis=-1)
    sizes = Value(onnx.TensorProto.INT64, (2,), np.array([1, 2]), True)
    some = Step(
        node, 13, 1, [Value(1, (1, 3), None, False), sizes], [None, Value(1, (1, 2), None, False)], [Place(0, 1), None]
    )
    assert (some.axis(0), some.integer("num_outputs", 5), some.integers("split", 1)) == (1, 5, (1, 2))
    assert (some.output_shape, some.only(), some.reads_shape) == ((1, 2), Place(0, 1), False)
    some.grow(1, (4, 1, 3), 1)
    assert some.literals[1](6).tolist() == [4, 6, 3]


def test_samples_as_a_shared_operand_are_refused() -> None:
    two = Step(NODE, 17, 1, [None, None], [], [Place(0, 1), Place(0, 1)])
    with pytest.raises(BadInput, match="must share"):
        two.only()
