"""A cache of computed values with a bound on their number: `Memo`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Values by key, at most `size` of them: one more takes the place of the oldest.

    >>> squares = Memo(2)
    >>> [squares.of(n, lambda n=n: n * n) for n in (1, 2, 3)], 1 in squares, 3 in squares
    ([1, 4, 9], False, True)
    """

    __slots__ = ("_size", "_values")

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: dict[K, V] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self._values and len(self._values) >= self._size:
            del self._values[next(iter(self._values))]
        self._values[key] = value

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if there is none."""
        if key not in self._values:
            self[key] = make()
        return self._values[key]

    def get(self, key: K) -> V | None:
        """The value of a key; None where there is none."""
        return self._values.get(key)

    def items(self) -> Iterator[tuple[K, V]]:
        """The keys with their values, the oldest first."""
        return iter(self._values.items())

    def forget(self, key: K) -> None:
        """Leave out a key, if it is there."""
        self._values.pop(key, None)
