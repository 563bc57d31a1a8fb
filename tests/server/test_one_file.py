"""A model that names other files is known wherever it does so, and one that does not is never taken for one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from autoauto.records.errors import UnreadableModel
from autoauto.records.installation import builtin_models
from autoauto.server.store import one_file
from autoauto.server.store.one_file import NamesOtherFiles, check_one_file


def check(content: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        check_one_file(file)


def elsewhere(location: str = "other.bin", **others: str) -> TensorProto:
    """A tensor whose values lie in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **others}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def here() -> TensorProto:
    return numpy_helper.from_array(np.zeros(4, np.float32), "location")


def sparse(values: TensorProto, indices: TensorProto) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=values, indices=indices, dims=[4])


def graph(tensor: TensorProto) -> onnx.GraphProto:
    return onnx.GraphProto(name="g", initializer=[tensor])


def node(**attribute: object) -> onnx.NodeProto:
    return onnx.NodeProto(op_type="Constant", output=["y"], attribute=[AttributeProto(name="value", **attribute)])  # type: ignore[arg-type]


def of_nodes(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    return onnx.ModelProto(graph=onnx.GraphProto(name="g", node=nodes))


HOLDERS: dict[str, Callable[[TensorProto], onnx.ModelProto]] = {
    "an initializer": lambda t: onnx.ModelProto(graph=graph(t)),
    "values of a sparse initializer": lambda t: onnx.ModelProto(
        graph=onnx.GraphProto(sparse_initializer=[sparse(t, here())])
    ),
    "indices of a sparse initializer": lambda t: onnx.ModelProto(
        graph=onnx.GraphProto(sparse_initializer=[sparse(here(), t)])
    ),
    "a constant": lambda t: of_nodes(node(t=t)),
    "a list of constants": lambda t: of_nodes(node(tensors=[here(), t])),
    "a sparse constant": lambda t: of_nodes(node(sparse_tensor=sparse(t, here()))),
    "a list of sparse constants": lambda t: of_nodes(node(sparse_tensors=[sparse(here(), t)])),
    "a body": lambda t: of_nodes(node(g=graph(t))),
    "a list of bodies": lambda t: of_nodes(node(graphs=[graph(t)])),
    "a body of a body": lambda t: of_nodes(node(g=onnx.GraphProto(node=[node(g=graph(t))]))),
    "a function": lambda t: onnx.ModelProto(functions=[onnx.FunctionProto(name="f", node=[node(t=t)])]),
    "a default of a function": lambda t: onnx.ModelProto(
        functions=[onnx.FunctionProto(name="f", attribute_proto=[AttributeProto(name="a", t=t)])]
    ),
    "the graph of a training step": lambda t: onnx.ModelProto(
        training_info=[onnx.TrainingInfoProto(algorithm=graph(t))]
    ),
    "the graph before training": lambda t: onnx.ModelProto(
        training_info=[onnx.TrainingInfoProto(initialization=graph(t))]
    ),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_tensor_of_another_file_is_found_wherever_it_is(holder: str) -> None:
    check(HOLDERS[holder](here()).SerializeToString())
    with pytest.raises(NamesOtherFiles, match="one file with its weights"):
        check(HOLDERS[holder](elsewhere()).SerializeToString())


def tensor_fields(message: type[onnx.ModelProto]) -> Iterator[tuple[str, str]]:
    """Every field of onnx's messages that is a tensor, and the message that has it."""
    waiting, seen = [message.DESCRIPTOR], {message.DESCRIPTOR.full_name}
    while waiting:
        each = waiting.pop()
        for field in each.fields:
            inner = field.message_type
            if inner is None:
                continue
            if inner.name == "TensorProto":
                yield each.name, field.name
            elif inner.full_name not in seen:
                seen.add(inner.full_name)
                waiting.append(inner)


def test_the_holders_above_are_all_that_this_onnx_has() -> None:
    assert set(tensor_fields(onnx.ModelProto)) == {
        ("GraphProto", "initializer"),
        ("AttributeProto", "t"),
        ("AttributeProto", "tensors"),
        ("SparseTensorProto", "values"),
        ("SparseTensorProto", "indices"),
    }


@pytest.mark.parametrize("location", ["/etc/passwd", "../other/model.onnx", "model.onnx", "*/_ORT_MEM_ADDR_/*", ""])
def test_it_does_not_matter_what_the_name_is(location: str) -> None:
    with pytest.raises(NamesOtherFiles):
        check(HOLDERS["an initializer"](elsewhere(location, offset="0", length="16")).SerializeToString())


def test_a_name_without_the_mark_of_another_file_counts_too() -> None:
    tensor = elsewhere()
    tensor.data_location = TensorProto.DEFAULT
    with pytest.raises(NamesOtherFiles):
        check(HOLDERS["a constant"](tensor).SerializeToString())


def test_a_message_that_is_written_in_two_pieces_is_walked_whole() -> None:
    """Protobuf joins a field that is there twice."""
    first = onnx.ModelProto(graph=onnx.GraphProto(name="g")).SerializeToString()
    with pytest.raises(NamesOtherFiles):
        check(first + onnx.ModelProto(graph=graph(elsewhere())).SerializeToString())


@pytest.mark.parametrize("name", ["resnet50", "gpt2-small"])
def test_models_that_come_with_the_package_are_one_file(name: str) -> None:
    check(builtin_models()[name].read_bytes())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"location = 3\n",  # TOML
        b"location" + bytes(20),
        b"\x3b location \x3c",  # a group, which ONNX has not
        b"\x3a\xff\xff\xff\xff\x7f location",  # longer than the file
        b"\xba\x80\x80\x80\x80\x80\x00\x02\x08\x07 location",  # a tag of more than 32 bits
        HOLDERS["an initializer"](elsewhere()).SerializeToString()[:-3],
    ],
)
def test_what_is_no_complete_file_is_refused_or_names_none(content: bytes) -> None:
    with pytest.raises(UnreadableModel):
        check(content)


def test_a_file_of_endless_fields_costs_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_file, "MAX_FIELDS", 100)
    model = of_nodes(node(ints=range(200), doc_string="location"))
    with pytest.raises(UnreadableModel, match="at most 100 fields"):
        check(model.SerializeToString())


def test_a_model_that_onnx_splits_is_refused_and_the_whole_one_is_not(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("split")
    weight = numpy_helper.from_array(np.zeros((40, 40), np.float32), "w")
    entries = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 40]) for name in ("x", "y")]
    made = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", entries[:1], entries[1:], [weight])
    model = helper.make_model(made)
    onnx.save_model(model, folder / "whole.onnx")
    onnx.save_model(model, folder / "split.onnx", save_as_external_data=True, size_threshold=0, location="split.bin")
    with (folder / "whole.onnx").open("rb") as whole, (folder / "split.onnx").open("rb") as split:
        check_one_file(whole)
        with pytest.raises(NamesOtherFiles):
            check_one_file(split)
