"""Knobs in a search file, `read_knobs`: one value, a list or a range of values, and how each knob is searched."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from autoauto.records.errors import did_you_mean
from autoauto.records.knobs.objectives import Method
from autoauto.records.knobs.table import KNOBS, MAX_SAMPLES, MAX_VALUES, Domain

if TYPE_CHECKING:
    from autoauto.records.files.toml import TomlFile

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


_TABLE = {knob.name: knob.domain for knob in KNOBS}


def read_knobs(file: TomlFile) -> tuple[dict[str, tuple[Any, ...]], Method | None]:
    """The values of every knob under `[knobs]`, and the method that the file names or that its words imply.

    Raises:
        BadInput: no such knob, a value that it cannot have, or a word that the method does not support.
    """
    table = file.table.get("knobs", {})
    if not isinstance(table, dict):
        raise file.bad(["knobs"], f"knobs must be a table, got {table!r:.60}")
    values, words = {}, {}
    for name in table:
        if name not in _TABLE:
            hint = did_you_mean(name, _TABLE, f"knobs are {', '.join(_TABLE)}")
            raise file.bad(["knobs", name], f"there is no knob {name!r}; {hint}")
        values[name], words[name] = _read_knob(file, name)
    return values, _method(file, words)


def _read_knob(file: TomlFile, name: str) -> tuple[tuple[Any, ...], str]:
    """The values of a knob, and the word that says how they are searched; empty without one."""
    keys, value = ["knobs", name], file.table["knobs"][name]
    word = ""
    if isinstance(value, dict) and not set(value) & set(_RANGE):
        if len(value) != 1 or not set(value) <= set(WORDS):
            got = ", ".join(value) or "nothing"
            shape = f"{{ from, to, step }} or one of {', '.join(WORDS)}"
            raise file.bad(keys, f"a table for {name} has {shape}, got {got:.60}")
        [(word, value)] = value.items()
        keys.append(word)
    domain = _TABLE[name]
    items = (
        _range(file, keys, value, domain) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    )
    if not 1 <= len(items) <= MAX_VALUES:
        raise file.bad(keys, f"{name} takes 1 to {MAX_VALUES:,} values, got {len(items):,}")
    for item in items:
        if not domain.allows(item):
            text = str(item) if isinstance(item, int | float | str) and len(items) > 1 else ""
            raise file.bad(keys, f"{name} must be {domain.text}, got {item!r:.60}", text)
    if len(set(items)) < len(items):
        raise file.bad(keys, f"{name} has a value twice; each is tried once")
    if word == "fixed" and len(items) > 1:
        raise file.bad(keys, f"a fixed {name} has one value, got {len(items)}; try grid")
    if name == _BISECTED and items != sorted(items):
        raise file.bad(keys, f"{name} must ascend, got {items!r:.60}")
    return tuple(map(domain.read, items)), word


def _range(file: TomlFile, keys: list[str], table: Mapping[str, Any], domain: Domain) -> list[Any]:
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
    numbers = (int,) if is_whole else (int, float)
    for key, value in (("from", first), ("to", last), ("step", step)):
        if (
            type(value) not in numbers
            or not isfinite(value)
            or abs(value) > MAX_SAMPLES
            or (key == "step" and value <= 0)
        ):
            what = "a whole number" if is_whole else "a number"
            raise file.bad(
                [*keys, key], f"{key} must be {what}{', above 0' if key == 'step' else ''}, got {value!r:.60}"
            )
    steps = (last - first) / step + 1e-9
    if not 0 <= steps < MAX_VALUES:
        got = "more" if steps > 0 else "none"
        raise file.bad(keys, f"{name} takes 1 to {MAX_VALUES:,} values, got {got} from {first} to {last}")
    return [first + i * step if is_whole else round(first + i * step, 9) for i in range(int(steps) + 1)]


def _method(file: TomlFile, words: Mapping[str, str]) -> Method | None:
    """The method that the file names, or that its words imply; None when there is neither.

    Raises:
        BadInput: the method does not support a word.
    """
    named = file.table.get("method")
    implied = [(WORDS[word][0], name) for name, word in words.items() if word in _METHOD_WORDS]
    method = Method(named) if named is not None else implied[0][0] if implied else None
    for name, word in words.items():
        if not word:
            continue
        if word == "bisect" and name != _BISECTED:
            raise file.bad(["knobs", name, word], f"only {_BISECTED} is bisected, got {name}; try grid")
        origin = "" if named is not None or not implied else f", which {implied[0][1]} chooses"
        if method is not None and method not in WORDS[word]:
            does = "samples every knob" if method in WORDS["sampled"] else f"has no knob {word}"
            raise file.bad(["knobs", name, word], f"{name} cannot be {word}: the method {method}{origin} {does}")
        if method is Method.GRID_BISECT and name == _BISECTED and word == "grid":
            raise file.bad(["knobs", name, word], f"{name} cannot be grid: the method {method}{origin} bisects it")
    return method
