"""Columns that several tables of configurations have: `KnobColumns` and `ObjectiveColumns`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from autoauto.report.tables.table import Column
from autoauto.report.wording import head, knob_value, label, objective_unit, words_of
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives, objective_tuple, shown_values
from autoauto.space.table import shown
from autoauto.space.trial import Trial


class KnobColumns(NamedTuple):
    """The columns that say which configuration a row is of.

    Attributes:
        names: the knobs that have a column each.
        others: further knobs, which share one last column and are written there as words; without any it is left out.
    """

    names: Sequence[str]
    others: Sequence[str] = ()

    def heads(self, configurations: Collection[Knobs]) -> list[Column]:
        """The columns; their target names the knobs."""
        called = words_of(configurations).name
        columns = [Column(head(called(name)), name) for name in self.names]
        if self.others:
            columns.append(Column("other knobs"))
        return columns

    def values(self, knobs: Knobs) -> list[str]:
        """The values of one row; the other knobs are named only where they have an effect."""
        values = [knob_value(knobs, name) for name in self.names]
        if self.others:
            matter = [knob.name for knob in shown(knobs) if knob.name in self.others]
            values.append(label(knobs, matter) if matter else "")
        return values


class ObjectiveColumns(NamedTuple):
    """A column for every objective whose number has no column anyway.

    Attributes:
        objectives: of the study.
        besides: the numbers of a trial that the table shows in other columns.
    """

    objectives: Objectives
    besides: Collection[str] = ("samples_per_s", "latency_s")

    def heads(self, configurations: Collection[Knobs]) -> list[Column]:
        """The columns, headed by the units of the objectives."""
        others = [each for each in objective_tuple(self.objectives) if each.number not in self.besides]
        return [Column(objective_unit(each, configurations).replace(" / ", "\n/ "), "number") for each in others]

    def values(self, trial: Trial) -> list[str | None]:
        """The values of one row."""
        pairs = zip(objective_tuple(self.objectives), shown_values(self.objectives, trial), strict=True)
        return [value_text(value) for each, value in pairs if each.number not in self.besides]


def value_text(value: float | None) -> str | None:
    """A value without a unit, to four digits or more.

    >>> value_text(209127.6), value_text(0.98765), value_text(None)
    ('209,128', '0.9877', None)
    """
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"
