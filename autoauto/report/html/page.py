"""A study as one HTML file that needs no network, `study_page`: the winner, what binds it, pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.records.plan import Plan
from autoauto.records.study_summary import Comparison, StudySummary
from autoauto.records.target import Origin
from autoauto.records.timeline import Timeline
from autoauto.records.trial import Trial
from autoauto.report.charts.chart import Chart
from autoauto.report.charts.study import study_charts
from autoauto.report.charts.svg import STYLE, panel_svg
from autoauto.report.markup import tag, words
from autoauto.report.reasons import what_binds
from autoauto.report.tables.html import html_table
from autoauto.report.tables.placement import placement_table
from autoauto.report.tables.study import attributes_table, cells_table, failures_table, ranked_table
from autoauto.report.tables.table import Table
from autoauto.report.tables.trials import best_facts
from autoauto.report.wording import (
    configuration,
    headline,
    measured_word,
    origin_of,
    outside_text,
    ran_on_devices,
    speed_text,
)

WIDE = 520
"""Pictures with more pixels need the whole width of the page."""

_SCRIPT = Path(__file__).parent / "page.js"


def write_study_page(page: str, path: Path) -> None:
    """Write what `study_page` returns.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the report needs a file that can be written, got {path} ({error.strerror})") from error


def study_page(
    summary: StudySummary,
    comparisons: Sequence[Comparison],
    timeline: Timeline | None,
    commands: Sequence[tuple[str, str]],
) -> str:
    """The page.

    Args:
        summary: the study.
        comparisons: the winner against other configurations.
        timeline: the winner's; None for phases, and when nothing fits.
        commands: pairs of a purpose and a command to copy.
    """
    style, script = (path.read_text(encoding="utf-8") for path in (STYLE, _SCRIPT))
    head = tag(
        "head",
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", words(f"{summary.study_name}: {_subject(summary)}")),
        tag("style", style),
    )
    parts = [
        _winner(summary, comparisons, commands),
        _binds(summary),
        _devices(summary),
        _pictures(study_charts(summary, timeline)),
        _tables(summary),
    ]
    body = tag("body", _header(summary), tag("main", *parts, _footer(summary)), tag("script", script))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _subject(summary: StudySummary) -> str:
    attributes = summary.attributes
    return f"{attributes.get('model', 'model')} on {attributes.get('cluster', 'cluster')}"


def _header(summary: StudySummary) -> str:
    attributes = summary.attributes
    facts = [
        f"study {summary.study_name}",
        attributes.get("mode", ""),
        attributes.get("precision", ""),
        f"objective {attributes.get('objective', summary.objective)}",
    ]
    title = tag("h1", words(_subject(summary))) + tag("p", words(" · ".join(filter(None, facts))), class_="muted")
    return tag("header", tag("div", title), tag("button", "Dark theme", id="theme", type="button", hidden="hidden"))


def _winner(summary: StudySummary, comparisons: Sequence[Comparison], commands: Sequence[tuple[str, str]]) -> str:
    lines = "".join(_command(name, command) for name, command in commands)
    if summary.winner is None:
        text = f"None of the {len(summary.trials):,} configurations that were tried fits; the table of cells says why."
        return _section("Nothing fits", tag("div", tag("p", words(text)), lines, class_="card"), "winner")
    trial = summary.winner
    speed = tag("div", f"{trial.samples_per_s:,.1f} ", tag("small", "samples/s"), class_="big")
    box = tag(
        "div", speed, tag("p", words(headline(trial, origin_of(summary))), class_="muted"), _facts(summary, trial)
    )
    gains = tag("div", *map(_gain, comparisons), class_="facts gains")
    card = tag("div", box, gains, lines, class_="card")
    return _section(f"Best by {summary.objective}" if summary.of_several else "Best configuration", card, "winner")


def _gain(comparison: Comparison) -> str:
    """How much better the winner is than another configuration."""
    title = tag("h3", words(f"against {comparison.name}"))
    knobs = comparison.knobs
    named = configuration(knobs) if knobs else ""
    if comparison.speed is None or comparison.gain_percent is None:
        note = ": ".join(filter(None, [named, comparison.note]))
        return tag("div", title, tag("div", "–", class_="headline muted"), tag("p", words(note)), class_="fact")
    better = " gain" if comparison.gain_percent >= 0.05 else ""
    gain = tag("div", words(f"{comparison.gain_percent:+.1f} %"), class_=f"headline{better}")
    origin = Origin.ESTIMATED if comparison.estimated and not comparison.note else ""
    note = ", ".join(filter(None, [comparison.note, origin, f"{speed_text(comparison.speed)} samples/s: {named}"]))
    return tag("div", title, gain, tag("p", words(note)), class_="fact")


