"""Ranges of layers compiled whole, and what they taught, kept beside the profiles: `RangeStore`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from autoauto.profile.store.codec import Field
from autoauto.records.correction import FIT, PLAIN_SUM, Band, Correction, RangeExample, WholeRange
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import PROFILE_SCHEMA, Cache, CompileOptions, Target

Made = TypeVar("Made")

RANGE_SCHEMA = 3
TABLES = (
    "CREATE TABLE IF NOT EXISTS autoauto_ranges (digest VARCHAR(64) PRIMARY KEY, subject VARCHAR(64) NOT NULL, "
    "batch_size INTEGER NOT NULL, example TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS autoauto_corrections (subject VARCHAR(64) PRIMARY KEY, correction TEXT NOT NULL)",
)


def subject_of(graph: LayerGraph, target: Target, device: Device, options: CompileOptions) -> str:
    """A digest of what examples are about; those of any batch size and memory proportion teach each other."""
    any_size = replace(options, batch_size=1, memory_proportion=1.0)
    about = (RANGE_SCHEMA, PROFILE_SCHEMA, graph.content, target.version, target.depends_on(device, any_size))
    return hashlib.sha256(repr(about).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RangeStore:
    """Two tables beside the profiles, in their database: examples, and the correction that was fitted to them last.

    The first measurement of a range stays; a correction is replaced by one from more examples. Deleting the file costs
    time, not correctness. Everything raises BadInput when the file is broken, no cache, or cannot be written.

    Attributes:
        cache: that of the profiles.
        subject: what the examples are about, from `subject_of`.
    """

    cache: Cache
    subject: str

    def batch_sizes(self) -> dict[int, int]:
        """How many examples there are of every batch size."""
        rows = self._select(
            "SELECT batch_size, count(*) FROM autoauto_ranges WHERE subject = ? GROUP BY batch_size", self.subject
        )
        return {int(batch_size): int(count) for batch_size, count in rows}

    def examples(self) -> list[RangeExample]:
        """All examples, always in the same order."""
        rows = self._select("SELECT example FROM autoauto_ranges WHERE subject = ? ORDER BY digest", self.subject)
        return [self._read(example, "example", _example) for (example,) in rows]

    def add(self, options: CompileOptions, examples: Sequence[RangeExample]) -> None:
        """Keep examples, in one transaction; what is known already stays as it is."""
        rows = []
        for example in examples:
            digest = hashlib.sha256(repr((self.subject, options, example.whole.layers)).encode()).hexdigest()
            rows.append((digest, self.subject, example.batch_size, json.dumps(example._asdict())))
        with self.cache.open(TABLES) as db:
            db.executemany("INSERT INTO autoauto_ranges VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)

    def correction(self) -> Correction:
        """The correction that was kept last; none, the plain sum, when there is none."""
        rows = self._select("SELECT correction FROM autoauto_corrections WHERE subject = ?", self._fitted)
        return self._read(rows[0][0], "correction", _correction) if rows else PLAIN_SUM

    def keep(self, correction: Correction) -> None:
        """Keep a correction in place of the last one."""
        with self.cache.open(TABLES) as db:
            db.execute(
                "INSERT INTO autoauto_corrections VALUES (?, ?) "
                "ON CONFLICT (subject) DO UPDATE SET correction = excluded.correction",
                (self._fitted, json.dumps(asdict(correction))),
            )

    def _read(self, text: str, name: str, make: Callable[[Field], Made]) -> Made:
        try:
            return make(Field(json.loads(text), name))
        except (ValueError, TypeError, KeyError) as error:  # BadInput is a ValueError
            raise BadInput(
                f"the {name}s kept of {self.subject[:8]} must be whole: {error}; delete the profile cache, or "
                "the tables autoauto_ranges and autoauto_corrections of the shared one"
            ) from error

    @property
    def _fitted(self) -> str:
        """The subject of corrections: those of another kind of fit are as good as none."""
        return hashlib.sha256(repr((self.subject, FIT)).encode()).hexdigest()

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


def _correction(field: Field) -> Correction:
    saved: dict[str, Any] = {name: field[name].value for name in Correction.__dataclass_fields__}
    bands = {name: Band(*saved[name]) for name in ("cycles_band", "memory_band")}
    batch_sizes = tuple((size, factor) for size, factor in saved["batch_sizes"])
    return Correction(**{**saved, **bands, "batch_sizes": batch_sizes})
