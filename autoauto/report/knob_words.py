"""Configurations in words: which knobs a study varies, and what a cell is called."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.findings import Findings
from autoauto.records.trial import Knobs, Strategy

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
