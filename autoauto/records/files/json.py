"""Values as JSON and TOML: `to_json`, `from_json`, `read_toml`. An error names the place in the file.

What is read has a type: a dataclass, a NamedTuple, a `StrEnum`, a struct of msgspec, or lists and objects of these; a
column may be a NumPy array. A file has a schema number where one is given: an older file is upgraded, or refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from sys import float_info
from types import UnionType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, inspect

from autoauto.records.errors import BadInput, did_you_mean

Value = TypeVar("Value")
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes the content of a file of an older schema that of the present one."""
Location = list[str | int]
"""The names and indices that lead to a value in a document."""

MAX_NUMBER = 2**53
"""Up to here a float has every whole number, so that every reader of a file reads the same."""
Whole = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
AnyWhole = Whole | Annotated[float, Meta(ge=0, le=MAX_NUMBER, multiple_of=1)]
"""A whole number that may be written as 7.0."""
PositiveWhole = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
Number = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=float_info.max)]
Text = Annotated[str, Meta(min_length=1)]

MAX_TOML_BYTES = 100_000
_POSITION = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")
_BYTE = re.compile(r"\s*\(byte (\d+)\)$")
_PATH = re.compile(r" - at (`key` in )?`\$(?P<path>.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`$")


def to_json(value: object, schema: int | None = None, form: type[msgspec.Struct] | None = None) -> bytes:
    """A value as JSON text in one line; NaN and infinite numbers become null.

    Args:
        value: of a type as in the docstring of this module.
        schema: the number of the stored form, its last field.
        form: how a dataclass is stored, from `stored_form`.

    Raises:
        BadInput: a field is not as its stored form has it.

    >>> to_json({"a": (1, None)}, schema=3)
    b'{"a":[1,null],"schema":3}'
    """
    return msgspec.json.encode(to_plain(value, schema, form))


def to_plain(value: object, schema: int | None = None, form: type[msgspec.Struct] | None = None) -> Any:
    """A value as objects, lists, texts and numbers; arguments as in `to_json`.

    Raises:
        BadInput: a field is not as its stored form has it: a target of one's own may count half cycles.
    """
    if form is not None:
        try:
            value = msgspec.convert(value, form, from_attributes=True)
        except msgspec.ValidationError as error:
            raise BadInput(f"a {type(value).__name__}: {_misfit(form, value, error).message}") from error
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_from_other)
    return plain if schema is None else plain | {"schema": schema}


def from_json(
    kind: type[Value],
    data: bytes | str,
    where: str,
    schema: int | None = None,
    upgrades: Mapping[int, Upgrade] | None = None,
    form: type[msgspec.Struct] | None = None,
) -> Value:
    """Read a value that `to_json` wrote.

    Args:
        kind: the type of the value.
        data: the text.
        where: the start of every error: what the text is, or its file.
        schema: the number that the text must have; None when it has none.
        upgrades: what turns the content with an older number, 0 for none, into that of the next one.
        form: how a dataclass is stored, from `stored_form`.

    Raises:
        BadInput: it is no JSON, has another schema, or a field that is missing or wrong; the message names it.

    >>> from_json(dict[str, Whole], '{"a": -1}', "sizes")
    Traceback (most recent call last):
    autoauto.records.errors.BadInput: sizes: a must be a whole number from 0 to 2**53, got -1; correct it there
    """
    return from_plain(kind, _parsed(data, where), where, schema, upgrades, form)


