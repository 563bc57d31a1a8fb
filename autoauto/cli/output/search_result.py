"""The output of commands for a search or a study: best configuration, Pareto front, comparison of the winner."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autoauto.cli.output.busy import print_busy
from autoauto.cli.output.generation import describe_devices, describe_engines, describe_generation, server_commands
from autoauto.cli.output.lines import print_line, show, show_command
from autoauto.cli.output.plans import describe_plan
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.records.units import format_number
from autoauto.report.bounds import bounds_of
from autoauto.report.style import assumed_text
from autoauto.report.wording import answer_line, measured_ratio, origin_of, outside_text, tie_text
from autoauto.space.objectives import Objectives
from autoauto.space.study_summary import POOLS, Comparison, KnobChoice, StudySummary
from autoauto.space.table import own_values, speed_values
from autoauto.space.trial import Cell, Counts, ExpectedCell, Trial, numbers_of

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.study.run import SearchResult


def show_result(flow: Flow, result: SearchResult, summary: StudySummary, objectives: Objectives) -> None:
    """Print what a search has found: its best configuration, or its Pareto front, and comparisons with others."""
    print_busy(flow)
    if result.best is not None:
        show_uses_of(summary, flow.setting.needs(result.best.knobs.session))
        origin, clock_hz = flow.traits.origin, flow.setting.shown_clock_hz
        show_engines(summary)
        show_best(result.best, result.counts, result.cells, origin, flow.setting.names, clock_hz)
        show_comparisons(summary)
        # What the winner of training gives with as many blocks on each device; 0 where it does not fit.
        even = flow.even_samples_per_s(result.best.knobs)
        if 0 < even < result.best.samples_per_s:
            gain = f"own cuts give {result.best.samples_per_s / even - 1:.1%} more"
            print_line(f"as many blocks on each device: {format_number(even)} samples/s, {origin}; {gain}")
            print_line("by the model alone: no measurement supports that gain")
        for command in server_commands(flow, result.best):
            show_command("start it", shlex.join(command))
    elif result.front:
        show_front(result.front, result.counts, objectives, flow.traits.origin)
    else:
        show_engines(summary)
    show_outside(summary)


def show_best(
    best: Trial,
    counts: Counts,
    cells: Sequence[Cell],
    origin: Origin,
    names: Sequence[str] | None = None,
    clock_hz: float | None = None,
) -> None:
    """Print the best configuration and its stages; after a search for training also what fits in which cell.

    Args:
        cells: of the search; the schedules of training differ in memory.
        names: of the layers; None when they are not known.
        clock_hz: of the cycles, where time is shown instead.
    """
    from autoauto.report.tables.plans import parts_tables
    from autoauto.report.tables.trials import best_table, what_fits_table

    show(best_table(best, counts, origin, clock_hz))
    for table in parts_tables(best.plan, names, origin, clock_hz, best.knobs):
        show("", table)
    if best.knobs.training:
        show("", what_fits_table(cells, origin))


def show_front(front: Sequence[Trial], counts: Counts, objectives: Objectives, origin: Origin) -> None:
    """Print the Pareto front: no configuration of it is better in one objective without being worse in another."""
    from autoauto.report.tables.trials import front_table

    show(front_table(front, objectives, counts, origin))


def show_uses_of(summary: StudySummary, needs: str = "") -> None:
    """Print how many devices the winner of a study uses, and what simple uses of the cluster give."""
    from autoauto.report.tables.traffic import load_facts
    from autoauto.study.analysis.comparisons import study_comparisons

    print_line("; ".join(filter(None, (answer_line(summary), needs))))
    for fact in bounds_of(summary):
        print_line(f"{fact.line} ({', '.join(filter(None, (fact.origin, fact.note)))})")
    if summary.winner is not None:
        for binds in load_facts(summary.winner, summary.rate_curves):
            print_line(f"{binds.headline} binds: {binds.text}")
    if not summary.engine_measurements:  # else what was measured says which are not told apart
        ties = tie_text(summary.choices)
        if ties:
            print_line(f"{ties}, {Origin.ESTIMATED}")
    if POOLS in summary.attributes:
        print_line(summary.attributes[POOLS])
    show_table_of_uses(study_comparisons(summary), origin_of(summary))


def show_table_of_uses(comparisons: Sequence[Comparison], origin: Origin) -> None:
    """Print what simple uses of the cluster give beside a winner, whose throughput is of `origin`."""
    from autoauto.report.tables.study import uses_table

    table = uses_table(comparisons, origin)
    show("")
    if table.rows:
        show(table, "")


def show_engines(summary: StudySummary) -> None:
    """Print how few devices suffice, the highest rates of arrivals, and what was measured on engines."""
    from autoauto.report.tables.serving import measurement_lines, measurements_table, ratios_table, sizing_table
    from autoauto.report.tables.traffic import rates_table

    if rates := rates_table(summary.rate_curves):
        show(rates, "")
    for table in filter(None, (sizing_table(summary), measurements_table(summary), ratios_table(summary))):
        show(table)
    for line in measurement_lines(summary):
        print_line(line)


def show_comparisons(summary: StudySummary) -> None:
    """Print the winner of a study against others; of the simple uses in `show_uses_of` only the best is repeated."""
    from autoauto.report.tables.study import comparisons_table
    from autoauto.study.analysis.comparisons import study_comparisons, with_best_use

    show("", comparisons_table(summary, with_best_use(study_comparisons(summary))))


def show_choices(summary: StudySummary) -> None:
    """Print what other values of the winner's knobs would give, where that was forecast."""
    from autoauto.report.tables.study import choices_table

    table = choices_table(summary)
    if table is not None:
        show(table, "")


