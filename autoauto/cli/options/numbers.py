"""Numbers as options give them."""

from __future__ import annotations

import argparse

MOST_VALUES = 100_000  # that one knob may take


def positive(text: str) -> int:
    """Read an integer from 1.

    >>> positive("3")
    3
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def count(text: str) -> int:
    """Read an integer from 0.

    >>> count("0")
    0
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number from 0, got {text!r}")
    return int(text)


def positive_number(text: str) -> float:
    """Read a number above 0.

    >>> positive_number("2.5")
    2.5
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def share(text: str) -> float:
    """Read a number from 0 to below 1.

    >>> share("0.01")
    0.01
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"a share must be a number from 0 to below 1, got {text!r}")
    return value


def integers(text: str) -> tuple[int, ...]:
    """Read "1,2,4" or "1:128" (both ends are values of the knob) as integers.

    >>> integers("1,2,4"), integers("3:5")
    ((1, 2, 4), (3, 4, 5))
    """
    first, colon, last = text.partition(":")
    try:
        values = range(int(first), int(last) + 1) if colon else [int(item) for item in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"integers are written 1,2,4 or 1:128, got {text!r}") from None
    if not 0 < len(values) <= MOST_VALUES:
        raise argparse.ArgumentTypeError(f"a knob takes 1 to {MOST_VALUES} values, got {len(values)} in {text!r}")
    return tuple(values)


def proportions(text: str) -> tuple[float, ...]:
    """Read "0.3,0.6,1.0" as numbers.

    >>> proportions("0.3,1")
    (0.3, 1.0)
    """
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"proportions are written 0.3,0.6,1.0, got {text!r}") from None