def _facts(summary: StudySummary, winner: Trial) -> str:
    origin, verification = origin_of(summary), summary.verification
    rows = [(name or "estimate", value, note) for name, value, note in best_facts(winner, origin)]
    if verification is not None and verification.n_repeats > 1 and verification.winner.speed is not None:
        mean = f"{speed_text(verification.winner.speed)} samples/s"
        rows.append((f"mean of {verification.n_repeats}", mean, f"95 % confidence, {origin}"))
    n_measured = sum(trial.was_measured for trial in summary.trials)
    rows.append(("tried", f"{len(summary.trials):,} configurations", f"{n_measured:,} of them {measured_word(origin)}"))
    return tag("dl", *(_fact(name, ", ".join(filter(None, texts))) for name, *texts in rows))


def _fact(name: str, value: str) -> str:
    return tag("div", tag("dt", words(name)), tag("dd", words(value)))


def _command(name: str, command: str) -> str:
    copy = tag("button", "Copy", type="button", class_="copy", hidden="hidden")
    unbroken = " ".join(tag("span", words(word)) for word in command.split(" "))
    line = tag("div", tag("code", unbroken), copy, class_="command")
    return tag("div", tag("h3", words(name)), line, style="margin-top:16px")


def _binds(summary: StudySummary) -> str:
    if summary.winner is None:
        return ""
    facts = []
    for fact in what_binds(summary.winner, ran_on_devices(summary)):
        share = tag("div", tag("i", style=f"width:{100 * min(fact.share, 1):.1f}%"), class_="share")
        headline = tag("div", words(fact.headline), class_="headline")
        facts.append(tag("div", tag("h3", fact.name), headline, share, tag("p", words(fact.text)), class_="fact"))
    cards = tag("div", tag("div", *facts, class_="facts"), class_="card")
    return _section("What binds", cards, "binds")


def _devices(summary: StudySummary) -> str:
    """What every device holds; nothing where the stages say all."""
    plan = summary.winner and summary.winner.plan
    table = placement_table(plan) if isinstance(plan, Plan) else None
    return _section("Devices", _card(table), "devices") if table else ""


def _pictures(charts: Sequence[Chart]) -> str:
    """Charts below each other; narrow ones that follow each other are side by side."""
    parts = []
    for is_narrow, some in groupby(charts, lambda chart: len(chart.panels) == 1 and not _is_wide(chart)):
        figures = list(map(_figure, some))
        parts += [tag("div", *figures, class_="columns")] if is_narrow else figures
    return _section("Pictures", "".join(parts), "pictures")


def _is_wide(chart: Chart) -> bool:
    """Whether it needs the whole width of the page."""
    return any(panel.width > WIDE for panel in chart.panels)


def _figure(chart: Chart) -> str:
    swatch = '<svg viewBox="0 0 12 12" aria-hidden="true"><rect width="12" height="12" rx="3" class="{}"/></svg>'
    items = "".join(tag("li", swatch.format(style), words(name)) for style, name in chart.legend)
    caption = tag("figcaption", tag("h3", words(chart.title)), tag("p", words(chart.text)))
    if items:
        caption += tag("ul", items, class_="legend")
    pictures = [panel_svg(chart, index) for index in range(len(chart.panels))]
    names = [tag("h3", words(panel.name)) if panel.name else "" for panel in chart.panels]
    if any(names):
        panels = (tag("div", name, picture) for name, picture in zip(names, pictures, strict=True))
        pictures = [tag("div", *panels, class_="panels")]
    size = "wide" if _is_wide(chart) else "narrow"
    return tag("figure", caption, tag("div", *pictures, class_=f"scroll {size}"))


def _tables(summary: StudySummary) -> str:
    cells, trials = _card(cells_table(summary)), _card(ranked_table(summary))
    failures = _card(failures_table(summary)) if summary.failures else ""
    outside = tag("p", words(outside_text(summary))) if summary.n_outside else ""
    return "".join(
        [
            _section("Cells, and why each lost or could not run", cells, "cells"),
            _section("Trials", trials + failures + outside, "trials"),
            _section("Study", _card(attributes_table(summary)), "study"),
        ]
    )


def _card(table: Table) -> str:
    return tag("div", html_table(table), class_="card")


def _section(title: str, content: str, name: str) -> str:
    return tag("section", tag("h2", words(title)), content, id=name)


def _footer(summary: StudySummary) -> str:
    how = "run by devices" if ran_on_devices(summary) else "stages compiled whole"
    text = f"Every number is {Origin.ESTIMATED} (from layer profiles), {origin_of(summary)} ({how}) or simulated."
    return tag("footer", words(f"{text} autoauto {summary.attributes.get('autoauto', '')}"))