def show_outside(summary: StudySummary) -> None:
    """Print how many trials of the study its answer leaves out, and what one should know about its numbers, if any."""
    for text in (outside_text(summary), assumed_text(summary.notes)):
        if text:
            print(text)


def describe_result(result: SearchResult, storage: str | None, flow: Flow | None = None) -> dict[str, Any]:
    """The result of a search as plain values, without its database where that is None.

    With a flow that runs servers, the best has the commands that start them, and of how many measured ones it is.
    """
    from autoauto.study.store.database import shown_storage

    summary = result.summary
    described: dict[str, Any] = {"best": None}
    if result.best is not None:
        described["best"] = describe_best(result.best) | _describe_start(result, result.best, flow)
    elif result.front:
        described["front"] = list(map(describe_best, result.front))
    if summary is not None and summary.users_front:
        described["users_front"] = []
        for point in summary.users_front:  # none beats it in what a GPU gives and a user gets
            speeds = {"tokens_per_s_per_device": point.of_gpu, "tokens_per_s_per_user": point.of_user}
            described["users_front"].append({**point.knobs.values, **speeds})
    described |= result.counts._asdict()
    described["assumed"] = list(summary.notes) if summary else []
    described["study_name"] = result.study_name
    if storage is not None:
        described["storage"] = shown_storage(storage)
    described["cells"] = [describe_cell(cell) for cell in result.cells]
    return described


def _describe_start(result: SearchResult, best: Trial, flow: Flow | None) -> dict[str, Any]:
    """The commands of the best's servers and the number of measured configurations; empty if no servers are started."""
    started: dict[str, Any] = {}
    alone = server_commands(flow, best, [None]) if flow else ()
    if flow and alone:
        started["command"] = alone[0]
        if best.knobs.replicas > 1:
            started["commands"] = server_commands(flow, best)
        started["n_measured"] = result.counts.n_measured
    record = result.summary.engine_measurements if result.summary else None
    if record is not None and record.best is not None:
        commands = [each._asdict() for each in record.best.commands]
        started |= {"origin": Origin.MEASURED, "commands": commands, "n_measured": record.n_measured}
    return started


