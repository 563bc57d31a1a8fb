"""The ways in which one would use a cluster without a search: `simple_uses`.

Of four devices, where d is a device and d-d a pipeline:

    d          one device
    d d d d    4 replicas of one device
    d-d-d-d    one pipeline of 4
    dddd       one session of 4 cores, where a device is a core

They are parts of the space of a search, so its best is no worse; a search shows what each of them gives.
"""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.costs.options import TargetWords
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace


class SimpleUse(NamedTuple):
    """Pipelines of a length and a number, with any memory proportion, batch size and schedule."""

    n_ipu: int
    replicas: int
    group_size: int
    words: TargetWords = TargetWords()

    @property
    def name(self) -> str:
        """The simple use in words.

        >>> SimpleUse(1, 4, 1).name, SimpleUse(4, 1, 1).name, SimpleUse(1, 1, 4, TargetWords("session", "core")).name
        ('4 replicas of one device', 'one pipeline of 4', 'one session of 4 cores')
        """
        if self.n_ipu > 1:
            return f"one pipeline of {self.n_ipu}"
        if self.replicas > 1:
            return self.words.replicas(self.replicas, self.group_size)
        return f"one {self.words.single(self.group_size)}"

    def has(self, knobs: Knobs) -> bool:
        """True if a configuration is one of the simple uses."""
        return not knobs.is_phased and self == use_of(knobs)


def use_of(knobs: Knobs) -> SimpleUse:
    """The length and the number of the pipelines of a configuration."""
    return SimpleUse(knobs.n_ipu, knobs.replicas, knobs.session.group_size, knobs.session.words)


def simple_uses(space: SearchSpace) -> tuple[SimpleUse, ...]:
    """The simple uses in a space: one device; the most replicas, the longest pipeline or the most cores alone."""
    uses = {use_of(cell[0]) for cell in space.cells if not cell[0].is_phased}
    single = SimpleUse(1, 1, 1, next(iter(uses)).words if uses else TargetWords())
    most = (
        max((use for use in uses if use == single._replace(**{axis: getattr(use, axis)})), default=single)
        for axis in ("replicas", "n_ipu", "group_size")
    )
    return tuple(use for use in dict.fromkeys((single, *most)) if use in uses)
