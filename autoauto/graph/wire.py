"""Write an ONNX file around weights that are serialised already: a message would copy them again and again."""

from __future__ import annotations

from collections.abc import Sequence

import onnx


def with_weights(model: onnx.ModelProto, weights: Sequence[bytes]) -> bytes:
    """Serialise a model and put `weights`, serialised tensors, behind its other initializers.

    A message within a message is its field number, how many bytes follow, and these
    (https://protobuf.dev/programming-guides/encoding); the fields of a message may come in any order.
    """
    shell = onnx.ModelProto()
    shell.CopyFrom(model)
    shell.ClearField("graph")
    inside = [model.graph.SerializeToString()]
    for weight in weights:
        inside += [_header(onnx.GraphProto.INITIALIZER_FIELD_NUMBER, len(weight)), weight]
    return b"".join(
        [shell.SerializeToString(), _header(onnx.ModelProto.GRAPH_FIELD_NUMBER, sum(map(len, inside))), *inside]
    )


def varint(number: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first; all but the last have the eighth bit set.

    >>> varint(300).hex()
    'ac02'
    """
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def _header(field: int, n_bytes: int) -> bytes:
    return varint(field << 3 | 2) + varint(n_bytes)
