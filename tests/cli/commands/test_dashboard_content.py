"""What a study shows in the dashboard."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.commands import dashboard_content as module
from autoauto.cli.commands.dashboard_content import default_folder, write_board
from autoauto.records.study_summary import Findings
from autoauto.study.analysis.summary import study_findings
from autoauto.study.store.study import load_study

Door = Callable[..., Any]
STORAGE = "sqlite:///studies/autoauto.db"


class Remembered:
    """A board that remembers what is written on it."""

    def __init__(self) -> None:
        self.notes: dict[int | None, str] = {}
        self.figures: dict[str, Any] = {}
        self.files: dict[tuple[int, str], bytes] = {}
        self.digest = ""

    def shows(self, digest: str) -> bool:
        return self.digest == digest

    def finish(self, digest: str) -> None:
        self.digest = digest

    def note(self, text: str, number: int | None = None) -> None:
        self.notes[number] = text

    def figure(self, name: str, figure: Any) -> None:
        self.figures[name] = figure

    def file(self, number: int, name: str, content: bytes) -> str:
        self.files[number, name] = content
        return f"/files/{number}/{name}"


@pytest.fixture
def found(door: Door) -> Findings:
    door(
        "search",
        "resnet50",
        "--n-ipu",
        "1,2",
        "--memory-proportion",
        "0.6",
        "--batch-size",
        "1:128",
        "--method",
        "grid-bisect",
        "--study-name",
        "s",
    )
    return study_findings(load_study(STORAGE, "s"), STORAGE)


def test_all_that_matters_is_written_once(found: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    board = Remembered()
    write_board(board, found)  # type: ignore[arg-type]
    assert len(board.figures) == 5
    assert set(board.notes) == {None, *(tried.number for tried in found.tried)}
    assert found.winner is not None
    number = found.winner.tried.number
    assert {name for one, name in board.files if one == number} == {
        "plan.json",
        "trace.json",
        "timeline.svg",
        "memory.svg",
    }
    assert json.loads(board.files[number, "plan.json"])["partition"] == list(found.winner.measured.partition)
    assert f"![timeline](/files/{number}/timeline.svg)" in board.notes[number]
    assert len({one for one, _ in board.files}) == module.N_WITH_FILES
    board.notes.clear()
    write_board(board, found)  # type: ignore[arg-type]
    assert board.notes == {}


def test_of_many_trials_those_at_the_bounds_have_notes(found: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    monkeypatch.setattr(module, "N_NOTES", 2)
    board = Remembered()
    write_board(board, found)  # type: ignore[arg-type]
    others = set(board.notes) - {None} - {contender.tried.number for contender in found.contenders}
    marks = {tried.number for cell in found.cells for tried in (cell.best, cell.largest, cell.first_unfit) if tried}
    assert len(others) == 2
    assert others <= marks


@pytest.mark.parametrize(
    ("storage", "folder"),
    [
        ("sqlite:////data/my.trials.db", "/data/my.trials.artifacts"),
        ("sqlite:///here.db", "here.artifacts"),
        ("postgresql+psycopg://me:secret@host:5432/trials", "studies/trials.artifacts"),
    ],
)
def test_files_lie_beside_the_database(storage: str, folder: str) -> None:
    assert default_folder(storage) == Path(folder)
