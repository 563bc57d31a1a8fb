"""Small ONNX files for the tests of this room, and ONNX Runtime to run them."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autoauto.graph.batch.rebatch import rebatch
from autoauto.records.installation import builtin_models
from autoauto.records.units import Array

Build = Callable[..., onnx.ModelProto]

TYPES = {
    "": onnx.TensorProto.FLOAT,
    "bool": onnx.TensorProto.BOOL,
    "int": onnx.TensorProto.INT64,
    "int32": onnx.TensorProto.INT32,
    "int8": onnx.TensorProto.INT8,
    "uint8": onnx.TensorProto.UINT8,
}
NARROW = (np.int8, np.int32, np.uint8)

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def make(
    program: str,
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: str,
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of nodes "Op inputs > outputs attribute=value", "-" for an omitted input, with ";" between nodes.

    An operator of another domain is "domain.Op". Ends are floats, "int:x" is one of int64, "uint8:x" one of bytes;
    constants of integers are int64, but for arrays of a narrower type.
    """
    nodes = [_node(index, *line.partition(" > ")[::2]) for index, line in enumerate(program.split("; "))]
    entries = [
        helper.make_tensor_value_info(
            name.rpartition(":")[2],
            TYPES[name.rpartition(":")[0]],
            list(shape),
        )
        for name, shape in inputs.items()
    ]
    stored = [
        numpy_helper.from_array(np.asarray(value, _stored_type(value)), name)
        for name, value in (constants or {}).items()
    ]
    ends = [
        helper.make_tensor_value_info(name.rpartition(":")[2], TYPES[name.rpartition(":")[0]], None)
        for name in outputs.split()
    ]
    graph = helper.make_graph(nodes, "test", entries, ends, stored)
    domains = {node.domain: 1 for node in nodes} | {"": opset}
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*each) for each in domains.items()], ir_version=8
    )


def _stored_type(value: Any) -> type | None:
    is_narrow = isinstance(value, np.ndarray | np.generic) and value.dtype in NARROW
    return np.int64 if np.asarray(value).dtype.kind in "iu" and not is_narrow else None


def _node(index: int, left: str, right: str) -> onnx.NodeProto:
    op, *read = left.split()
    written = [word if word != "-" else "" for word in right.split() if "=" not in word]
    domain, _, op = op.rpartition(".")
    node = helper.make_node(
        op, ["" if name == "-" else name for name in read], written, f"{op}_{index}", domain=domain or None
    )
    for word in right.split()[len(written) :]:
        key, _, text = word.partition("=")
        try:
            value = literal_eval(text)
        except (SyntaxError, ValueError):
            value = text
        node.attribute.append(helper.make_attribute(key, value))
    return node


def run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs of ONNX Runtime."""
    runtime = pytest.importorskip("onnxruntime", reason="re-batched files are compared in ONNX Runtime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, dict(feeds))]


def sample(model: onnx.ModelProto, generator: np.random.Generator, n_indices: int = 2) -> dict[str, Array]:
    """Random inputs of a model whose shapes are fixed; an open axis is 1 long."""
    feeds = {}
    for entry in model.graph.input:
        shape = [dim.dim_value or 1 for dim in entry.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
        if dtype.kind in "iu":
            feeds[entry.name] = generator.integers(0, 99 if dtype.itemsize == 1 else n_indices, shape).astype(dtype)
        else:
            feeds[entry.name] = generator.standard_normal(shape).astype(dtype)
    return feeds


def close(a: Array, b: Array) -> bool:
    """Whether two results agree, small differences measured against the largest element."""
    return np.allclose(a, b, rtol=1e-3, atol=1e-4 * float(np.abs(b).max(initial=1e-3)))


def lies_in(batched: Array, singles: Sequence[Array]) -> bool:
    """Whether the results of single samples lie side by side in the batched one, on some axis, at some distance."""
    count = len(singles)
    if batched.shape == singles[0].shape:
        return all(close(batched, result) for result in singles)
    for axis, (length, single) in enumerate(zip(batched.shape, singles[0].shape, strict=True)):
        if length != count * single:
            continue
        for outer in (number for number in range(1, single + 1) if single % number == 0):
            parts = batched.reshape(*batched.shape[:axis], outer, count, single // outer, *batched.shape[axis + 1 :])
            samples = [part.reshape(singles[0].shape) for part in np.moveaxis(parts, axis + 1, 0)]
            if all(close(a, b) for a, b in zip(samples, singles, strict=True)):
                return True
    return False


def check_rebatched(model: onnx.ModelProto, count: int = 3, *, differ: bool = True) -> None:
    """Compare `count` batches, each run through the file itself, with all of them in the re-batched file at once."""
    generator = np.random.default_rng(0)
    shared = {name: value for name, value in sample(model, generator).items() if value.ndim == 0}
    singles = [sample(model, generator) | shared for _ in range(count)]
    own = next(iter(singles[0].values())).shape[0]
    batched = rebatch(model, own * count)
    onnx.checker.check_model(batched, full_check=True)
    expected = [run(model, feeds) for feeds in singles]
    if differ:
        assert any(not close(*pair) for pair in zip(expected[0], expected[1], strict=True)), "samples must differ"
    joined = {name: np.concatenate([feeds[name] for feeds in singles]) for name in singles[0] if name not in shared}
    for index, result in enumerate(run(batched, joined | shared)):
        assert lies_in(result, [outputs[index] for outputs in expected]), f"output {index} of {result.shape}"


EQUAL_BLOCKS = {"bert-large-384-squad": ("layer_norm_2", "layer_norm_46"), "gpt2-small": ("add_174", "add_1632")}
"""What the first of a deep model's equal blocks writes, and what the last one reads."""


def builtin_of_two_blocks(name: str) -> onnx.ModelProto:
    """A built-in model; of one in `EQUAL_BLOCKS` the first and the last block only, as others have the same nodes."""
    model = onnx.load(builtin_models()[name])
    written, read = EQUAL_BLOCKS.get(name, ("", ""))
    needed, nodes = {entry.name for entry in model.graph.output}, []
    for node in reversed(model.graph.node):
        if not read or needed & {*node.output}:
            node.input[:] = [written if name == read else name for name in node.input]
            needed |= {*node.input}
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    return model


@pytest.fixture(scope="session")
def builtin() -> Callable[[str], onnx.ModelProto]:
    return builtin_of_two_blocks


@pytest.fixture(name="make", scope="session")
def _make() -> Build:
    return make


@pytest.fixture(scope="session")
def check() -> Callable[..., None]:
    return check_rebatched


@pytest.fixture
def save(tmp_path: Path) -> Callable[[onnx.ModelProto], str]:
    """Write a model to a file and return its path."""

    def write(model: onnx.ModelProto) -> str:
        path = tmp_path / "model.onnx"
        onnx.save_model(model, path)
        return str(path)

    return write


@pytest.fixture(name="sample", scope="session")
def _sample() -> Callable[..., dict[str, Array]]:
    return sample


@pytest.fixture(scope="session")
def execute() -> Callable[..., list[Array]]:
    return run


@pytest.fixture(scope="session")
def light() -> Callable[[str], Path]:
    """The path of a light model in the onnx wheel."""

    def find(name: str) -> Path:
        (path,) = LIGHT.glob(f"light_*{name}.onnx")
        return path

    return find
