"""The types of stored fields: numbers within bounds, texts, NumPy columns; `stored_form` of a record."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from sys import float_info
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from autoauto.records.errors import BadInput

MAX_NUMBER = 2**53
"""Up to here a float has every whole number, so that every reader of a file reads the same."""
Whole = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
AnyWhole = Whole | Annotated[float, Meta(ge=0, le=MAX_NUMBER, multiple_of=1)]
"""A whole number that may be written as 7.0."""
PositiveWhole = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
Number = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=float_info.max)]
Text = Annotated[str, Meta(min_length=1)]


def stored_form(record: type, names: Mapping[str, str] | None = None, **kinds: Any) -> type[msgspec.Struct]:
    """A struct with the fields of a dataclass or NamedTuple: all must be stored, and whole numbers be `AnyWhole`.

    Args:
        record: the class.
        names: fields that are stored by another name.
        kinds: types of fields that are stored with another type than that of the record.
    """
    hints = get_type_hints(record)
    fields = [
        (name, kinds.get(name) or _limited(hint), msgspec.field(name=(names or {}).get(name)))
        for name, hint in hints.items()
    ]
    return msgspec.defstruct(f"Stored{record.__name__}", fields)


def _limited(hint: Any) -> Any:
    """A type whose whole numbers are those of files: not negative, and not too large."""
    if hint is int:
        return AnyWhole
    origin, arguments = get_origin(hint), get_args(hint)
    if not arguments or origin is Annotated:
        return hint
    if origin is Mapping or get_origin(hint) is Mapping:
        origin = dict
    if isinstance(hint, UnionType):
        return reduce(or_, map(_limited, arguments))
    return origin[tuple(map(_limited, arguments))]


def brief(value: object) -> str:
    """A value in a message, in at most 80 characters."""
    shown = f"an object with {', '.join(map(str, value)) or 'no field'}" if isinstance(value, dict) else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def from_other(value: Any) -> Any:
    """Values that msgspec does not write: NumPy's numbers and columns, and other mappings than `dict`."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no value of a file")


def to_other(kind: Any, value: Any) -> Any:
    """A NumPy column from a list, of the type in `NDArray[...]` where it is given."""
    import numpy as np

    if (get_origin(kind) or kind) is not np.ndarray:
        raise TypeError(f"{kind} is no type of a file")
    arguments = get_args(kind)
    try:
        return np.array([*value], dtype=get_args(arguments[1])[0] if arguments else None)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"a column must be a list of numbers, got {brief(value)}; correct it there") from None
