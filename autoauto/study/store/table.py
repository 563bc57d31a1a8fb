"""The trials of a study as a pandas table: `trials_dataframe`, by name, and `trial_table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from optuna import Study

from autoauto.space.numbers import NUMBERS
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
_RESULTS = {
    **{number.name: _KINDS[int if number.is_whole else float] for number in NUMBERS},
    **dict.fromkeys(("host_cycles", "shared_cycles"), "Int64"),
    "period": "string",
    "reason": "string",
    "constraint": "float64",
    "in_space": "boolean",
    **dict.fromkeys(("datetime_start", "datetime_complete"), "datetime64[ns]"),
    "duration_s": "float64",
}


def trials_dataframe(study_name: str, storage: str) -> pd.DataFrame:
    """The trials of a study; every study has the same columns with the same types, whatever its trials are.

    One row a trial, by number, and in this order: `number`, `state` (Optuna's), `status`; `value`, or of several
    objectives a column each, such as `value_throughput` and `value_latency`; all knobs; the results; `reason`;
    `constraint`, above 0 for an infeasible configuration; `in_space`, whether it is in the space of the last search;
    times. `docs/python.md` describes each. User attributes of
    other programs that are a number or a text come last. A knob that the search did not vary has its default. What a
    trial does not have is missing: NaN, NaT or NA.

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
    """The same of a study that is loaded."""
    objectives = objective_tuple(parse_objectives(attributes_of(study)["objective"]))
    values = ["value"] if len(objectives) == 1 else [f"value_{name.replace('-', '_')}" for name in objectives]
    space = space_of(study)
    rows = []
    for stored in trial_rows(study):
        cells = {name: None if value is UNREADABLE else value for name, value in stored.items()}
        rows.append(row := _named(cells, values))
        if "status" in row:
            row["in_space"] = _is_in(cells, space)
        for name in _SWITCHES:
            if isinstance(row.get(name), bool):
                row[name] = "on" if row[name] else "off"
    types = {**_HEAD, **dict.fromkeys(values, "float64"), **_KNOBS, **_RESULTS}
    types |= {name: "object" for name in _BY_DEVICE if any(isinstance(row[name], str) for row in rows if name in row)}
    others = sorted({name for row in rows for name in row} - set(types))
    return pd.DataFrame(rows, columns=[*types, *others]).astype(types)


def _is_in(row: Mapping[str, Any], space: SearchSpace | None) -> bool | None:
    """Whether the configuration of a row lies in a space; None where another program edited it."""
    try:
        return space is None or knobs_of_row(row) in space
    except (KeyError, TypeError, ValueError):
        return None


def _named(row: Mapping[str, Any], values: Sequence[str]) -> dict[str, Any]:
    """A row of `trial_rows` with local times, named objectives, and the defaults of knobs in our own trials."""
    times = {name: local_time(row[name]) for name in ("datetime_start", "datetime_complete")}
    defaults = _DEFAULTS if "status" in row else {}
    by_number = ("value", *(f"value_{index}" for index in range(1, len(values))))
    others = {name: value for name, value in row.items() if name not in by_number}
    return {**defaults, **others, **times, **{name: row.get(key) for name, key in zip(values, by_number, strict=True)}}
