"""Tables of engines that serve text: `serving_facts`, `bounds_table`, `measurements_table`, `ratios_table`.

Of a measured answer every number says whether it was measured or forecast; `measurement_lines` say why the search
ended, and what it was not able to tell apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from autoauto.records.costs.traffic.requests import PERCENTS
from autoauto.records.plans.plan import Plan
from autoauto.records.target import Origin
from autoauto.records.units import GIB, digits, format_number
from autoauto.report.bounds import bounds_of
from autoauto.report.tables.table import Column, Style, Table, TableCell, Value
from autoauto.report.tables.traffic import rates_table
from autoauto.report.wording import (
    counted,
    energy_text,
    prefill_text,
    price_text,
    serving_text,
    speed_of,
    time_between_text,
    time_text,
)
from autoauto.space.numbers import TIMES_OF_REQUESTS
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Status, Trial

N_REASON = 90
"""Characters of a reason in a table."""


def percentiles_of(trial: Trial, name: str) -> dict[str, float]:
    """The percentiles over requests of one of `TIMES_OF_REQUESTS`, in seconds; nothing without simulated arrivals."""
    values = {each: getattr(trial.result.percentiles, f"{name}_{each}_s", None) for each in PERCENTS}
    return {each: value for each, value in values.items() if value is not None}


def serving_facts(trial: Trial, origin: Origin) -> list[tuple[str, str, str]]:
    """The facts about a configuration of engines, each with its name, its value and the origin of the number."""
    knobs, tokens, session = trial.knobs, trial.tokens, trial.knobs.values
    facts = [
        ("GPUs", str(knobs.n_devices), ""),
        ("engine", str(session["engine"]), ""),
        ("formats", f"weights {session['precision']}, KV cache {session['kv_cache_precision']}", ""),
        ("batch size", f"{knobs.batch_size}: {knobs.batch_size * knobs.n_ipu * knobs.replicas:,} requests at once", ""),
        ("tokens", f"{session['input_tokens']:,} in, {session['output_tokens']:,} out", ""),
    ]
    if knobs.n_ipu > 1 and isinstance(trial.plan, Plan):
        n_layers = trial.plan.partition[-1]
        blocks = " + ".join(knobs.mode.parts_of(stage.layers, n_layers) for stage in trial.plan.stages)
        facts.append(("blocks", blocks, ""))
    if tokens.prefill_busy_share is not None:
        facts.append(("prefill", prefill_text(trial), origin))
    if knobs.n_devices > 1:
        facts.append(("a GPU", f"{speed_of(trial.device_samples_per_s)} tokens/s", origin))
    facts.append(("TPOT", time_between_text(tokens.tpot_s, tokens.tpot_low_s, tokens.tpot_high_s), origin))
    facts.append(("TTFT", time_between_text(tokens.ttft_s, tokens.ttft_low_s, tokens.ttft_high_s), origin))
    facts.append(("a request", time_text(trial.latency_s), origin))
    facts.append(("KV cache", f"{format_number(tokens.kv_cache_bytes / GIB)} GiB of the fullest GPU", Origin.MODELLED))
    if price := price_text(trial.result, "token"):
        facts.append(("price", price, origin))
    if energy := energy_text(trial.result, "token"):
        facts.append(("energy", energy, origin))
    return facts + _traffic_facts(trial)


def _traffic_facts(trial: Trial) -> list[tuple[str, str, str]]:
    """Latencies of requests that arrive at random or by a trace, and the load of replicas; empty without arrivals."""
    load = trial.result.load
    if load is None:
        return []
    facts = [("arrivals", f"{digits(load.rate_per_s or 0.0, 4)} requests/s", "")]
    for name, title in TIMES_OF_REQUESTS.items():
        known = [f"{each} {time_text(value)}" for each, value in percentiles_of(trial, name).items()]
        if known:
            facts.append((title, ", ".join(known), Origin.SIMULATED))
    held = f"{load.busy_share:.0%} of the time, {load.kv_share:.0%} of the KV caches held"
    facts.append(("replicas", f"{held}, {digits(load.n_waiting or 0.0)} wait", Origin.SIMULATED))
    return facts


def answer_tables(summary: StudySummary) -> list[Table]:
    """The tables that a study has: fewest devices, bounds, highest rates, measurements on engines."""
    tables = (
        sizing_table(summary),
        bounds_table(summary),
        rates_table(summary.rate_curves),
        measurements_table(summary),
        ratios_table(summary),
    )
    return [table for table in tables if table is not None]


def sizing_table(summary: StudySummary) -> Table | None:
    """One row per number of devices: the share of a trace's time for which they suffice; None if that was not asked."""
    sizing, winner = summary.sizing, summary.winner
    if sizing is None or winner is None or not sizing.window_s:
        return None
    noun = winner.knobs.session.words.unit
    columns = (Column(f"{noun}s", "number"), Column("suffice for", "number"))
    rows = []
    total = 0.0
    for n_devices, share in sizing.shares:
        total += share  # each is the share of the time that needs exactly so many
        rows.append((str(n_devices), f"{total:.1%} of the time"))
    minutes = f"each {digits(sizing.window_s / 60)} minutes of the trace"
    caption = f"whole replicas of the best, {minutes} served by itself, {Origin.SIMULATED}"
    return Table(f"When fewer {noun}s suffice", columns, tuple(rows), caption)


