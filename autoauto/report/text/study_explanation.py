"""Why a study's winner won: `comparisons_table`, `binding_table` of what limits it, `reasons_table` of other cells."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from autoauto.records.study_summary import Comparison, Finalist, Interval, StudySummary
from autoauto.report.reasons import what_binds, why_not
from autoauto.report.style import format_difference, plain_table
from autoauto.report.wording import (
    configuration,
    knob_value,
    origin_of,
    ran_on_devices,
    relevant_knobs,
    shown_knobs,
    speed_text,
)


def comparisons_table(summary: StudySummary, comparisons: Sequence[Comparison]) -> Table:
    """The winner, then one row per configuration that it is compared with."""
    assert summary.winner is not None
    trial = summary.winner.trial
    title = f"Why this one, by {summary.objective}" if summary.of_several else "Why this one"
    table = plain_table(title, ["", "samples/s", "winner", ""], ["samples/s", "winner"])
    winner = f"{configuration(trial.knobs, relevant_knobs(trial.knobs))}, {origin_of(summary)}"
    verification = summary.verification
    speed = verification.winner.speed if verification else None
    table.add_row("winner", speed_text(speed or Interval(trial.samples_per_s, None)), "", winner)
    for comparison in comparisons:
        knobs, speed = comparison.knobs, comparison.speed
        other = configuration(knobs, relevant_knobs(knobs)) if knobs else ""
        note = "\n".join(filter(None, [comparison.note, other]))
        gain = format_difference(comparison.gain_percent)
        table.add_row(comparison.name, speed_text(speed) if speed else "-", gain, note)
    if verification is not None and verification.n_repeats > 1:
        turns = f"means of {verification.n_repeats} turns and their 95 % confidence intervals"
        table.caption = f"{turns}, {origin_of(summary)}"
    return table


def binding_table(summary: StudySummary, winner: Finalist) -> Table:
    """One row per limit of the winner: compute, transfer, memory and, in training, the bubble."""
    table = plain_table(f"What binds, {origin_of(summary)}", ["", "", ""], [])
    table.show_header = False
    for fact in what_binds(winner, ran_on_devices(summary)):
        table.add_row(fact.name, fact.headline, fact.text)
    return table


def reasons_table(summary: StudySummary) -> Table:
    """One row per cell: its largest batch size, its best throughput, and why it lost or could not run."""
    knobs = shown_knobs(summary)
    numbers = [*knobs, "largest\nbatch", "best\nsamples/s", "difference"]
    heads = [name.replace("_", "\n", 1) if name == "memory_proportion" else name for name in numbers]
    table = plain_table(f"Cells, {origin_of(summary)}", [*heads, "why"], heads)
    for cell in summary.cells:
        table.add_row(
            *(knob_value(cell.knobs, name) for name in knobs),
            str(cell.largest.knobs.batch_size) if cell.largest else "none",
            f"{cell.best.samples_per_s:,.1f}" if cell.best else "-",
            format_difference(0.0 - summary.loss_percent(cell.best)) if cell.best else "-",
            why_not(cell, summary),
        )
    return table
