"""Files that a test builds are read, compared with ONNX Runtime, measured and exported; nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")


def write_file(path: Path, shape: list[int | str], nodes: list[onnx.NodeProto], weight: tuple[int, ...]) -> Path:
    """A model of one input `x`, one weight `w` and the output `y`."""
    values = np.random.default_rng(0).standard_normal(weight).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def row(lines: list[str], name: str) -> str:
    (line,) = (line for line in lines if line.startswith(f"{name} "))
    return line


@pytest.mark.slow
def test_files_are_read_compared_with_onnx_runtime_measured_and_exported(
    run_script: Callable[..., list[str]], tmp_path: Path
) -> None:
    dense = [helper.make_node("MatMul", ["x", "w"], ["h"], "dense"), helper.make_node("Tanh", ["h"], ["y"], "tanh")]
    image = [helper.make_node("Conv", ["x", "w"], ["h"], "conv"), helper.make_node("Relu", ["h"], ["y"], "relu")]
    fixed = write_file(tmp_path / "fixed.onnx", ["batch", 16], dense, (16, 8))
    open_axes = write_file(tmp_path / "open.onnx", ["batch", 3, "height", "width"], image, (4, 3, 3, 3))
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(fixed.read_bytes())

    lines = run_script("real_files", "--files", str(fixed), str(copy), str(open_axes))

    assert re.search(r" fixed +2 +0\.0% .* 3 equal +3 equal +yes +yes +yes$", row(lines, "fixed.onnx"))
    assert re.search(r"height=\d+ width=\d+ +2 .* 3 equal +3 equal +yes +yes +yes$", row(lines, "open.onnx"))
    assert not any(line.startswith("copy.onnx") for line in lines)
    assert lines[-1].startswith("2 files: 2 read, 0 with a wrong shape, 2 with equal shapes")


@pytest.mark.slow
def test_a_file_that_is_not_read_says_why(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    path = write_file(tmp_path / "odd.onnx", ["batch", 16], [helper.make_node("Odd", ["x", "w"], ["y"])], (4,))
    lines = run_script("real_files", "--read-only", "--files", str(path))
    assert "refused: " in row(lines, "odd.onnx")
    assert lines[-1].startswith("1 files: 0 read")