def _sizing_text(summary: StudySummary) -> str:
    """A line on how sure it is that fewer devices do not suffice; empty if the fewest were not asked for."""
    sizing, winner = summary.sizing, summary.winner
    if sizing is None or winner is None:
        return ""
    devices = counted(winner.knobs.n_devices, winner.knobs.session.words.unit)
    said = [f"{sizing.n_tried:,} simulated", f"{sizing.n_ruled_out:,} ruled out without"]
    if not sizing.n_untried:
        return f"{devices}: none of the configurations on fewer suffices ({', '.join(said)})"
    said.append(f"{sizing.n_untried:,} not tried")
    return f"{devices}; that none on fewer suffices is not proven ({', '.join(said)})"


def bounds_table(summary: StudySummary) -> Table | None:
    """One row per bound of the search: its value and whether it holds; None where there are none."""
    rows = tuple((fact.text, fact.verdict, fact.origin, fact.note) for fact in bounds_of(summary))
    return Table("Bounds", (Column(""),) * 4, rows) if rows else None


def measurements_table(summary: StudySummary) -> Table | None:
    """One row per configuration that was started: forecast against measured; None where none was."""
    record = summary.engine_measurements
    if record is None:
        return None
    columns = (
        Column("TP, PP,\nreplicas, batch"),
        Column("forecast\ntokens/s", "tokens_per_s"),
        Column("measured\ntokens/s", "tokens_per_s"),
        Column("measured /\nforecast", "ratio"),
        Column("TPOT\nmeasured", "tpot_s"),
        Column("TTFT p99\nmeasured", "ttft_s"),
        Column(""),
    )
    rows: list[tuple[Value, ...]] = []
    for index, row in enumerate(record.rows):
        forecast = speed_of(row.forecast.tokens_per_s.middle)
        name = TableCell(serving_text(row.knobs), Style.STRONG if index == record.answer else Style.PLAIN)
        if not row.is_measured:
            rows.append((name, forecast, None, None, None, None, _short(row.reason)))
            continue
        speed, share = speed_of(row.tokens_per_s), row.turns[-1].half_width
        if share < 1:  # of the confidence interval of the last turn, where it has one
            speed += f" ±{100 * share:.2g} %"
        standing = ""
        if index == record.answer:
            standing = "the answer"
        elif row.status is Status.CONSTRAINED:
            standing = _short(row.reason)
        elif index in record.ties:
            standing = "not told apart from the answer"
        ttft = time_text(max(turn.ttft_s.p99 for turn in row.turns))
        rows.append((name, forecast, speed, f"{1 / row.time_ratio:.3f}", time_text(row.tpot_s), ttft, standing))
    caption = f"forecasts are {Origin.MODELLED}; started {record.where}" if record.where else ""
    return Table("Forecast against measured", columns, tuple(rows), caption)


def _short(reason: str) -> str:
    return reason if len(reason) <= N_REASON else f"{reason[: N_REASON - 1]}…"


def ratios_table(summary: StudySummary) -> Table | None:
    """One row per engine: by how much measurements differ from forecasts; None where nothing was measured.

    The table shows throughputs. A fitted ratio is one of times, so the table has its inverse, and the ends of the
    interval change sides.
    """
    record = summary.engine_measurements
    if record is None or not record.ratios:
        return None
    columns = (
        Column("engine"),
        Column("measured", "n_measured"),
        Column("measured / forecast\nof tokens/s"),
        Column(""),
    )
    rows = []
    for each in record.ratios:
        interval = f"80 % of others lie within {1 / each.high:.3f} to {1 / each.low:.3f}"
        rows.append((each.engine, each.n_measured, f"{1 / each.ratio:.3f}", interval))
    return Table("What measurements say of configurations that were not measured", columns, tuple(rows))


def measurement_lines(summary: StudySummary) -> Iterator[str]:
    """Lines on why fewer devices do not suffice, why measuring ended, which rows are ties, and what failures showed."""
    if sizing := _sizing_text(summary):
        yield sizing
    record = summary.engine_measurements
    if record is None:
        return
    if record.stopped:
        yield f"measuring ended: {record.stopped}"
    if record.answer is None:
        yield "none that was measured is known to keep the bounds: the answer is modelled"
    for index in record.ties:
        row = record.rows[index]
        speed = f"{speed_of(row.tokens_per_s)} tokens/s measured"
        yield f"not told apart from the answer: {serving_text(row.knobs)}, {speed}"
    for rule in record.rules:
        yield f"learned from a failure: {rule}"