def describe_cell(cell: Cell) -> dict[str, Any]:
    """A cell as plain values, its knobs among them."""
    return {
        **own_values(cell.knobs),
        "batch_size": cell.largest and cell.largest.knobs.batch_size,
        **speed_values(cell.knobs, cell.best.samples_per_s if cell.best else 0.0),
        "reason": "" if cell.best else cell.trials[0].reason,
        "too_large": cell.first_unfit and cell.first_unfit.knobs.batch_size,
    }


def describe_expected(expected: ExpectedCell) -> dict[str, Any]:
    """The estimate for a cell as plain values: its best configuration, and its smallest where none fits."""
    best = expected.cell.best
    shown = best or expected.cell.trials[0]
    return {
        **own_values(shown.knobs),
        **speed_values(shown.knobs, best.samples_per_s if best else 0.0),
        "device_samples_per_s": best.device_samples_per_s if best else 0.0,
        "n_devices": shown.knobs.n_devices,
        "n_tries": expected.n_tries,
        "reason": shown.reason,
    }


def describe_speed(trial: Trial) -> dict[str, Any]:
    """The throughput of a trial as plain values: of the cluster, of a replica and of a device, and as estimated."""
    return {
        **speed_values(trial.knobs, trial.samples_per_s),
        "replica_samples_per_s": trial.replica_samples_per_s,
        "device_samples_per_s": trial.device_samples_per_s,
        "estimated_samples_per_s": trial.estimated_samples_per_s,
        "n_devices": trial.knobs.n_devices,
        **describe_devices(trial.result),
    }


def describe_best(best: Trial) -> dict[str, Any]:
    """The best trial as plain values."""
    described = {
        **own_values(best.knobs),
        **describe_speed(best),
        **numbers_of(best),
        "value": best.values[0],
        "values": best.values,
        "trial": best.number,
        **describe_plan(best.plan),
    }
    if isinstance(best.plan, Plan):
        described |= describe_generation(best, best.plan)
    return described


def describe_comparisons(summary: StudySummary) -> dict[str, Any]:
    """The winner against others, the verification turn by turn, and how many trials lie outside, as plain values."""
    from autoauto.study.analysis.comparisons import study_comparisons

    origin = origin_of(summary)
    described: dict[str, Any] = {
        "compared": [_describe_comparison(comparison, origin) for comparison in study_comparisons(summary)]
    }
    if summary.choices:
        described["choices"] = [_describe_choice(summary, choice) for choice in summary.choices]
    if POOLS in summary.attributes:
        described["pools"] = summary.attributes[POOLS]
    described |= describe_engines(summary)
    described |= summary.left_out._asdict()
    described |= {"n_repeats": 0, "verdict": None, "repeated": []}
    verification = summary.verification
    if verification is not None:
        described |= {"n_repeats": verification.n_turns, "verdict": str(verification.verdict)}
        for row in verification.repeated:
            shown = {"knobs": own_values(row.knobs), "speed": row.speed and row.speed._asdict()}
            described["repeated"].append(row._asdict() | shown)
    return described


def _describe_comparison(comparison: Comparison, origin: Origin) -> dict[str, Any]:
    """The winner against another configuration as plain values; `origin` is the origin of the winner's numbers."""
    described = comparison._asdict() | {"source": None}
    if comparison.knobs is not None:
        described["knobs"] = own_values(comparison.knobs)
    if comparison.speed is not None:
        described["speed"] = comparison.speed._asdict()
        described["source"] = Origin.ESTIMATED if comparison.estimated else origin
    return described


def _describe_choice(summary: StudySummary, choice: KnobChoice) -> dict[str, Any]:
    return {
        **choice._asdict(),
        "knobs": own_values(choice.knobs),
        "source": Origin.ESTIMATED,
        **speed_values(choice.knobs, choice.samples_per_s),
        "measured_ratio": measured_ratio(summary, choice),
    }


def simulated_timeline(trial: Trial) -> Timeline | None:
    """The measured stages in the order of the schedule; None for phases."""
    from autoauto.schedule.times import timeline_of

    return timeline_of(trial.knobs.step, trial.measured) if isinstance(trial.measured, Plan) else None
