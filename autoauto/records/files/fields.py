"""The types of stored fields: numbers within bounds, texts, NumPy columns; `stored_form` of a record.

The error for a stored value that does not fit its type: where it lies, what it must be, what it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from sys import float_info
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, inspect

from autoauto.records.errors import BadInput, did_you_mean

MAX_NUMBER = 2**53
"""Up to here a float has every whole number, so that every reader of a file reads the same."""
Whole = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
AnyWhole = Whole | Annotated[float, Meta(ge=0, le=MAX_NUMBER, multiple_of=1)]
"""A whole number that may be written as 7.0."""
PositiveWhole = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
Number = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=float_info.max)]
MAX_RATE = 10**18
"""A second of clocks and links: no hardware has more, and none has less than 1."""
Text = Annotated[str, Meta(min_length=1)]


def stored_form(
    record: type, names: Mapping[str, str] | None = None, without: Collection[str] = (), **kinds: Any
) -> type[msgspec.Struct]:
    """A struct with the fields of a dataclass or NamedTuple: all must be stored, and whole numbers be `AnyWhole`.

    Args:
        names: fields that are stored by another name.
        without: fields that are not read.
        kinds: types of fields that are stored with another type.
    """
    stored_names = names or {}
    fields = []
    for name, hint in get_type_hints(record).items():
        if name not in without:
            kind = kinds.get(name) or _limited(hint)
            fields.append((name, kind, msgspec.field(name=stored_names.get(name))))
    return msgspec.defstruct(f"Stored{record.__name__}", fields)


def table_form(record: type, **kinds: Any) -> type[msgspec.Struct]:
    """A struct for a table that people write, with the fields of a dataclass; those with defaults may be left out.

    Texts are not empty and numbers above 0; `kinds` are types of fields that have other bounds.
    """
    hints = get_type_hints(record)
    fields: list[Any] = []
    for each in dataclasses.fields(record):
        kind = kinds.get(each.name) or _limited(hints[each.name], _OF_TABLES)
        if each.default is dataclasses.MISSING:
            fields.append((each.name, kind))
        else:
            fields.append((each.name, kind, each.default))
    return msgspec.defstruct(f"{record.__name__}Table", fields, forbid_unknown_fields=True)


_OF_TABLES = {int: PositiveWhole, float: Positive, str: Text}
_OF_FILES = {int: AnyWhole}


def _limited(hint: Any, limits: Mapping[Any, Any] = _OF_FILES) -> Any:
    """A type whose numbers are within limits; those of files are not negative, and not too large."""
    if hint in limits:
        return limits[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if not arguments or origin is Annotated:
        return hint
    if origin is Mapping:
        origin = dict
    if isinstance(hint, UnionType):
        return reduce(or_, (_limited(each, limits) for each in arguments))
    return origin[tuple(_limited(each, limits) for each in arguments)]


def brief(value: object) -> str:
    """A value in a message, in at most 80 characters."""
    shown = repr(value)
    if isinstance(value, dict):
        shown = f"an object with {', '.join(map(str, value)) or 'no field'}"
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
    dtype = None
    if arguments := get_args(kind):  # the shape, and the type of an element
        dtype = get_args(arguments[1])[0]
    try:
        return np.array(list(value), dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"a column must be a list of numbers, got {brief(value)}; correct it there") from None


Location = list[str | int]
"""The names and indices that lead to a value in a document."""

_PATH = re.compile(r" - at (`key` in )?`\$(?P<path>.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`$")


class MisfitError(Exception):
    """A value that is not as it must be, where it lies, and what to say of it; `from_plain` turns it into BadInput."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(message)
        self.location, self.message = location, message


def misfit_of(kind: Any, document: Any, error: msgspec.ValidationError) -> MisfitError:
    """The error of msgspec in our form: where the value lies, what it must be, what it is."""
    path = _PATH.search(str(error))
    value, described = document, inspect.type_info(kind)
    location: Location = []
    for name, index in _STEP.findall(path["path"] if path else ""):
        step: Any = name
        if index == "...":
            step = _wrong_key(kind, document, value)
        elif index:
            step = int(index)
        value = value[step] if isinstance(value, dict | list | tuple) else getattr(value, str(step))
        described = _part(described, step)
        location.append(step)
    subject = location_text(location)
    if error.__cause__ is not None:  # of a __post_init__
        reason = str(error.__cause__)
        return MisfitError(location, f"{subject}: {reason}" if location else reason)
    if field := _FIELD.match(_PATH.sub("", str(error))):
        if field[1] == "missing required":
            return MisfitError(location, f"{subject} must have the field {field[2]}, got {brief(value)}; add it")
        known = [entry.encode_name for entry in _fields(described)]
        message = f"{subject} must have only the fields {', '.join(known)}, got {field[2]}; {_hint(field[2], known)}"
        return MisfitError([*location, field[2]], message)
    choices = _choices(described)
    hint = _hint(str(value), choices) if choices else "correct it there"
    return MisfitError(location, f"{subject} must be {_description(described)}, got {brief(value)}; {hint}")


