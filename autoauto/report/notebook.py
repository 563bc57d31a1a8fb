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
            content = _picture(timeline_chart(record, None))
        case StudySummary():
            content = _summary(record)
        case _:
            raise AssertionError(f"a notebook shows no {type(record).__name__}")
    return tag("div", tag("style", _STYLE), content, class_="autoauto")


def _trial(trial: Trial) -> str:
    """The numbers of a configuration, what limits it, its stages and its timeline; or why it has none."""
    title = headline(trial, trial.origin) if trial.runs else trial.status
    lines = [tag("strong", words(title))]
    if trial.reason:
        lines.append(words(trial.reason))
    lines.append(words(configuration(trial.knobs)))
    parts = [tag("p", "<br/>".join(lines))]
    if trial.measured is not None and trial.origin is not None:
        clock_hz = clock_of_trial(trial)
        facts = Table("Configuration", (Column(""),) * 3, tuple(best_facts(trial, trial.origin, clock_hz)))
        stages = parts_tables(trial.measured, None, trial.origin, clock_hz, trial.knobs)
        parts += map(html_table, [facts, binding_table(trial, trial.origin, clock_hz=clock_hz), *stages])
    if trial.timeline is not None:
        parts.append(_picture(timeline_chart(trial.timeline, None)))
    return "".join(parts)


def _picture(chart: Chart) -> str:
    """An image, whose style sheet does not reach the page around it."""
    picture = b64encode(picture_file(chart).encode()).decode("ascii")
    caption = words(f"{chart.title}: {chart.text}")
    return tag("div", caption) + f'<img alt="{words(chart.title)}" src="data:image/svg+xml;base64,{picture}"/>'


def _summary(summary: StudySummary) -> str:
    """The winner, what binds it, why every other cell lost, and latencies over the rate of arrivals."""
    title, tables = "Nothing fits", []
    winner, curves = summary.winner, summary.rate_curves
    if winner is not None:
        title = f"{answer_line(summary)}: {configuration(winner.knobs)}"
        tables.append(binding_table(winner, origin_of(summary), summary.transferred, shown_clock(summary), curves))
    tables += answer_tables(summary)
    if choices := choices_table(summary):
        tables.append(choices)
    tables.append(cells_table(summary))
    parts = [tag("p", tag("strong", words(title))), *map(html_table, tables)]
    if chart := rates_chart(curves):
        parts.append(_picture(chart))
    return "".join(parts)
