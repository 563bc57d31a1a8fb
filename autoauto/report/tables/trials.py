"""Tables of a search: `best_table`, `trials_table`, `what_fits_table`, `front_table`, `dry_run_table`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from autoauto.records.plans.plan import Plan
from autoauto.records.target import Origin
from autoauto.records.units import format_number
from autoauto.report.style import difference_percent, format_difference, format_value
from autoauto.report.tables.columns import (
    TRIAL_LATENCY,
    TRIAL_NUMBER,
    RowColumn,
    knob_columns,
    objective_columns,
    table_of,
    value_text,
)
from autoauto.report.tables.serving import serving_facts
from autoauto.report.tables.table import Column, Table, Value, speeds_column
from autoauto.report.wording import (
    counted,
    duration,
    has_groups,
    head,
    knob_value,
    price_text,
    run_interval,
    stage_devices,
    unit_of,
)
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import NUMBERS, USD_PER_MILLION
from autoauto.space.objectives import Objective, Objectives, objective_tuple, objectives_text
from autoauto.space.table import COLUMNS, OF_EVERY, of_every, shown, varying
from autoauto.space.trial import Cell, Counts, ExpectedCell, Trial, numbers_of


def best_table(trial: Trial, counts: Counts, origin: Origin, clock_hz: float | None = None) -> Table:
    """One row per fact of the best configuration and of its search.

    Args:
        counts: how many configurations were tried and measured.
        origin: of the numbers of trials; engines may have measured this one.
    """
    others = "the estimate ruled out the others" if counts.n_measured < counts.n_tried else ""
    rows = (
        *best_facts(trial, Origin.MEASURED if trial.origin is Origin.MEASURED else origin, clock_hz),
        ("tried", _tried(counts), ""),
        (origin, f"{counts.n_measured:,} of those tried", others),
    )
    return Table("Best configuration", (Column(""),) * 3, rows)


def best_facts(trial: Trial, origin: Origin, clock_hz: float | None = None) -> list[tuple[str, str, str]]:
    """The facts about a configuration, each with its name, its value and its origin; the estimate's name is empty."""
    if has_groups(trial.knobs):
        return serving_facts(trial, origin)
    knobs, plan = trial.knobs, trial.plan
    words = knobs.session.words
    rows = [(words.name(knob.name), knob_value(knobs, knob.name), "") for knob in shown(knobs)]
    rows.append(("partition", " ".join(map(str, plan.partition)), ""))
    if isinstance(plan, Plan) and any(stage.n_replicas > 1 for stage in plan.stages):
        rows.append((f"{words.device}s of stages", ", ".join(map(stage_devices, plan.stages)), ""))
    rows.append(("throughput", f"{format_number(trial.samples_per_s)} {trial.unit}", origin))
    if trial.estimated_samples_per_s:
        difference = format_difference(difference_percent(trial.estimated_samples_per_s, trial.samples_per_s))
        estimated = format_number(trial.estimated_samples_per_s)
        rows.append(("", f"{estimated} {trial.unit}", f"{Origin.ESTIMATED}, {difference}"))
    if trial.device_samples_per_s < trial.samples_per_s:
        rows.append((f"a {words.unit}", f"{format_number(trial.device_samples_per_s)} {trial.unit}", origin))
    if trial.device_samples_per_s < trial.replica_samples_per_s < trial.samples_per_s:
        rows.append(("a replica", f"{format_number(trial.replica_samples_per_s)} {trial.unit}", origin))
    if origin is Origin.MEASURED:
        rows.append(("period", f"{format_number(1e3 * knobs.n_samples / trial.samples_per_s, 3)} ms", origin))
    else:
        rows.append((plan.cost_name, duration(plan.cost_cycles, clock_hz), origin))
    if trial.latency_s:
        rows.append(("latency", format_value("latency_s", trial.latency_s), origin))
    if trial.step.makespan_cycles is not None:
        rows.append(("makespan", duration(trial.step.makespan_cycles, clock_hz), Origin.SIMULATED))
    numbers = numbers_of(trial)
    titled = (number for number in NUMBERS if number.title and number.name in numbers)
    rows += [(number.title, number.text(numbers[number.name]), number.origin or origin) for number in titled]
    if text := price_text(trial.result, knobs.mode.sample):
        rows.append(("cost", text, origin))
    return rows