def from_plain(
    kind: type[Value],
    plain: Any,
    where: str,
    schema: int | None = None,
    upgrades: Mapping[int, Upgrade] | None = None,
    form: type[msgspec.Struct] | None = None,
) -> Value:
    """Read a value from objects, lists, texts and numbers; arguments as in `from_json`.

    Raises:
        BadInput: it has another schema, or a field that is missing or wrong; the message names it.
    """
    try:
        content = plain if schema is None else _upgraded(plain, schema, upgrades or {})
        return _converted(kind, content, form)
    except _MisfitError as misfit:
        raise BadInput(f"{where}: {misfit.message}") from misfit.__cause__


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


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        BadInput: no such file, or not JSON.
    """
    try:
        return _parsed(path.read_bytes(), str(path))
    except OSError as error:
        raise BadInput(f"a JSON file must be readable, {path}: {error.strerror}; check the path") from error


def write_json(plain: object, path: Path) -> None:
    """Write objects, lists, texts and numbers as a JSON file with one value a line.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n")
    except OSError as error:
        raise BadInput(f"a file must be writable, {path}: {error.strerror}; check the path") from error


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A file and its values.

    Attributes:
        path: as it was given.
        text: the whole content.
        table: the content, parsed.
    """

    path: str
    text: str
    table: dict[str, Any]

    def read(
        self, kind: type[Value], schema: int | None = None, upgrades: Mapping[int, Upgrade] | None = None
    ) -> Value:
        """The content as a value; arguments as in `from_json`.

        Raises:
            BadInput: it has another schema, or a field that is missing or wrong; the message names it and its line.
        """
        try:
            content = self.table if schema is None else _upgraded(self.table, schema, upgrades or {})
            return _converted(kind, content)
        except _MisfitError as misfit:
            raise self.bad(misfit.location, misfit.message) from misfit.__cause__

    def bad(self, keys: Sequence[str | int], message: str, item: str = "") -> BadInput:
        """An error about a value, or about an `item` of it.

        Args:
            keys: the names of tables, then the key of the value.
            message: what is wrong.
            item: a text in the line of the mistake, where the value has several lines.
        """
        return BadInput(f"{self.path}, line {line_of(self.text, keys, item)}: {message}")


def read_toml(path: Path) -> TomlFile:
    """Read a TOML file.

    Raises:
        BadInput: it cannot be read, is too large, or no TOML; then the message names the line if it is known.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TOML_BYTES + 1)  # a device may have no end
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"a TOML file must be readable, {path}: {reason}; check the path") from None
    if len(content) > MAX_TOML_BYTES:
        raise BadInput(f"a TOML file has at most {MAX_TOML_BYTES:,} bytes, {path} has more; check the path")
    try:
        text = content.decode()
        return TomlFile(str(path), text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}, line {line}: a TOML file is UTF-8 text, got byte {content[error.start]:#x}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(_syntax_message(str(path), text, error)) from None


def line_of(text: str, keys: Sequence[str | int], item: str = "") -> int:
    """The line, from 1, of the value at `keys`; within a value of several lines the first that contains `item`.

    The parser of TOML does not report lines. So it parses longer and longer beginnings of the text: the first one that
    is valid TOML and has the key ends with its value.

    >>> line_of("a = 1\\n[b] # c = 2\\nc = [\\n  3,\\n]", ["b", "c"]), line_of("c = [\\n 3,\\n]", ["c"], "3")
    (3, 2)
    """
    lines = text.split("\n")
    word = item or next((key for key in reversed(keys) if isinstance(key, str)), "")
    start = 0
    for stop in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("\n".join(lines[:stop]) + "\n")
        except ValueError:
            continue
        if _has(table, keys):
            value = lines[start:stop]
            return start + 1 + next((i for i, line in enumerate(value) if _contains(line, word)), 0)
        start = stop
    return len(lines)


def brief(value: object) -> str:
    """A value in a message, in at most 80 characters."""
    shown = f"an object with {', '.join(map(str, value)) or 'no field'}" if isinstance(value, dict) else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


class _MisfitError(Exception):
    """A value that is not as it must be, where it lies, and what to say of it; `from_plain` turns it into BadInput."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(message)
        self.location, self.message = location, message


def _parsed(data: bytes | str, where: str) -> Any:
    content = data.encode() if isinstance(data, str) else data
    try:
        return msgspec.json.decode(content)
    except RecursionError:
        raise BadInput(f"{where} must be JSON, got lists or objects that are nested too deeply; correct it") from None
    except ValueError as error:  # also UnicodeDecodeError, and numbers that no reader can hold
        position = _BYTE.search(str(error))
        line = content[: int(position[1])].count(b"\n") + 1 if position else 0
        location = f"{where}, line {line}" if line > 1 else where
        raise BadInput(f"{location} must be JSON: {_BYTE.sub('', str(error))}; correct it there") from error


def _upgraded(content: Any, schema: int, upgrades: Mapping[int, Upgrade]) -> dict[str, Any]:
    """The fields of a document but its schema number, as the present schema has them.

    Raises:
        _MisfitError: it is no object, or of a schema that cannot be read.
    """
    if not isinstance(content, dict):
        raise _MisfitError([], f"{_shown([])} must be an object with fields, got {brief(content)}; try another file")
    given = content.get("schema", 0)
    fields = {name: value for name, value in content.items() if name != "schema"}
    if type(given) is int:
        for older in range(given, schema):
            if older not in upgrades:
                break
            fields = upgrades[older](fields)
        else:
            if given <= schema:
                return fields
    shown = brief(given) if "schema" in content else "none"
    raise _MisfitError(["schema"], f"schema must be {schema}, got {shown}; make the file anew with this version")


def _converted(kind: type[Value], plain: Any, form: type[msgspec.Struct] | None = None) -> Value:
    """A plain value as one of a type.

    Raises:
        _MisfitError: it is not.
    """
    try:
        return _checked(kind, plain, form)
    except AssertionError as error:
        raise _MisfitError(
            [], f"{_shown([])} must hold together, a {kind.__name__} refuses it; make it anew"
        ) from error


def _checked(kind: type[Value], plain: Any, form: type[msgspec.Struct] | None) -> Value:
    try:
        stored = msgspec.convert(plain, form or kind, str_keys=True, dec_hook=_to_other)
    except msgspec.ValidationError as error:
        raise _misfit(form or kind, deepcopy(plain), error) from error.__cause__ or error
    if form is None:
        return cast(Value, stored)
    try:
        return msgspec.convert(stored, kind, from_attributes=True, strict=False)  # so that 7.0 becomes 7
    except msgspec.ValidationError as error:  # the class refuses it
        raise _misfit(kind, stored, error) from error.__cause__ or error


def _misfit(kind: Any, document: Any, error: msgspec.ValidationError) -> _MisfitError:
    """The error of msgspec in our form: where the value lies, what it must be, what it is."""
    path = _PATH.search(str(error))
    value, described, location = document, inspect.type_info(kind), cast(Location, [])
    for name, index in _STEP.findall(path["path"] if path else ""):
        step: Any = _wrong_key(kind, document, value) if index == "..." else int(index) if index else name
        value = value[step] if isinstance(value, dict | list | tuple) else getattr(value, str(step))
        described = _part(described, step)
        location.append(step)
    subject = _shown(location)
    if error.__cause__ is not None:  # of a __post_init__
        return _MisfitError(location, f"{subject}: {error.__cause__}" if location else str(error.__cause__))
    if field := _FIELD.match(_PATH.sub("", str(error))):
        if field[1] == "missing required":
            return _MisfitError(location, f"{subject} must have the field {field[2]}, got {brief(value)}; add it")
        known = [entry.encode_name for entry in _fields(described)]
        message = f"{subject} must have only the fields {', '.join(known)}, got {field[2]}; {_hint(field[2], known)}"
        return _MisfitError([*location, field[2]], message)
    choices = _choices(described)
    hint = _hint(str(value), choices) if choices else "correct it there"
    return _MisfitError(location, f"{subject} must be {_description(described)}, got {brief(value)}; {hint}")


def _wrong_key(kind: Any, document: Any, mapping: dict[str, Any]) -> str:
    """The key of the value that msgspec refuses in an object, of which it names none; only that value is left in it."""
    for key, value in list(mapping.items()):
        others = dict(mapping)
        mapping.clear()
        mapping[key] = value
        try:
            msgspec.convert(document, kind, str_keys=True, from_attributes=True, dec_hook=_to_other)
        except msgspec.ValidationError:
            return key
        mapping.clear()
        mapping.update(others)
    raise AssertionError(mapping)


def _shown(location: Location) -> str:
    """The way to a value, as people write it: layers[3].cycles."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).removeprefix(".") or "the top level"


def _part(described: inspect.Type, step: str | int) -> inspect.Type:
    """The type of a field or an item of a type."""
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
            return [choice for member in types for choice in _choices(member)]
    return []


def _description(described: inspect.Type) -> str:
    """What a value must be, in words."""
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
    inspect.CollectionType: lambda items: "a list of 1 or more" if items.min_length else "a list",
    inspect.DictType: lambda items: f"an object of names, each with {_description(items.value_type)}",
    inspect.StructType: lambda described: f"an object{_needed(described)}",
    inspect.DataclassType: lambda described: f"an object{_needed(described)}",
    inspect.Type: lambda described: f"a value of {described}",
}
"""What a value must be, by the type that msgspec has for it; the first that fits."""


