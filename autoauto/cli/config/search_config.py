"""A search in a file, `--config FILE.toml`: options and knobs of `autoauto search`, read by `parse_with_config`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from autoauto.cli.config.knob_values import KNOBS, read_knobs
from autoauto.cli.config.toml_file import TomlFile, read_toml

_NOT_IN_FILES = frozenset({"help", "config", "json", "dry_run", *KNOBS})
_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_LISTS = {"objective": ",", "constraints": None}
"""Options that may be lists, and what separates their items on the command line."""


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add a file with more arguments."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE.toml",
        help="options and knobs from a file, see docs/search.md; arguments on the command line win",
    )
    parser.set_defaults(parser=parser)


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
    file = read_toml(path)
    options = {action.dest: action for action in parser._actions if action.dest not in _NOT_IN_FILES}
    for key in file.table:
        if key not in options and key != "knobs":
            raise file.bad([key], unknown(key, [*options, "knobs"], list(KNOBS)))
    values = {key: _value(file, key, options[key]) for key in file.table if key != "knobs"}
    knobs, method = read_knobs(file)
    if values.get("synthetic_data") and values.get("overlap_io"):
        raise file.bad(["overlap_io"], "overlap_io and synthetic_data exclude each other; leave one out")
    return values | knobs | ({"method": str(method)} if method else {})


def unknown(key: str, known: Sequence[str], elsewhere: Sequence[str] = ()) -> str:
    """A message that there is no such key, and what may be meant."""
    if key in elsewhere:
        return f"{key} is a knob; write it under [knobs]"
    close = get_close_matches(key, known, 1)
    return f"there is no key {key!r}; " + (f"did you mean {close[0]!r}?" if close else f"keys are {', '.join(known)}")


def _value(file: TomlFile, key: str, action: argparse.Action) -> object:
    """The value of an option, as the parser reads it from the command line."""
    value = file.table[key]
    if key in _LISTS:
        texts = value if isinstance(value, list) else [value]
        for text in texts:
            _check_kind(file, key, text, str)
        if not texts:
            raise file.bad([key], f"{key} must not be an empty list; leave it out")
        if key == "constraints":
            return [_read(file, key, text, action.type) for text in texts]
        return _read(file, key, ",".join(texts), action.type)
    if action.nargs == 0:
        return _check_kind(file, key, value, bool)
    kind = _kind(action.type)
    _check_kind(file, key, value, kind)
    if action.choices is not None and value not in action.choices:
        close = get_close_matches(str(value), list(map(str, action.choices)), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise file.bad([key], f"{key} must be one of {', '.join(map(str, action.choices))}, got {value!r}{hint}")
    return _read(file, key, str(value), action.type)


def _kind(read: Any) -> type:
    """The type of an option in TOML, by the type that its reader returns for a number."""
    if read is None:
        return str
    try:
        value = read("1")
    except argparse.ArgumentTypeError:  # a share is below 1
        value = read("0.5")
    return type(value) if type(value) in _KINDS else str


def _check_kind(file: TomlFile, key: str, value: object, kind: type) -> object:
    fits = type(value) is kind or (kind is float and type(value) is int)
    if not fits or (isinstance(value, float) and not isfinite(value)):
        raise file.bad([key], f"{key} must be {_KINDS[kind]}, got {shown(value)}")
    return value


def shown(value: object) -> str:
    """A value in a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _read(file: TomlFile, key: str, text: str, read: Callable[[str], Any] | Any) -> object:
    try:
        return text if read is None else read(text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise file.bad([key], f"{key}: {error}", text if key == "constraints" else "") from None
