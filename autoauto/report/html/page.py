"""A study as one HTML file: winner, what binds, pictures and tables, readable without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.records.phased import PhasedPlan
from autoauto.records.study_summary import Comparison, Contender, Findings
from autoauto.records.timeline import Timeline
from autoauto.report.charts import heat_map as heat_map_svg
from autoauto.report.charts import memory as memory_svg
from autoauto.report.charts import parity as parity_svg
from autoauto.report.charts import throughput as batches_svg
from autoauto.report.charts import timeline as timeline_svg
from autoauto.report.charts.markup import tag, words
from autoauto.report.html.tables import attributes_table, cells_table, failures_table, trials_table
from autoauto.report.reasons import what_binds
from autoauto.report.style import ESTIMATED, format_difference, format_value
from autoauto.report.text.compare import difference_percent
from autoauto.report.text.study_explanation import speed_text
from autoauto.report.wording import clock_of, configuration, knob_value, origin_of, own_knobs, period_text, really_ran

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
    found: Findings, compared: Sequence[Comparison], timeline: Timeline | None, commands: Sequence[tuple[str, str]]
) -> str:
    """The page.

    Args:
        found: what the study found.
        compared: the winner against others.
        timeline: of the winner; None for phases, and when nothing fits.
        commands: what each does, and how it is typed.
    """
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    head = tag(
        "head",
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", words(f"{found.study_name}: {_subject(found)}")),
        tag("style", style),
    )
    parts = [_winner(found, compared, commands), _binds(found), _pictures(found, timeline), _tables(found)]
    body = tag("body", _header(found), tag("main", *parts, _footer(found)), tag("script", script))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _subject(found: Findings) -> str:
    told = found.attributes
    return f"{told.get('model', 'model')} on {told.get('cluster', 'cluster')}"


def _header(found: Findings) -> str:
    told = found.attributes
    facts = [
        f"study {found.study_name}",
        told.get("mode", ""),
        told.get("precision", ""),
        f"objective {told.get('objective', found.objective)}",
    ]
    title = tag("h1", words(_subject(found))) + tag("p", words(" · ".join(filter(None, facts))), class_="muted")
    return tag("header", tag("div", title), tag("button", "Dark theme", id="theme", type="button", hidden="hidden"))


def _winner(found: Findings, compared: Sequence[Comparison], commands: Sequence[tuple[str, str]]) -> str:
    said = "".join(_command(name, command) for name, command in commands)
    if found.winner is None:
        text = f"None of the {len(found.tried):,} configurations that were tried fits; the table of cells says why."
        return _section("Nothing fits", tag("div", tag("p", words(text)), said, class_="card"), "winner")
    tried = found.winner.tried
    speed = tag("div", f"{tried.samples_per_s:,.1f} ", tag("small", "samples/s"), class_="big")
    box = tag("div", speed, tag("p", words(origin_of(found)), class_="muted"), _facts(found, found.winner))
    gains = tag("div", *map(_gain, compared), class_="facts gains")
    card = tag("div", box, gains, said, class_="card")
    return _section(f"Best by {found.objective}" if found.of_several else "Best configuration", card, "winner")


def _gain(one: Comparison) -> str:
    """How much better the winner is than another configuration."""
    title = tag("h3", words(f"against {one.name}"))
    named = configuration(one.knobs, own_knobs(one.knobs)) if one.knobs else ""
    if one.speed is None or one.gain_percent is None:
        said = ": ".join(filter(None, [named, one.note]))
        return tag("div", title, tag("div", "–", class_="headline muted"), tag("p", words(said)), class_="fact")
    better = " gain" if one.gain_percent >= 0.05 else ""
    gain = tag("div", words(f"{one.gain_percent:+.1f} %"), class_=f"headline{better}")
    other = f"{speed_text(one.speed)} samples/s: {named}"
    return tag("div", title, gain, tag("p", words(f"{one.note}, {other}" if one.note else other)), class_="fact")


def _facts(found: Findings, winner: Contender) -> str:
    tried, plan = winner.tried, winner.measured
    rows = [(name, knob_value(tried.knobs, name)) for name in own_knobs(tried.knobs)]
    rows.append(("batch_size", str(tried.knobs.batch_size)))
    rows.append(("partition", " ".join(map(str, plan.partition))))
    if tried.estimated_samples_per_s:
        error = format_difference(difference_percent(tried.estimated_samples_per_s, tried.samples_per_s))
        rows.append((ESTIMATED, f"{tried.estimated_samples_per_s:,.1f} samples/s, {error}"))
    told = found.verification
    if told is not None and told.n_repeats > 1 and told.winner.speed is not None:
        again = f"{speed_text(told.winner.speed)} samples/s, 95 % confidence"
        rows.append((f"mean of {told.n_repeats}", f"{again}, {origin_of(found)}"))
    name = "all phases" if isinstance(plan, PhasedPlan) else "period"
    rows.append((name, period_text(found, winner)))
    if tried.latency_s:
        rows.append(("latency", f"{format_value('latency_s', tried.latency_s)}, {origin_of(found)}"))
    if tried.makespan_cycles is not None:
        rows.append(("makespan", f"{tried.makespan_cycles:,.0f} cycles, simulated"))
    n_compiled = sum(one.compiled for one in found.tried)
    rows.append(("tried", f"{len(found.tried):,} configurations, {n_compiled:,} of them measured"))
    return tag("dl", *(tag("div", tag("dt", words(name)), tag("dd", words(value))) for name, value in rows))


def _command(name: str, command: str) -> str:
    copy = tag("button", "Copy", type="button", class_="copy", hidden="hidden")
    unbroken = " ".join(tag("span", words(word)) for word in command.split(" "))
    line = tag("div", tag("code", unbroken), copy, class_="command")
    return tag("div", tag("h3", words(name)), line, style="margin-top:16px")


def _binds(found: Findings) -> str:
    if found.winner is None:
        return ""
    facts = []
    for fact in what_binds(found.winner, really_ran(found)):
        share = tag("div", tag("i", style=f"width:{100 * min(fact.share, 1):.1f}%"), class_="share")
        headline = tag("div", words(fact.headline), class_="headline")
        facts.append(tag("div", tag("h3", fact.name), headline, share, tag("p", words(fact.text)), class_="fact"))
    cards = tag("div", tag("div", *facts, class_="facts"), class_="card")
    return _section("What binds", cards, "binds")


def _pictures(found: Findings, timeline: Timeline | None) -> str:
    winner, parts = found.winner, []
    if winner is not None and timeline is not None:
        clock_hz = clock_of(found, winner)
        told, picture = timeline_svg.summary(timeline, clock_hz), timeline_svg.timeline_svg(timeline, clock_hz)
        parts.append(_figure("Timeline of the best configuration", told, picture, timeline_svg.legend(timeline)))
    if winner is not None:
        rows = memory_svg.held_by_part(winner.measured, winner.estimate)
        told = f"{origin_of(found)}; the tick is what the estimate promised, orange lines are the limits."
        parts.append(
            _figure(
                "Memory against the limit", told, memory_svg.memory_svg(rows, origin_of(found)), memory_svg.legend(rows)
            )
        )
        both = _heat_map(found) + _parity(found)
        parts.append(both if heat_map_svg.is_wide(found) else tag("div", both, class_="columns"))
    return _section("Pictures", "".join(parts) + _batches(found), "pictures")


def _heat_map(found: Findings) -> str:
    told = f"Best samples/s of every cell, {origin_of(found)}; the framed one wins."
    size = "wide" if heat_map_svg.is_wide(found) else "narrow"
    return _figure("Best throughput", told, heat_map_svg.heat_map_svg(found), [], size)


def _parity(found: Findings) -> str:
    told = f"{parity_svg.parity_summary(parity_svg.compared(found))}. The band is 5 %."
    legend = [(f"s{i % 8}", f"n_ipu {n}") for i, n in enumerate(parity_svg.device_counts(found))]
    return _figure("Estimated against measured", told, parity_svg.parity_svg(found), legend, "narrow")


def _batches(found: Findings) -> str:
    shown = batches_svg.panels(found)
    width = batches_svg.panel_width(len(shown))
    pictures = "".join(
        tag("div", tag("h3", words(panel.name)), batches_svg.batches_svg(panel, found, f"batches-{index}", width))
        for index, panel in enumerate(shown)
    )
    told = f"Dots are {origin_of(found)}, crosses do not fit; the ring is the best configuration."
    grid = tag("div", pictures, class_="panels")
    size = "wide" if len(shown) == 1 else "narrow"
    return _figure("Throughput over batch size", told, grid, batches_svg.legend(shown), size)


def _figure(name: str, told: str, picture: str, legend: Sequence[tuple[str, str]], size: str = "wide") -> str:
    swatch = '<svg viewBox="0 0 12 12" aria-hidden="true"><rect width="12" height="12" rx="3" class="{}"/></svg>'
    items = "".join(tag("li", swatch.format(class_), words(text)) for class_, text in legend)
    caption = tag("figcaption", tag("h3", words(name)), tag("p", words(told)))
    if items:
        caption += tag("ul", items, class_="legend")
    return tag("figure", caption, tag("div", picture, class_=f"scroll {size}"))


def _tables(found: Findings) -> str:
    cells = tag("div", cells_table(found), class_="card")
    trials = tag("div", trials_table(found), class_="card")
    failures = tag("div", failures_table(found), class_="card") if found.failures else ""
    return "".join(
        [
            _section("Cells, and why each lost or could not run", cells, "cells"),
            _section("Trials", trials + failures, "trials"),
            _section("Study", tag("div", attributes_table(found), class_="card"), "study"),
        ]
    )


def _section(title: str, content: str, name: str) -> str:
    return tag("section", tag("h2", words(title)), content, id=name)


def _footer(found: Findings) -> str:
    whole = "run by devices" if really_ran(found) else "stages compiled whole"
    said = f"Every number is {ESTIMATED} (from layer profiles), {origin_of(found)} ({whole}) or simulated."
    return tag("footer", words(f"{said} autoauto {found.attributes.get('autoauto', '')}"))
