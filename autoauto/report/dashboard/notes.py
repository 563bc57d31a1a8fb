"""Notes in Markdown for a dashboard: `study_note`, `trial_note`, and `finalist_note` with stages and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.study_summary import Comparison, Finalist, StudySummary, TrialSummary
from autoauto.records.units import format_bytes
from autoauto.report.reasons import what_binds, why_not
from autoauto.report.style import ESTIMATED, difference_percent, format_difference
from autoauto.report.wording import configuration, knob_value, origin_of, ran_on_devices, relevant_knobs, shown_knobs

N_TOP = 5


def study_note(summary: StudySummary, comparisons: Sequence[Comparison], commands: Sequence[tuple[str, str]]) -> str:
    """The winner, the command that measures it again, what binds it, the best trials, and why every other cell lost."""
    if summary.winner is None:
        head = [f"## Nothing fits\n\nNone of the {len(summary.trials):,} configurations that were tried fits."]
    else:
        trial = summary.winner.trial
        name = configuration(trial.knobs, relevant_knobs(trial.knobs))
        speed = f"**{trial.samples_per_s:,.1f} samples/s**, {origin_of(summary)}"
        head = [f"## Best: {name}\n\n{speed}, trial {trial.number}", _commands(commands), _gains(comparisons)]
        head += [_binds(summary, summary.winner), _top(summary)]
    return "\n\n".join(filter(None, [*head, _cells(summary)])) + "\n"


def trial_note(trial: TrialSummary, origin: str) -> str:
    """A configuration whose stages are not shown: its throughput, or why it does not count."""
    if trial.fits:
        return f"**{trial.samples_per_s:,.1f} samples/s**, {origin}{_estimated(trial)}\n"
    how = "compiled whole" if trial.compiled else f"{ESTIMATED}, nothing was compiled"
    lacks = f"Lacks **{format_bytes(trial.excess_bytes)}**.\n\n" if trial.excess_bytes else ""
    what = "Breaks a constraint" if trial.constrained else "Does not fit"
    return f"**{what}** ({how}). {lacks}{trial.reason}\n"


def finalist_note(summary: StudySummary, finalist: Finalist, command: str, pictures: Mapping[str, str]) -> str:
    """A configuration stage by stage, with pictures by their names and addresses."""
    trial, rank = finalist.trial, summary.ranked.index(finalist.trial) + 1
    ranked = "the best" if rank == 1 else f"rank {rank}, {format_difference(-summary.loss_percent(trial))}"
    parts = [
        f"**{trial.samples_per_s:,.1f} samples/s**, {origin_of(summary)}{_estimated(trial)}: {ranked}",
        _parts(finalist.measured),
        _binds(summary, finalist),
        "\n\n".join(f"![{name}]({address})" for name, address in pictures.items()),
        _commands([("Measure it again", command)]),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _estimated(trial: TrialSummary) -> str:
    if not trial.estimated_samples_per_s:
        return ""
    error = format_difference(difference_percent(trial.estimated_samples_per_s, trial.samples_per_s))
    return f"; {trial.estimated_samples_per_s:,.1f} {ESTIMATED}, {error}"


def _commands(commands: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"{name}:\n\n```\n{command}\n```" for name, command in commands)


def _gains(comparisons: Sequence[Comparison]) -> str:
    lines = (f"- {comparison.name}: {_gain(comparison)}" for comparison in comparisons)
    return "\n".join(["### Against", "", *lines]) if comparisons else ""


def _gain(comparison: Comparison) -> str:
    if comparison.gain_percent is None:
        return comparison.note
    return f"{format_difference(comparison.gain_percent)} better, {comparison.note}"


def _binds(summary: StudySummary, finalist: Finalist) -> str:
    facts = what_binds(finalist, ran_on_devices(summary))
    return "\n".join(["### What binds", "", *(f"- {fact.name}: **{fact.headline}**, {fact.text}" for fact in facts)])


def _top(summary: StudySummary) -> str:
    knobs = shown_knobs(summary)
    rows = (
        [
            f"{trial.number}",
            *(knob_value(trial.knobs, name) for name in knobs),
            f"{trial.knobs.batch_size}",
            f"{trial.samples_per_s:,.1f}",
            format_difference(0.0 - summary.loss_percent(trial)),
        ]
        for trial in summary.ranked[:N_TOP]
    )
    return f"### The best {N_TOP}\n\n" + _table(["trial", *knobs, "batch_size", "samples/s", "difference"], rows)


def _cells(summary: StudySummary) -> str:
    knobs = shown_knobs(summary)
    rows = (
        [
            *(knob_value(cell.knobs, name) for name in knobs),
            f"{cell.best.samples_per_s:,.1f}" if cell.best else "-",
            why_not(cell, summary),
        ]
        for cell in summary.cells
    )
    return "### Cells\n\n" + _table([*knobs, "samples/s", "why"], rows)


def _parts(plan: Plan | PhasedPlan) -> str:
    if isinstance(plan, PhasedPlan):
        cycles = zip(plan.phases, plan.phase_cycles, strict=True)
        rows = ([str(phase.layers), f"{n:,}", _memory(phase.total_bytes, phase.limit_bytes)] for phase, n in cycles)
        return _table(["phase", "cycles", "memory of its limit"], rows)
    rows = (
        [
            f"{index} {stage.layers}",
            f"{stage.compute_cycles:,}",
            f"{stage.transfer_cycles:,}",
            _memory(stage.total_bytes, stage.limit_bytes),
        ]
        for index, stage in enumerate(plan.stages)
    )
    return _table(["stage", "compute cycles", "transfer cycles", "memory of its limit"], rows)


def _memory(n_bytes: int, limit_bytes: int) -> str:
    return f"{format_bytes(n_bytes)}, {100 * n_bytes / max(limit_bytes, 1):.0f} %"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in GitHub's Markdown; columns of text are flush left, columns of numbers flush right."""
    text_columns = {"why", "stage", "phase", "schedule", "strategy"}
    line = ["---" if name in text_columns else "---:" for name in columns]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in (columns, line, *rows))
