from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.graph.facts import batch_axis, infer_facts
from autoauto.records.errors import BadInput, UnreadableModel


@pytest.mark.parametrize(("shape", "axis"), [((1, 3), 0), ((12, 64), 0), ((5, 2, 3), 1), ((), None), ((4, 4), None)])
def test_the_axis_that_grows(shape: tuple[int, ...], axis: int | None) -> None:
    shapes = [tuple(n * count if position == axis else n for position, n in enumerate(shape)) for count in (1, 2, 3)]
    assert batch_axis("x", *shapes) == axis


@pytest.mark.parametrize(
    "shapes", [((1, 1), (2, 2), (3, 3)), ((1,), (2,), (4,)), ((2,), (3,), (4,)), ((1,), (1, 2), (1, 3))]
)
def test_any_other_growth_is_refused(shapes: Any) -> None:
    with pytest.raises(BadInput, match="one axis of a tensor must grow with the batch, 'x' is"):
        batch_axis("x", *shapes)


def test_facts_of_an_open_file(make: Any) -> None:
    nodes = "Cast x > c to=10; Shape c > s; Expand m s > e; Add c e > y"
    known = infer_facts(make(nodes, {"x": ["n", 4]}, "y", {"m": np.array([1.0], np.float16)}))
    assert known.fixed_batch is None
    assert known.facts["c"][:3] == ((1, 4), 0, "float")
    assert not known.facts["c"].constant
    assert not known.facts["e"].constant  # as large as the batch
    assert known.facts["m"].constant
    assert known.facts["s"].data is not None
    assert known.facts["s"].data.tolist() == [1, 4]


def test_integers_stay_constant_at_any_batch(make: Any) -> None:
    nodes = "Shape x > s; Expand z s > i; Gather w i > e; Add x e > y"
    known = infer_facts(make(nodes, {"x": ["n", 4]}, "y", {"z": [[0]], "w": np.ones((3,), np.float32)}))
    assert known.facts["i"].constant
    assert known.facts["i"][:3] == ((1, 4), 0, "int64")
    assert not known.facts["e"].constant


def test_a_model_that_cannot_be_rebatched_is_read_at_its_own_batch(make: Any) -> None:
    known = infer_facts(make("Softmax x > y axis=0", {"x": [1, 4]}, "y"))
    assert (
        known.fixed_batch == "the file fixes the batch at 1 and node 'Softmax_0' (Softmax) works along the batch axis"
    )
    assert known.facts["y"][:3] == ((1, 4), None, "float")


def test_a_batch_that_squares_is_read_at_one_sample(make: Any) -> None:
    known = infer_facts(make("Transpose x > t; MatMul x t > y", {"x": ["n", 4]}, "y"))
    assert known.fixed_batch is not None
    assert "'y' is [1, 1], [2, 2] and [3, 3] at 1, 2 and 3 samples" in known.fixed_batch
    assert known.facts["y"].shape == (1, 1)


def test_shapes_that_do_not_fit_at_any_batch_are_unreadable(make: Any) -> None:
    with pytest.raises(UnreadableModel, match="do not fit"):
        infer_facts(make("MatMul x x > y", {"x": ["n", 4]}, "y"))
