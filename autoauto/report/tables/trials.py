"""Tables of a search: `best_table`, `trials_table`, `what_fits_table`, `front_table`, `dry_run_table`.

`best_facts` are those of `best_table` that do not depend on the search; the page of a study shows them too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import inf

from autoauto.records.plans.plan import Plan
from autoauto.records.target import Origin
from autoauto.report.style import difference_percent, format_difference, format_value
from autoauto.report.tables.serving import serving_facts
from autoauto.report.tables.table import Column, Table, Value, speeds_column
from autoauto.report.wording import (
    counted,
    duration,
    has_groups,
    head,
    knob_value,
    label,
    objective_unit,
    price_text,
    run_interval,
    stage_devices,
    unit_of,
    words_of,
)
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import NUMBERS, USD_PER_MILLION
from autoauto.space.objectives import Objective, Objectives, objective_tuple, objectives_text, shown_values
from autoauto.space.table import COLUMNS, OF_EVERY, of_every, shown, varying
from autoauto.space.trial import Cell, Counts, ExpectedCell, Trial, numbers_of


def best_table(trial: Trial, counts: Counts, origin: Origin, clock_hz: float | None = None) -> Table:
    """One row per fact of the best configuration and of its search.

    Args:
        trial: with its plan.
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
    """What is known of a configuration: names, values, and the origins of numbers; the estimate has no name.

    Args:
        trial: with its plan.
        origin: of the measured numbers.
        clock_hz: of the cycles, where time is shown instead.
    """
    if has_groups(trial.knobs):
        return serving_facts(trial, origin)
    knobs, plan = trial.knobs, trial.plan
    words = knobs.session.words
    rows = [(words.name(knob.name), knob_value(knobs, knob.name), "") for knob in shown(knobs)]
    rows.append(("partition", " ".join(map(str, plan.partition)), ""))
    if isinstance(plan, Plan) and any(stage.n_replicas > 1 for stage in plan.stages):
        rows.append((f"{words.device}s of stages", ", ".join(map(stage_devices, plan.stages)), ""))
    rows.append(("throughput", f"{trial.samples_per_s:,.1f} {trial.unit}", origin))
    if trial.estimated_samples_per_s:
        difference = format_difference(difference_percent(trial.estimated_samples_per_s, trial.samples_per_s))
        rows.append(("", f"{trial.estimated_samples_per_s:,.1f} {trial.unit}", f"{Origin.ESTIMATED}, {difference}"))
    if trial.device_samples_per_s < trial.samples_per_s:
        rows.append((f"a {words.unit}", f"{trial.device_samples_per_s:,.1f} {trial.unit}", origin))
    if trial.device_samples_per_s < trial.replica_samples_per_s < trial.samples_per_s:
        rows.append(("a replica", f"{trial.replica_samples_per_s:,.1f} {trial.unit}", origin))
    if origin is Origin.MEASURED:
        rows.append(("period", f"{1e3 * knobs.n_samples / trial.samples_per_s:,.3f} ms", origin))
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
    """One row per trial, best first by the first objective; those that do not fit or break a constraint come last.

    Args:
        trials: of a study.
        top: how many to show.
        objectives: of the study.
        origin: of the throughputs; those that have another say so.
    """
    sign = -1 if objective_tuple(objectives)[0].maximise else 1
    best = sorted(trials, key=lambda trial: (trial.value is None, sign * (trial.value or 0.0)))[:top]
    names, others = _shown_knobs(trials)
    of_objectives = objective_columns(objectives, [trial.knobs for trial in trials])
    ranks = [] if others or of_objectives else [Column("rank", "number")]  # the words and these need its room
    is_asked = not of_objectives or Objective.LATENCY in objective_tuple(objectives)
    latencies = [Column("latency", "latency_s")] if is_asked else []
    is_priced = Objective.COST not in objective_tuple(objectives) and any(_price(trial) for trial in trials)
    prices = [Column("USD\n/ million", "number")] if is_priced else []
    columns = (
        *ranks,
        Column("trial", "number"),
        *_knob_columns(names, others, [trial.knobs for trial in trials]),
        speeds_column(unit_of(trial.knobs for trial in trials)),
        *latencies,
        *prices,
        *of_objectives,
        Column("state"),
    )
    rows = (
        (
            *[rank for _ in ranks],
            str(trial.number),
            *_knob_values(trial.knobs, names, others),
            trial.samples_per_s or None,
            *[trial.latency_s or None for _ in latencies],
            *[value_text(_price(trial)) for _ in prices],
            *objective_values(objectives, trial),
            _state(trial, origin),
        )
        for rank, trial in enumerate(best, start=1)
    )
    origins = dict.fromkeys([origin, *(trial.origin for trial in trials if trial.origin)])
    title = f"Trials by {objectives_text(objectives)}, {' and '.join(origins)}"
    return Table(title, columns, tuple(rows), f"{len(best)} of {len(trials)} trials")


