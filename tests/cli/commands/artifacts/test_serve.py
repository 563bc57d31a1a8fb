"""`autoauto serve` and `autoauto bench`: what they refuse; `tests/serve` has servers that run."""

from __future__ import annotations

import json
import re
import socket
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.conftest import RunCli
from tests.graph.conftest import make
from tests.serve.conftest import RunningServer, need_libraries, write_folder


@pytest.fixture(autouse=True)
def libraries() -> None:
    need_libraries()


def test_what_is_neither_a_folder_nor_a_study_is_refused_in_one_line(run_cli: RunCli) -> None:
    done = run_cli("serve", "nothing")
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, "")
    assert "there is no folder 'nothing'; and " in done.err


def test_a_port_that_is_taken_is_refused(run_cli: RunCli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_cli("serve", str(write_folder(tmp_path / "folder")), "--listen", f"127.0.0.1:{port}")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"127.0.0.1:{port} must be free to be served at" in done.err


def test_a_missing_library_names_the_extra(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    for command, needed in (("serve", "prometheus_client"), ("bench", "aiohttp")):
        module = f"autoauto.cli.commands.artifacts.{command}.find_spec"
        monkeypatch.setattr(module, lambda name, needed=needed: None if name == needed else find_spec(name))
        done = run_cli(command, "http://127.0.0.1:1/v2/models/m")
        assert done.code == 2
        assert "needs the extra serve; try: " in done.err
        assert "install 'aiohttp" in done.err


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v2/models/m", "nonsense", "ftp://a/b"])
def test_a_url_that_is_no_model_is_refused_in_one_line(url: str, run_cli: RunCli) -> None:
    done = run_cli("bench", url)
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, "")
    expected = (
        "{url} must be a model of the Open Inference Protocol: " if "1/v2" in url else "got '{url}'; try http://127"
    )
    assert expected.format(url=url) in done.err


@pytest.mark.slow
def test_the_winner_of_a_study_is_served_and_measured(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(write_folder(tmp_path / "folder").parent / "lookup.onnx")
    space = ("--n-ipu", "1", "--replicas", "1", "--cores-per-device", "1", "--batch-size", "8")
    words = [
        "search",
        model,
        "--target",
        "host",
        *space,
        "--estimator",
        "sum",
        "--repeats",
        "0",
        "--study-name",
        "mine",
    ]
    monkeypatch.setattr("sys.argv", ["autoauto", *words])
    assert run_cli(*words).code == 0
    with RunningServer("mine") as server:
        done = run_cli("bench", server.url, "--seconds", "0.3", "--samples", "3", "--json")
        assert (done.code, done.err) == (0, "")
        printed = json.loads(done.out)
        assert (printed["model"], printed["plan"]["batch_size"], printed["plan"]["plan_origin"]) == (
            "lookup",
            "8",
            "measured",
        )
        closed, *opened = printed["loads"]
        assert (closed["load"], len(opened)) == ("closed, 6 clients", 2)
        for load in printed["loads"]:
            assert load["n_answered"] > 0
            assert (load["n_failed"], load["n_wrong"], load["source"]) == (0, 0, "measured")
            assert 0 < load["p50_ms"] <= load["p95_ms"] <= load["p99_ms"]
        lines = run_cli("bench", server.url, "--seconds", "0.1").out.splitlines()
        assert lines[0].split() == [
            "load,",
            "measured",
            "samples/s",
            *("p50", "ms", "p95", "ms", "p99", "ms"),
            "refused",
            "failed",
            "wrong",
        ]
        assert lines[-2].startswith("the plan gives ")
        assert re.fullmatch(
            r"beside .* clients took \d\.\d\d cores and the server \d\.\d\d \(measured\), .*", lines[-1]
        )
        assert server.stop() == (0, "")


@pytest.mark.slow
def test_a_model_that_refuses_made_up_inputs_is_served_and_measured_on_given_ones(
    run_cli: RunCli, tmp_path: Path
) -> None:
    table = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    nodes = "Sub ids five > i; Gather table i > rows axis=0; Tanh rows > y"
    model = make(nodes, {"int:ids": ["n", 3]}, "y", {"table": table, "five": np.array(5)})
    onnx.save(model, tmp_path / "rows.onnx")
    ids = str(tmp_path / "ids.npz")
    np.savez(ids, ids=np.arange(12).reshape(4, 3) % 4 + 1)
    space = ("--n-ipu", "1", "--replicas", "1", "--batch-size", "4", "--study-name", "mine")
    search = ("search", str(tmp_path / "rows.onnx"), "--target", "host", *space, "--inputs", ids)
    assert run_cli(*search).code == 0
    with RunningServer("mine") as server:
        done = run_cli("bench", server.url, "--seconds", "0.2", "--samples", "3", "--inputs", ids, "--json")
        assert (done.code, done.err) == (0, "")
        assert all((load["n_answered"] > 0, load["n_failed"]) == (True, 0) for load in json.loads(done.out)["loads"])
        assert run_cli("bench", server.url, "--seconds", "0.2").code == 2
        done = run_cli("bench", server.url, "--inputs", str(tmp_path / "rows.onnx"))
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert server.stop()[0] == 0
