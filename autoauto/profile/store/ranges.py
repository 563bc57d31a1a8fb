"""Stored examples, to which the correction of the estimate is fitted: `RangeStore`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Column, Integer, MetaData, String, Table, Text, func, select

from autoauto.profile.store.cache import ProfileCache
from autoauto.profile.store.codec import example_from_json, example_to_json
from autoauto.records.correction import RangeExample
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph
from autoauto.records.profile import PROFILE_SCHEMA, CompileOptions
from autoauto.records.target import Target

RANGE_SCHEMA = 5
_RANGES = Table(
    "autoauto_ranges",
    MetaData(),
    Column("digest", String(64), primary_key=True),
    Column("subject", String(64), nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("example", Text, nullable=False),
)


def subject_of(graph: LayerGraph, target: Target, device: Device, options: CompileOptions) -> str:
    """A digest of everything that examples of one fit have in common: all but batch size and memory proportion."""
    any_size = replace(options, batch_size=1, memory_proportion=1.0)
    content = (RANGE_SCHEMA, PROFILE_SCHEMA, graph.content, target.version, target.depends_on(device, any_size))
    return hashlib.sha256(repr(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RangeStore:
    """A table in the database of the profiles: ranges that were compiled whole, or ran.

    The first measurement of a range is never replaced. Deleting the database costs time, not correctness. All methods
    raise BadInput when it is broken, not a cache, or not writable.

    Attributes:
        cache: the cache of the profiles, which is in the same database.
        subject: what all its examples have in common, from `subject_of`.
    """

    cache: ProfileCache
    subject: str

    def batch_sizes(self) -> dict[int, int]:
        """The number of examples of every batch size."""
        counts = select(_RANGES.c.batch_size, func.count()).where(_RANGES.c.subject == self.subject)
        return dict(self.cache.select(_RANGES, counts.group_by(_RANGES.c.batch_size)))

    def examples(self, batch_sizes: Sequence[int] = ()) -> list[RangeExample]:
        """The examples of these batch sizes, without any all.

        Their order depends on nothing but their ranges: so do their folds, and the fit.
        """
        chosen = select(_RANGES.c.example).where(_RANGES.c.subject == self.subject)
        if batch_sizes:
            chosen = chosen.where(_RANGES.c.batch_size.in_(batch_sizes))
        return sorted((self._read(text) for (text,) in self.cache.select(_RANGES, chosen)), key=_shuffled)

    def add(self, options: CompileOptions, examples: Sequence[RangeExample]) -> None:
        """Store examples, in one transaction; ranges that are stored already do not change."""
        rows = [
            {
                "digest": hashlib.sha256(repr((self.subject, options, example.whole.layers)).encode()).hexdigest(),
                "subject": self.subject,
                "batch_size": example.batch_size,
                "example": example_to_json(example),
            }
            for example in examples
        ]
        self.cache.insert(_RANGES, rows)

    def _read(self, text: str) -> RangeExample:
        try:
            return example_from_json(text, "example")
        except BadInput as error:
            raise BadInput(
                f"the stored examples of {self.subject[:8]} must be whole: {error}; delete the profile cache, or "
                "the table autoauto_ranges of the shared one"
            ) from error


def _shuffled(example: RangeExample) -> str:
    """Neighbours in the model get places far apart."""
    return hashlib.sha256(repr((example.batch_size, *example.whole.layers)).encode()).hexdigest()
