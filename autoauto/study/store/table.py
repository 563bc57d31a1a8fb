"""The trials of a study as a pandas table: `trials_dataframe`, by name, and `trial_table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd
from optuna import Study

from autoauto.records.target import studied_origin
from autoauto.space.numbers import DERIVED, NUMBERS, REQUEST_LATENCY, DeviceTotals, Result
from autoauto.space.objectives import objective_tuple, parse_objectives
from autoauto.space.space import SearchSpace
from autoauto.space.table import COLUMNS
from autoauto.study.store.database import attributes_of, reads
from autoauto.study.store.rows import UNREADABLE, trial_rows
from autoauto.study.store.study import load_study, space_of
from autoauto.study.store.trials import knobs_of_row, local_time

# Types that have a missing value, so that a column's type does not depend on its cells.
_KINDS = {int: "Int64", float: "float64", bool: "boolean", str: "string"}
_HEAD = {"number": "int64", "state": "string", "status": "string"}
_KNOBS = {knob.name: _KINDS[str if knob.domain.words else knob.domain.kind] for knob in COLUMNS}
_DEFAULTS = {knob.name: str(knob.absent) if isinstance(knob.absent, str) else knob.absent for knob in COLUMNS}
_SWITCHES = [knob.name for knob in COLUMNS if knob.domain.kind is bool and knob.domain.words]
"""Switches that have other values besides on and off, which are words here, too."""
_BY_DEVICE = [knob.name for knob in COLUMNS if knob.domain.by_device]
"""Knobs of which a trial may have a number for each device, as a text."""
_SHOWN = [name for name in DERIVED if name != REQUEST_LATENCY]
"""Columns of numbers that follow from others; the latency of a request is `latency_s`."""
_RESULTS = {number.name: _KINDS[int if number.is_whole else float] for number in NUMBERS} | {
    **dict.fromkeys(_SHOWN, "float64"),
    "host_cycles": "Int64",
    "shared_cycles": "Int64",
    "period": "string",
    "reason": "string",
    "origin": "string",
    "constraint": "float64",
    "in_space": "boolean",
    "datetime_start": "datetime64[ns]",
    "datetime_complete": "datetime64[ns]",
    "duration_s": "float64",
}


def trials_dataframe(study_name: str, storage: str) -> pd.DataFrame:
    """The trials of a study; every study has the same columns with the same types, whatever its trials are.

    One row a trial, by number, and in this order: `number`, `state` (Optuna's), `status`; `value`, or of several
    objectives a column each, such as `value_throughput` and `value_latency`; all knobs; the results; `reason`; `origin`
    of the numbers; `constraint`, above 0 for an infeasible configuration; `in_space`, true if the space of the last
    search has it; times. `docs/python.md` describes each. User attributes of other programs that are a number or a text
    come last. A knob that the search did not vary has its default. A cell without a value is NaN, NaT or NA.

    Args:
        study_name: its name.
        storage: the URL of its database, for example "sqlite:///studies/autoauto.db".

    Raises:
        BadInput: there is no such database or no such study; the message names the one whose name is closest.
        MissingExtra: the database's driver is not installed.
    """
    return trial_table(load_study(storage, study_name))


@reads
def trial_table(study: Study) -> pd.DataFrame:
    """The table of `trials_dataframe` for a study that is loaded."""
    objectives = objective_tuple(parse_objectives(attributes_of(study)["objective"]))
    values = ["value"]
    if len(objectives) > 1:
        values = [f"value_{name.replace('-', '_')}" for name in objectives]
    types = _HEAD | dict.fromkeys(values, "float64") | _KNOBS | _RESULTS
    space = space_of(study)
    origin = studied_origin(attributes_of(study))
    rows = []
    names: set[str] = set()
    for stored in trial_rows(study):
        cells = {name: None if value is UNREADABLE else value for name, value in stored.items()}
        row = _named(cells, values)
        if "status" in row:
            row["in_space"] = _is_in(cells, space)
            row.setdefault("origin", str(origin))
        for name in _SWITCHES:
            if isinstance(row.get(name), bool):
                row[name] = "on" if row[name] else "off"
        for name in _BY_DEVICE:
            if isinstance(row.get(name), str):
                types[name] = "object"
        rows.append(row)
        names.update(row)
    others = sorted(names - types.keys())
    return pd.DataFrame(rows, columns=list(types) + others).astype(types)


def _is_in(row: Mapping[str, Any], space: SearchSpace | None) -> bool | None:
    """True if the configuration of a row lies in a space; None where another program edited it."""
    try:
        return space is None or knobs_of_row(row) in space
    except (KeyError, TypeError, ValueError):
        return None


def _named(row: Mapping[str, Any], values: Sequence[str]) -> dict[str, Any]:
    """A row of `trial_rows` with local times, named objectives, and the defaults of knobs in our own trials."""
    named: dict[str, Any] = {}
    if "status" in row:
        named.update(_DEFAULTS)
    by_number = ["value"]  # the names of objectives in `trial_rows`
    by_number += [f"value_{index}" for index in range(1, len(values))]
    named.update((name, value) for name, value in row.items() if name not in by_number)
    speed = row.get("samples_per_s")
    if isinstance(speed, int | float):
        totals = {each.name: row.get(each.name) for each in fields(DeviceTotals)}
        derived = Result(speed, devices=DeviceTotals(**totals)).derived
        named |= {name: derived[name] for name in _SHOWN if name in derived}
    for name in ("datetime_start", "datetime_complete"):
        named[name] = local_time(row[name])
    for name, key in zip(values, by_number, strict=True):
        named[name] = row.get(key)
    return named
