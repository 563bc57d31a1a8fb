"""What a study shows in the dashboard: notes, figures and files, written when the dashboard opens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from autoauto import __version__
from autoauto.cli.commands.studies.commands_to_copy import commands_of, reproducing_command
from autoauto.cli.output.plans import describe_plan
from autoauto.cli.output.search_result import finalist_timeline
from autoauto.records.study_summary import Finalist, StudySummary, TrialSummary

if TYPE_CHECKING:
    from autoauto.study.store.dashboard_files import DashboardFiles

N_WITH_FILES = 3
"""The number of the best trials that have a plan, a trace and pictures as files."""

N_NOTES = 100
"""The most trials with a note besides the best: the dashboard sends all notes in every answer."""


def default_folder(storage: str) -> Path:
    """The folder of the files: beside an SQLite database, otherwise in `studies/`.

    >>> str(default_folder("sqlite:///studies/autoauto.db")), str(default_folder("postgresql://me@host/all"))
    ('studies/autoauto.artifacts', 'studies/all.artifacts')
    """
    parts = urlsplit(storage)
    path = Path(parts.path[1:] or "autoauto")
    folder = path.parent if parts.scheme.startswith("sqlite") else Path("studies")
    return folder / f"{path.stem}.artifacts"


def write_dashboard(dashboard: DashboardFiles, summary: StudySummary) -> None:
    """Write notes and figures of the study, notes of its trials, and files of the best, unless they are up to date.

    A note that a person has edited stays until the study has more trials.
    """
    from autoauto.report.dashboard.figures import study_figures
    from autoauto.report.dashboard.notes import finalist_note, study_note, trial_note
    from autoauto.report.wording import origin_of
    from autoauto.study.analysis.comparisons import study_comparisons

    digest = hashlib.sha256(f"{__version__} {summary}".encode()).hexdigest()
    if dashboard.shows(digest):
        return
    dashboard.note(study_note(summary, study_comparisons(summary), commands_of(summary)))
    timeline = finalist_timeline(summary.winner) if summary.winner else None
    for name, figure in study_figures(summary, timeline).items():
        dashboard.figure(name, figure)
    for rank, finalist in enumerate(summary.finalists):
        pictures = _write_files(dashboard, summary, finalist) if rank < N_WITH_FILES else {}
        command = reproducing_command(summary, finalist)
        dashboard.note(finalist_note(summary, finalist, command, pictures), finalist.trial.number)
    for trial in _trials_with_notes(summary):
        dashboard.note(trial_note(trial, origin_of(summary)), trial.number)
    dashboard.finish(digest)


def _trials_with_notes(summary: StudySummary) -> list[TrialSummary]:
    """At most `N_NOTES` trials besides the finalists: first those at the limits of cells, then the others."""
    best = {finalist.trial.number for finalist in summary.finalists}
    limits = [trial for cell in summary.cells for trial in (cell.best, cell.largest, cell.first_unfit) if trial]
    others = {trial.number: trial for trial in (*limits, *summary.trials) if trial.number not in best}
    return list(others.values())[:N_NOTES]


def _write_files(dashboard: DashboardFiles, summary: StudySummary, finalist: Finalist) -> dict[str, str]:
    """Write the files of a finalist; returns the addresses of its pictures by their names."""
    number, pictures = finalist.trial.number, {}
    for name, content in _files(summary, finalist):
        address = dashboard.file(number, name, content.encode())
        if name.endswith(".svg"):
            pictures[name.removesuffix(".svg")] = address
    return pictures


def _files(summary: StudySummary, finalist: Finalist) -> Iterator[tuple[str, str]]:
    """Name and content of every file of a finalist."""
    from autoauto.report.charts import memory as memory_svg
    from autoauto.report.charts import timeline as timeline_svg
    from autoauto.report.charts.markup import picture_file
    from autoauto.report.trace import chrome_trace
    from autoauto.report.wording import clock_of, origin_of

    timeline, clock_hz = finalist_timeline(finalist), clock_of(summary, finalist)
    yield "plan.json", json.dumps(describe_plan(finalist.measured), indent=1)
    if timeline is not None:
        yield "trace.json", json.dumps(chrome_trace(timeline, clock_hz))
        picture = timeline_svg.timeline_svg(timeline, clock_hz)
        yield "timeline.svg", picture_file(picture, timeline_svg.legend(timeline))
    rows = memory_svg.memory_by_part(finalist.measured, finalist.estimate)
    yield "memory.svg", picture_file(memory_svg.memory_svg(rows, origin_of(summary)), memory_svg.legend(rows))
