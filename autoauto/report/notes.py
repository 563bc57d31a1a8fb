"""Notes in Markdown for a dashboard: `study_note`, `trial_note`, and `finalist_note` with stages and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoauto.records.target import Origin
from autoauto.records.units import format_bytes, format_number
from autoauto.report.style import broken_command, difference_percent, format_difference
from autoauto.report.tables.plans import parts_tables
from autoauto.report.tables.serving import answer_tables
from autoauto.report.tables.study import binding_table, cells_table, choices_table, comparisons_table, ranked_table
from autoauto.report.tables.table import markdown_table
from autoauto.report.wording import answer_line, configuration, origin_of, outside_text, shown_clock
from autoauto.space.study_summary import Comparison, StudySummary
from autoauto.space.trial import Status, Trial

N_TOP = 5
WIDTH = 78


def study_note(summary: StudySummary, comparisons: Sequence[Comparison], commands: Sequence[tuple[str, str]]) -> str:
    """The winner, the command that measures it again, what binds it, the best trials, and why every other cell lost."""
    if summary.winner is None:
        parts = [f"## Nothing fits\n\nNone of the {len(summary.trials):,} configurations that were tried fits."]
    else:
        winner = summary.winner
        parts = [f"## Best: {configuration(winner.knobs)}\n\n**{answer_line(summary)}**, trial {winner.number}"]
        if commands:
            parts.append(_commands(commands))
        tables = [comparisons_table(summary, comparisons)] if comparisons else []
        tables += answer_tables(summary)
        if choices := choices_table(summary):
            tables.append(choices)
        tables.append(binding_table(winner, origin_of(summary), clock_hz=shown_clock(summary)))
        tables.append(ranked_table(summary, N_TOP).without("why it does not fit"))
        parts += map(markdown_table, tables)
    if outside := outside_text(summary):
        parts.append(outside)
    parts.append(markdown_table(cells_table(summary)))
    return "\n\n".join(parts) + "\n"


def trial_note(trial: Trial, origin: str) -> str:
    """A configuration whose stages are not shown: its throughput, or why it does not count."""
    if trial.fits:
        return f"{_speed(trial, origin)}\n"
    if trial.ended_early:
        return f"**Ended early**. {trial.reason}\n"
    words = {Status.CONSTRAINED: "Breaks a constraint", Status.UNSUPPORTED: "Does not run"}
    verdict = words.get(trial.status, "Does not fit")
    how = "compiled whole" if trial.was_measured else f"{Origin.ESTIMATED}, nothing was compiled"
    lacks = f"Lacks **{format_bytes(trial.excess_bytes)}**.\n\n" if trial.excess_bytes else ""
    return f"**{verdict}** ({how}). {lacks}{trial.reason}\n"


def finalist_note(summary: StudySummary, finalist: Trial, command: str, pictures: Mapping[str, str]) -> str:
    """A configuration stage by stage, with pictures by their names and addresses."""
    origin, clock_hz = origin_of(summary), shown_clock(summary)
    rank = [trial.number for trial in summary.ranked].index(finalist.number) + 1
    ranked = "the best"
    curves = summary.rate_curves
    if rank > 1:  # the curves are of the best
        ranked = f"rank {rank}, {format_difference(-summary.loss_percent(finalist))}"
        curves = None
    tables = parts_tables(finalist.plan, None, origin, clock_hz, finalist.knobs)
    tables.append(binding_table(finalist, origin, summary.transferred, clock_hz, curves))
    parts = [f"{_speed(finalist, origin)}: {ranked}"]
    parts += [markdown_table(table) for table in tables]
    parts += [f"![{name}]({address})" for name, address in pictures.items()]
    parts.append(_commands([("Measure it again", command)]))
    return "\n\n".join(parts) + "\n"


def _speed(trial: Trial, origin: str) -> str:
    speed = f"**{format_number(trial.samples_per_s)} {trial.unit}**, {origin}"
    if not trial.estimated_samples_per_s:
        return speed
    error = format_difference(difference_percent(trial.estimated_samples_per_s, trial.samples_per_s))
    return f"{speed}; {format_number(trial.estimated_samples_per_s)} {Origin.ESTIMATED}, {error}"


def _commands(commands: Sequence[tuple[str, str]]) -> str:
    texts = []
    for name, command in commands:
        # The dashboard does not break lines. A broken command is indented by 2, and leaves room for the 2 characters
        # at the end of a line.
        lines = "\n".join(line[2:] for line in broken_command(command, WIDTH + 4))
        texts.append(f"{name}:\n\n```\n{lines}\n```")
    return "\n\n".join(texts)
