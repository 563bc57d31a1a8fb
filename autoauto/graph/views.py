"""Which nodes only give a tensor another name or shape, so that no device computes anything for them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from autoauto.graph.facts import Fact

_ALWAYS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_WHEN_EQUAL = frozenset({"Expand", "Tile"})
_WHEN_ALONE = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
_WIDE_INTEGERS = frozenset({"int32", "int64", "uint32", "uint64"})  # 32 bits on the device, all of them


def is_view(node: onnx.NodeProto, facts: Mapping[str, Fact]) -> bool:
    """Whether the first output of a node is its first input under another shape."""
    if not node.input or node.input[0] not in facts or node.output[0] not in facts:
        return False
    op, before, after = node.op_type, facts[node.input[0]], facts[node.output[0]]
    return (
        op in _ALWAYS
        or (op in _WHEN_EQUAL and before[:2] == after[:2])
        or (op in _WHEN_ALONE and len(node.input) == 1)
        or (op == "Cast" and (before.dtype == after.dtype or {before.dtype, after.dtype} <= _WIDE_INTEGERS))
        or (op == "Dropout" and not _is_training(node, facts) and not any(name in facts for name in node.output[1:]))
        or (op == "Transpose" and _moves_ones(before, _order(node, len(before.shape))))
    )


def is_weight_view(node: onnx.NodeProto, facts: Mapping[str, Fact]) -> bool:
    """Whether a node does to a weight what can be done once, when the model is compiled, without a new weight."""
    return node.op_type == "Transpose" or is_view(node, facts)


def _order(node: onnx.NodeProto, rank: int) -> tuple[int, ...]:
    """The permutation of a Transpose."""
    given = next((tuple(entry.ints) for entry in node.attribute if entry.name == "perm"), ())
    return given or tuple(range(rank))[::-1]


def _moves_ones(before: Fact, permutation: tuple[int, ...]) -> bool:
    """Whether a permutation moves axes of length 1 only, the batch axis aside."""
    long = [axis for axis in permutation if before.shape[axis] != 1 or axis == before.batch_axis]
    return long == sorted(long)


def _is_training(node: onnx.NodeProto, facts: Mapping[str, Fact]) -> bool:
    """Whether a Dropout drops anything: its third operand, since operator set 12, is true or not known."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    data = facts[node.input[2]].data
    return data is None or bool(data)
