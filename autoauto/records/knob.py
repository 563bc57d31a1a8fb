"""One setting that a search may vary, `Knob`, and the values that it may have, `Domain`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from operator import index
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Domain:
    """The values that a knob may have.

    Attributes:
        kind: int, float, bool or str.
        text, plural: one of them, and several of them, in words.
        minimum: the smallest whole number; fractions are above 0.
        words: the words that a person may write; of a switch those besides on and off.
        stored: the words that a database may hold, in an order that never changes.
        by_device: whether a value may also be a text of several numbers, one for each device, as in "0.15:0.25".
        read: makes the value of a Python value; raises TypeError or ValueError.
    """

    kind: type
    text: str
    plural: str
    maximum: int = 1
    minimum: int = 1
    words: tuple[str, ...] = ()
    stored: tuple[Any, ...] = ()
    by_device: bool = False
    read: Callable[[Any], Any] = index

    def allows(self, value: object) -> bool:
        """True if the knob may have this value, as a file gives it."""
        if self.by_device and type(value) is str:
            return all(map(self.allows, numbers_by_device(value)))
        if self.kind is str:
            return type(value) is str and value in self.words
        if self.kind is bool:
            return type(value) is bool or (type(value) is str and value in self.words)
        if self.kind is float:
            return type(value) in (int, float) and 0 < value <= self.maximum  # type: ignore[operator]
        return type(value) is int and self.minimum <= value <= self.maximum


def whole(maximum: int, minimum: int = 1) -> Domain:
    """Whole numbers from `minimum`."""
    return Domain(int, f"a whole number from {minimum} to {maximum:,}", "whole numbers", maximum, minimum)


def words(kind: type[StrEnum], known: tuple[StrEnum, ...], stored: tuple[StrEnum, ...]) -> Domain:
    """Words of an enumeration, of which people may write those in `known`."""
    plural = f"the words {', '.join(kind)}"
    return Domain(str, f"one of {', '.join(known)}", plural, words=known, stored=tuple(map(str, stored)), read=kind)


def words_or_none(known: Sequence[str]) -> Domain:
    """Some words, or None where a configuration has none of them.

    >>> domain = words_or_none(("fp32", "fp16"))
    >>> domain.read("fp16"), domain.read(None), domain.stored
    ('fp16', None, (None, 'fp32', 'fp16'))
    """
    known = tuple(known)
    return Domain(
        str,
        f"one of {', '.join(known)}",
        f"the words {', '.join(known)}",
        words=known,
        stored=(None, *map(str, known)),
        read=lambda given: None if given is None else known[known.index(given)],
    )


def numbers_by_device(value: float | str) -> tuple[float, ...]:
    """The numbers of all devices in a value of a knob; a part that is no number becomes 0, which no knob allows.

    >>> numbers_by_device("0.15:0.25:x"), numbers_by_device(0.6)
    ((0.15, 0.25, 0.0), (0.6,))
    """
    if isinstance(value, str):
        return tuple(map(_number, value.split(":")))
    return (value,)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def text_by_device(numbers: Iterable[float]) -> str:
    """The value of a knob that has these numbers, one for each device.

    >>> text_by_device([0.1, 0.25])
    '0.1:0.25'
    """
    return ":".join(map(repr, map(float, numbers)))


def largest_by_device(value: float | str) -> float:
    """A value as one number: for a value with a number for each device, the largest of them."""
    return float(max(numbers_by_device(value)))


def _read_by_device(value: Any) -> float | str:
    if not isinstance(value, str):
        return float(value)
    numbers = numbers_by_device(value)
    return value if 0.0 in numbers else text_by_device(numbers)


FRACTION_BY_DEVICE = Domain(
    float,
    "a number above 0, at most 1, or one for each device, 0.15:0.25",
    "numbers",
    by_device=True,
    read=_read_by_device,
)
SWITCH = Domain(bool, "true or false", "False and True", stored=(False, True), read=lambda value: bool(index(value)))
_AS_DEFAULT = object()


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting that a search may vary; the class whose field it is lists it.

    Attributes:
        name: of the field of `SearchSpace`, the parameter in a database, the key in JSON and TOML, the name in a
            constraint; with dashes the option.
        default: its value where nothing varies it.
        help: what it is, for its option.
        metavar: an example of several values.
        default_help: the default of the option of one configuration, and of a search.
        absent: what tables and files hold for configurations that do not have it; by default its default.
        label: its name in charts, where there is little room; by default its name.
        sets: the field that it sets; by default its own.
        searched: the values that a search tries where none are given; by default the default.
        is_shown: whether its value is shown where it is the default, too.
        breaks_ties: whether the smaller value is the simpler configuration.
    """

    name: str
    domain: Domain
    default: Any
    help: str
    metavar: str
    default_help: tuple[str, str]
    absent: Any = _AS_DEFAULT
    label: str = ""
    sets: str = ""
    searched: tuple[Any, ...] = ()
    is_shown: bool = False
    breaks_ties: bool = False

    def __post_init__(self) -> None:
        if self.absent is _AS_DEFAULT:
            object.__setattr__(self, "absent", self.default)

    @property
    def field(self) -> str:
        """The field that it sets."""
        return self.sets or self.name

    @property
    def option(self) -> str:
        """The option of the command line."""
        return f"--{self.name.replace('_', '-')}"


@lru_cache(maxsize=64)
def _fields(knobs: tuple[Knob, ...]) -> tuple[str, ...]:
    """The fields that knobs set; once for every class, since spaces have many configurations."""
    return tuple(knob.field for knob in knobs)


class HasKnobs:
    """A part of a configuration whose fields are `knobs`, in the order in which they are shown: all that it has."""

    __slots__ = ()
    knobs: ClassVar[tuple[Knob, ...]] = ()

    @property
    def values(self) -> dict[str, Any]:
        """The value of every knob, by the field that it sets."""
        return {name: getattr(self, name) for name in _fields(self.knobs)}
