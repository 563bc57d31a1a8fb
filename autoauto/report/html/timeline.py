"""A timeline as one HTML file that needs no network, `timeline_page`: its picture and its devices."""

from __future__ import annotations

from collections.abc import Iterable

from autoauto.records.timeline import Timeline
from autoauto.report.charts.timeline import timeline_chart
from autoauto.report.html.document import document, figure, table_section
from autoauto.report.style import format_value
from autoauto.report.tables.timeline import timeline_table
from autoauto.report.wording import counted


def timeline_page(timeline: Timeline, stash_entries: Iterable[int]) -> str:
    """The page, in cycles; of a long timeline it has the first and the last bars.

    Args:
        timeline: what to show.
        stash_entries: the activations that the stash of every device has room for.
    """
    schedule = timeline.schedule
    sizes = (counted(schedule.n_devices, "device"), counted(schedule.n_micro_batches, "micro-batch", "es"))
    title = f"{schedule.order_name}: {', '.join(sizes)}"
    makespan = format_value("cycles", timeline.makespan_cycles)
    facts = (timeline.origin, f"makespan {makespan} cycles", f"bubble {100 * timeline.bubble_fraction:.1f} %")
    chart, devices = timeline_chart(timeline, None), timeline_table(timeline, stash_entries)
    return document(title, title, facts, figure(chart), table_section(devices, "devices"))
