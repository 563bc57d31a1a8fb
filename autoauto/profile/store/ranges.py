"""Stored examples for the estimate, and the correction that was fitted to them: `RangeStore`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from autoauto.profile.store.codec import Field
from autoauto.records.correction import FIT_VERSION, PLAIN_SUM, Correction, PredictionInterval, RangeExample, WholeRange
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import PROFILE_SCHEMA, Cache, CompileOptions, Target

Record = TypeVar("Record")

RANGE_SCHEMA = 3
# The names of these fields in stored corrections.
_STORED_NAMES = {"cycles_interval": "cycles_band", "memory_interval": "memory_band"}
TABLES = (
    "CREATE TABLE IF NOT EXISTS autoauto_ranges (digest VARCHAR(64) PRIMARY KEY, subject VARCHAR(64) NOT NULL, "
    "batch_size INTEGER NOT NULL, example TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS autoauto_corrections (subject VARCHAR(64) PRIMARY KEY, correction TEXT NOT NULL)",
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
        cache: the cache of the profiles.
        subject: what all its examples have in common, from `subject_of`.
    """

    cache: Cache
    subject: str

    def batch_sizes(self) -> dict[int, int]:
        """The number of examples of every batch size."""
        rows = self._select(
            "SELECT batch_size, count(*) FROM autoauto_ranges WHERE subject = ? GROUP BY batch_size", self.subject
        )
        return {int(batch_size): int(count) for batch_size, count in rows}

    def examples(self) -> list[RangeExample]:
        """All examples, always in the same order."""
        rows = self._select("SELECT example FROM autoauto_ranges WHERE subject = ? ORDER BY digest", self.subject)
        return [self._read(example, "example", _example) for (example,) in rows]

    def add(self, options: CompileOptions, examples: Sequence[RangeExample]) -> None:
        """Store examples, in one transaction; ranges that are stored already do not change."""
        rows = []
        for example in examples:
            digest = hashlib.sha256(repr((self.subject, options, example.whole.layers)).encode()).hexdigest()
            rows.append((digest, self.subject, example.batch_size, json.dumps(example._asdict())))
        with self.cache.open(TABLES) as db:
            db.executemany("INSERT INTO autoauto_ranges VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)

    def correction(self) -> Correction:
        """The stored correction; `PLAIN_SUM` when there is none."""
        rows = self._select("SELECT correction FROM autoauto_corrections WHERE subject = ?", self._fit_subject)
        return self._read(rows[0][0], "correction", _correction) if rows else PLAIN_SUM

    def store_correction(self, correction: Correction) -> None:
        """Store a correction in place of the last one."""
        with self.cache.open(TABLES) as db:
            db.execute(
                "INSERT INTO autoauto_corrections VALUES (?, ?) "
                "ON CONFLICT (subject) DO UPDATE SET correction = excluded.correction",
                (self._fit_subject, json.dumps(_stored(correction))),
            )

    def _read(self, text: str, name: str, make: Callable[[Field], Record]) -> Record:
        try:
            return make(Field(json.loads(text), name))
        except (ValueError, TypeError, KeyError) as error:  # BadInput is a ValueError
            raise BadInput(
                f"the stored {name}s of {self.subject[:8]} must be whole: {error}; delete the profile cache, or "
                "the tables autoauto_ranges and autoauto_corrections of the shared one"
            ) from error

    @property
    def _fit_subject(self) -> str:
        """The subject of corrections, which differs between versions of the fit."""
        return hashlib.sha256(repr((self.subject, FIT_VERSION)).encode()).hexdigest()

    def _select(self, query: str, subject: str) -> list[Any]:
        with self.cache.open(TABLES) as db:
            return list(db.execute(query, (subject,)))


def _example(field: Field) -> RangeExample:
    layers, forward_cycles, backward_cycles, memory_bytes = field["whole"].entries()
    start, stop = (end.whole() for end in layers.entries())
    return RangeExample(
        WholeRange(
            LayerRange(start, stop), forward_cycles.whole(), backward_cycles.whole(), memory_bytes.whole_by_name()
        ),
        field["batch_size"].whole(),
        field["forward_cycles"].whole_by_name(),
        field["backward_cycles"].whole_by_name(),
        field["memory_bytes"].whole_by_name(),
    )


def _stored(correction: Correction) -> dict[str, Any]:
    return {_STORED_NAMES.get(name, name): value for name, value in asdict(correction).items()}


def _correction(field: Field) -> Correction:
    names = Correction.__dataclass_fields__
    values: dict[str, Any] = {name: field[_STORED_NAMES.get(name, name)].value for name in names}
    intervals = {name: PredictionInterval(*values[name]) for name in _STORED_NAMES}
    batch_sizes = tuple((size, factor) for size, factor in values["batch_sizes"])
    return Correction(**{**values, **intervals, "batch_sizes": batch_sizes})
