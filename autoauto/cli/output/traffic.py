"""What commands print of requests that arrive at times of their own: `describe_traffic`, `show_traffic`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from autoauto.records.costs.rate_curve import RateCurves
from autoauto.space.trial import Trial


def describe_traffic(trial: Trial) -> dict[str, Any]:
    """Percentiles and loads as plain values; nothing where no arrivals were simulated."""
    load = trial.result.load
    if load is None:
        return {}
    from autoauto.report.tables.serving import percentiles_of
    from autoauto.space.numbers import TIMES_OF_REQUESTS

    traffic: dict[str, Any] = asdict(load)
    for name in TIMES_OF_REQUESTS:
        traffic[f"{name}_s"] = percentiles_of(trial, name)
    return {"traffic": traffic | {"is_overloaded": bool(load.queue_growth_per_s)}}


def describe_load(trial: Trial, curves: RateCurves | None = None) -> dict[str, Any]:
    """The limit under requests that arrive, as `explain` has it beside the limits of stages; empty without arrivals."""
    if trial.result.load is None:
        return {}
    from autoauto.report.tables.traffic import load_facts

    facts = [fact._asdict() for fact in load_facts(trial, curves)]
    return {"binds": facts} if facts else {}


def show_traffic(trial: Trial) -> None:
    """Print percentiles as a table, then loads and what binds in lines; nothing where no arrivals were simulated."""
    load = trial.result.load
    if load is None:
        return
    from autoauto.records.costs.traffic.requests import PERCENTS
    from autoauto.report.tables.serving import percentiles_of
    from autoauto.report.tables.table import Column, Table, show
    from autoauto.report.tables.traffic import load_facts
    from autoauto.report.wording import time_text
    from autoauto.space.numbers import TIMES_OF_REQUESTS

    rows = []
    for name, title in TIMES_OF_REQUESTS.items():
        if known := percentiles_of(trial, name):
            rows.append((title, *map(time_text, known.values())))
    columns = [Column(head) for head in ("", *PERCENTS)]
    show("", Table(f"{load.rate_per_s:.4g} requests a second arrive, simulated", tuple(columns), tuple(rows)))
    show(
        f"replicas compute {load.busy_share:.0%} of the time; {load.kv_share:.0%} of their KV caches is held and "
        f"{load.n_waiting:.3g} requests wait, in the mean; {load.n_preempted:,} times a sequence was taken back"
    )
    for fact in load_facts(trial):
        show(f"{fact.headline} binds: {fact.text}")
    if load.queue_growth_per_s:
        show(
            f"too much: the queue grows by {load.queue_growth_per_s:.3g} requests a second, so these times grow for as "
            "long as requests come"
        )
