from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autoauto.graph.wire import varint, with_weights


@pytest.mark.parametrize(("number", "groups"), [(0, [0]), (127, [127]), (128, [128, 1]), (1 << 31, [128] * 4 + [8])])
def test_whole_numbers_by_hand(number: int, groups: list[int]) -> None:
    assert list(varint(number)) == groups


def test_weights_behind_a_model_are_its_initializers(make: Any) -> None:
    small, large = np.ones(1, np.float32), np.arange(3000, dtype=np.float32)
    model = make("Add x a > b; Add b c > y", {"x": [3000]}, "y", {"a": small})
    model.producer_name, model.doc_string = "before the graph", "and behind it"
    weight = numpy_helper.from_array(large, "c")
    found = onnx.ModelProto.FromString(with_weights(model, [weight.SerializeToString()]))
    model.graph.initializer.append(weight)
    assert found == model


def test_no_weights_change_nothing(make: Any) -> None:
    model = make("Relu x > y", {"x": [1]}, "y")
    assert onnx.ModelProto.FromString(with_weights(model, [])) == model
