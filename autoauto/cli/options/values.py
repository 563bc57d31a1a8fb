"""Readers of option values: numbers such as `at_most`, lists such as `integers`, words such as `choices_of`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from math import isfinite
from typing import TypeVar

from autoauto.records.errors import BadInput, did_you_mean
from autoauto.records.knob import text_by_device
from autoauto.space.constraint import Constraint
from autoauto.space.modes.mode import MAX_VALUES
from autoauto.space.objectives import Objectives, parse_objectives
from autoauto.space.requests.given import knob_values

Choice = TypeVar("Choice", bound=str)


def at_most(maximum: int, minimum: int = 1) -> Callable[[str], int]:
    """A reader of integers from `minimum` to `maximum`, for numbers that size what a command starts or repeats."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 20 or not minimum <= int(text) <= maximum:
            raise argparse.ArgumentTypeError(f"must be a whole number from {minimum} to {maximum:,}, got {text!r:.60}")
        return int(text)

    return read


def positive_number(text: str) -> float:
    """Read a number above 0."""
    return _number(text, lambda value: value > 0.0, f"must be a number above 0, got {text!r}")


def seconds(text: str) -> float:
    """Read a duration: a number of seconds, or one with its unit s, m or h.

    >>> seconds("90"), seconds("5m"), seconds("1.5h")
    (90.0, 300.0, 5400.0)
    """
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS_S else (text, "s")
    refusal = f"must be a time above 0 such as 90, 5m or 2h, got {text!r:.60}"
    return _number(number, lambda value: value > 0.0, refusal) * _UNITS_S[unit]


_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


def not_negative(text: str) -> float:
    """Read a number from 0."""
    return _number(text, lambda value: value >= 0.0, f"must be a number from 0, got {text!r}")


def share(text: str) -> float:
    """Read a number from 0 to below 1."""
    return _number(text, lambda value: 0.0 <= value < 1.0, f"a share must be a number from 0 to below 1, got {text!r}")


def _number(text: str, is_allowed: Callable[[float], bool], refusal: str) -> float:
    """The number that a text is, which must be finite and allowed."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(refusal) from None
    if not (isfinite(value) and is_allowed(value)):
        raise argparse.ArgumentTypeError(refusal)
    return value


def integers(text: str) -> tuple[int, ...]:
    """Read "1,2,4", or "1:128" with both ends included, as integers.

    >>> integers("1,2,4"), integers("3:5")
    ((1, 2, 4), (3, 4, 5))
    """
    _, colon, _ = text.partition(":")
    try:
        numbers = [int(number) for number in (text.split(":", 1) if colon else text.split(","))]
    except ValueError:
        raise argparse.ArgumentTypeError(f"integers are written 1,2,4 or 1:128, got {text!r:.60}") from None
    n_values = len(numbers)
    if colon:
        first, last = numbers
        n_values = last - first + 1
        if n_values < 1:
            hint = f"try {last}:{first}" if last > 0 else "try 1:128"
            mistake = f"a range is written FIRST:LAST, the smaller first, got {text!r:.60}"
            raise argparse.ArgumentTypeError(f"{mistake}; {hint}")
    if n_values > MAX_VALUES:  # before they are made
        raise argparse.ArgumentTypeError(f"a knob takes 1 to {MAX_VALUES:,} values, got {n_values:,} in {text!r:.60}")
    return tuple(range(first, last + 1)) if colon else tuple(numbers)


def proportions(text: str) -> tuple[float | str, ...]:
    """Read "0.3,0.6,1.0" as numbers; an item with colons has one number for each device of a pipeline.

    >>> proportions("0.3,1"), proportions("0.6,.15:0.25")
    ((0.3, 1.0), (0.6, '0.15:0.25'))
    """
    values: list[float | str] = []
    try:
        for item in text.split(","):
            numbers = [float(number) for number in item.split(":")]
            values.append(numbers[0] if len(numbers) == 1 else text_by_device(numbers))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"proportions are written 0.3,0.6,1.0, or for each device 0.15:0.25, got {text!r}"
        ) from None
    return tuple(values)


def switches(text: str) -> tuple[bool, ...]:
    """Read "off,on" as switches.

    >>> switches("off,on")
    (False, True)
    """
    words = text.split(",")
    if not set(words) <= {"off", "on"}:
        raise argparse.ArgumentTypeError(f"a switch is on, off or off,on, got {text!r}")
    return tuple(word == "on" for word in words)


def switches_or(others: Sequence[Choice]) -> Callable[[str], tuple[bool | Choice, ...]]:
    """A reader of switches that may have other values, too.

    >>> from autoauto.space.modes.mode import Recompute
    >>> switches_or(tuple(Recompute))("off,auto")
    (False, <Recompute.AUTO: 'auto'>)
    """

    def read(text: str) -> tuple[bool | Choice, ...]:
        known: dict[str, bool | Choice] = {"off": False, "on": True, **{str(other): other for other in others}}
        words = text.split(",")
        if not set(words) <= set(known):
            raise argparse.ArgumentTypeError(f"one or more of {', '.join(known)}, got {text!r}")
        return tuple(known[word] for word in words)

    return read


def choices_of(known: Sequence[Choice]) -> Callable[[str], tuple[Choice, ...]]:
    """A reader of one or more of the words `known`, with commas.

    >>> from autoauto.records.schedule import Order
    >>> choices_of((Order.GPIPE, Order.ONE_F_ONE_B))("gpipe,1f1b")
    (<Order.GPIPE: 'gpipe'>, <Order.ONE_F_ONE_B: '1f1b'>)
    """
    choices = {str(choice): choice for choice in known}

    def read(text: str) -> tuple[Choice, ...]:
        words = text.split(",")
        if wrong := [word for word in words if word not in choices]:
            hint = did_you_mean(wrong[0], known)
            message = f"one or more of {', '.join(known)}, got {text!r}"
            raise argparse.ArgumentTypeError("; ".join(filter(None, [message, hint])))
        return tuple(choices[word] for word in words)

    return read


def objectives(text: str) -> Objectives:
    """Read one objective, or several with commas.

    >>> objectives("latency")
    <Objective.LATENCY: 'latency'>
    """
    try:
        return parse_objectives(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def constraint_text(text: str) -> str:
    """Read a constraint.

    >>> constraint_text("latency_s<=0.02")
    'latency_s <= 0.02'
    """
    try:
        return Constraint(text).text
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def configuration_text(text: str) -> str:
    """Read a configuration by its knobs, and leave it a text.

    >>> configuration_text("n_ipu=2,batch_size=8")
    'n_ipu=2,batch_size=8'
    """
    try:
        knob_values(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def labels(text: str) -> dict[str, str]:
    """Read labels.

    >>> labels("gpu=h100,site=a")
    {'gpu': 'h100', 'site': 'a'}
    """
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and equals and value for name, equals, value in pairs):
        raise argparse.ArgumentTypeError(f"labels are written gpu=h100,site=a, got {text!r}")
    return {name: value for name, _, value in pairs}
