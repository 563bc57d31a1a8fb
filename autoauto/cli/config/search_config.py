"""A search in a file, `--config FILE.toml`: options and knobs of `autoauto search`, read by `parse_with_config`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autoauto.cli.config.knob_values import read_knobs
from autoauto.records.errors import did_you_mean
from autoauto.records.knobs.table import KNOBS

if TYPE_CHECKING:
    from autoauto.records.files.toml import TomlFile

SEARCH_SCHEMA = 1
_KNOB_NAMES = [knob.name for knob in KNOBS]
_NOT_IN_FILES = frozenset({"help", "help_all", "config", "json", "dry_run", *_KNOB_NAMES} - {"precision"})
_NO_OPTIONS = ("knobs", "schema")
_LISTS = {"objective": ",", "precision": ",", "constraints": None, "profile": None, "profile_details": None}
"""Options that may be lists, and what separates their items on the command line; None where each has the option."""


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add a file with more arguments."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE.toml",
        help="options and knobs from a file, see docs/search.md; arguments on the command line win",
    )


def parse_with_config(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse arguments, with those of a --config file as defaults.

    Raises:
        BadInput: an argument is wrong, or a value in the file; then the message names its line.
    """
    args = parser.parse_args(argv)
    if getattr(args, "config", None) is None:
        return args
    args.parser.set_defaults(**read_config(args.config, args.parser))
    return parser.parse_args(argv)


def read_config(path: Path, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The values in a file of options of `parser`.

    Raises:
        BadInput: it is no TOML, or has an unknown key or a wrong value.
    """
    from autoauto.records.files.toml import read_toml

    file = read_toml(path)
    options = {action.dest: action for action in parser._actions if action.dest not in _NOT_IN_FILES}
    for key in file.table:
        if key not in options and key not in _NO_OPTIONS:
            raise file.bad([key], unknown(key, [*options, *_NO_OPTIONS], _KNOB_NAMES))
    values = _values(file, {key: options[key] for key in file.table if key in options})
    knobs, method = read_knobs(file)
    for group in parser._mutually_exclusive_groups:
        first, *others = [action.dest for action in group._group_actions if values.get(action.dest)] or [""]
        if others:
            raise file.bad([others[0]], f"{others[0]} and {first} exclude each other; leave one out")
    return values | knobs | ({"method": str(method)} if method else {})


def unknown(key: str, known: Sequence[str], elsewhere: Sequence[str] = ()) -> str:
    """A message that there is no such key, and what may be meant."""
    if key in elsewhere:
        return f"{key} is a knob; write it under [knobs]"
    hint = did_you_mean(key, known, f"keys are {', '.join(known)}")
    return f"there is no key {key!r}; {hint}"


def _values(file: TomlFile, options: Mapping[str, argparse.Action]) -> dict[str, object]:
    """The values of options, as the parser reads them from the command line."""
    import msgspec

    table = msgspec.defstruct("SearchFile", [(key, _kind(key, action)) for key, action in options.items()])
    given = msgspec.structs.asdict(file.read(table, SEARCH_SCHEMA, upgrades={0: lambda fields: fields}))
    return {key: _value(file, key, given[key], action) for key, action in options.items()}


def _kind(key: str, action: argparse.Action) -> Any:
    """The type of an option in TOML, where it has one by the type that its reader returns for a number."""
    from msgspec import Meta

    from autoauto.records.files.fields import Number

    if key in _LISTS:
        return str | Annotated[list[str], Meta(min_length=1)]
    if action.nargs == 0:
        return bool
    if action.choices is not None:
        return Literal[tuple(map(str, action.choices))]
    read: Any = action.type or str
    try:
        value = read("1")
    except argparse.ArgumentTypeError:  # a share is below 1
        value = read("0.5")
    return {int: int, float: Number}.get(type(value), str)


def _value(file: TomlFile, key: str, value: Any, action: argparse.Action) -> object:
    """A value of an option, as the parser reads it from the command line."""
    if key in _LISTS:
        texts = [value] if isinstance(value, str) else value
        if _LISTS[key] is None:
            return [_read(file, key, text, action.type) for text in texts]
        return _read(file, key, ",".join(texts), action.type)
    return value if action.nargs == 0 else _read(file, key, str(value), action.type)


def _read(file: TomlFile, key: str, text: str, read: Callable[[str], Any] | Any) -> object:
    try:
        return text if read is None else read(text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise file.bad([key], f"{key}: {error}", text if key == "constraints" else "") from None
