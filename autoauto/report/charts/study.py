"""The charts of a study, `study_charts`: the same in its page and in the dashboard."""

from __future__ import annotations

from dataclasses import replace

from autoauto.records.target import Origin
from autoauto.records.timeline import Timeline
from autoauto.records.trials.study_summary import StudySummary
from autoauto.report.charts.chart import Chart
from autoauto.report.charts.heat_map import heat_map_chart
from autoauto.report.charts.latency import latency_chart
from autoauto.report.charts.memory import memory_chart
from autoauto.report.charts.parity import parity_chart
from autoauto.report.charts.throughput import batches_chart
from autoauto.report.charts.timeline import N_BARS, timeline_chart
from autoauto.report.wording import clock_of, origin_of


def study_charts(summary: StudySummary, timeline: Timeline | None, n_bars: int = N_BARS) -> list[Chart]:
    """Timeline and memory of the winner, heat map, parity unless all is estimated, latency, throughput over batch size.

    Args:
        summary: the study.
        timeline: the winner's; None for phases, and when nothing fits.
        n_bars: the most bars of the timeline.
    """
    charts, winner = [], summary.winner
    if winner is not None:
        if timeline is not None:
            best = timeline_chart(timeline, clock_of(summary, winner), n_bars)
            charts.append(replace(best, title=f"{best.title} of the best configuration"))
        charts += [memory_chart(winner, origin_of(summary)), heat_map_chart(summary)]
        charts += [] if origin_of(summary) is Origin.ESTIMATED else [parity_chart(summary)]
    latency = latency_chart(summary)
    return [*charts, *([latency] if latency else []), batches_chart(summary)]
