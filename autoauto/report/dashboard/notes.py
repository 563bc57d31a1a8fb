"""Notes in Markdown for a dashboard: what a study found, what a trial is, and why it does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.study_summary import Comparison, Contender, Findings, Tried
from autoauto.records.units import format_bytes
from autoauto.report.reasons import what_binds, why_not
from autoauto.report.style import ESTIMATED, format_difference
from autoauto.report.text.compare import difference_percent
from autoauto.report.wording import configuration, knob_value, origin_of, own_knobs, really_ran, shown_knobs

N_TOP = 5


def study_note(found: Findings, compared: Sequence[Comparison], commands: Sequence[tuple[str, str]]) -> str:
    """The winner, the command that measures it again, what binds, the best few, and why every other cell lost."""
    if found.winner is None:
        head = [f"## Nothing fits\n\nNone of the {len(found.tried):,} configurations that were tried fits."]
    else:
        tried = found.winner.tried
        said = configuration(tried.knobs, own_knobs(tried.knobs))
        speed = f"**{tried.samples_per_s:,.1f} samples/s**, {origin_of(found)}"
        head = [f"## Best: {said}\n\n{speed}, trial {tried.number}", _commands(commands), _gains(compared)]
        head += [_binds(found, found.winner), _top(found)]
    return "\n\n".join(filter(None, [*head, _cells(found)])) + "\n"


def trial_note(tried: Tried, origin: str) -> str:
    """What came of a configuration whose stages are not shown: its throughput, or why it does not count."""
    if tried.fits:
        return f"**{tried.samples_per_s:,.1f} samples/s**, {origin}{_estimated(tried)}\n"
    how = "compiled whole" if tried.compiled else f"{ESTIMATED}, nothing was compiled"
    lacks = f"Lacks **{format_bytes(tried.excess_bytes)}**.\n\n" if tried.excess_bytes else ""
    what = "Breaks a constraint" if tried.constrained else "Does not fit"
    return f"**{what}** ({how}). {lacks}{tried.reason}\n"


def contender_note(found: Findings, contender: Contender, command: str, pictures: Mapping[str, str]) -> str:
    """A configuration stage by stage, with pictures by their names and addresses."""
    tried, place = contender.tried, found.ranked.index(contender.tried) + 1
    rank = "the best" if place == 1 else f"rank {place}, {format_difference(-found.loss_percent(tried))}"
    head = f"**{tried.samples_per_s:,.1f} samples/s**, {origin_of(found)}{_estimated(tried)}: {rank}"
    shown = "\n\n".join(f"![{name}]({address})" for name, address in pictures.items())
    parts = [
        head,
        _parts(contender.measured),
        _binds(found, contender),
        shown,
        _commands([("Measure it again", command)]),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _estimated(tried: Tried) -> str:
    if not tried.estimated_samples_per_s:
        return ""
    error = format_difference(difference_percent(tried.estimated_samples_per_s, tried.samples_per_s))
    return f"; {tried.estimated_samples_per_s:,.1f} {ESTIMATED}, {error}"


def _commands(commands: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"{name}:\n\n```\n{command}\n```" for name, command in commands)


def _gains(compared: Sequence[Comparison]) -> str:
    told = (
        f"- {one.name}: "
        + (one.note if one.gain_percent is None else f"{format_difference(one.gain_percent)} better, {one.note}")
        for one in compared
    )
    return "\n".join(["### Against", "", *told]) if compared else ""


def _binds(found: Findings, contender: Contender) -> str:
    told = (f"- {fact.name}: **{fact.headline}**, {fact.text}" for fact in what_binds(contender, really_ran(found)))
    return "\n".join(["### What binds", "", *told])


def _top(found: Findings) -> str:
    knobs = shown_knobs(found)
    rows = (
        [
            f"{tried.number}",
            *(knob_value(tried.knobs, name) for name in knobs),
            f"{tried.knobs.batch_size}",
            f"{tried.samples_per_s:,.1f}",
            format_difference(0.0 - found.loss_percent(tried)),
        ]
        for tried in found.ranked[:N_TOP]
    )
    return f"### The best {N_TOP}\n\n" + _table(["trial", *knobs, "batch_size", "samples/s", "difference"], rows)


def _cells(found: Findings) -> str:
    knobs = shown_knobs(found)
    rows = (
        [
            *(knob_value(cell.knobs, name) for name in knobs),
            f"{cell.best.samples_per_s:,.1f}" if cell.best else "-",
            why_not(cell, found),
        ]
        for cell in found.cells
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
    """A table in GitHub's Markdown; only words stand flush left."""
    words = {"why", "stage", "phase", "schedule", "strategy"}
    line = ["---" if name in words else "---:" for name in columns]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in (columns, line, *rows))
