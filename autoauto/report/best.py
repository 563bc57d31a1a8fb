"""The best configuration of a search, and what it took to find it."""

from __future__ import annotations

from rich.table import Table

from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.trial import Counts, Knobs, Strategy
from autoauto.report.compare import difference_percent
from autoauto.report.style import (
    ESTIMATED,
    MEASURED,
    REALLY_MEASURED,
    SIMULATED,
    format_difference,
    format_value,
    plain_table,
)


def best_table(
    knobs: Knobs,
    measured: Plan | PhasedPlan,
    samples_per_s: float,
    estimated_samples_per_s: float,
    counts: Counts,
    makespan_cycles: float | None = None,
    measured_by: str = MEASURED,
    latency_s: float = 0.0,
) -> Table:
    """One row a fact of a configuration; numbers say where they come from.

    Args:
        knobs: the configuration.
        measured: its stages compiled whole.
        samples_per_s: its measured throughput.
        estimated_samples_per_s: what the estimate promised; 0 when there was none.
        counts: how far the search went.
        makespan_cycles: of a step of training; None for inference.
        measured_by: what a measured number is called.
        latency_s: from a micro-batch's entry to its result, or of a step of training; 0 when it is not known.
    """
    table = plain_table("Best configuration", ["", "", ""])
    table.show_header = False
    table.add_row("n_ipu", str(knobs.n_ipu))
    if knobs.replicas > 1:
        table.add_row("replicas", str(knobs.replicas))
    table.add_row("memory_proportion", str(knobs.memory_proportion))
    table.add_row("batch_size", str(knobs.batch_size))
    if knobs.strategy is Strategy.PHASED:
        table.add_row("strategy", f"{knobs.strategy}, {knobs.n_micro_batches} steps")
    if knobs.training:
        table.add_row("schedule", str(knobs.schedule))
        table.add_row("recompute", "on" if knobs.recompute else "off")
        table.add_row("n_micro_batches", str(knobs.n_micro_batches))
    table.add_row("partition", " ".join(map(str, measured.partition)))
    table.add_row("throughput", f"{samples_per_s:,.1f} samples/s", measured_by)
    if estimated_samples_per_s:
        difference = format_difference(difference_percent(estimated_samples_per_s, samples_per_s))
        table.add_row("", f"{estimated_samples_per_s:,.1f} samples/s", f"{ESTIMATED}, {difference}")
    if measured_by == REALLY_MEASURED:
        table.add_row("period", f"{1e3 * knobs.n_samples / samples_per_s:,.3f} ms", measured_by)
    else:
        name = "all phases" if isinstance(measured, PhasedPlan) else "period"
        table.add_row(name, f"{measured.cost_cycles:,} cycles", measured_by)
    if latency_s:
        table.add_row("latency", f"{format_value('latency_s', latency_s)}", measured_by)
    if makespan_cycles is not None:
        table.add_row("makespan", f"{makespan_cycles:,.0f} cycles", SIMULATED)
    of_all = "" if counts.n_configurations is None else f" of {counts.n_configurations:,}"
    table.add_row("tried", f"{counts.n_tried:,}{of_all} configurations")
    others = "the estimate ruled out the others" if counts.n_measured < counts.n_tried else ""
    table.add_row("measured", f"{counts.n_measured:,} of those tried", others)
    return table
