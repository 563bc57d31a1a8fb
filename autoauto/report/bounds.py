"""Bounds on the answer of a search as lines that pass or fail: `bounds_of`.

TPOT 46.9 ms <= 50 ms: pass     modelled, holds with a probability of 72 %
TTFT 0.62 s <= 1 s: pass        measured mean; p50 0.6 s, p90 0.74 s, p95 0.77 s, p99 0.81 s
"""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from autoauto.records.costs.traffic.requests import PERCENTS, Percentiles
from autoauto.records.target import Origin
from autoauto.records.units import digits
from autoauto.report.wording import origin_of, time_text
from autoauto.space.constraint import Constraint
from autoauto.space.numbers import REQUEST_LATENCY, TIMES_OF_REQUESTS
from autoauto.space.study_summary import StudySummary
from autoauto.space.table import numbers
from autoauto.space.trial import Trial

if TYPE_CHECKING:
    from autoauto.space.engine_measurements import EngineRow

TIMES = {f"{name}_s": title for name, title in TIMES_OF_REQUESTS.items()}
_OF_TURNS = {name: name for name in TIMES} | {REQUEST_LATENCY: "latency_s"}
TIMES |= {REQUEST_LATENCY: TIMES["latency_s"]}
for _name, _title in TIMES_OF_REQUESTS.items():
    TIMES |= {f"{_name}_{each}_s": f"{_title} {each}" for each in PERCENTS}
_ON_TIME = re.compile(r"(\w+) (<=?) ([0-9.e-]+)")


class BoundFact(NamedTuple):
    """A bound of a search, and whether its answer keeps it.

    Attributes:
        text: the bound with the value.
        note: how sure that is: a probability, or measured percentiles.
    """

    text: str
    holds: bool
    origin: Origin
    note: str

    @property
    def line(self) -> str:
        """The bound and the verdict."""
        return f"{self.text}: {self.verdict}"

    @property
    def verdict(self) -> str:
        """The verdict: "pass" if the bound holds, else "fail"."""
        return "pass" if self.holds else "fail"


def bounds_of(summary: StudySummary) -> tuple[BoundFact, ...]:
    """The constraints of a study that name results of text, by the measured answer, or by the winner's forecast."""
    winner, texts = summary.winner, summary.attributes.get("constraints", "")
    if winner is None or not texts or not winner.tokens.tokens_per_s:
        return ()
    row = summary.engine_measurements.best if summary.engine_measurements else None
    values = _values(winner, row)
    facts = []
    for constraint in map(Constraint, texts.split("; ")):
        if not set(constraint.names) <= values.keys():
            continue
        if row is None:
            share = winner.tokens.bounds_probability
            note = "" if share is None else f"all bounds hold with a probability of {share:.0%}"
            origin = origin_of(summary)
        else:
            origin, note = Origin.MEASURED, _percentiles(constraint, row)
        match = _ON_TIME.fullmatch(constraint.text)
        if match and match[1] in TIMES:
            name, sign, most_s = match.groups()
            text = f"{TIMES[name]} {time_text(values[name])} {sign} {time_text(float(most_s))}"
        else:
            known = ", ".join(f"{name} is {digits(values[name], 4)}" for name in constraint.names)
            text = f"{constraint.text} ({known})"
        facts.append(BoundFact(text, constraint.violation(values) <= 0, origin, note))
    return tuple(facts)


def _values(trial: Trial, row: EngineRow | None) -> dict[str, float]:
    """The values that a bound may name: measured where there is a row."""
    values = numbers(trial.knobs)
    values |= {name: value for name, value in trial.result.values.items() if value is not None}
    if row is None:
        return values | trial.result.derived
    # What follows from the throughput, as the cost of a token, follows from the measured one.
    values |= replace(trial.result, samples_per_s=row.tokens_per_s).derived
    values |= {"tokens_per_s": row.tokens_per_s, "samples_per_s": row.tokens_per_s}
    return values | {name: getattr(row, of_row) for name, of_row in _OF_TURNS.items()}


def _percentiles(constraint: Constraint, row: EngineRow) -> str:
    """The percentiles of the times that a bound names, each the mean over turns; empty where it names no time."""
    texts = []
    for name in constraint.names:
        if name in _OF_TURNS:
            turns = [getattr(turn, _OF_TURNS[name]) for turn in row.turns]
            means_s = Percentiles(*map(fmean, zip(*turns, strict=True)))
            texts.append(", ".join(f"{each} {time_text(getattr(means_s, each))}" for each in PERCENTS))
    return f"mean; {'; '.join(texts)}" if texts else ""