def _tried(counts: Counts) -> str:
    of_all = "" if counts.n_configurations is None else f" of {counts.n_configurations:,}"
    return f"{counts.n_tried:,}{of_all} configurations"


def trials_table(trials: Sequence[Trial], top: int, objectives: Objectives, origin: Origin) -> Table:
    """One row per trial, best first by the first objective; those that do not fit or break a constraint come last."""
    first, *_ = asked = objective_tuple(objectives)
    sign = -1 if first.maximise else 1
    best = sorted(trials, key=lambda trial: (trial.value is None, sign * (trial.value or 0.0)))[:top]
    configurations = [trial.knobs for trial in trials]
    names, others = _shown_knobs(configurations)
    of_objectives = list(objective_columns(objectives, configurations))
    columns: list[RowColumn[Trial]] = []
    if not others and not of_objectives:  # which need its room
        ranks = {trial.number: rank for rank, trial in enumerate(best, start=1)}
        columns.append(RowColumn(Column("rank", "number"), lambda trial: ranks[trial.number]))
    columns.append(TRIAL_NUMBER)
    columns += knob_columns(names, configurations, others)
    columns.append(RowColumn(speeds_column(unit_of(configurations)), lambda trial: trial.samples_per_s or None))
    if not of_objectives or Objective.LATENCY in asked:
        columns.append(TRIAL_LATENCY)
    if Objective.COST not in asked and any(_price(trial) for trial in trials):
        columns.append(RowColumn(Column("USD\n/ million", "number"), lambda trial: value_text(_price(trial))))
    columns += of_objectives
    columns.append(RowColumn(Column("state"), lambda trial: _state(trial, origin)))
    origins = dict.fromkeys([origin, *(trial.origin for trial in trials if trial.origin)])
    title = f"Trials by {objectives_text(objectives)}, {' and '.join(origins)}"
    return table_of(title, columns, best, f"{len(best)} of {len(trials)} trials")


def _state(trial: Trial, origin: Origin) -> str:
    """The state of a trial; with the interval measured so far if it ended early, and with its origin if that differs.

    >>> from autoauto.space.trial import Status
    >>> ends = {"low_samples_per_s": 76.0, "high_samples_per_s": 84.5}
    >>> _state(Trial(Knobs(1, 8), Status.ENDED_EARLY, samples_per_s=80.0, **ends), Origin.MEASURED)
    'ended early (76.0 to 84.5)'
    """
    state = f"{trial.status}{run_interval(trial)}" if trial.ended_early else trial.state
    return state if trial.origin in (None, origin) else f"{state}, {trial.origin}"


def _price(trial: Trial) -> float | None:
    """US dollars per million samples; None if no price is known."""
    return trial.result.derived.get(USD_PER_MILLION)


def _shown_knobs(configurations: Sequence[Knobs]) -> tuple[list[str], list[str]]:
    """The knobs with a column, those that every study has and one that varies, and more that vary, for words."""
    always = of_every(configurations)
    others = [name for name in varying(configurations) if name not in always]
    if len(others) > 1:
        return always, others
    return [knob.name for knob in COLUMNS if knob.name in (*always, *others)], []