def _bounds(number: inspect.IntType | inspect.FloatType) -> str:
    minimum, most = number.ge, number.le
    end = None if most is None or most == float_info.max else "2**53" if most == MAX_NUMBER else f"{most:g}"
    if number.gt is not None:
        return f" above {number.gt:g}{f', at most {end}' if end else ''}"
    if minimum is None or minimum == -float_info.max:
        return f" of at most {end}" if end else ""
    return f" from {minimum:g}{f' to {end}' if end else ''}"


def _hint(word: str, known: Sequence[str]) -> str:
    return did_you_mean(word, known, "leave it out, or correct it there")


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


def _from_other(value: Any) -> Any:
    """Values that msgspec does not write: NumPy's numbers and columns, and other mappings than `dict`."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no value of a file")


def _to_other(kind: Any, value: Any) -> Any:
    """A NumPy column from a list, of the type in `NDArray[...]` where it is given."""
    import numpy as np

    if (get_origin(kind) or kind) is not np.ndarray:
        raise TypeError(f"{kind} is no type of a file")
    arguments = get_args(kind)
    try:
        return np.array([*value], dtype=get_args(arguments[1])[0] if arguments else None)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"a column must be a list of numbers, got {brief(value)}; correct it there") from None


def _has(table: object, keys: Sequence[str | int]) -> bool:
    for key in keys:
        if isinstance(key, int):
            if not isinstance(table, list) or key >= len(table):
                return False
            table = table[key]
        elif not isinstance(table, dict) or key not in table:
            return False
        else:
            table = table[key]
    return True


def _contains(line: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", line) is not None


def _syntax_message(path: str, text: str, error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return f"{path}: its lists or tables are nested too deeply"
    position = _POSITION.search(str(error))
    if position is None:
        return f"{path}: the file must be TOML: {str(error)[:200]}"
    line = position[1] or len(text.rstrip("\n").split("\n"))
    return f"{path}, line {line}: the file must be TOML: {_POSITION.sub('', str(error))[:200]}".replace("\n", " ")
