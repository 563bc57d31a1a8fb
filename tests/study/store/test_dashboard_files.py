"""Notes, figures and files of a study, written, and read as the dashboard reads them."""

import json
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from autoauto.records.errors import BadInput
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.study.execution.process import Evaluate
from autoauto.study.run import run_search
from autoauto.study.store.study import load_study, open_study

pytest.importorskip("optuna_dashboard", reason="the extra dashboard is not installed")

from autoauto.study.store.dashboard_files import DashboardFiles


class Figure:
    """The only method of a figure that the dashboard uses."""

    def __init__(self, text: str) -> None:
        self.text = text

    def to_json(self) -> str:
        """The figure as it is stored."""
        return json.dumps({"data": [], "layout": {"title": self.text}})


@pytest.fixture
def dashboard(storage: str, fake: Evaluate, tmp_path: Path) -> DashboardFiles:
    """The dashboard of a study with one trial that fits and one that does not."""
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    run_search(SearchSpace((1,), (1.0,), (1, 100)), fake, study, Objective.THROUGHPUT)
    return DashboardFiles(storage, "bow", tmp_path / "files")


def shown(dashboard: DashboardFiles) -> dict[str, Any]:
    """The dashboard's answer about the study."""
    from optuna_dashboard import wsgi

    environ: dict[str, Any] = {"PATH_INFO": "/api/studies/1"}
    setup_testing_defaults(environ)
    body = b"".join(wsgi(dashboard.backend, artifact_store=dashboard.files)(environ, lambda *_: None))
    answer: dict[str, Any] = json.loads(body)
    return answer


def test_notes_are_shown_on_the_study_and_on_finished_trials(dashboard: DashboardFiles) -> None:
    dashboard.note("## Winner")
    dashboard.note("fits", 0)
    dashboard.note("does not fit " + "x" * 5000, 1)
    answer = shown(dashboard)
    assert answer["note"]["body"] == "## Winner"
    assert [trial["note"]["body"] for trial in answer["trials"]] == ["fits", "does not fit " + "x" * 5000]


def test_writing_again_replaces_notes_figures_and_files(dashboard: DashboardFiles) -> None:
    for text in ("a long first note", "short", "short"):
        dashboard.note(text, 0)
        dashboard.figure("autoauto-memory", Figure(text))
        address = dashboard.file(0, "plan.json", text.encode())
    answer = shown(dashboard)
    first, *_ = answer["trials"]
    assert (first["note"]["body"], first["note"]["version"]) == ("short", 2)
    (figure,) = answer["plotly_graph_objects"]
    assert figure == {"id": "autoauto-memory", "graph_object": Figure("short").to_json()}
    (file,) = first["artifacts"]
    assert (file["filename"], file["mimetype"]) == ("plan.json", "application/json")
    assert address == f"/artifacts/1/1/{file['artifact_id']}"
    with dashboard.files.open_reader(file["artifact_id"]) as file_of_dashboard:
        assert file_of_dashboard.read() == b"short"


def test_finished_content_is_recognised(dashboard: DashboardFiles, storage: str, tmp_path: Path) -> None:
    assert not dashboard.shows("abc")
    dashboard.finish("abc")
    assert not dashboard.shows("abc")  # no files yet
    dashboard.file(0, "plan.json", b"{}")
    assert DashboardFiles(storage, "bow", tmp_path / "files").shows("abc")
    assert not dashboard.shows("abd")
    assert not DashboardFiles(storage, "bow", tmp_path / "elsewhere").shows("abc")


def test_trials_do_not_change(dashboard: DashboardFiles, storage: str) -> None:
    before = load_study(storage, "bow").trials
    dashboard.note("fits", 0)
    dashboard.file(0, "plan.json", b"{}")
    assert load_study(storage, "bow").trials == before


def test_a_folder_that_cannot_be_made_is_one_line(storage: str, dashboard: DashboardFiles, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="--artifacts"):
        DashboardFiles(storage, "bow", tmp_path / "file" / "folder")
