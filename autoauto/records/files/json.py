"""Values as JSON: `to_json`, `from_json`. An error names the place in the file.

What is read has a type: a dataclass, a NamedTuple, a `StrEnum`, a struct of msgspec, or lists and objects of these; a
column may be a NumPy array. A file has a schema number where one is given; another number is refused.
"""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MisfitError, brief, from_other, misfit_of, to_other
from autoauto.records.files.packed import unpacked

Value = TypeVar("Value")

_BYTE = re.compile(r"\s*\(byte (\d+)\)$")


def to_json(value: object, schema: int | None = None, form: type[msgspec.Struct] | None = None) -> bytes:
    """A value as JSON text in one line; NaN and infinite numbers become null.

    Its type is as in the docstring of this module; `schema` is the number of the stored form, its last field, and
    `form` how a dataclass is stored, from `stored_form`. Raises as `to_plain`.
    """
    return msgspec.json.encode(to_plain(value, schema, form))


def to_plain(value: object, schema: int | None = None, form: type[msgspec.Struct] | None = None) -> Any:
    """A value as objects, lists, texts and numbers; arguments as in `to_json`.

    Raises BadInput if a field is not as its stored form has it: a target of one's own may count half cycles.
    """
    if form is not None:
        try:
            value = msgspec.convert(value, form, from_attributes=True)
        except msgspec.ValidationError as error:
            raise BadInput(f"a {type(value).__name__}: {misfit_of(form, value, error).message}") from error
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=from_other)
    return plain if schema is None else plain | {"schema": schema}


def from_json(
    kind: type[Value],
    data: bytes | str,
    where: str,
    schema: int | None = None,
    form: type[msgspec.Struct] | None = None,
) -> Value:
    """Read a value that `to_json` wrote.

    Args:
        where: the start of every error: what the text is, or its file.
        schema: the number that the text must have; None when it has none.

    Raises:
        BadInput: it is no JSON, has another schema, or a field that is missing or wrong; the message names it.
    """
    return from_plain(kind, _parsed(data, where), where, schema, form)


def from_plain(
    kind: type[Value],
    plain: Any,
    where: str,
    schema: int | None = None,
    form: type[msgspec.Struct] | None = None,
) -> Value:
    """Read a value from objects, lists, texts and numbers; arguments as in `from_json`.

    Raises BadInput if it has another schema, or a field that is missing or wrong; the message names it.
    """
    try:
        content = plain if schema is None else checked_schema(plain, schema)
        return converted(kind, content, form)
    except MisfitError as misfit:
        raise BadInput(f"{where}: {misfit.message}") from misfit.__cause__


def read_json(path: Path) -> Any:
    """Read a JSON file, packed or not. Raises BadInput if it cannot be read, or is not JSON."""
    try:
        return _parsed(unpacked(path), str(path))
    except OSError as error:
        raise BadInput(f"a JSON file must be readable, {path}: {error.strerror}; check the path") from error


def write_json(plain: object, path: Path) -> None:
    """Write objects, lists, texts and numbers as a JSON file with one value a line; raises BadInput if it cannot."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n")
    except OSError as error:
        raise BadInput(f"a file must be writable, {path}: {error.strerror}; check the path") from error


def _parsed(data: bytes | str, where: str) -> Any:
    content = data.encode() if isinstance(data, str) else data
    try:
        return msgspec.json.decode(content)
    except RecursionError:
        raise BadInput(f"{where} must be JSON, got lists or objects that are nested too deeply; correct it") from None
    except ValueError as error:  # also UnicodeDecodeError, and numbers that no reader can hold
        location = where
        if position := _BYTE.search(str(error)):
            line = content[: int(position[1])].count(b"\n") + 1
            if line > 1:  # most JSON is one line
                location = f"{where}, line {line}"
        raise BadInput(f"{location} must be JSON: {_BYTE.sub('', str(error))}; correct it there") from error


def checked_schema(content: Any, schema: int, *, may_lack_it: bool = False) -> dict[str, Any]:
    """The fields of a document but its schema number, which files that people write may leave out.

    Raises MisfitError if it is no object, or of another schema.
    """
    if not isinstance(content, dict):
        raise MisfitError([], f"the top level must be an object with fields, got {brief(content)}; try another file")
    given = content.get("schema", schema if may_lack_it else None)
    if type(given) is not int or given != schema:
        shown = brief(given) if "schema" in content else "none"
        raise MisfitError(["schema"], f"schema must be {schema}, got {shown}; make the file anew with this version")
    return {name: value for name, value in content.items() if name != "schema"}


def converted(kind: type[Value], plain: Any, form: type[msgspec.Struct] | None = None) -> Value:
    """Convert a plain value to a type. Raises MisfitError if the value does not fit the type."""
    try:
        return _checked(kind, plain, form)
    except AssertionError as error:
        raise MisfitError(
            [], f"the top level must hold together, a {kind.__name__} refuses it; make it anew"
        ) from error


def _checked(kind: type[Value], plain: Any, form: type[msgspec.Struct] | None) -> Value:
    try:
        stored = msgspec.convert(plain, form or kind, str_keys=True, dec_hook=to_other)
    except msgspec.ValidationError as error:
        raise misfit_of(form or kind, deepcopy(plain), error) from error.__cause__ or error
    if form is None:
        return cast(Value, stored)
    try:
        return msgspec.convert(stored, kind, from_attributes=True, strict=False)  # so that 7.0 becomes 7
    except msgspec.ValidationError as error:  # the class refuses it
        raise misfit_of(kind, stored, error) from error.__cause__ or error
