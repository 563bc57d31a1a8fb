"""What a study shows in the dashboard."""

import json
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.commands.studies import dashboard as command
from autoauto.cli.commands.studies.dashboard import N_WITH_FILES, default_folder, write_dashboard
from autoauto.cli.main import main
from autoauto.space.study_summary import StudySummary
from autoauto.study.analysis.best import summarise_study
from autoauto.study.store.study import load_study


class MemoryDashboard:
    """Stores in memory what is written to a dashboard."""

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


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> StudySummary:
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    storage = f"sqlite:///{tmp_path_factory.mktemp('study')}/trials.db"
    space = ("--n-ipu", "1,2", "--memory-proportion", "0.6", "--batch-size", "1:128")
    main(["search", "resnet50", *space, "--method", "grid-bisect", "--study-name", "s", "--storage", storage])
    return summarise_study(load_study(storage, "s"), storage)


def test_notes_figures_and_files_are_written_once(summary: StudySummary) -> None:
    dashboard = MemoryDashboard()
    write_dashboard(dashboard, summary)  # type: ignore[arg-type]
    assert len(dashboard.figures) == 6
    assert set(dashboard.notes) == {None, *(trial.number for trial in summary.trials)}
    assert summary.winner is not None
    winner = summary.winner.number
    files = {name for number, name in dashboard.files if number == winner}
    assert files == {"plan.json", "trace.json", "timeline.svg", "memory.svg"}
    assert json.loads(dashboard.files[winner, "plan.json"])["partition"] == list(summary.winner.plan.partition)
    assert f"![timeline](/files/{winner}/timeline.svg)" in dashboard.notes[winner]
    assert len({number for number, _ in dashboard.files}) == N_WITH_FILES
    dashboard.notes.clear()
    write_dashboard(dashboard, summary)  # type: ignore[arg-type]
    assert dashboard.notes == {}


def test_of_many_trials_those_at_the_limits_of_cells_have_notes(
    summary: StudySummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "N_NOTES", 2)
    dashboard = MemoryDashboard()
    write_dashboard(dashboard, summary)  # type: ignore[arg-type]
    others = set(dashboard.notes) - {None} - {finalist.number for finalist in summary.finalists}
    limits = [trial for cell in summary.cells for trial in (cell.best, cell.largest, cell.first_unfit) if trial]
    assert len(others) == 2
    assert others <= {trial.number for trial in limits}


@pytest.mark.parametrize(
    ("storage", "folder"),
    [
        ("sqlite:////data/my.trials.db", "/data/my.trials.artifacts"),
        ("sqlite:///here.db", "here.artifacts"),
        ("postgresql+psycopg://me:secret@host:5432/trials", "studies/trials.artifacts"),
    ],
)
def test_files_are_written_beside_the_database(storage: str, folder: str) -> None:
    assert default_folder(storage) == Path(folder)
