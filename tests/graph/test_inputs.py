from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from autoauto.graph.batch.rebatch import resolve_batch
from autoauto.graph.facts import infer_facts
from autoauto.graph.inputs.lengths import OpenAxes
from autoauto.graph.load import load_graph
from autoauto.records.errors import BadInput
from autoauto.records.layers import ModelInputs
from autoauto.records.model_inputs import model_inputs, read_model_inputs

Shape = Sequence[int | str | None]
IMAGE = ["batch", 3, "height", "width"]


def lengths(model: Any, given: ModelInputs) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs at two samples."""
    values = resolve_batch(model, given).at(2).values
    return {entry.name: values[entry.name].shape for entry in model.graph.input}


@pytest.mark.parametrize(
    "shape", [["height=32", "width=48"], ["height=32,width=48"], ["x=3x32x48"], ["x=3x32x48", "width=48"]]
)
def test_lengths_are_given_by_axis_or_by_input(shape: list[str], make: Any) -> None:
    assert lengths(make("Relu x > y", {"x": IMAGE}, "y"), read_model_inputs(shape)) == {"x": (2, 3, 32, 48)}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (["batch", 4], 0),
        (["N", 4], 0),
        ([None, 4], 0),
        (["unk__12", 4], 0),
        ([2, "batch", 4], 1),
        (["seq", "batch_size", 4], 1),
    ],
)
def test_the_batch_axis_by_its_name_or_position(shape: Shape, expected: int, make: Any) -> None:
    plain = resolve_batch(make("Relu x > y", {"x": shape}, "y"), model_inputs({"seq": 5} if "seq" in shape else {}))
    assert plain.batch.axes == (("x", expected),)
    assert plain.batch.fixed is None


def test_a_letter_behind_the_first_axis_is_a_length(make: Any) -> None:
    with pytest.raises(OpenAxes, match=r"'audio' \[1, N\]; N counts samples of a signal; try --shape N=16000"):
        resolve_batch(make("Relu audio > y", {"audio": [1, "N"]}, "y"))


def test_a_state_beside_an_input_has_its_batch_on_the_second_axis(make: Any) -> None:
    nodes = "Slice h a b c > one; Squeeze one c > s; Add x s > y"
    model = make(nodes, {"x": ["batch", 4], "h": [2, None, 4]}, "y", {"a": [0], "b": [1], "c": [0]})
    assert dict(resolve_batch(model).batch.axes) == {"x": 0, "h": 1}


def test_a_fixed_state_has_its_batch_where_other_batch_sizes_are_possible(make: Any) -> None:
    nodes = "Unsqueeze x zero > s; LSTM s w r - - h c > o n m hidden_size=4; Squeeze o axes > y"
    inputs = {"x": [1, 3], "h": [1, 1, 4], "c": [1, 1, 4]}
    weights = {"w": np.ones((1, 16, 3), np.float32), "r": np.ones((1, 16, 4), np.float32), "zero": [0], "axes": [1]}
    assert dict(resolve_batch(make(nodes, inputs, "y n m", weights)).batch.axes) == {"x": 0, "h": 1, "c": 1}


def test_the_batch_axis_may_be_given_or_denied(make: Any) -> None:
    model = make("Add x z > y", {"x": ["batch", 4], "z": ["rows", 4]}, "y")
    assert dict(resolve_batch(model, model_inputs(batch_axes={"z": 0})).batch.axes) == {"x": 0, "z": 0}
    shared = resolve_batch(model, model_inputs({"z": (1, 4)}, {"z": None}))
    assert dict(shared.batch.axes) == {"x": 0}
    assert shared.at(3).values["y"].shape == (3, 4)


def test_without_any_batch_axis_there_is_one_batch_size(make: Any) -> None:
    known = infer_facts(make("Relu x > y", {"x": [4]}, "y"), model_inputs(batch_axes={"x": None}))
    assert known.fixed_batch == "no input has a batch axis, try --batch-axis INPUT=AXIS"


def test_a_length_taken_for_the_batch_that_does_not_act_like_one_is_asked_for(make: Any) -> None:
    model = make("Transpose x > t; MatMul x t > y", {"x": ["tokens", 4]}, "y")
    with pytest.raises(BadInput, match=r"acts like a batch: .*; try --batch-axis x=none --shape x=128x4"):
        load_graph(model)
    assert load_graph(model, read_model_inputs(["x=128x4"], ["x=none"])).tensors[0].shape == (128, 4)


def test_a_sum_of_axes_follows_from_their_lengths(make: Any) -> None:
    inputs = {"x": ["batch", "past"], "m": ["batch", "past + now"], "z": ["batch", "now"]}
    model = make("Concat x z > c axis=1; Add c m > y", inputs, "y")
    given = model_inputs({"past": 7, "now": 1})
    assert lengths(model, given) == {"x": (2, 7), "m": (2, 8), "z": (2, 1)}


def test_all_open_axes_are_in_one_line_that_can_be_copied(make: Any) -> None:
    inputs = {"image": IMAGE, "audio": ["batch", "samples"], "ids": ["batch", "sequence"], "x": [None, 3, None, None]}
    nodes = "Relu image > a; Relu audio > b; Relu ids > c; Relu x > d"
    with pytest.raises(OpenAxes) as caught:
        resolve_batch(make(nodes, inputs, "a b c d"))
    assert str(caught.value).endswith(
        "'image' [batch, 3, height, width], 'audio' [batch, samples], 'ids' [batch, sequence], 'x' [?, 3, ?, ?]; "
        "height and width and axis 2 of 'x' and axis 3 of 'x' count pixels; sequence counts tokens or other steps; try "
        "--shape height=224 --shape width=224 --shape samples=16000 --shape sequence=128 --shape x=3x224x224"
    )


def test_lengths_to_try_are_those_that_fit_the_model(make: Any) -> None:
    """224 and 48 pixels are no 16 words of 64."""
    model = make("Reshape x s > y", {"x": ["batch", 1, "height", 32]}, "y", {"s": [0, 16, 64]})
    with pytest.raises(OpenAxes, match=r"try --shape height=32$"):
        resolve_batch(model)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["heigth=3"], "there is no open axis or input 'heigth'; did you mean 'height'?"),
        (["height=0", "width=3"], "a length is a whole number from 1 .*, got 0 for 'height'"),
        (["height=-3", "width=3"], "a length is a whole number from 1, .*; got --shape height=-3"),
        (["height=big"], "got --shape height=big"),
        (["height=3", "height=4"], "--shape gives 'height' two values"),
        (["height=3x4"], "axis 'height' has one length, got 3x4"),
        (["x=3x32x48", "width=40"], "axis 3 of input 'x' .* is 40 in the file or by its name, got 48"),
        (["x=4x32x48"], r"axis 1 of input 'x' \[batch, 3, height, width\] is 3 in the file .*, got 4"),
        (["x=2x3x32x48"], r"has 3 axes without its batch axis, got --shape x=2x3x32x48; try --shape x=3x224x224"),
        (["x=32"], "has 3 axes without its batch axis, got --shape x=32"),
        (["batch"], "--shape takes NAME=VALUE, got 'batch'; try --shape height=320"),
        (["=3"], "--shape takes NAME=VALUE"),
    ],
)
def test_a_wrong_length_is_one_clear_line(texts: list[str], message: str, make: Any) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        resolve_batch(make("Relu x > y", {"x": IMAGE}, "y"), read_model_inputs(texts))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["z=0"], "--batch-axis is for an input, there is none called 'z'; there are x"),
        (["x=4"], "input 'x' has 4 axes, got --batch-axis x=4"),
        (["x=first"], "--batch-axis x is an axis from 0, or none; got 'first'"),
    ],
)
def test_a_wrong_batch_axis_is_one_clear_line(axes: list[str], message: str, make: Any) -> None:
    with pytest.raises(BadInput, match=message):
        resolve_batch(make("Relu x > y", {"x": [1, 3, 8, 8]}, "y"), read_model_inputs([], axes))


def test_a_fixed_axis_of_one_among_lengths_that_were_given(make: Any) -> None:
    """Of (1, 1, 64, width) either axis of length 1 may be left out; the first one is the batch."""
    model = make("Relu x > y", {"x": [1, 1, 64, "image_width"]}, "y")
    assert lengths(model, read_model_inputs(["x=1x64x160"])) == {"x": (2, 1, 64, 160)}


@pytest.mark.parametrize(
    ("inputs", "asked"),
    [
        ({"x": ["num_nodes", 4], "e": ["num_edges", 4], "g": ["num_graphs", 4]}, "num_graphs aside: 'x' .* 'e'"),
        ({"x": ["rows", 4], "e": ["cols", 4]}, "the batch axis rows aside: 'e'"),
        ({"x": ["batch", 4], "e": ["edges", 4]}, "the batch axis aside: 'e'"),
    ],
)
def test_first_axes_of_other_names_than_the_batch_need_lengths(inputs: dict[str, Shape], asked: str, make: Any) -> None:
    nodes = "; ".join(f"Relu {name} > {name}y" for name in inputs)
    with pytest.raises(OpenAxes, match=asked):
        resolve_batch(make(nodes, inputs, " ".join(f"{name}y" for name in inputs)))


@pytest.mark.parametrize(
    "names", [("encoder_batch", "decoder_batch"), ("x_dynamic_axes_1", "z_dynamic_axes_1"), ("batch", None)]
)
def test_first_axes_that_say_they_are_the_batch_or_nothing_are_the_batch(names: Shape, make: Any) -> None:
    model = make("Add x z > y", {"x": [names[0], 4], "z": [names[1], 4]}, "y")
    assert dict(resolve_batch(model).batch.axes) == {"x": 0, "z": 0}


def test_symbols_of_torch_are_one_batch_where_only_they_differ(make: Any) -> None:
    model = make("Add x m > y", {"x": ["s10", "s12"], "m": ["s86", "s12"]}, "y")
    with pytest.raises(OpenAxes, match=r"the batch axis s10 aside: .*; try --shape s12=64$"):
        resolve_batch(model)
    assert dict(resolve_batch(model, model_inputs({"s12": 8})).batch.axes) == {"x": 0, "m": 0}
    assert "samples lie along s10 and s86" in load_graph(model, model_inputs({"s12": 8})).notes
    assert dict(resolve_batch(model, model_inputs({"s12": 8, "s86": 1})).batch.axes) == {"x": 0}


def test_which_axes_are_the_batch_is_said_where_names_differ(make: Any) -> None:
    model = make("Add x z > y", {"x": ["encoder_batch", 4], "z": ["decoder_batch", 4]}, "y")
    assert "samples lie along encoder_batch and decoder_batch" in load_graph(model).notes


def test_a_batch_that_stays_as_the_file_fixes_it_is_one_sample_and_said(make: Any) -> None:
    graph = load_graph(make("Softmax x > y axis=0", {"x": [4, 2]}, "y"))
    assert graph.notes == ("a sample is all that the inputs hold, as 4 along axis 0 of 'x': the file fixes them",)


@pytest.mark.parametrize("shape", [["batch=4"], ["batch=4", "edges=8"]])
def test_a_length_of_the_batch_axis_is_refused(shape: list[str], make: Any) -> None:
    model = make("Relu x > y; Relu e > z", {"x": ["batch", 4], "e": ["edges", 4]}, "y z")
    with pytest.raises(BadInput, match=r"^'batch' is the batch axis, its length is --batch-size, got --shape batch=4"):
        resolve_batch(model, read_model_inputs(shape))


def test_a_first_axis_whose_length_was_given_is_no_batch(make: Any) -> None:
    known = infer_facts(make("Relu x > y", {"x": ["tokens", 4]}, "y"), read_model_inputs(["tokens=128"]))
    assert known.fixed_batch == "no input has a batch axis, try --batch-axis INPUT=AXIS"
    assert known.facts["y"].shape == (128, 4)


def test_where_no_length_fits_the_reason_is_said(make: Any) -> None:
    model = make("Reshape x s > y", {"x": ["batch", "height", 32]}, "y", {"s": [0, 7, 11]})
    with pytest.raises(
        OpenAxes, match=r"none of 15 that were tried fits: the shapes at node 'Reshape_0' .* do not fit"
    ):
        resolve_batch(model)


@pytest.mark.parametrize("where", ["graph", "axis of an input", "axis of an output"])
def test_a_name_that_is_no_text_is_refused(where: str, make: Any) -> None:
    model = make("Relu x > y", {"x": ["@@@", 4]}, "y")
    model.graph.output[0].type.tensor_type.shape.dim.add(dim_param="###")
    model.graph.name = "%%%"
    mark = {"graph": b"%%%", "axis of an input": b"@@@", "axis of an output": b"###"}[where]
    model = type(model).FromString(model.SerializeToString().replace(mark, b"\xff\xfe\xfd"))
    with pytest.raises(BadInput, match="every name in a model must be text"):
        resolve_batch(model)
