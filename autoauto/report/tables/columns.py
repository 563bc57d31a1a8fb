"""Tables whose columns know their values, `table_of`, and columns that several tables of configurations have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from autoauto.report.tables.table import Column, Table, Value
from autoauto.report.wording import head, knob_value, label, objective_unit, words_of
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives, objective_tuple, shown_values
from autoauto.space.table import shown
from autoauto.space.trial import Cell, Trial

Subject_contra = TypeVar("Subject_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class RowColumn(Generic[Subject_contra]):
    """A column and its value in the row of a subject."""

    column: Column
    value: Callable[[Subject_contra], Value]


TRIAL_NUMBER: RowColumn[Trial] = RowColumn(Column("trial", "number"), lambda trial: str(trial.number))
TRIAL_LATENCY: RowColumn[Trial] = RowColumn(Column("latency", "latency_s"), lambda trial: trial.latency_s or None)


def table_of(
    title: str, columns: Sequence[RowColumn[Subject_contra]], subjects: Iterable[Subject_contra], caption: str = ""
) -> Table:
    """A table with a row for every subject."""
    rows = [tuple(each.value(subject) for each in columns) for subject in subjects]
    return Table(title, tuple(each.column for each in columns), tuple(rows), caption)


def knob_columns(
    names: Iterable[str], configurations: Collection[Knobs], others: Collection[str] = ()
) -> Iterator[RowColumn[Trial | Cell]]:
    """The knobs of a row.

    Args:
        configurations: of all rows; their target names the knobs.
        others: further knobs, which share one column as words; a row names those that have an effect in it.
    """
    called = words_of(configurations).name
    for name in names:
        yield RowColumn(Column(head(called(name)), name), partial(_value, name))
    if others:
        yield RowColumn(Column("other knobs"), partial(_words, others))


def _value(name: str, subject: Trial | Cell) -> Value:
    return knob_value(subject.knobs, name)


def _words(names: Collection[str], subject: Trial | Cell) -> Value:
    """The knobs in `names` that have an effect, in words."""
    matter = [knob.name for knob in shown(subject.knobs) if knob.name in names]
    return label(subject.knobs, matter) if matter else ""


def objective_columns(
    objectives: Objectives, configurations: Collection[Knobs], besides: Collection[str] = ("samples_per_s", "latency_s")
) -> Iterator[RowColumn[Trial]]:
    """A column for every objective, headed by its unit; those whose number is in `besides`, shown anyway, have none."""

    def value_at(index: int, trial: Trial) -> Value:
        return value_text(shown_values(objectives, trial)[index])

    for index, each in enumerate(objective_tuple(objectives)):
        if each.number not in besides:
            unit = objective_unit(each, configurations).replace(" / ", "\n/ ")
            yield RowColumn(Column(unit, "number"), partial(value_at, index))


def value_text(value: float | None) -> str | None:
    """A value without a unit, to four digits or more.

    >>> value_text(209127.6), value_text(0.98765), value_text(None)
    ('209,128', '0.9877', None)
    """
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"
