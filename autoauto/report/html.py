"""A study as one HTML file that needs no network, `study_page`: the winner, what binds it, pictures and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.report.charts.chart import Chart
from autoauto.report.charts.plan import timeline_chart
from autoauto.report.charts.study import study_charts
from autoauto.report.charts.svg import STYLE, panel_svg
from autoauto.report.reasons import what_binds
from autoauto.report.style import format_gain, format_value, tag, words
from autoauto.report.tables.plans import placement_table, timeline_table
from autoauto.report.tables.serving import answer_tables, measurement_lines
from autoauto.report.tables.study import attributes_table, cells_table, choices_table, failures_table, ranked_table
from autoauto.report.tables.table import Table, html_table, share_bar
from autoauto.report.tables.traffic import load_facts
from autoauto.report.tables.trials import best_facts, front_table
from autoauto.report.wording import (
    answer_line,
    compared_name,
    counted,
    differing,
    has_groups,
    origin_of,
    outside_text,
    ran_on_devices,
    shown_clock,
    speed_text,
    trials_origin,
    unit_of,
    words_of,
)
from autoauto.space.knobs import Knobs
from autoauto.space.study_summary import Comparison, StudySummary
from autoauto.space.trial import Counts, Trial

WIDE = 520
"""Pictures with more pixels need the whole width of the page."""

_SWATCH = '<svg viewBox="0 0 12 12" aria-hidden="true"><rect width="12" height="12" rx="3" class="{}"/></svg>'
"""The square of an entry in a legend, with its style."""

SCRIPT = Path(__file__).parent / "page.js"
"""The script of pages: their themes, and buttons that copy."""


def write_page(page: str, path: Path) -> None:
    """Write a page that `document` made to a file; a BadInput if the file cannot be written."""
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the page needs a file that can be written, got {path} ({error.strerror})") from error


def document(title: str, heading: str, facts: Iterable[str], *content: str) -> str:
    """A page of HTML with its style sheet and script inside."""
    style = tag("style", STYLE.read_text(encoding="utf-8"))
    script = tag("script", SCRIPT.read_text(encoding="utf-8"))
    return framed(title, heading, facts, *content, head=style, end=script)


def framed(
    title: str, heading: str, facts: Iterable[str], *content: str, head: str = "", above: str = "", end: str = ""
) -> str:
    """A page of HTML around its content.

    Args:
        head: markup at the end of the head, as a style sheet.
        above: markup above the heading.
        end: markup at the end of the page, as a script.
    """
    inside = tag(
        "head",
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", words(title)),
        head,
    )
    lines = tag("h1", words(heading)) + tag("p", words(" · ".join(filter(None, facts))), class_="muted")
    # The script of the page shows the button, which does nothing where no script runs.
    button = tag("button", "Dark theme", id="theme", type="button", hidden="hidden")
    header = tag("header", tag("div", lines), button)
    body = tag("body", above, header, tag("main", *content), end)
    return f"<!DOCTYPE html>\n{tag('html', inside, body, lang='en')}\n"


def section(title: str, content: str, name: str) -> str:
    """A heading with what belongs to it; `name` is its id in the page."""
    return tag("section", tag("h2", words(title)), content, id=name)


def table_section(table: Table | None, name: str) -> str:
    """A table below its name, which its title begins with; the rest is part of its caption. Empty without a table."""
    if table is None:
        return ""
    heading, _, rest = table.title.partition(", ")
    return section(heading, tag("div", html_table(replace(table, title=rest)), class_="card"), name)


def is_wide(chart: Chart) -> bool:
    """True if a chart needs the whole width of the page."""
    return any(panel.width > WIDE for panel in chart.panels)


def figure(chart: Chart) -> str:
    """A chart with its title, text and legend; panels with names stand side by side."""
    parts = [tag("figcaption", tag("h3", words(chart.title)), tag("p", words(chart.text)))]
    legend = [tag("li", _SWATCH.format(style), words(name)) for style, name in chart.legend]
    if legend:
        parts.append(tag("ul", *legend, class_="legend"))
    pictures = []
    for index, panel in enumerate(chart.panels):
        picture = panel_svg(chart, index)
        pictures.append(tag("div", tag("h3", words(panel.name)), picture) if panel.name else picture)
    if any(panel.name for panel in chart.panels):
        pictures = [tag("div", *pictures, class_="panels")]
    size = "wide" if is_wide(chart) else "narrow"
    return tag("figure", *parts, tag("div", *pictures, class_=f"scroll {size}"))


def study_page(
    summary: StudySummary,
    comparisons: Sequence[Comparison],
    timeline: Timeline | None,
    commands: Sequence[tuple[str, str]],
) -> str:
    """The page of a study, as HTML.

    Args:
        timeline: the winner's; None for phases, and when nothing fits.
        commands: pairs of a purpose and a command to copy.
    """
    attributes = summary.attributes
    facts = [
        f"study {summary.study_name}",
        attributes.get("mode", ""),
        attributes.get("precision", ""),
        f"objective {attributes.get('objective', summary.objective)}",
    ]
    notes = [tag("li", words(note)) for note in summary.notes]
    placement = None
    if summary.winner is not None and isinstance(summary.winner.plan, Plan):
        placement = placement_table(summary.winner.plan, summary.winner.knobs)
    subject = f"{attributes.get('model', 'model')} on {attributes.get('cluster', 'cluster')}"
    return document(
        f"{summary.study_name}: {subject}",
        subject,
        facts,
        winner_section(summary, comparisons, commands),
        front_section(summary),
        engines_section(summary),
        table_section(choices_table(summary), "choices"),
        _binds(summary),
        table_section(placement, "devices"),
        section("Assumed", tag("ul", *notes), "assumed") if notes else "",
        _charts(study_charts(summary, timeline)),
        _tables(summary),
        _footer(summary),
    )


def winner_section(
    summary: StudySummary, comparisons: Sequence[Comparison], commands: Sequence[tuple[str, str]]
) -> str:
    """The best configuration of a study with what is known of it, against others, and commands to copy."""
    lines = [command_line(name, command) for name, command in commands]
    winner = summary.winner
    if winner is None:
        n_tried = f"{len(summary.trials):,} configurations that were tried"
        text = f"None of the {n_tried} fits; the table of combinations says why."
        return section("Nothing fits", tag("div", tag("p", words(text)), *lines, class_="card"), "winner")
    # The answer begins with the throughput, which is shown large; the rest stands below it.
    speed, _, rest = answer_line(summary).partition(f" {winner.unit}")
    box = tag(
        "div",
        tag("div", f"{speed} ", tag("small", winner.unit), class_="big"),
        tag("p", words(rest.removeprefix(",").strip()), class_="muted"),
        _facts(summary, winner),
    )
    uses = [comparison for comparison in comparisons if comparison.is_simple_use]
    others = [comparison for comparison in comparisons if not comparison.is_simple_use]
    card = tag(
        "div",
        box,
        _gains("What simpler uses of the cluster give", uses, winner.knobs),
        _gains("Why this one", others, winner.knobs),
        *lines,
        class_="card",
    )
    return section(f"Best by {summary.objective}" if summary.of_several else "Best configuration", card, "winner")


def _gains(title: str, comparisons: Sequence[Comparison], winner: Knobs) -> str:
    if not comparisons:
        return ""
    facts = tag("div", *(_gain(comparison, winner) for comparison in comparisons), class_="facts")
    return tag("div", tag("h3", words(title)), facts, class_="gains")


def _gain(comparison: Comparison, winner: Knobs) -> str:
    title = tag("h4", words(f"against {compared_name(comparison)}"))
    named = ""
    if comparison.knobs:
        named = differing(comparison.knobs, winner) or "the same configuration"
    if comparison.speed is None or comparison.gain_percent is None:
        note = ": ".join(filter(None, [named, comparison.note]))
        return tag("div", title, tag("div", "–", class_="headline muted"), tag("p", words(note)), class_="fact")
    notes = []
    if comparison.note:
        notes.append(comparison.note)
    elif comparison.estimated:
        notes.append(Origin.ESTIMATED)
    unit = unit_of([winner])
    notes.append(f"{speed_text(comparison.speed, unit)} {unit}: {named}")
    is_better = comparison.gain_percent >= 0.05  # what is not shown as 0.0 %
    style = "headline gain" if is_better else "headline"
    gain = tag("div", words(format_gain(comparison.gain_percent)), class_=style)
    return tag("div", title, gain, tag("p", words(", ".join(notes))), class_="fact")


def _facts(summary: StudySummary, winner: Trial) -> str:
    origin, verification = origin_of(summary), summary.verification
    rows = [(name or "estimate", value, note) for name, value, note in best_facts(winner, origin, shown_clock(summary))]
    if verification is not None and verification.n_turns > 1 and verification.winner.speed is not None:
        mean = f"{speed_text(verification.winner.speed)} {winner.unit}"
        rows.append((f"mean of {verification.n_turns}", mean, f"95 % confidence, {origin}"))
    n_measured = sum(trial.was_measured for trial in summary.trials)
    measured = f"{n_measured:,} of them {trials_origin(summary)}"
    if summary.engine_measurements is not None:
        measured += f", {summary.engine_measurements.n_measured:,} on engines"
    rows.append(("tried", counted(len(summary.trials), "configuration"), measured))
    facts = []
    for name, value, note in rows:
        text = f"{value}, {note}" if note else value
        facts.append(tag("div", tag("dt", words(name)), tag("dd", words(text))))
    return tag("dl", *facts)


def command_line(name: str, command: str) -> str:
    """A command to copy, below what it does."""
    copy = tag("button", "Copy", type="button", class_="copy", hidden="hidden")
    unbroken = " ".join(tag("span", words(word)) for word in command.split(" "))
    line = tag("div", tag("code", unbroken), copy, class_="command")
    return tag("div", tag("h3", words(name)), line, style="margin-top:16px")


def _binds(summary: StudySummary) -> str:
    winner = summary.winner
    if winner is None:
        return ""
    facts = what_binds(winner, ran_on_devices(summary), summary.transferred, shown_clock(summary))
    facts += load_facts(winner, summary.rate_curves)
    cards = []
    for fact in facts:
        headline = tag("div", words(fact.headline), class_="headline")
        text = tag("p", words(fact.text))
        cards.append(tag("div", tag("h4", fact.name), headline, share_bar(fact.share), text, class_="fact"))
    return section("What binds", tag("div", tag("div", *cards, class_="facts"), class_="card"), "binds")


def front_section(summary: StudySummary) -> str:
    """The Pareto front of several objectives; empty with one."""
    if not summary.front:
        return ""
    n_measured = sum(trial.was_measured for trial in summary.trials)
    counts = Counts(len(summary.trials), n_measured)
    return table_section(front_table(summary.front, summary.objectives, counts, origin_of(summary)), "front")


def engines_section(summary: StudySummary) -> str:
    """The bounds of a search for text, and what was measured on engines; empty where there is neither."""
    parts = [table_section(table, f"engines-{n}") for n, table in enumerate(answer_tables(summary))]
    parts += [tag("p", words(line)) for line in measurement_lines(summary)]
    return "".join(parts)


def _charts(charts: Sequence[Chart]) -> str:
    """Charts below each other; narrow ones that follow each other are side by side."""
    parts = []
    for is_narrow, some in groupby(charts, lambda chart: len(chart.panels) == 1 and not is_wide(chart)):
        figures = map(figure, some)
        if is_narrow:
            parts.append(tag("div", *figures, class_="columns"))
        else:
            parts += figures
    return section("Charts", "".join(parts), "charts")


def _tables(summary: StudySummary) -> str:
    parts = [table_section(cells_table(summary), "cells"), table_section(ranked_table(summary), "trials")]
    if summary.failures:
        parts.append(table_section(failures_table(summary), "failures"))
    parts.append(table_section(attributes_table(summary), "study"))
    if outside := outside_text(summary):
        parts.append(tag("p", words(outside)))
    return "".join(parts)


def _footer(summary: StudySummary) -> str:
    units = words_of(trial.knobs for trial in summary.trials).unit
    how = f"run by {units}s" if ran_on_devices(summary) else "stages compiled whole"
    if summary.winner is not None and has_groups(summary.winner.knobs):
        how = "by measured times of kernels, or by servers that were started"
    text = f"Every number is {Origin.ESTIMATED} (from layer profiles), {trials_origin(summary)} ({how}) or simulated."
    return tag("footer", words(f"{text} autoauto {summary.attributes.get('autoauto', '')}"))


def timeline_page(timeline: Timeline, stash_entries: Iterable[int]) -> str:
    """The page of a timeline in cycles, as HTML; of a long timeline it shows the first and the last bars."""
    schedule = timeline.schedule
    devices = counted(schedule.n_devices, "device")
    micro_batches = counted(schedule.n_micro_batches, "micro-batch", "es")
    title = f"{schedule.order_name}: {devices}, {micro_batches}"
    makespan = format_value("cycles", timeline.makespan_cycles)
    facts = (timeline.origin, f"makespan {makespan} cycles", f"bubble {100 * timeline.bubble_fraction:.1f} %")
    table = table_section(timeline_table(timeline, stash_entries), "devices")
    return document(title, title, facts, figure(timeline_chart(timeline, None)), table)
