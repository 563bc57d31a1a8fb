"""What is known of one tensor, `Value`, and how messages name a node."""

from __future__ import annotations

from typing import NamedTuple

import onnx
from onnx import TensorProto

from autoauto.graph.onnx_file import first_output
from autoauto.records.units import Array


class Value(NamedTuple):
    """What is known about one tensor.

    Where lengths depend on data, `shape` is an upper bound, and so is data made of it.
    """

    dtype: int  # a `TensorProto.DataType`
    shape: tuple[int, ...]
    data: Array | None  # its elements, where they are constant and few
    constant: bool  # whether the elements depend on no input of the model
    data_dependent: bool = False  # lengths depend on data


def is_float(dtype: int) -> bool:
    """Whether `dtype`, a `TensorProto.DataType`, is a floating-point type."""
    return str(TensorProto.DataType.Name(dtype)).startswith(("FLOAT", "BFLOAT", "DOUBLE"))


def operator_name(node: onnx.NodeProto) -> str:
    """The operator with its domain, if that is not the standard one."""
    if node.domain:
        return f"{node.domain}.{node.op_type}"
    return str(node.op_type)


def label(node: onnx.NodeProto) -> str:
    """How a message names a node."""
    return f"node {node.name or first_output(node)!r} ({operator_name(node)})"
