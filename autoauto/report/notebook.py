"""Records as HTML for a notebook, `record_html`: tables, and pictures of timelines."""

from __future__ import annotations

from base64 import b64encode

from autoauto.records.plans.phased import PhasedPlan
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.report.charts.chart import Chart
from autoauto.report.charts.plan import timeline_chart
from autoauto.report.charts.rates import rates_chart
from autoauto.report.charts.svg import picture_file
from autoauto.report.style import tag, words
from autoauto.report.tables.plans import parts_tables
from autoauto.report.tables.serving import answer_tables
from autoauto.report.tables.study import binding_table, cells_table, choices_table
from autoauto.report.tables.table import Column, Table, html_table
from autoauto.report.tables.trials import best_facts
from autoauto.report.wording import answer_line, clock_of_trial, configuration, headline, origin_of, shown_clock
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Trial

# The colours are those of the notebook, in a light theme and in a dark one.
_STYLE = """
.autoauto table { border-collapse: collapse; margin: 0 0 12px; }
.autoauto caption { text-align: left; opacity: 0.7; padding: 4px 0; }
.autoauto th, .autoauto td { text-align: left !important; vertical-align: top; padding: 2px 14px 2px 0; }
.autoauto .number { text-align: right !important; }
.autoauto .share { height: 4px; }
.autoauto .share i { display: block; height: 100%; background: currentColor; opacity: 0.4; }
.autoauto img { max-width: 100%; }
"""


def record_html(record: object) -> str:
    """A plan, a trial, a timeline or the summary of a study as HTML; every text in it is escaped."""
    match record:
        case Plan() | PhasedPlan():
            content = "".join(map(html_table, parts_tables(record, None, None)))
        case Trial():
            content = _trial(record)
        case Timeline():
            content = _timeline(record)
        case StudySummary():
            content = _summary(record)
        case _:
            raise AssertionError(f"a notebook shows no {type(record).__name__}")
    return tag("div", tag("style", _STYLE), content, class_="autoauto")


def _trial(trial: Trial) -> str:
    """What is known of a configuration, what binds it, its stages and its timeline; or why it does not count."""
    title = tag("strong", words(headline(trial, trial.origin) if trial.runs else trial.status))
    parts = [tag("p", title, *(f"<br/>{words(text)}" for text in (trial.reason, configuration(trial.knobs)) if text))]
    if trial.measured is not None and trial.origin is not None:
        clock_hz = clock_of_trial(trial)
        facts = Table("Configuration", (Column(""),) * 3, tuple(best_facts(trial, trial.origin, clock_hz)))
        stages = parts_tables(trial.measured, None, trial.origin, clock_hz, trial.knobs)
        tables = [facts, binding_table(trial, trial.origin, clock_hz=clock_hz), *stages]
        parts += map(html_table, tables)
    if trial.timeline is not None:
        parts.append(_timeline(trial.timeline))
    return "".join(parts)


def _timeline(timeline: Timeline) -> str:
    return _picture(timeline_chart(timeline, None))


def _picture(chart: Chart) -> str:
    """An image, whose style sheet does not reach the page around it."""
    picture = b64encode(picture_file(chart).encode()).decode("ascii")
    caption = words(f"{chart.title}: {chart.text}")
    return tag("div", caption) + f'<img alt="{words(chart.title)}" src="data:image/svg+xml;base64,{picture}"/>'


def _summary(summary: StudySummary) -> str:
    """The winner, what binds it, why every other cell lost, and latencies over the rate of arrivals."""
    origin, winner = origin_of(summary), summary.winner
    title = "Nothing fits" if winner is None else f"{answer_line(summary)}: {configuration(winner.knobs)}"
    tables = [*answer_tables(summary), choices_table(summary), cells_table(summary)]
    if winner is not None:
        tables.insert(0, binding_table(winner, origin, summary.transferred, shown_clock(summary), summary.rate_curves))
    chart = rates_chart(summary.rate_curves)
    picture = _picture(chart) if chart else ""
    return tag("p", tag("strong", words(title))) + "".join(map(html_table, filter(None, tables))) + picture