def _state(trial: Trial, origin: Origin) -> str:
    """How a trial ended, with the interval of what was measured until it ended early, and its origin where it differs.

    >>> from autoauto.space.trial import Status
    >>> ends = {"low_samples_per_s": 76.0, "high_samples_per_s": 84.5}
    >>> _state(Trial(Knobs(1, 8), Status.ENDED_EARLY, samples_per_s=80.0, **ends), Origin.MEASURED)
    'ended early (76.0 to 84.5)'
    """
    state = f"{trial.status}{run_interval(trial)}" if trial.ended_early else trial.state
    return state if trial.origin in (None, origin) else f"{state}, {trial.origin}"


def _price(trial: Trial) -> float | None:
    """US dollars of a million samples; None where nobody says a price."""
    return trial.result.derived.get(USD_PER_MILLION)


_SHOWN_ANYWAY = ("samples_per_s", "latency_s")


def objective_columns(
    objectives: Objectives, configurations: Collection[Knobs], besides: Collection[str] = _SHOWN_ANYWAY
) -> list[Column]:
    """A column for every objective that is none of the numbers that have one anyway."""
    others = (each for each in objective_tuple(objectives) if each.number not in besides)
    return [Column(objective_unit(each, configurations).replace(" / ", "\n/ "), "number") for each in others]


def objective_values(
    objectives: Objectives, trial: Trial, besides: Collection[str] = _SHOWN_ANYWAY
) -> list[str | None]:
    """The values of these columns."""
    pairs = zip(objective_tuple(objectives), shown_values(objectives, trial), strict=True)
    return [value_text(value) for each, value in pairs if each.number not in besides]


def value_text(value: float | None) -> str | None:
    """A value without a unit, to four digits or more.

    >>> value_text(209127.6), value_text(0.98765), value_text(None)
    ('209,128', '0.9877', None)
    """
    return None if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


def _shown_knobs(trials: Sequence[Trial]) -> tuple[list[str], list[str]]:
    """The knobs with a column, those that every study has and one that varies, and more that vary, for words."""
    configurations = [trial.knobs for trial in trials]
    always = of_every(configurations)
    others = [name for name in varying(configurations) if name not in always]
    if len(others) > 1:
        return always, others
    return [knob.name for knob in COLUMNS if knob.name in (*always, *others)], []


def _knob_columns(names: Sequence[str], others: Sequence[str], configurations: Sequence[Knobs]) -> list[Column]:
    called = words_of(configurations).name
    return [*(Column(head(called(name)), name) for name in names), *([Column("other knobs")] if others else [])]


def _knob_values(knobs: Knobs, names: Sequence[str], others: Sequence[str]) -> list[str]:
    """The values of `names`, and those of `others` that matter in words."""
    matter = [knob.name for knob in shown(knobs) if knob.name in others]
    words = [label(knobs, matter) if matter else ""] if others else []
    return [*(knob_value(knobs, name) for name in names), *words]


