"""Knobs in a search file, `read_knobs`: one value, a list or a range of values, and how each knob is searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any, NamedTuple

from autoauto.cli.config.toml_file import TomlFile
from autoauto.cli.options.values import MAX_VALUES
from autoauto.records.knobs import MAX_SAMPLES, TRAINING_ORDERS, Method, Strategy

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


class KnobKind(NamedTuple):
    """The values that a knob may have.

    Attributes:
        text: in words.
        allows: whether a TOML value is one of them.
        read: turns it into a value of the search space.
        step: the default step of a range; None where a range must have one, 0 where there are no ranges.
    """

    text: str
    allows: Callable[[Any], bool]
    read: Callable[[Any], Any]
    step: int | None = 0


def _whole(limit: int) -> KnobKind:
    text = f"a whole number from 1 to {limit:,}"
    return KnobKind(text, lambda value: type(value) is int and 1 <= value <= limit, int, 1)


def _word(known: Sequence[Any]) -> KnobKind:
    names = {str(word): word for word in known}
    return KnobKind(f"one of {', '.join(names)}", lambda value: type(value) is str and value in names, names.get)


_SHARE = KnobKind("a number above 0, at most 1", lambda v: type(v) in (int, float) and 0 < v <= 1, float, None)

KNOBS: Mapping[str, KnobKind] = {
    "n_ipu": _whole(MAX_VALUES),
    "replicas": _whole(MAX_VALUES),
    "memory_proportion": _SHARE,
    "batch_size": _whole(MAX_SAMPLES),
    "schedule": _word(TRAINING_ORDERS),
    "recompute": KnobKind("true or false", lambda value: type(value) is bool, bool),
    "n_micro_batches": _whole(MAX_VALUES),
    "strategy": _word(tuple(Strategy)),
    "steps": _whole(MAX_VALUES),
}


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
        if name not in KNOBS:
            close = get_close_matches(name, KNOBS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"knobs are {', '.join(KNOBS)}"
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
    kind = KNOBS[name]
    items = (
        _range(file, keys, value, kind) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    )
    if not 1 <= len(items) <= MAX_VALUES:
        raise file.bad(keys, f"{name} takes 1 to {MAX_VALUES:,} values, got {len(items):,}")
    for item in items:
        if not kind.allows(item):
            text = str(item) if isinstance(item, int | float | str) and len(items) > 1 else ""
            raise file.bad(keys, f"{name} must be {kind.text}, got {item!r:.60}", text)
    if len(set(items)) < len(items):
        raise file.bad(keys, f"{name} has a value twice; each is tried once")
    if word == "fixed" and len(items) > 1:
        raise file.bad(keys, f"a fixed {name} has one value, got {len(items)}; try grid")
    if name == _BISECTED and items != sorted(items):
        raise file.bad(keys, f"{name} must ascend, got {items!r:.60}")
    return tuple(map(kind.read, items)), word


def _range(file: TomlFile, keys: list[str], table: Mapping[str, Any], kind: KnobKind) -> list[Any]:
    """The values from `from` to `to` in steps of `step`; `to` is included if a step meets it."""
    name = keys[1]
    if kind.step == 0:
        raise file.bad(keys, f"{name} must be {kind.text}, or a list, got a range")
    for key in (*table, "from", "to"):
        if key not in _RANGE or key not in table:
            mistake = f"there is no {key!r} in a range" if key in table else f"it lacks {key!r}"
            raise file.bad(keys, f"a range for {name} is {{ from = A, to = B, step = C }}; {mistake}")
    first, last, step = table["from"], table["to"], table.get("step", kind.step)
    if step is None:
        raise file.bad(keys, f"a range for {name} needs a step")
    numbers = (int,) if kind.step else (int, float)
    for key, value in (("from", first), ("to", last), ("step", step)):
        if (
            type(value) not in numbers
            or not isfinite(value)
            or abs(value) > MAX_SAMPLES
            or (key == "step" and value <= 0)
        ):
            what = "a whole number" if kind.step else "a number"
            raise file.bad(
                [*keys, key], f"{key} must be {what}{', above 0' if key == 'step' else ''}, got {value!r:.60}"
            )
    steps = (last - first) / step + 1e-9
    if not 0 <= steps < MAX_VALUES:
        got = "more" if steps > 0 else "none"
        raise file.bad(keys, f"{name} takes 1 to {MAX_VALUES:,} values, got {got} from {first} to {last}")
    return [first + i * step if kind.step else round(first + i * step, 9) for i in range(int(steps) + 1)]


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
