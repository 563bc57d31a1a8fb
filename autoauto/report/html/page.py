"""A study as one HTML file that needs no network, `study_page`: the winner, what binds it, pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.records.phased import PhasedPlan
from autoauto.records.study_summary import Comparison, Finalist, StudySummary
from autoauto.records.timeline import Timeline
from autoauto.report.charts import heat_map, memory, parity, throughput
from autoauto.report.charts import timeline as timeline_chart
from autoauto.report.charts.markup import tag, words
from autoauto.report.html.tables import attributes_table, cells_table, failures_table, trials_table
from autoauto.report.reasons import what_binds
from autoauto.report.style import ESTIMATED, difference_percent, format_difference, format_value
from autoauto.report.wording import (
    clock_of,
    configuration,
    knob_value,
    origin_of,
    period_text,
    ran_on_devices,
    relevant_knobs,
    speed_text,
)

_HERE = Path(__file__).parent


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
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    head = tag(
        "head",
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", words(f"{summary.study_name}: {_subject(summary)}")),
        tag("style", style),
    )
    parts = [_winner(summary, comparisons, commands), _binds(summary), _pictures(summary, timeline), _tables(summary)]
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
    trial = summary.winner.trial
    speed = tag("div", f"{trial.samples_per_s:,.1f} ", tag("small", "samples/s"), class_="big")
    box = tag("div", speed, tag("p", words(origin_of(summary)), class_="muted"), _facts(summary, summary.winner))
    gains = tag("div", *map(_gain, comparisons), class_="facts gains")
    card = tag("div", box, gains, lines, class_="card")
    return _section(f"Best by {summary.objective}" if summary.of_several else "Best configuration", card, "winner")


def _gain(comparison: Comparison) -> str:
    """How much better the winner is than another configuration."""
    title = tag("h3", words(f"against {comparison.name}"))
    knobs = comparison.knobs
    named = configuration(knobs, relevant_knobs(knobs)) if knobs else ""
    if comparison.speed is None or comparison.gain_percent is None:
        note = ": ".join(filter(None, [named, comparison.note]))
        return tag("div", title, tag("div", "–", class_="headline muted"), tag("p", words(note)), class_="fact")
    better = " gain" if comparison.gain_percent >= 0.05 else ""
    gain = tag("div", words(f"{comparison.gain_percent:+.1f} %"), class_=f"headline{better}")
    note = ", ".join(filter(None, [comparison.note, f"{speed_text(comparison.speed)} samples/s: {named}"]))
    return tag("div", title, gain, tag("p", words(note)), class_="fact")


def _facts(summary: StudySummary, winner: Finalist) -> str:
    trial, plan = winner.trial, winner.measured
    rows = [(name, knob_value(trial.knobs, name)) for name in relevant_knobs(trial.knobs)]
    rows.append(("batch_size", str(trial.knobs.batch_size)))
    rows.append(("partition", " ".join(map(str, plan.partition))))
    if trial.estimated_samples_per_s:
        error = format_difference(difference_percent(trial.estimated_samples_per_s, trial.samples_per_s))
        rows.append((ESTIMATED, f"{trial.estimated_samples_per_s:,.1f} samples/s, {error}"))
    verification = summary.verification
    if verification is not None and verification.n_repeats > 1 and verification.winner.speed is not None:
        mean = f"{speed_text(verification.winner.speed)} samples/s, 95 % confidence"
        rows.append((f"mean of {verification.n_repeats}", f"{mean}, {origin_of(summary)}"))
    rows.append(("all phases" if isinstance(plan, PhasedPlan) else "period", period_text(summary, winner)))
    if trial.latency_s:
        rows.append(("latency", f"{format_value('latency_s', trial.latency_s)}, {origin_of(summary)}"))
    if trial.makespan_cycles is not None:
        rows.append(("makespan", f"{trial.makespan_cycles:,.0f} cycles, simulated"))
    n_compiled = sum(other.compiled for other in summary.trials)
    rows.append(("tried", f"{len(summary.trials):,} configurations, {n_compiled:,} of them measured"))
    return tag("dl", *(tag("div", tag("dt", words(name)), tag("dd", words(value))) for name, value in rows))


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


def _pictures(summary: StudySummary, timeline: Timeline | None) -> str:
    winner, parts = summary.winner, []
    if winner is not None and timeline is not None:
        parts.append(_timeline(timeline, clock_of(summary, winner)))
    if winner is not None:
        parts.append(_memory(summary, winner))
        both = _heat_map(summary) + _parity(summary)
        parts.append(both if heat_map.is_wide(summary) else tag("div", both, class_="columns"))
    return _section("Pictures", "".join(parts) + _batches(summary), "pictures")


def _timeline(timeline: Timeline, clock_hz: float | None) -> str:
    caption = timeline_chart.timeline_summary(timeline, clock_hz)
    picture = timeline_chart.timeline_svg(timeline, clock_hz)
    return _figure("Timeline of the best configuration", caption, picture, timeline_chart.legend(timeline))


def _memory(summary: StudySummary, winner: Finalist) -> str:
    rows = memory.memory_by_part(winner.measured, winner.estimate)
    caption = f"{origin_of(summary)}; the tick is what the estimate promised, orange lines are the limits."
    picture = memory.memory_svg(rows, origin_of(summary))
    return _figure("Memory against the limit", caption, picture, memory.legend(rows))


def _heat_map(summary: StudySummary) -> str:
    caption = f"Best samples/s of every cell, {origin_of(summary)}; the framed one wins."
    size = "wide" if heat_map.is_wide(summary) else "narrow"
    return _figure("Best throughput", caption, heat_map.heat_map_svg(summary), [], size)


def _parity(summary: StudySummary) -> str:
    caption = f"{parity.parity_summary(parity.compared_trials(summary))}. The shaded area is 5 % to either side."
    legend = [(f"s{index % 8}", f"n_ipu {n_ipu}") for index, n_ipu in enumerate(parity.device_counts(summary))]
    return _figure("Estimated against measured", caption, parity.parity_svg(summary), legend, "narrow")


def _batches(summary: StudySummary) -> str:
    panels = throughput.panels(summary)
    width = throughput.panel_width(len(panels))
    pictures = "".join(
        tag("div", tag("h3", words(panel.name)), throughput.batches_svg(panel, summary, f"batches-{index}", width))
        for index, panel in enumerate(panels)
    )
    caption = f"Dots are {origin_of(summary)}, crosses do not fit; the ring is the best configuration."
    grid = tag("div", pictures, class_="panels")
    size = "wide" if len(panels) == 1 else "narrow"
    return _figure("Throughput over batch size", caption, grid, throughput.legend(panels), size)


def _figure(name: str, text: str, picture: str, legend: Sequence[tuple[str, str]], size: str = "wide") -> str:
    swatch = '<svg viewBox="0 0 12 12" aria-hidden="true"><rect width="12" height="12" rx="3" class="{}"/></svg>'
    items = "".join(tag("li", swatch.format(class_), words(entry)) for class_, entry in legend)
    caption = tag("figcaption", tag("h3", words(name)), tag("p", words(text)))
    if items:
        caption += tag("ul", items, class_="legend")
    return tag("figure", caption, tag("div", picture, class_=f"scroll {size}"))


def _tables(summary: StudySummary) -> str:
    cells = tag("div", cells_table(summary), class_="card")
    trials = tag("div", trials_table(summary), class_="card")
    failures = tag("div", failures_table(summary), class_="card") if summary.failures else ""
    return "".join(
        [
            _section("Cells, and why each lost or could not run", cells, "cells"),
            _section("Trials", trials + failures, "trials"),
            _section("Study", tag("div", attributes_table(summary), class_="card"), "study"),
        ]
    )


def _section(title: str, content: str, name: str) -> str:
    return tag("section", tag("h2", words(title)), content, id=name)


def _footer(summary: StudySummary) -> str:
    how = "run by devices" if ran_on_devices(summary) else "stages compiled whole"
    text = f"Every number is {ESTIMATED} (from layer profiles), {origin_of(summary)} ({how}) or simulated."
    return tag("footer", words(f"{text} autoauto {summary.attributes.get('autoauto', '')}"))
