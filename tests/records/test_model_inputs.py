"""What people say of a model's inputs: refused in one line where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.layers import Body, Layer, LayerGraph, ModelInputs
from autoauto.records.model_inputs import model_inputs, read_model_inputs, texts_of


def test_pairs_are_separated_by_commas_or_given_one_by_one() -> None:
    expected = ModelInputs((("a", (1,)), ("b", (2, 3)), ("f(x,y)=z", (4,))), (("a", 0), ("b", None)), (("s", "t"),))
    assert read_model_inputs(["a=1,b=2x3", "f(x,y)=z=4"], ["a=0", "b=none"], ["s=t"]) == expected
    assert read_model_inputs(["a=1,a=1"]).shapes == (("a", (1,)),)
    texts = texts_of(expected)
    assert texts == {"shape": ("a=1", "b=2x3", "f(x,y)=z=4"), "batch_axis": ("a=0", "b=none"), "state": ("s=t",)}
    assert read_model_inputs(**texts) == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"shape": ["a"]}, "--shape takes NAME=VALUE, got 'a'"),
        ({"shape": [""]}, "--shape takes NAME=VALUE, got ''"),
        ({"shape": ["a="]}, "--shape takes NAME=VALUE, got 'a='"),
        ({"shape": ["=3"]}, "--shape takes NAME=VALUE, got '=3'"),
        ({"shape": ["a=1,b"]}, "--shape takes NAME=VALUE, got 'b'"),
        ({"shape": ["a=1", "a=2"]}, "--shape gives 'a' two values, got 'a=2' too"),
        ({"shape": ["a=1x"]}, "a length is a whole number from 1, .* got --shape a=1x"),
        ({"shape": ["a=" + "1" * 20]}, "a length is a whole number from 1, several"),
        ({"shape": ["a=0"]}, "a length is a whole number from 1 to 2.*40, got 0 for 'a'"),
        ({"batch_axis": ["a=x"]}, "--batch-axis a is an axis from 0, or none; got 'x'"),
        ({"batch_axis": ["a=100"]}, "--batch-axis a is an axis from 0, or none; got '100'"),
        ({"state": ["a=1", "a=2"]}, "--state gives 'a' two values"),
    ],
)
def test_texts_of_another_form_are_refused(texts: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_model_inputs(**texts)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shapes": [("a", 1)]}, "shapes are given by name, for example {'height': 320}, got"),
        ({"shapes": {"": 1}}, "inputs, outputs and axes have names, got ''"),
        ({"shapes": {3: 1}}, "inputs, outputs and axes have names, got 3"),
        ({"shapes": {"a": True}}, "a length is a whole number from 1 to"),
        ({"shapes": {"a": (3, 0)}}, "a length is a whole number from 1 to .*, got 0 for 'a'"),
        ({"shapes": {"a": 2**40 + 1}}, "a length is a whole number from 1 to"),
        ({"shapes": {"a": "3"}}, "a length is a whole number from 1 to .*, got '3' for 'a'"),
        ({"batch_axes": {"a": -1}}, "the batch axis of 'a' is an axis from 0, or None, got -1"),
        ({"batch_axes": {"a": 32}}, "the batch axis of 'a' is an axis from 0, or None, got 32"),
        ({"batch_axes": {"a": True}}, "the batch axis of 'a' is an axis from 0, or None, got True"),
        ({"states": {"a": ""}}, "inputs, outputs and axes have names, got ''"),
    ],
)
def test_values_that_cannot_be_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        model_inputs(**values)


def test_the_ends_of_what_may_be_are_taken() -> None:
    taken = model_inputs({"a": 2**40, "b": [1, 2]}, {"a": 31, "b": None}, {"s": "t"})
    assert taken == ModelInputs((("a", (2**40,)), ("b", (1, 2))), (("a", 31), ("b", None)), (("s", "t"),))
    assert model_inputs() == ModelInputs()


def test_layers_of_bodies_are_layers_of_the_model(chain: Callable[..., LayerGraph]) -> None:
    inner = chain(kinds=["c", "d"])
    loop = Layer("loop", "Loop", (), (), (0,), (), (), "l", None, (Body(inner, 2, False),))
    graph = LayerGraph("g", (*chain(kinds=["a"]).layers, loop), (), None, "digest")
    assert [layer.op for layer in graph.all_layers()] == [
        chain(kinds=["a"]).layers[0].op,
        "Loop",
        *(layer.op for layer in inner.layers),
    ]
    assert len(list(graph.all_layers())) == 4
