"""A search in a file, `--config FILE.toml`: options and knobs of `autoauto search`, read by `config_values`.

A knob is one value, a list or a range of values, and how it is searched: `read_knobs`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autoauto.records.errors import did_you_mean
from autoauto.records.knob import Domain
from autoauto.space.knobs import MAX_SAMPLES
from autoauto.space.modes.mode import MAX_VALUES
from autoauto.space.objectives import Method
from autoauto.space.table import TABLE, no_such_knob

if TYPE_CHECKING:
    from autoauto.records.files.toml import ParsedTable

WORDS: Mapping[str, tuple[Method, ...]] = {
    "fixed": tuple(Method),
    "grid": (Method.GUIDED, Method.GRID_BISECT, Method.EXHAUSTIVE),
    "bisect": (Method.GRID_BISECT,),
    "sampled": (Method.TPE, Method.RANDOM),
}
"""How a knob may be searched, and by which methods."""
_METHOD_WORDS = ("bisect", "sampled")
"""The words that imply a method, their first one, where the file names none."""
_BISECTED = "batch_size"
_RANGE = ("from", "to", "step")


SEARCH_SCHEMA = 1
NOT_IN_FILES = frozenset({"help", "help_all", "config", "json", "dry_run", "resume", *TABLE} - {"precision"})
_NO_OPTIONS = ("knobs", "schema")
_LISTS = {
    **dict.fromkeys(("objective", "precision"), ","),
    **dict.fromkeys(("constraints", "profile", "profile_details", "shape", "batch_axis", "state", "try")),
}
"""Options that may be lists, and what separates their items on the command line; None where each has the option."""


def read_knobs(file: ParsedTable) -> tuple[dict[str, tuple[Any, ...]], Method | None]:
    """The values of every knob under `[knobs]`, and the method that the file names or that its words imply.

    Raises:
        BadInput: no such knob, a value that it cannot have, or a word that the method does not support.
    """
    table = file.table.get("knobs", {})
    if not isinstance(table, dict):
        raise file.bad(["knobs"], f"knobs must be a table, got {table!r:.60}")
    values, words = {}, {}
    for name in table:
        if name not in TABLE:
            raise file.bad(["knobs", name], no_such_knob(name))
        values[name], words[name] = _read_knob(file, name)
    return values, _method(file, words)


def _read_knob(file: ParsedTable, name: str) -> tuple[tuple[Any, ...], str]:
    """The values of a knob, and the word for how they are searched, which is empty if there is none."""
    keys, value = ["knobs", name], file.table["knobs"][name]
    word = ""
    if isinstance(value, dict) and not set(value) & set(_RANGE):
        if len(value) != 1 or not set(value) <= set(WORDS):
            got = ", ".join(value) or "nothing"
            shape = f"{{ from, to, step }} or one of {', '.join(WORDS)}"
            raise file.bad(keys, f"a table for {name} has {shape}, got {got:.60}")
        [(word, value)] = value.items()
        keys.append(word)
    domain = TABLE[name].domain
    match value:
        case dict():
            items = _range(file, keys, value, domain)
        case list():
            items = value
        case _:
            items = [value]
    if not 1 <= len(items) <= MAX_VALUES:
        raise file.bad(keys, f"{name} takes 1 to {MAX_VALUES:,} values, got {len(items):,}")
    for item in items:
        if not domain.allows(item):
            text = str(item) if isinstance(item, int | float | str) and len(items) > 1 else ""
            raise file.bad(keys, f"{name} must be {domain.text}, got {item!r:.60}", text)
    items = list(dict.fromkeys(items))  # each is tried once
    if word == "fixed" and len(items) > 1:
        raise file.bad(keys, f"a fixed {name} has one value, got {len(items)}; try grid")
    if name == _BISECTED:
        items.sort()
    return tuple(map(domain.read, items)), word


def _range(file: ParsedTable, keys: list[str], table: Mapping[str, Any], domain: Domain) -> list[Any]:
    """The values from `from` to `to` in steps of `step`; `to` is included if a step meets it."""
    name, is_whole = keys[1], domain.kind is int
    if domain.kind not in (int, float):
        raise file.bad(keys, f"{name} must be {domain.text}, or a list, got a range")
    for key in (*table, "from", "to"):
        if key not in _RANGE or key not in table:
            mistake = f"there is no {key!r} in a range" if key in table else f"it lacks {key!r}"
            raise file.bad(keys, f"a range for {name} is {{ from = A, to = B, step = C }}; {mistake}")
    first, last, step = table["from"], table["to"], table.get("step", 1 if is_whole else None)
    if step is None:
        raise file.bad(keys, f"a range for {name} needs a step")
    for key, value in (("from", first), ("to", last), ("step", step)):
        _check_number(file, [*keys, key], value, is_whole)
    n_steps = (last - first) / step + 1e-9  # so that a fraction that cannot be written exactly meets `to`
    if not 0 <= n_steps < MAX_VALUES:
        got = "more" if n_steps > 0 else "none"
        raise file.bad(keys, f"{name} takes 1 to {MAX_VALUES:,} values, got {got} from {first} to {last}")
    values = [first + i * step for i in range(int(n_steps) + 1)]
    return values if is_whole else [round(value, 9) for value in values]


def _check_number(file: ParsedTable, keys: list[str], value: Any, is_whole: bool) -> None:
    """Refuse an end or a step of a range that is no number, or one from which no values follow."""
    key = keys[-1]
    is_number = type(value) is int or (type(value) is float and not is_whole)  # True and False are no numbers here
    if is_number and isfinite(value) and abs(value) <= MAX_SAMPLES and (key != "step" or value > 0):
        return
    kind = "a whole number" if is_whole else "a number"
    if key == "step":
        kind += ", above 0"
    raise file.bad(keys, f"{key} must be {kind}, got {value!r:.60}")


def _method(file: ParsedTable, words: Mapping[str, str]) -> Method | None:
    """The method that the file names, or that its words imply; None when there is neither."""
    named = file.table.get("method")
    method, origin = None, ""
    if named is not None:
        method = Method(named)
    else:
        for name, word in words.items():
            if word in _METHOD_WORDS:
                method, origin = WORDS[word][0], f", which {name} chooses"
                break
    for name, word in words.items():
        if not word:
            continue
        keys = ["knobs", name, word]
        if word == "bisect" and name != _BISECTED:
            raise file.bad(keys, f"only {_BISECTED} is bisected, got {name}; try grid")
        if method is not None and method not in WORDS[word]:
            does = "samples every knob" if method in WORDS["sampled"] else f"has no knob {word}"
            raise file.bad(keys, f"{name} cannot be {word}: the method {method}{origin} {does}")
        if method is Method.GRID_BISECT and name == _BISECTED and word == "grid":
            raise file.bad(keys, f"{name} cannot be grid: the method {method}{origin} bisects it")
    return method


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add a file with more arguments."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE.toml",
        help="options and knobs from a file, see docs/search.md; arguments on the command line win",
    )


def config_values(
    file: ParsedTable, parser: argparse.ArgumentParser, elsewhere: Collection[str] = NOT_IN_FILES
) -> dict[str, Any]:
    """The values of options of `parser` in a file, or in an object in its place; options in `elsewhere` are refused.

    Raises:
        BadInput: it has an unknown key or a wrong value.
    """
    options = {action.dest: action for action in parser._actions if action.dest not in elsewhere}
    for key in file.table:
        if key not in options and key not in _NO_OPTIONS:
            is_table = isinstance(file.table[key], dict)
            raise file.bad([key], unknown(key, [*options, *_NO_OPTIONS], tuple(TABLE), is_table))
    values = _values(file, {key: options[key] for key in file.table if key in options})
    knobs, method = read_knobs(file)
    values |= knobs
    if method is not None:
        values["method"] = str(method)
    return values


def unknown(key: str, known: Sequence[str], knobs: Sequence[str] = (), is_table: bool = False) -> str:
    """The message for an unknown key or table, with a hint at what may be meant."""
    name = key.lower().replace("-", "_")
    if name in knobs:
        hint = f"{key} is a knob; write it under [knobs]"
        return hint if name == key else f"{hint}, as {name}"
    if is_table:
        hint = "options stand at the top without a table, knobs under [knobs]"
        return f"there is no table [{key:.60}]; {did_you_mean(key, ['knobs'], hint)}"
    hint = did_you_mean(key, known, did_you_mean(key, knobs, f"keys are {', '.join(known)}"))
    return f"there is no key {key!r:.60}; {hint}"


def _values(file: ParsedTable, options: Mapping[str, argparse.Action]) -> dict[str, object]:
    """The values of options, as the parser reads them from the command line."""
    import msgspec

    table = msgspec.defstruct("SearchFile", [(key, _kind(key, action)) for key, action in options.items()])
    given = msgspec.structs.asdict(file.read(table, SEARCH_SCHEMA))
    return {key: _value(file, key, given[key], action) for key, action in options.items()}


def _kind(key: str, action: argparse.Action) -> Any:
    """The type of an option in TOML; without choices, the type that its reader makes of a number."""
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


def _value(file: ParsedTable, key: str, value: Any, action: argparse.Action) -> object:
    """A value of an option, as the parser reads it from the command line."""
    if action.nargs == 0:  # a switch
        return value
    if key not in _LISTS:
        return _read(file, key, str(value), action.type)
    texts = [value] if isinstance(value, str) else value
    if _LISTS[key] is None:
        return [_read(file, key, text, action.type) for text in texts]
    return _read(file, key, ",".join(texts), action.type)


def _read(file: ParsedTable, key: str, text: str, read: Callable[[str], Any] | Any) -> object:
    try:
        return text if read is None else read(text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise file.bad([key], f"{key}: {error}", text if key == "constraints" else "") from None
