"""Why a study's winner won, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from autoauto.records.study_summary import Comparison, Contender, Findings, Interval
from autoauto.report.reasons import what_binds, why_not
from autoauto.report.style import format_difference, plain_table
from autoauto.report.wording import configuration, knob_value, origin_of, own_knobs, really_ran, shown_knobs


def comparisons_table(found: Findings, compared: Sequence[Comparison]) -> Table:
    """The winner, then one row for everything it is compared with."""
    assert found.winner is not None
    tried = found.winner.tried
    title = f"Why this one, by {found.objective}" if found.of_several else "Why this one"
    table = plain_table(title, ["", "samples/s", "winner", ""], ["samples/s", "winner"])
    said = f"{configuration(tried.knobs, own_knobs(tried.knobs))}, {origin_of(found)}"
    told = found.verification
    again = told.winner.speed if told else None
    table.add_row("winner", speed_text(again or Interval(tried.samples_per_s, None)), "", said)
    for one in compared:
        other = configuration(one.knobs, own_knobs(one.knobs)) if one.knobs else ""
        speed = speed_text(one.speed) if one.speed else "-"
        note = "\n".join(filter(None, [one.note, other]))
        table.add_row(one.name, speed, format_difference(one.gain_percent), note)
    if told is not None and told.n_repeats > 1:
        table.caption = f"means of {told.n_repeats} turns and their 95 % confidence intervals, {origin_of(found)}"
    return table


def speed_text(speed: Interval) -> str:
    """Samples per second, with the confidence interval where there is one.

    >>> speed_text(Interval(1234.56, 7.89)), speed_text(Interval(1234.56, None))
    ('1,234.6 ± 7.9', '1,234.6')
    """
    return f"{speed.mean:,.1f}" + ("" if speed.error is None else f" ± {speed.error:,.1f}")


def binding_table(found: Findings, winner: Contender) -> Table:
    """One row for everything that binds the winner."""
    table = plain_table(f"What binds, {origin_of(found)}", ["", "", ""], [])
    table.show_header = False
    for fact in what_binds(winner, really_ran(found)):
        table.add_row(fact.name, fact.headline, fact.text)
    return table


def reasons_table(found: Findings) -> Table:
    """One row a cell: what it could do at best, and why it lost or could not run."""
    knobs = shown_knobs(found)
    numbers = [*knobs, "largest\nbatch", "best\nsamples/s", "difference"]
    heads = [name.replace("_", "\n", 1) if name == "memory_proportion" else name for name in numbers]
    table = plain_table(f"Cells, {origin_of(found)}", [*heads, "why"], heads)
    for cell in found.cells:
        table.add_row(
            *(knob_value(cell.knobs, name) for name in knobs),
            str(cell.largest.knobs.batch_size) if cell.largest else "none",
            f"{cell.best.samples_per_s:,.1f}" if cell.best else "-",
            format_difference(0.0 - found.loss_percent(cell.best)) if cell.best else "-",
            why_not(cell, found),
        )
    return table
