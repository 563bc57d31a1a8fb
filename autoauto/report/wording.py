"""Configurations in words: which knobs a study varies, and what a cell is called."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.knobs import Knobs, Strategy
from autoauto.records.study_summary import Contender, Findings
from autoauto.report.style import REALLY_MEASURED, measured_by

GRID = ("n_ipu", "replicas", "memory_proportion", "schedule", "recompute", "n_micro_batches", "strategy")
"""The knobs of a cell, in the order in which they are shown."""
ALL = "all"
"""What cells are called that nothing tells apart."""
_PLAIN = ("n_ipu", "memory_proportion")
_SHORT = {"memory_proportion": "memory", "n_micro_batches": "micro-batches"}


def shown_knobs(found: Findings) -> list[str]:
    """The knobs of a cell that are worth a column: the two of every study, and those that vary."""
    vary = varying(found)
    return [name for name in GRID if name in _PLAIN or name in vary]


def varying(found: Findings) -> list[str]:
    """The knobs in which the cells of a study differ."""
    cells = [cell.knobs for cell in found.cells]
    return [name for name in GRID if len({getattr(knobs, name) for knobs in cells}) > 1]


def own_knobs(knobs: Knobs) -> list[str]:
    """The knobs that tell what a configuration is, beside its batch size."""
    names = set(_PLAIN)
    if knobs.training:
        names |= {"schedule", "recompute", "n_micro_batches"}
    if knobs.strategy is Strategy.PHASED:
        names |= {"strategy", "n_micro_batches"}
    if knobs.replicas > 1:
        names.add("replicas")
    return [name for name in GRID if name in names]


def knob_value(knobs: Knobs, name: str) -> str:
    """A knob's value as it is shown.

    >>> knob_value(Knobs(2, 0.6, 8), "recompute"), knob_value(Knobs(2, 0.6, 8), "memory_proportion")
    ('off', '0.6')
    """
    value = getattr(knobs, name)
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def label(knobs: Knobs, names: Sequence[str]) -> str:
    """A short name, by the knobs that tell cells apart.

    >>> label(Knobs(2, 0.6, 8), ["memory_proportion"]), label(Knobs(2, 0.6, 8), [])
    ('memory 0.6', 'all')
    """
    said = (f"{_SHORT.get(name, name)} {knob_value(knobs, name)}" for name in names if name != "schedule")
    schedule = [str(knobs.schedule)] if "schedule" in names else []
    return ", ".join([*schedule, *said]) or ALL


def configuration(knobs: Knobs, names: Sequence[str]) -> str:
    """All that tells a configuration apart.

    >>> configuration(Knobs(2, 0.6, 8), ["n_ipu"])
    'n_ipu 2, batch_size 8'
    """
    return ", ".join([*(f"{name} {knob_value(knobs, name)}" for name in names), f"batch_size {knobs.batch_size}"])


def origin_of(found: Findings) -> str:
    """What a measured number of the study is called."""
    return measured_by(found.attributes.get("target", "ipu"))


def really_ran(found: Findings) -> bool:
    """Whether devices ran the plans, so that their periods were measured and are not sums of cycles."""
    return origin_of(found) == REALLY_MEASURED


def clock_of(found: Findings, contender: Contender) -> float | None:
    """The clock that cycles count; None when devices ran the plan: its own cycles then do not tell its throughput."""
    return None if really_ran(found) else contender.clock_hz


def period_text(found: Findings, contender: Contender) -> str:
    """How long a micro-batch takes once the pipeline is full, or all phases."""
    tried = contender.tried
    if really_ran(found):
        return f"{1e3 * tried.knobs.n_samples / tried.samples_per_s:,.3f} ms, {origin_of(found)}"
    return f"{contender.measured.cost_cycles:,} cycles, {origin_of(found)}"
