"""Two searches side by side: what each gave, in the words of its target, which knobs differ, and what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from autoauto.records.units import format_number
from autoauto.report.style import difference_percent, format_difference
from autoauto.report.tables.table import Column, Table
from autoauto.report.tables.trials import best_facts
from autoauto.report.wording import origin_of, shown_clock
from autoauto.space.study_summary import StudySummary
from autoauto.space.table import TABLE
from autoauto.space.trial import Trial

RESULTS = "What each gave"
TITLES = (RESULTS, "Knobs that differ", "What was asked for otherwise")
_SPEED = "throughput"


class ComparedSearch(NamedTuple):
    """A search beside another one.

    Attributes:
        summary: its trials; None before the first.
        about: what is said of it besides, by names.
        asked: what it was asked for, by the names of options.
    """

    summary: StudySummary | None
    about: Mapping[str, str]
    asked: Mapping[str, str]

    @property
    def winner(self) -> Trial | None:
        """The best configuration; None without one."""
        return self.summary.winner if self.summary else None


class ComparedRow(NamedTuple):
    """One property of both searches."""

    what: str
    first: str | None  # a text; None where a search has none
    second: str | None  # likewise
    difference_percent: float | None = None  # how much more the second is, of the first; None for what is no number


def compared_rows(first: ComparedSearch, second: ComparedSearch) -> dict[str, list[ComparedRow]]:
    """The rows of the tables, by `TITLES`."""
    results, knobs, asked = TITLES
    return {
        results: list(_results(first, second)),
        knobs: list(_different(_knobs(first.winner), _knobs(second.winner))),
        asked: list(_different(first.asked, second.asked)),
    }


def comparison_tables(first: ComparedSearch, second: ComparedSearch) -> list[Table]:
    """Three tables; one has no rows where both are the same."""
    columns = (Column("what"), Column("first"), Column("second"), Column("difference"))
    tables = []
    for title, rows in compared_rows(first, second).items():
        cells = []
        for row in rows:
            percent = row.difference_percent
            cells.append((row.what, row.first, row.second, "" if percent is None else format_difference(percent)))
        table = Table(title, columns, tuple(cells))
        # Only results are numbers.
        tables.append(table if title == RESULTS else table.without("difference"))
    return tables


def _results(first: ComparedSearch, second: ComparedSearch) -> Iterator[ComparedRow]:
    for name in dict.fromkeys((*first.about, *second.about)):
        yield ComparedRow(name, first.about.get(name), second.about.get(name))
    facts, other_facts = _facts(first), _facts(second)
    numbers, other_numbers = _numbers(first.winner), _numbers(second.winner)
    are_alike = bool(first.winner and second.winner and first.winner.unit == second.winner.unit)
    for name in dict.fromkeys((*facts, *other_facts)):
        base, other = numbers.get(name), other_numbers.get(name)
        percent = difference_percent(other, base) if are_alike and base and other else None
        yield ComparedRow(name, facts.get(name), other_facts.get(name), percent)


def _facts(search: ComparedSearch) -> dict[str, str]:
    summary, trial = search.summary, search.winner
    if summary is None or trial is None:
        return {}
    origin = origin_of(summary)
    facts = {"origin of its numbers": str(origin), _SPEED: f"{format_number(trial.samples_per_s)} {trial.unit}"}
    for name, value, _ in best_facts(trial, origin, shown_clock(summary)):
        if name not in TABLE:
            facts.setdefault(name or "estimate", value)
    return facts


def _numbers(trial: Trial | None) -> dict[str, float]:
    if trial is None:
        return {}
    return {
        _SPEED: trial.samples_per_s,
        "latency": trial.latency_s,
        "a request": trial.latency_s,
        "TPOT": trial.tokens.tpot_s,
        "TTFT": trial.tokens.ttft_s,
    }


def _knobs(trial: Trial | None) -> dict[str, str]:
    if trial is None:
        return {}
    return {name: str(value) for name, value in trial.knobs.values.items() if value is not None}


def _different(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[ComparedRow]:
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            yield ComparedRow(name, first.get(name), second.get(name))
