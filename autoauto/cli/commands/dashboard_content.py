"""What a study shows in the dashboard: notes, figures and files, written when the dashboard opens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from autoauto import __version__
from autoauto.cli.commands.report import contender_timeline
from autoauto.cli.output.commands_to_copy import commands_of, reproducing_command
from autoauto.cli.output.results import describe_plan
from autoauto.records.study_summary import Contender, Findings, Tried

if TYPE_CHECKING:
    from autoauto.study.store.dashboard_files import Board

N_WITH_FILES = 3
"""Of so many of the best trials the plan, the trace and pictures are kept."""

N_NOTES = 100
"""So many trials have a note: all notes are part of every answer of the dashboard."""


def default_folder(storage: str) -> Path:
    """Where files are kept: beside an SQLite database, else in the folder where studies are.

    >>> str(default_folder("sqlite:///studies/autoauto.db")), str(default_folder("postgresql://me@host/all"))
    ('studies/autoauto.artifacts', 'studies/all.artifacts')
    """
    parts = urlsplit(storage)
    path = Path(parts.path[1:] or "autoauto")
    folder = path.parent if parts.scheme.startswith("sqlite") else Path("studies")
    return folder / f"{path.stem}.artifacts"


def write_board(board: Board, found: Findings) -> None:
    """Write notes and figures of the study, notes of its trials, and files of the best; nothing if that was done.

    What a person has changed in a note stays until the study has other trials.
    """
    from autoauto.report.dashboard.figures import study_figures
    from autoauto.report.dashboard.notes import contender_note, study_note, trial_note
    from autoauto.report.wording import origin_of
    from autoauto.study.analysis.comparisons import study_comparisons

    digest = hashlib.sha256(f"{__version__} {found}".encode()).hexdigest()
    if board.shows(digest):
        return
    board.note(study_note(found, study_comparisons(found), commands_of(found)))
    timeline = contender_timeline(found.winner) if found.winner else None
    for name, figure in study_figures(found, timeline).items():
        board.figure(name, figure)
    for place, contender in enumerate(found.contenders):
        pictures = _write_files(board, found, contender) if place < N_WITH_FILES else {}
        number = contender.tried.number
        board.note(contender_note(found, contender, reproducing_command(found, contender), pictures), number)
    for tried in _noted(found):
        board.note(trial_note(tried, origin_of(found)), tried.number)
    board.finish(digest)


def _noted(found: Findings) -> list[Tried]:
    """The trials beside the best that have a note: first those at the bounds of cells, then as many as there may be."""
    best = {contender.tried.number for contender in found.contenders}
    marks = [tried for cell in found.cells for tried in (cell.best, cell.largest, cell.first_unfit) if tried]
    wanted = {tried.number: tried for tried in (*marks, *found.tried) if tried.number not in best}
    return list(wanted.values())[:N_NOTES]


def _write_files(board: Board, found: Findings, contender: Contender) -> dict[str, str]:
    """Write a contender's files; the addresses of its pictures by what they show."""
    number, pictures = contender.tried.number, {}
    for name, content in _files(found, contender):
        address = board.file(number, name, content.encode())
        if name.endswith(".svg"):
            pictures[name.removesuffix(".svg")] = address
    return pictures


def _files(found: Findings, contender: Contender) -> Iterator[tuple[str, str]]:
    from autoauto.report.charts import memory as memory_svg
    from autoauto.report.charts import timeline as timeline_svg
    from autoauto.report.charts.markup import picture_file
    from autoauto.report.trace import chrome_trace
    from autoauto.report.wording import clock_of, origin_of

    timeline, clock_hz = contender_timeline(contender), clock_of(found, contender)
    yield "plan.json", json.dumps(describe_plan(contender.measured), indent=1)
    if timeline is not None:
        yield "trace.json", json.dumps(chrome_trace(timeline, clock_hz))
        picture = timeline_svg.timeline_svg(timeline, clock_hz)
        yield "timeline.svg", picture_file(picture, timeline_svg.legend(timeline))
    rows = memory_svg.held_by_part(contender.measured, contender.estimate)
    yield "memory.svg", picture_file(memory_svg.memory_svg(rows, origin_of(found)), memory_svg.legend(rows))
