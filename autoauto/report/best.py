"""The best configuration of a search, and what it took to find it."""

from __future__ import annotations

from rich.table import Table

from autoauto.records.plan import Plan
from autoauto.records.trial import Counts, Knobs
from autoauto.report.compare import difference_percent
from autoauto.report.style import ESTIMATED, MEASURED, format_difference, plain_table


def best_table(knobs: Knobs, measured: Plan, samples_per_s: float, estimated: Plan | None, counts: Counts) -> Table:
    """One row a fact of a configuration; numbers say where they come from.

    Args:
        knobs: the configuration.
        measured: its stages compiled whole.
        samples_per_s: its measured throughput.
        estimated: the same stages as estimated before; None when there was no estimate.
        counts: how far the search went.
    """
    table = plain_table("Best configuration", ["", "", ""])
    table.show_header = False
    table.add_row("n_ipu", str(knobs.n_ipu))
    table.add_row("memory_proportion", str(knobs.memory_proportion))
    table.add_row("batch_size", str(knobs.batch_size))
    table.add_row("partition", " ".join(map(str, measured.partition)))
    table.add_row("throughput", f"{samples_per_s:,.1f} samples/s", MEASURED)
    if estimated is not None:  # one batch and one clock: throughputs relate as periods do
        guess = samples_per_s * measured.cost_cycles / estimated.cost_cycles
        difference = format_difference(difference_percent(guess, samples_per_s))
        table.add_row("", f"{guess:,.1f} samples/s", f"{ESTIMATED}, {difference}")
    table.add_row("period", f"{measured.cost_cycles:,} cycles", MEASURED)
    of_all = "" if counts.n_configurations is None else f" of {counts.n_configurations:,}"
    table.add_row("tried", f"{counts.n_tried:,}{of_all} configurations")
    table.add_row("measured", f"{counts.n_measured:,} of those tried", "the estimate ruled out the others")
    return table
