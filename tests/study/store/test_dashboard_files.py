"""What the dashboard shows of a study, written and read back as the dashboard reads it."""

import json
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.knobs import Objective, SearchSpace
from autoauto.study.execution.process import Evaluate
from autoauto.study.run import run_search
from autoauto.study.store.study import load_study, open_study

pytest.importorskip("optuna_dashboard", reason="the extra dashboard is not installed")

from autoauto.study.store.dashboard_files import Board


class Figure:
    """All that the dashboard asks of a figure."""

    def __init__(self, text: str) -> None:
        self.text = text

    def to_json(self) -> str:
        """The figure as it is kept."""
        return json.dumps({"data": [], "layout": {"title": self.text}})


@pytest.fixture
def board(storage: str, fake: Evaluate, tmp_path: Path) -> Board:
    """Of a study with one trial that fits and one that does not."""
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    run_search(SearchSpace((1,), (1.0,), (1, 100)), fake, study, Objective.THROUGHPUT)
    return Board(storage, "bow", tmp_path / "files")


def shown(board: Board) -> dict[str, Any]:
    """What the dashboard answers about the study."""
    from optuna_dashboard import wsgi

    environ: dict[str, Any] = {"PATH_INFO": "/api/studies/1"}
    setup_testing_defaults(environ)
    body = b"".join(wsgi(board.backend, artifact_store=board.files)(environ, lambda *_: None))
    answer: dict[str, Any] = json.loads(body)
    return answer


def test_notes_are_shown_on_the_study_and_on_finished_trials(board: Board) -> None:
    board.note("## Winner")
    board.note("fits", 0)
    board.note("does not fit " + "x" * 5000, 1)
    answer = shown(board)
    assert answer["note"]["body"] == "## Winner"
    assert [trial["note"]["body"] for trial in answer["trials"]] == ["fits", "does not fit " + "x" * 5000]


def test_writing_again_replaces(board: Board) -> None:
    for text in ("a long first note", "short", "short"):
        board.note(text, 0)
        board.figure("autoauto-memory", Figure(text))
        address = board.file(0, "plan.json", text.encode())
    answer = shown(board)
    first, *_ = answer["trials"]
    assert (first["note"]["body"], first["note"]["version"]) == ("short", 2)
    (figure,) = answer["plotly_graph_objects"]
    assert figure == {"id": "autoauto-memory", "graph_object": Figure("short").to_json()}
    (file,) = first["artifacts"]
    assert (file["filename"], file["mimetype"]) == ("plan.json", "application/json")
    assert address == f"/artifacts/1/1/{file['artifact_id']}"
    with board.files.open_reader(file["artifact_id"]) as kept:
        assert kept.read() == b"short"


def test_what_was_finished_is_known(board: Board, storage: str, tmp_path: Path) -> None:
    assert not board.shows("abc")
    board.finish("abc")
    assert not board.shows("abc")  # no files yet
    board.file(0, "plan.json", b"{}")
    assert Board(storage, "bow", tmp_path / "files").shows("abc")
    assert not board.shows("abd")
    assert not Board(storage, "bow", tmp_path / "elsewhere").shows("abc")


def test_trials_are_as_they_were(board: Board, storage: str) -> None:
    before = load_study(storage, "bow").trials
    board.note("fits", 0)
    board.file(0, "plan.json", b"{}")
    assert load_study(storage, "bow").trials == before


def test_a_folder_that_cannot_be_made_is_one_line(storage: str, board: Board, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="--artifacts"):
        Board(storage, "bow", tmp_path / "file" / "folder")
