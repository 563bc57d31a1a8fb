"""The values that a knob may have: `Domain`, and those that several knobs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from operator import index
from typing import Any


@dataclass(frozen=True, slots=True)
class Domain:
    """The values that a knob may have.

    Attributes:
        kind: int, float, bool or str.
        text: one of them in words.
        plural: several of them in words.
        maximum: the largest number; numbers begin at 1, or above 0 if they are fractions.
        words: the words that a person may write; of a switch those besides on and off.
        stored: the words that a database may hold, in an order that never changes.
        read: makes the value of a Python value; raises TypeError or ValueError.
    """

    kind: type
    text: str
    plural: str
    maximum: int = 1
    words: tuple[StrEnum, ...] = ()
    stored: tuple[Any, ...] = ()
    read: Callable[[Any], Any] = index

    def allows(self, value: object) -> bool:
        """Whether a value from a file is one of them.

        >>> whole(4).allows(4), whole(4).allows(True), FRACTION.allows(1)
        (True, False, True)
        """
        if self.kind is str:
            return type(value) is str and value in self.words
        if self.kind is bool:
            return type(value) is bool or (type(value) is str and value in self.words)
        kinds = (int, float) if self.kind is float else (int,)
        return type(value) in kinds and 0 < value <= self.maximum  # type: ignore[operator]


def whole(maximum: int) -> Domain:
    """Whole numbers from 1."""
    return Domain(int, f"a whole number from 1 to {maximum:,}", "whole numbers", maximum)


def words(kind: type[StrEnum], known: tuple[StrEnum, ...], stored: tuple[StrEnum, ...]) -> Domain:
    """Words of an enumeration, of which people may write those in `known`."""
    plural = f"the words {', '.join(kind)}"
    return Domain(str, f"one of {', '.join(known)}", plural, words=known, stored=tuple(map(str, stored)), read=kind)


def words_of_host(kind: type[StrEnum]) -> Domain:
    """Words that devices of the host have; None stands for all other devices."""
    known = tuple(kind)
    stored = (None, *map(str, known))
    text, plural = f"one of {', '.join(known)}", f"the words {', '.join(known)}"
    return Domain(str, text, plural, words=known, stored=stored, read=lambda given: given and kind(given))


FRACTION = Domain(float, "a number above 0, at most 1", "numbers", read=float)
SWITCH = Domain(bool, "true or false", "False and True", stored=(False, True), read=lambda value: bool(index(value)))
