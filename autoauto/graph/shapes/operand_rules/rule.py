"""What a rule of operands is, `OperandRule`, and what rules refuse: lengths, shapes, elements, groups and heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx

from autoauto.graph.shapes.shape_rule import Operands, Shape, given

Required = tuple[int, Sequence[int | None]]
"""An operand, and the shape that it must have: None is any length. An operand that is left out meets them all."""
OperandRule = Callable[[onnx.NodeProto, Operands], Iterator[Required] | None]


def agree(shape: Shape, wanted: Sequence[int | None]) -> bool:
    """Whether a shape is the one that is asked for, where None is any length."""
    if len(shape) != len(wanted):
        return False
    return all(asked in (None, length) for length, asked in zip(shape, wanted, strict=True))


def said(shape: Sequence[int | None]) -> str:
    """A shape that is asked for, in words."""
    return f"[{', '.join('any' if length is None else str(length) for length in shape)}]"


def refuse_unless_it_broadcasts(node: onnx.NodeProto, operands: Operands, index: int, shape: Shape) -> None:
    """Refuse an operand that does not become `shape` by repeating axes of length 1; this goes in one direction."""
    value = given(operands, index)
    if value is None:
        return
    tail = shape[len(shape) - len(value.shape) :] if len(value.shape) <= len(shape) else None
    if tail is None or any(length not in (1, wanted) for length, wanted in zip(value.shape, tail, strict=True)):
        raise ValueError(f"operand {node.input[index]!r} must broadcast to {list(shape)}, it is {list(value.shape)}")


def refuse_unless_one_of(node: onnx.NodeProto, operands: Operands, index: int, *shapes: Sequence[int | None]) -> None:
    """Refuse an operand that has none of the shapes that its operator defines for it."""
    value = given(operands, index)
    if value is not None and not any(agree(value.shape, shape) for shape in shapes):
        raise ValueError(
            f"operand {node.input[index]!r} must be {' or '.join(map(said, shapes))}, it is {list(value.shape)}"
        )


def refuse_unless_elements(node: onnx.NodeProto, operands: Operands, index: int, *n_elements: int) -> None:
    """Refuse an operand that has none of these numbers of elements, in any number of axes."""
    value = given(operands, index)
    if value is not None and int(np.prod(value.shape)) not in n_elements:
        wanted = " or ".join(map(str, dict.fromkeys(n_elements)))
        raise ValueError(f"operand {node.input[index]!r} must have {wanted} elements, it is {list(value.shape)}")


def refuse_unless_equal_groups(channels: int, n_groups: int) -> None:
    """Refuse channels that do not fall into equal groups."""
    if channels % n_groups:
        raise ValueError(f"{channels} channels must fall into {n_groups} equal groups")


def refuse_unless_shared(n_heads: int, n_kv_heads: int) -> None:
    """Refuse heads of queries of which no whole groups share the heads of keys."""
    if n_heads % n_kv_heads:
        raise ValueError(f"the heads of queries must be a multiple of those of keys, {n_heads} is not of {n_kv_heads}")


def pasts(
    operands: Operands, index: int, heads: tuple[int, int], sizes: tuple[int | None, int | None]
) -> Iterator[Required]:
    """Keys of the past and their values: of all samples and heads, as many of both."""
    keys = given(operands, index)
    n_past = None if keys is None else keys.shape[2]
    yield index, (*heads, None, sizes[0])
    yield index + 1, (*heads, n_past, sizes[1])


def named_axes(*names_of_operands: str) -> OperandRule:
    """Operands whose axes of one name have one length, as those of `named_axes("*rows width", "width")`.

    The first operand that has an axis says how long it is. A number is a length, `*name` is any number of axes, and an
    operand of an empty text may have any shape.
    """

    def rule(node: onnx.NodeProto, operands: Operands) -> Iterator[Required]:
        known: dict[str, Shape] = {}
        for index, names in enumerate(map(str.split, names_of_operands)):
            value = given(operands, index)
            if value is None or not names:
                continue
            is_first = not known
            n_starred = max(0, len(value.shape) - len(names) + 1)
            wanted: list[int | None] = []
            for name in names:
                n_axes = n_starred if name.startswith("*") else 1
                lengths = value.shape[len(wanted) : len(wanted) + n_axes]
                if name.isdigit():
                    wanted.append(int(name))
                elif name in known:
                    wanted += known[name]
                else:
                    known[name] = lengths
                    wanted += lengths if is_first and len(lengths) == n_axes else (None,) * n_axes
            yield index, wanted

    return rule
