"""Stored examples for the estimate, and the correction that was fitted to them: `RangeStore`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlalchemy import Column, Integer, MetaData, String, Table, Text, func, select

from autoauto.profile.store.cache import ProfileCache
from autoauto.profile.store.codec import (
    correction_from_json,
    correction_to_json,
    example_from_json,
    example_to_json,
)
from autoauto.records.correction import FIT_VERSION, PLAIN_SUM, Correction, RangeExample
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph
from autoauto.records.profile import PROFILE_SCHEMA, CompileOptions
from autoauto.records.target import Target

Record = TypeVar("Record")

RANGE_SCHEMA = 4
_RANGES = Table(
    "autoauto_ranges",
    MetaData(),
    Column("digest", String(64), primary_key=True),
    Column("subject", String(64), nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("example", Text, nullable=False),
)
_CORRECTIONS = Table(
    "autoauto_corrections",
    MetaData(),
    Column("subject", String(64), primary_key=True),
    Column("correction", Text, nullable=False),
)


def subject_of(graph: LayerGraph, target: Target, device: Device, options: CompileOptions) -> str:
    """A digest of everything that examples of one fit have in common: all but batch size and memory proportion."""
    any_size = replace(options, batch_size=1, memory_proportion=1.0)
    content = (RANGE_SCHEMA, PROFILE_SCHEMA, graph.content, target.version, target.depends_on(device, any_size))
    return hashlib.sha256(repr(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RangeStore:
    """Two tables in the database of the profiles: examples, and the correction that was fitted to them last.

    The first measurement of a range is never replaced; a correction is replaced by one from more examples. Deleting the
    database costs time, not correctness. All methods raise BadInput when it is broken, not a cache, or not writable.

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

    def examples(self) -> list[RangeExample]:
        """All examples, in an order that depends on nothing but their ranges: their folds, and so the fit, do too."""
        of_subject = select(_RANGES.c.example).where(_RANGES.c.subject == self.subject)
        rows = self.cache.select(_RANGES, of_subject)
        return sorted((self._read(text, "example", example_from_json) for (text,) in rows), key=_shuffled)

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

    def correction(self) -> Correction:
        """The stored correction; `PLAIN_SUM` when there is none."""
        correction = select(_CORRECTIONS.c.correction).where(_CORRECTIONS.c.subject == self._fit_subject)
        rows = self.cache.select(_CORRECTIONS, correction)
        return self._read(rows[0][0], "correction", correction_from_json) if rows else PLAIN_SUM

    def store_correction(self, correction: Correction) -> None:
        """Store a correction in place of the last one."""
        row = {"subject": self._fit_subject, "correction": correction_to_json(correction)}
        self.cache.insert(_CORRECTIONS, [row], replace=True)

    def _read(self, text: str, name: str, read: Callable[[str, str], Record]) -> Record:
        try:
            return read(text, name)
        except BadInput as error:
            raise BadInput(
                f"the stored {name}s of {self.subject[:8]} must be whole: {error}; delete the profile cache, or "
                "the tables autoauto_ranges and autoauto_corrections of the shared one"
            ) from error

    @property
    def _fit_subject(self) -> str:
        """The subject of corrections, which differs between versions of the fit."""
        return hashlib.sha256(repr((self.subject, FIT_VERSION)).encode()).hexdigest()


def _shuffled(example: RangeExample) -> str:
    """Neighbours in the model get places far apart."""
    return hashlib.sha256(repr((example.batch_size, *example.whole.layers)).encode()).hexdigest()
