"""Requests that arrive, over their rate: `rates_table`, and what binds there, `load_facts`.

a bound breaks, or the queue grows
  ├─ requests wait for room in KV caches         ->  KV cache
  ├─ ... in the tokens of a step                 ->  prefill budget
  ├─ ... for a sequence of a replica to end      ->  queue
  └─ hardly any waits                            ->  step time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from autoauto.records.costs.rate_curve import RateCurves
from autoauto.records.target import Origin
from autoauto.records.units import digits
from autoauto.report.bounds import TIMES
from autoauto.report.reasons import BindingFact
from autoauto.report.tables.table import Column, Table
from autoauto.report.wording import counted, time_text
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Trial

WAITS_SHARE = 0.02
"""Of the mean of a time; so long requests wait for room in the mean, or it is not what makes this time long."""


class Binding(StrEnum):
    """The resource that keeps a configuration from serving more requests a second."""

    KV_CACHE = "KV cache"
    PREFILL_BUDGET = "prefill budget"
    QUEUE = "queue"
    STEP_TIME = "step time"
    NOTHING = "nothing"


_WAITS = {
    Binding.KV_CACHE: "n_waiting_kv",
    Binding.PREFILL_BUDGET: "n_waiting_tokens",
    Binding.QUEUE: "n_waiting_sequences",
}


def load_facts(trial: Trial, curves: RateCurves | None = None) -> tuple[BindingFact, ...]:
    """The limit of a configuration whose requests arrive at times of their own, simulated; empty without such arrivals.

    Args:
        curves: of it; then it is what binds at the lowest rate that is too high, else at the rate of the trial.
    """
    load = trial.result.load
    if load is None or load.n_waiting_kv is None:
        return ()
    values, where = trial.result.values, f"at {digits(load.rate_per_s or 0.0, 4)} requests/s"
    broken: Sequence[str] = ()
    line = curves.lines[-1] if curves else None
    if line is not None and line.beyond is not None:
        # At the rate of the answer all bounds hold, so what keeps it from more shows at the next rate.
        values = {name: column[line.beyond] for name, column in line.values.items()}
        values["rate_per_s"], broken = line.requests_per_s[line.beyond], line.broken
        where = "at the lowest rate" if line.highest is None else f"beyond {digits(line.highest, 4)} requests/s"
    binding = binding_of(values, broken)
    reason = _reason(binding, values, trial.knobs)
    if effect := _effect(values, broken):
        conjunction = "since" if binding in _WAITS else "and"
        reason = f"{effect}, {conjunction} {reason}"
    share = values["kv_share"] if binding is Binding.KV_CACHE else values["busy_share"]
    return (BindingFact("arrivals", binding, f"{where} {reason}, {Origin.SIMULATED}", share),)


def binding_of(values: Mapping[str, Any], broken: Sequence[str]) -> Binding:
    """The resource that binds, by the numbers at a rate that is too high and the times whose bounds are broken there.

    Requests that wait to be admitted have a long TTFT; only sequences that were taken back from a cache that is full
    wait between their tokens. With nothing broken what makes TTFT long is named.
    """
    of_first = not broken or any(name.startswith("ttft") for name in broken)
    mean_s = values["ttft_s"] if of_first else values["latency_s"]
    # By Little's law the mean wait in seconds is the mean number of waiting requests over the rate of arrivals.
    waits_s = {binding: values[name] / values["rate_per_s"] for binding, name in _WAITS.items()}
    if broken and all(name.startswith("tpot") for name in broken):
        for_cache_s = waits_s[Binding.KV_CACHE] if values["n_preempted"] else 0.0
        waits_s = {Binding.KV_CACHE: for_cache_s}
    longest = max(waits_s, key=lambda each: waits_s[each])
    if waits_s[longest] >= WAITS_SHARE * mean_s:
        return longest
    if values["queue_growth_per_s"] and waits_s[longest]:  # all of a queue that grows waits for it
        return longest
    return Binding.STEP_TIME if broken else Binding.NOTHING


def _effect(values: Mapping[str, Any], broken: Sequence[str]) -> str:
    """The bounds that are broken, or the growth of the queue; empty if the rate is not too high."""
    if broken:
        names = " and ".join(f"{TIMES[name]} ({time_text(values[name])})" for name in broken)
        return f"{names} breaks its bound" if len(broken) == 1 else f"{names} break their bounds"
    if values["queue_growth_per_s"]:
        return f"the queue grows by {digits(values['queue_growth_per_s'])} requests a second"
    return ""


def _reason(binding: Binding, values: Mapping[str, Any], knobs: Knobs) -> str:
    """A sentence on what requests wait for, or that they hardly wait."""
    if binding not in _WAITS:
        reason = "hardly any request waits for room, times are those of steps"
        return f"{reason}, TPOT {time_text(values['tpot_s'])} in the mean" if values.get("tpot_s") else reason
    mean = f"{digits(values[_WAITS[binding]])} requests wait in the mean"
    if binding is Binding.KV_CACHE:
        n = values["n_preempted"]
        return f"{mean} for room in KV caches, {values['kv_share']:.0%} held, and {n:,} times a sequence was taken back"
    if binding is Binding.PREFILL_BUDGET:
        return f"{mean} for room in steps of at most {knobs.values['max_batched_tokens']:,} tokens"
    sequences = f"{knobs.batch_size * knobs.n_ipu:,} sequences of a replica"
    return f"{mean} until one of {sequences} ends; replicas compute {values['busy_share']:.0%} of the time"


def rates_table(curves: RateCurves | None) -> Table | None:
    """One row per number of replicas: the highest rate that it serves, and what breaks beyond; None without any."""
    if curves is None:
        return None
    columns = (Column(""), Column("up to\nrequests/s"), Column("then"))
    rows = []
    for line in curves.lines:
        highest = "–" if line.highest is None else digits(line.highest, 4)
        if line.beyond is None:
            then = f"keeps all up to {digits(line.requests_per_s[-1], 4)} requests/s"
        elif line.broken:
            then = "; ".join(f"{TIMES[name]} {time_text(line.values[name][line.beyond])}" for name in line.broken)
        else:
            growth = line.values["queue_growth_per_s"][line.beyond]
            then = f"the queue grows by {digits(growth)} requests/s" if growth else "a constraint does not hold"
        rows.append((counted(line.n_replicas, "replica"), highest, then))
    return Table(f"Highest rate of arrivals, {Origin.SIMULATED}", columns, tuple(rows))