def what_fits_table(cells: Sequence[Cell], origin: Origin) -> Table:
    """One row per cell of a search for training: the largest batch size that fits, and the best throughput of any."""
    names = ("n_ipu", "memory_proportion", "schedule", "recompute", "n_micro_batches")
    columns = (
        Column("n_ipu", "n_ipu"),
        Column(head("memory_proportion"), "memory_proportion"),
        Column("schedule"),
        Column("recompute"),
        Column(head("n_micro_batches"), "n_micro_batches"),
        Column("largest\nbatch", "batch_size"),
        Column("best\nsamples/s", "samples_per_s"),
    )
    rows: list[tuple[Value, ...]] = []
    for cell in cells:
        speed = cell.best.samples_per_s if cell.best else None
        largest = str(cell.largest.knobs.batch_size) if cell.largest else "none"
        if cell.largest and not cell.first_unfit:
            largest = f">= {largest}"
        rows.append((*(knob_value(cell.knobs, name) for name in names), largest, speed))
    return Table(f"What fits, {origin}", columns, tuple(rows), _what_fits_most(cells))


def _what_fits_most(cells: Sequence[Cell]) -> str:
    """A line with the schedule that fits the largest batch, and the schedules that never fit that batch.

    A cell whose largest batch was not limited by memory (`first_unfit` is None) proves nothing about larger ones.
    """
    largest: dict[str, int] = {}
    too_large: dict[str, float] = {}
    for cell in cells:
        name = str(cell.knobs.mode.order)
        fits, unfit = cell.largest, cell.first_unfit
        largest[name] = max(largest.get(name, 0), fits.knobs.batch_size if fits else 0)
        too_large[name] = max(too_large.get(name, 0), unfit.knobs.batch_size if unfit else inf)
    (first, most), *others = sorted(largest.items(), key=lambda item: -item[1])
    less = " and ".join(f"{name} ({n or 'none'})" for name, n in others if too_large[name] <= most)
    return f"{first} fits batches of {most}, which {less} cannot" if less else ""


def front_table(front: Sequence[Trial], objectives: Objectives, counts: Counts, origin: Origin) -> Table:
    """One row per configuration of the Pareto front: no other beats it in one objective without losing in another."""
    configurations = [trial.knobs for trial in front]
    names, others = _shown_knobs(configurations)
    columns: list[RowColumn[Trial]] = [
        TRIAL_NUMBER,
        *knob_columns(names, configurations, others),
        RowColumn(speeds_column(unit_of(configurations)), lambda trial: trial.samples_per_s),
        RowColumn(Column("latency", "latency_s"), lambda trial: trial.latency_s),
        *objective_columns(objectives, configurations),
    ]
    title = f"No other is better in {' and '.join(objective_tuple(objectives))}, {origin}"
    caption = f"{len(front)} of {counts.n_measured:,} {origin}; {_tried(counts)} tried"
    return table_of(title, columns, front, caption)


def dry_run_table(cells: Sequence[ExpectedCell], objectives: Objectives) -> Table:
    """One row per cell in which something fits, best by the first objective on top, with the knobs that vary."""
    first, *_ = objective_tuple(objectives)
    n_tries = {each.cell.best.knobs: each.n_tries for each in cells if each.cell.best is not None}
    fitting = [each.cell.best for each in cells if each.cell.best is not None]
    fitting.sort(key=lambda best: -first.worth(best))
    configurations = [each.cell.knobs for each in cells]
    names = [name for name in of_every(configurations) if name != "batch_size"]
    others = [name for name in varying(configurations) if name not in OF_EVERY]
    columns: list[RowColumn[Trial]] = [
        *knob_columns(names, configurations, others),
        RowColumn(Column("best\nbatch", "batch_size"), lambda best: str(best.knobs.batch_size)),
        RowColumn(speeds_column(unit_of(configurations)), lambda best: best.samples_per_s),
        *objective_columns(objectives, configurations, ("samples_per_s",)),
        RowColumn(Column("tries", "n_tries"), lambda best: n_tries[best.knobs]),
    ]
    n_unfit = len(cells) - len(fitting)
    caption = f"no batch size fits in {counted(n_unfit, 'further combination')}" if n_unfit else ""
    return table_of(f"Combinations of knobs at their best batch, {Origin.ESTIMATED}", columns, fitting, caption)
