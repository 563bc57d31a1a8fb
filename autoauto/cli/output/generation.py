"""The output of commands for a configuration that generates text, and for requests that arrive at their own times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autoauto.cli.output.lines import show
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.options import DeviceType
from autoauto.records.costs.profile import RESERVE
from autoauto.records.costs.rate_curve import RateCurves
from autoauto.records.costs.traffic.requests import PERCENTS
from autoauto.records.target import RunsServers
from autoauto.records.units import GIB, MIB, digits, format_number
from autoauto.report.bounds import bounds_of
from autoauto.report.wording import prefill_text, time_between_text, time_text
from autoauto.space.modes.generation import Generation
from autoauto.space.numbers import QUANTITIES, TIMES_OF_REQUESTS, Result, TokenResult
from autoauto.space.trial import Trial

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.plans.plan import Plan
    from autoauto.space.engine_measurements import EngineMeasurements, EngineRow
    from autoauto.space.study_summary import StudySummary


def describe_generation(trial: Trial, plan: Plan) -> dict[str, Any]:
    """Speeds, latencies and memory of a configuration that generates text, as plain values; empty in other modes."""
    tokens = trial.result.of_mode
    if not isinstance(trial.knobs.mode, Generation) or not isinstance(tokens, TokenResult):
        return {}
    described: dict[str, Any] = {
        "tokens_per_s": tokens.tokens_per_s,
        "tokens_per_s_per_device": tokens.tokens_per_s / trial.knobs.n_devices,
        "requests_per_s": tokens.tokens_per_s / trial.knobs.mode.output_tokens,
        "tpot_s": tokens.tpot_s,
        "ttft_s": tokens.ttft_s,
        "request_latency_s": trial.latency_s,
        **_intervals(tokens),
        "kv_cache_bytes": tokens.kv_cache_bytes,
        "memory_bytes": [stage.total_bytes - stage.memory_bytes.get(RESERVE, 0) for stage in plan.stages],
    }
    if tokens.prefill_busy_share is not None and tokens.kv_transfer_s is not None:
        described |= {"prefill_busy_share": tokens.prefill_busy_share, "kv_transfer_s": tokens.kv_transfer_s}
    return described | describe_traffic(trial)


def describe_devices(result: Result) -> dict[str, float]:
    """Price, power limit and what follows from them, as far as they are known, as plain values."""
    totals = asdict(result.devices)
    known = {name: value for name, value in totals.items() if value is not None}
    return known | {name: value for name, value in result.derived.items() if name in QUANTITIES}


def describe_engines(summary: StudySummary) -> dict[str, Any]:
    """The bounds of a search for text, what binds it under requests that arrive, and what was measured on engines.

    As plain values; nothing without any of them.
    """
    described: dict[str, Any] = {}
    if facts := bounds_of(summary):
        described["bounds"] = [fact._asdict() for fact in facts]
    if summary.sizing is not None:
        described["sizing"] = summary.sizing._asdict() | {"is_proven": not summary.sizing.n_untried}
    curves = summary.rate_curves
    if summary.winner is not None:
        described |= describe_load(summary.winner, curves)
    if curves is not None:
        described["rates"] = [line._asdict() | {"highest_requests_per_s": line.highest} for line in curves.lines]
    if summary.engine_measurements is not None:
        described["measured"] = _describe_measurements(summary.engine_measurements)
    return described


def _describe_measurements(record: EngineMeasurements) -> dict[str, Any]:
    """Measurements on engines as plain values; ratios are of throughputs, the inverse of the stored ratios of times."""
    ratios = []
    for each in record.ratios:
        interval = (1 / each.high, 1 / each.low)
        of_engine = {"engine": each.engine, "n_measured": each.n_measured}
        ratios.append(of_engine | {"tokens_per_s_ratio": 1 / each.ratio, "interval": interval})
    return {
        "rows": [_describe_row(row) for row in record.rows],
        "answer": record.answer,
        "ties": record.ties,
        "ratios": ratios,
        "stopped": record.stopped,
        "where": record.where,
        "n_measured": record.n_measured,
        "rules": record.rules,
    }


def _describe_row(row: EngineRow) -> dict[str, Any]:
    """A configuration that was started: forecast and measured; without the latter where it was not measured."""
    forecast = {name: getattr(row.forecast, name).middle for name in ("tokens_per_s", "tpot_s", "ttft_s")}
    known = {
        **row.knobs.values,
        "status": row.status,
        "reason": row.reason,
        "trial": row.trial,
        "commands": [command._asdict() for command in row.commands],
        "log": row.log,
        "forecast": forecast | {"request_latency_s": row.forecast.latency_s},
    }
    if not row.is_measured:
        return known
    turns = [turn.to_json() for turn in row.turns]
    measured = {"tokens_per_s": row.tokens_per_s, "tpot_s": row.tpot_s, "ttft_s": row.ttft_s, "turns": turns}
    return known | {"measured": measured, "ratio": row.tokens_per_s / row.forecast.tokens_per_s.middle}


def server_commands(flow: Flow, best: Trial, numbers: Sequence[int | None] = ()) -> tuple[tuple[str, ...], ...]:
    """The commands that start servers of a configuration on this machine, word by word; empty for other targets.

    Args:
        numbers: of its replicas; None for one that stands alone. By default all servers of the configuration.
    """
    knobs, target = best.knobs, flow.target
    if not isinstance(target, RunsServers) or not isinstance(knobs.mode, Generation):
        return ()
    requests = Workload(knobs.mode.input_tokens, knobs.mode.output_tokens)
    if not numbers:
        numbers = [None] if knobs.replicas == 1 else range(knobs.replicas)
    return tuple(target.command(knobs.session, knobs.batch_size, requests, number) for number in numbers)


def _intervals(tokens: TokenResult) -> dict[str, tuple[float | None, float | None]]:
    """The ends of our error, between which 8 of 10 measured rows lie; nothing where a trial has none."""
    intervals = {
        "tpot_s_error_interval": (tokens.tpot_low_s, tokens.tpot_high_s),
        "ttft_s_error_interval": (tokens.ttft_low_s, tokens.ttft_high_s),
    }
    if any(None in ends for ends in intervals.values()):
        return {}
    if tokens.tokens_per_s_ends:
        intervals["tokens_per_s_error_interval"] = tokens.tokens_per_s_ends
    return intervals


def generation_line(trial: Trial) -> str:
    """Latencies with the intervals of our error, and memory, in a line; empty in other modes."""
    tokens = trial.result.of_mode
    if not isinstance(tokens, TokenResult):
        return ""
    ttft = time_between_text(tokens.ttft_s, tokens.ttft_low_s, tokens.ttft_high_s)
    then = "which is the only one"
    if tokens.tpot_s:
        then = f"TPOT {time_between_text(tokens.tpot_s, tokens.tpot_low_s, tokens.tpot_high_s)}"
    cache = f"{format_number(tokens.kv_cache_bytes / GIB)} GiB on the fullest GPU"
    if trial.knobs.session.device_type is DeviceType.CPU:
        cache = f"{format_number(tokens.kv_cache_bytes / MIB)} MiB in every server"
    line = f"TTFT {ttft}, {then}, a request {time_text(trial.latency_s)}; KV cache of {cache}"
    return line if tokens.prefill_busy_share is None else f"{line}; prefill of {prefill_text(trial)}"


def describe_traffic(trial: Trial) -> dict[str, Any]:
    """Percentiles and loads as plain values; nothing where no arrivals were simulated."""
    load = trial.result.load
    if load is None:
        return {}
    from autoauto.report.tables.serving import percentiles_of

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
    from autoauto.report.tables.serving import percentiles_of
    from autoauto.report.tables.table import Column, Table
    from autoauto.report.tables.traffic import load_facts

    rows = []
    for name, title in TIMES_OF_REQUESTS.items():
        if known := percentiles_of(trial, name):
            rows.append((title, *map(time_text, known.values())))
    columns = [Column(head) for head in ("", *PERCENTS)]
    arrivals = f"{digits(load.rate_per_s or 0.0, 4)} requests a second arrive, simulated"
    show("", Table(arrivals, tuple(columns), tuple(rows)))
    show(
        f"replicas compute {load.busy_share:.0%} of the time; {load.kv_share:.0%} of their KV caches is held and "
        f"{digits(load.n_waiting or 0.0)} requests wait, in the mean; "
        f"{load.n_preempted:,} times a sequence was taken back"
    )
    for fact in load_facts(trial):
        show(f"{fact.headline} binds: {fact.text}")
    if load.queue_growth_per_s:
        show(
            f"too much: the queue grows by {digits(load.queue_growth_per_s)} requests a second, so these times grow "
            "for as long as requests come"
        )