def what_fits_table(cells: Sequence[Cell], origin: Origin) -> Table:
    """One row per cell of a search for training: the largest batch size that fits, and the best throughput of any.

    The caption names the schedule that fits larger batches than others.
    """
    columns = (
        Column("n_ipu", "n_ipu"),
        Column(head("memory_proportion"), "memory_proportion"),
        *map(Column, ("schedule", "recompute")),
        Column(head("n_micro_batches"), "n_micro_batches"),
        Column("largest\nbatch", "batch_size"),
        Column("best\nsamples/s", "samples_per_s"),
    )
    names = ("n_ipu", "memory_proportion", "schedule", "recompute", "n_micro_batches")
    rows = (
        (
            *(knob_value(cell.knobs, name) for name in names),
            _largest_batch(cell),
            cell.best.samples_per_s if cell.best else None,
        )
        for cell in cells
    )
    return Table(f"What fits, {origin}", columns, tuple(rows), _what_fits_most(cells))


def _largest_batch(cell: Cell) -> str:
    if cell.largest is None:
        return "none"
    return f"{'' if cell.first_unfit else '>= '}{cell.largest.knobs.batch_size}"


def _what_fits_most(cells: Sequence[Cell]) -> str:
    """The schedule with the largest batch, and those for which that batch was too large in every cell.

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
    """One row per configuration of the Pareto front: no other beats it in one objective without losing in another.

    Args:
        front: best by the first objective on top.
        objectives: the objectives.
        counts: how many configurations were tried and measured.
        origin: of the numbers.
    """
    names, others = _shown_knobs(front)
    columns = (
        Column("trial", "number"),
        *_knob_columns(names, others, [trial.knobs for trial in front]),
        speeds_column(unit_of(trial.knobs for trial in front)),
        Column("latency", "latency_s"),
        *objective_columns(objectives, [trial.knobs for trial in front]),
    )
    rows: Iterator[tuple[Value, ...]] = (
        (
            str(trial.number),
            *_knob_values(trial.knobs, names, others),
            trial.samples_per_s,
            trial.latency_s,
            *objective_values(objectives, trial),
        )
        for trial in front
    )
    return Table(
        f"No other is better in {' and '.join(objective_tuple(objectives))}, {origin}",
        columns,
        tuple(rows),
        f"{len(front)} of {counts.n_measured:,} {origin}; {_tried(counts)} tried",
    )


def dry_run_table(cells: Sequence[ExpectedCell], objectives: Objectives) -> Table:
    """One row per cell in which something fits, best by the first objective on top, with the knobs that vary.

    A row has the cell's best batch size by the estimate, and how many tries.
    """
    first, *_ = objective_tuple(objectives)
    fitting = [row for row in map(_shown, cells) if row[0].fits]
    ordered = sorted(fitting, key=lambda row: -first.worth(row[0]))
    configurations = [each.cell.knobs for each in cells]
    vary = varying(configurations)
    names = [name for name in of_every(configurations) if name != "batch_size"]
    others = [name for name in vary if name not in OF_EVERY]
    columns = (
        *_knob_columns(names, others, configurations),
        Column("best\nbatch", "batch_size"),
        speeds_column(unit_of(configurations)),
        *objective_columns(objectives, configurations, ("samples_per_s",)),
        Column("tries", "n_tries"),
    )
    rows: Iterator[tuple[Value, ...]] = (
        (
            *_knob_values(best.knobs, names, others),
            str(best.knobs.batch_size),
            best.samples_per_s,
            *objective_values(objectives, best, ("samples_per_s",)),
            n_tries,
        )
        for best, n_tries in ordered
    )
    n_unfit = len(cells) - len(fitting)
    caption = f"no batch size fits in {counted(n_unfit, 'further combination')}" if n_unfit else ""
    return Table(f"Combinations of knobs at their best batch, {Origin.ESTIMATED}", columns, tuple(rows), caption)


def _shown(expected: ExpectedCell) -> tuple[Trial, int]:
    """The best of a cell, its smallest batch where none fits, and the number of tries."""
    return expected.cell.best or expected.cell.trials[0], expected.n_tries
