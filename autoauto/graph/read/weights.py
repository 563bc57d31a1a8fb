"""The values of a model's weights, which `read_model` leaves in the file: `Weights`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from zlib import crc32

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

from autoauto.graph.read.onnx_file import first_line, is_weight, parse, stored_tensors
from autoauto.records.arrays import Array
from autoauto.records.errors import UnreadableModel


class Weights:
    """The values of stored tensors; the file is read at the first request.

    Args:
        path: of the file; external data lie beside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def serialised(self, tensor: onnx.TensorProto) -> bytes:
        """A stored tensor of the model that `read_model` returned, or of its plain form, with its values inside.

        Raises:
            UnreadableModel: the file has changed, or what holds the values is missing or too short.
        """
        stored = self._in_file(tensor) if is_weight(tensor) and not tensor.HasField("raw_data") else tensor
        is_external = stored.data_location == onnx.TensorProto.EXTERNAL
        try:
            stored = self._loaded(stored) if is_external else stored
            onnx.checker.check_tensor(stored)
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            where = f"data file {_location(stored)!r} beside {self._path}" if is_external else str(self._path)
            raise UnreadableModel(
                f"a model that runs needs the values of its weights, those of {tensor.name!r} cannot be read from "
                f"{where}: {first_line(error)}"
            ) from error
        stored.name = tensor.name  # the tensor in a Constant node has no name, or another one
        return bytes(stored.SerializeToString())

    @cached_property
    def _tensors(self) -> Sequence[onnx.TensorProto]:
        return list(stored_tensors(parse(self._path)))

    def _in_file(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        index = int(tensor.doc_string)
        if index < len(self._tensors):
            stored = self._tensors[index]
            if (stored.data_type, stored.dims) == (tensor.data_type, tensor.dims):
                return stored
        raise UnreadableModel(f"{self._path} does not hold weight {tensor.name!r} any more; it has changed")

    def _loaded(self, stored: onnx.TensorProto) -> onnx.TensorProto:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(stored)
        load_external_data_for_tensor(tensor, str(self._path.parent))
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.ClearField("external_data")
        return tensor


def fill_value(node: onnx.NodeProto) -> Array:
    """The one element that a ConstantOfShape node repeats, zero where it names none."""
    filled = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
    return numpy_helper.to_array(filled).reshape(()) if filled is not None else np.zeros((), np.float32)


def stand_in_weight(name: str, shape: tuple[int, ...], value: Array) -> onnx.TensorProto:
    """A weight that stands in for one that repeats `value`: uniform noise around 0 whose root mean square is `value`.

    A runtime would store equal weights once, and read them from its caches. Weights of one sign would add up to outputs
    that are all alike, of which rounding leaves nothing to compare.
    """
    noise = np.random.default_rng(crc32(name.encode())).random(shape, np.float32)
    noise -= np.float32(0.5)
    noise *= np.float32(2.0 * 3.0**0.5) * value.astype(np.float32)
    return numpy_helper.from_array(noise.astype(value.dtype, copy=False), name)


def _location(stored: onnx.TensorProto) -> str:
    return next((entry.value for entry in stored.external_data if entry.key == "location"), "")