def _wrong_key(kind: Any, document: Any, mapping: dict[str, Any]) -> str:
    """The key of the value that msgspec refuses in an object; only this value is left in the object.

    The error of msgspec names no key, so the document is read again with each of the values alone.
    """
    for key, value in list(mapping.items()):
        others = dict(mapping)
        mapping.clear()
        mapping[key] = value
        try:
            msgspec.convert(document, kind, str_keys=True, from_attributes=True, dec_hook=to_other)
        except msgspec.ValidationError:
            return key
        mapping.clear()
        mapping.update(others)
    raise AssertionError(mapping)


def location_text(location: Location) -> str:
    """The way to a value, as people write it: layers[3].cycles."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).removeprefix(".") or "the top level"


def _part(described: inspect.Type, step: str | int) -> inspect.Type:
    match described:
        case inspect.UnionType(types=types):
            parts = [_part(member, step) for member in types]
            return next((part for part in parts if not isinstance(part, inspect.AnyType)), parts[0])
        case inspect.TupleType(item_types=items) if isinstance(step, int):
            return items[step]
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return item
        case inspect.DictType(value_type=value):
            return value
        case inspect.NamedTupleType(fields=fields) if isinstance(step, int):
            return fields[step].type
    return next((field.type for field in _fields(described) if field.encode_name == step), inspect.AnyType())


def _fields(described: inspect.Type) -> Sequence[inspect.Field]:
    return described.fields if isinstance(described, inspect.StructType | inspect.DataclassType) else ()


def _choices(described: inspect.Type) -> list[str]:
    match described:
        case inspect.EnumType(cls=kind):
            return [str(member.value) for member in kind]
        case inspect.LiteralType(values=values):
            return list(map(str, values))
        case inspect.UnionType(types=types):
            return list(chain.from_iterable(map(_choices, types)))
    return []


def _description(described: inspect.Type) -> str:
    return next(words(described) for kind, words in _DESCRIPTIONS.items() if isinstance(described, kind))


def _needed(described: inspect.Type) -> str:
    names = [field.encode_name for field in _fields(described) if field.required]
    return f" with the fields {', '.join(names)}" if names else ""


def _members(union: inspect.UnionType) -> str:
    types = [member for member in union.types if not isinstance(member, inspect.NoneType)]
    numbers = [member for member in types if isinstance(member, inspect.FloatType)]  # whole numbers are numbers
    members = [_description(member) for member in types if not (numbers and isinstance(member, inspect.IntType))]
    return " or ".join(dict.fromkeys(members))


def _number(number: inspect.FloatType) -> str:
    if number.multiple_of == 1:
        return f"a whole number{_bounds(number)}"
    return f"a {'finite ' if number.le == float_info.max else ''}number{_bounds(number)}"


_DESCRIPTIONS: Mapping[type[inspect.Type], Callable[[Any], str]] = {
    inspect.UnionType: _members,
    inspect.EnumType: lambda described: f"one of {', '.join(_choices(described))}",
    inspect.LiteralType: lambda described: f"one of {', '.join(_choices(described))}",
    inspect.IntType: lambda number: f"a whole number{_bounds(number)}",
    inspect.FloatType: _number,
    inspect.StrType: lambda text: "a text that is not empty" if text.min_length else "a text",
    inspect.BoolType: lambda _: "true or false",
    inspect.TupleType: lambda described: f"a list of {len(described.item_types)}",
    inspect.NamedTupleType: lambda described: f"a list of {', '.join(field.name for field in described.fields)}",
    inspect.CollectionType: lambda items: f"a list{_length(items)}",
    inspect.DictType: lambda items: f"an object of names, each with {_description(items.value_type)}",
    inspect.StructType: lambda described: f"an object{_needed(described)}",
    inspect.DataclassType: lambda described: f"an object{_needed(described)}",
    inspect.Type: lambda described: f"a value of {described}",
}
"""What a value must be, by the type that msgspec has for it; the first that fits."""


def _length(items: inspect.CollectionType) -> str:
    if items.min_length:
        return " of 1 or more"
    return f" of at most {items.max_length}" if items.max_length else ""


def _bounds(number: inspect.IntType | inspect.FloatType) -> str:
    """The bounds of a number in words; the largest float is no bound."""
    minimum, most = number.ge, number.le
    end = ""
    if most == MAX_NUMBER:
        end = "2**53"
    elif most is not None and most != float_info.max:
        end = f"{most:g}"
    if number.gt is not None:
        return f" above {number.gt:g}" + (f", at most {end}" if end else "")
    if minimum is None or minimum == -float_info.max:
        return f" of at most {end}" if end else ""
    return f" from {minimum:g}" + (f" to {end}" if end else "")


def _hint(word: str, known: Sequence[str]) -> str:
    return did_you_mean(word, known, "leave it out, or correct it there")
