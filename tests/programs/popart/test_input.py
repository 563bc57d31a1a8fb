from typing import Any

import pytest

from autoauto.programs.popart.graph import PipelineLayer, PipelineTensor, TensorKind
from autoauto.programs.popart.input import read_pipeline, simple_pipeline
from autoauto.records.errors import BadInput


def test_every_field_is_read() -> None:
    layer = {"name": "A", "inputs": ["in", "w"], "outputs": ["a", "b"], "device": 1, "stage": 0}
    layer |= {"gradient_needs": ["w", "b"], "recompute": True}
    tensors = [
        {"name": "w", "kind": "variable"},
        {"name": "in", "kind": "stream", "streamed_to": [1]},
        {"name": "a", "anchored": True},
    ]
    graph = read_pipeline({"layers": [layer], "tensors": tensors, "forward_only_program": True})
    assert graph.layers == (PipelineLayer("A", ("in", "w"), ("a", "b"), 0, 1, ("w", "b"), recompute=True),)
    assert graph.tensors == {
        "in": PipelineTensor("in", TensorKind.STREAM, streamed_to=(1,)),
        "w": PipelineTensor("w", TensorKind.VARIABLE),
        "a": PipelineTensor("a", is_anchor=True),
        "b": PipelineTensor("b"),
    }
    assert graph.forward_only_program


def test_names_of_layers_are_enough_for_a_chain() -> None:
    graph = read_pipeline([{"layers": [{"name": "A"}, {"name": "B"}]}])
    assert graph.layers == (
        PipelineLayer("A", ("in",), ("A:0",), None, None, ("in",)),
        PipelineLayer("B", ("A:0",), ("B:0",), None, None, ("A:0",)),
    )
    assert graph.tensors["in"].kind is TensorKind.STREAM


def test_a_tensor_that_is_read_twice_is_one_input() -> None:
    assert read_pipeline({"layers": [{"name": "A", "inputs": ["x", "x"]}]}).layers[0].inputs == ("x",)


def test_simple_pipelines_have_names_for_any_number_of_devices() -> None:
    assert [layer.name for layer in simple_pipeline(28).layers[-3:]] == ["Z", "L26", "L27"]
    with pytest.raises(BadInput, match="at least 1 device, got 0"):
        simple_pipeline(0)


def layers(*entries: dict[str, Any], **top: object) -> dict[str, Any]:
    return {"layers": list(entries), **top}


A = {"name": "A"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (7, "pipeline: the top level must be an object with the fields layers, got 7"),
        (
            {"layer": []},
            "pipeline: the top level must have only the fields .*, got layer; did you mean 'layers'",
        ),
        ({}, "pipeline: the top level must have the field layers"),
        ({"layers": []}, r"pipeline: layers must be a list of 1 or more, got \[\]"),
        ([layers(A), layers(A)], "a program holds a single pipeline, got 2"),
        ([], "a program holds a single pipeline, got 0"),
        (layers(A, {}), r"pipeline: layers\[1\] must have the field name"),
        (layers({"name": "A'"}), r"pipeline: layers\[0\]: name must be printable, without ' @ ~ \(, .* got \"A'\""),
        (layers({"name": ""}), r"layers\[0\]: name must be printable, .* got ''"),
        (layers({"name": "A\n"}), r"layers\[0\]: name must be printable, .* got 'A\\n'"),
        (layers(A | {"inputs": "in"}), r"layers\[0\].inputs must be a list, got 'in'"),
        (layers(A | {"inputs": ["in", "b@"]}), r"layers\[0\]: inputs must be printable, .* got 'b@'"),
        (layers(A | {"outputs": [1]}), r"layers\[0\].outputs\[0\] must be a text, got 1"),
        (layers(A | {"stage": True}), r"layers\[0\].stage must be a whole number, got True"),
        (layers(A | {"device": -1}), r"layers\[0\].device must be a whole number from 0 to .*, got -1"),
        (layers(A | {"recompute": 1}), r"layers\[0\].recompute must be true or false, got 1"),
        (layers(A | {"gradient_needs": ["b"]}), r"gradient_needs must be some of in, A:0, got \['b'\]"),
        (layers(A | {"colour": "red"}), r"layers\[0\] must have only the fields name, .*, got colour"),
        (layers(A, A), "every name must stand there once, got A more often"),
        (layers(A, {"name": "B", "outputs": ["A:0"]}), "every output must stand there once, got A:0 more often"),
        (layers({"name": "A", "inputs": ["B:0"]}, {"name": "B", "inputs": []}), "A reads B:0 of B; reorder the layers"),
        (layers({"name": "A", "inputs": ["A:0"]}), "A reads A:0 of A; reorder"),
        (layers(A, tensors=[{"name": "b"}]), "pipeline.tensors must name what layers read or make, got b"),
        (layers(A, tensors=[{"name": "A:0", "kind": "stream"}]), "is an activation, got stream for A:0"),
        (layers(A, tensors=[{"name": "in"}]), "is an activation, got activation for in"),
        (layers(A, tensors=[{"name": "in", "kind": "weight"}]), r"tensors\[0\].kind must be one of .* got 'weight'"),
        (layers(A, tensors=[{"name": "in", "kind": []}]), r"tensors\[0\].kind must be one of .* got \[\]"),
        (layers(A, tensors=[{"name": "in", "kind": "variable", "anchored": True}]), "got the variable in"),
        (
            layers(A, tensors=[{"name": "in", "streamed_to": ["0"]}]),
            r"streamed_to\[0\] must be a whole number from 0 to .*, got '0'",
        ),
        (layers(A, tensors=[{"name": "A:0"}, {"name": "A:0"}]), "tensors: every name must stand there once, got A:0"),
        (layers(A, tensors={}), "pipeline: tensors must be a list, got an object with no field"),
        (layers(A, forward_only_program="yes"), "pipeline: forward_only_program must be true or false, got 'yes'"),
    ],
)
def test_wrong_input_is_refused_in_one_line(document: object, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refusal:
        read_pipeline(document)
    assert "\n" not in str(refusal.value)


def test_a_long_value_is_cut() -> None:
    with pytest.raises(BadInput) as refusal:
        read_pipeline({"layers": "x" * 10_000})
    assert len(str(refusal.value)) < 200
