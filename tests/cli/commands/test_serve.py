"""`autoauto serve` and `autoauto bench`: what they refuse; `tests/serve` has servers that run."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli
from tests.serve.conftest import need_libraries, write_folder


@pytest.fixture(autouse=True)
def libraries() -> None:
    need_libraries()


def test_what_is_neither_a_folder_nor_a_study_is_refused_in_one_line(run_cli: RunCli) -> None:
    done = run_cli("serve", "nothing")
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, "")
    assert "there is no folder 'nothing'; and " in done.err


def test_a_plan_of_another_target_is_refused(run_cli: RunCli) -> None:
    model = write_folder(Path("folder")).parent / "lookup.onnx"
    assert run_cli("export", str(model), "--batch-size", "2", "--to", "onnx", "--output", "exported").code == 0
    done = run_cli("serve", "exported")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "exported has one for bow-2000; try one with --target host" in done.err


def test_a_port_that_is_taken_is_refused(run_cli: RunCli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_cli("serve", str(write_folder(tmp_path / "folder")), "--port", str(port))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"127.0.0.1:{port} must be free to be served at" in done.err


def test_a_missing_library_names_the_extra(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    for command, needed in (("serve", "prometheus_client"), ("bench", "aiohttp")):
        module = f"autoauto.cli.commands.{command}.find_spec"
        monkeypatch.setattr(module, lambda name, needed=needed: None if name == needed else find_spec(name))
        done = run_cli(command, "http://127.0.0.1:1/v2/models/m")
        assert done.code == 2
        assert "needs the extra serve; try: " in done.err
        assert "install 'aiohttp" in done.err


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v2/models/m", "nonsense", "ftp://a/b"])
def test_a_url_that_is_no_model_is_refused_in_one_line(url: str, run_cli: RunCli) -> None:
    done = run_cli("bench", url)
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, "")
    assert f"{url} must be a model of the Open Inference Protocol: " in done.err
