from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.graph.facts import learn
from autoauto.graph.views import is_view, is_weight_view

TRUE = {"on": np.array(True), "half": np.array(0.5, np.float32)}
CASES: dict[str, tuple[Any, bool]] = {
    "reshape": (("Reshape x s > y", {"x": ["n", 1, 4]}, "y", {"s": [-1, 4]}), True),
    "expand to itself": (("Expand x s > y", {"x": ["n", 4]}, "y", {"s": [4]}), True),
    "expand": (("Expand x s > y", {"x": ["n", 1]}, "y", {"s": [1, 4]}), False),
    "tile once": (("Tile x s > y", {"x": ["n", 4]}, "y", {"s": [1, 1]}), True),
    "cast to half": (("Cast x > y to=10", {"x": ["n", 4]}, "y"), True),
    "cast to integer": (("Cast x > y to=7", {"x": ["n", 4]}, "y"), False),
    "cast of integers": (("Cast x > y to=6", {"int:x": ["n", 4]}, "y"), True),
    "transpose": (("Transpose x > y perm=0,2,1", {"x": ["n", 3, 4]}, "y"), False),
    "transpose of ones": (("Transpose x > y perm=0,2,1", {"x": ["n", 1, 4]}, "y"), True),
    "transpose of the batch": (("Transpose x > y perm=1,0", {"x": ["n", 4]}, "y"), False),
    "dropout": (("Dropout x > y", {"x": ["n", 4]}, "y"), True),
    "dropout with mask": (("Dropout x > a m; Where m a x > y", {"x": ["n", 4]}, "y"), False),
    "dropout in training": (("Dropout x half on > y", {"x": ["n", 4]}, "y", TRUE), False),
    "sum of one": (("Sum x > y", {"x": ["n", 4]}, "y"), True),
    "sum of two": (("Sum x x > y", {"x": ["n", 4]}, "y"), False),
    "relu": (("Relu x > y", {"x": ["n", 4]}, "y"), False),
}


@pytest.mark.parametrize("name", CASES)
def test_views(name: str, make: Any) -> None:
    arguments, expected = CASES[name]
    known = learn(make(*arguments))
    assert is_view(known.model.graph.node[0], known.facts) is expected


def test_a_weight_is_transposed_once(make: Any) -> None:
    nodes = "Transpose w > t; MatMul x t > y"
    known = learn(make(nodes, {"x": ["n", 4]}, "y", {"w": np.ones((3, 4), np.float32)}))
    assert is_weight_view(known.model.graph.node[0], known.facts)
    assert not is_view(known.model.graph.node[0], known.facts)
