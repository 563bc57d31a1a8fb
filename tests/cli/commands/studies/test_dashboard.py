"""`autoauto dashboard`: a real server, asked by its API and by a real browser."""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

import autoauto
from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.space.objectives import Objective
from autoauto.study.store.study import open_study
from tests.cli.conftest import Prepare, RunCli
from tests.running import PATIENCE_S, wait_until

FIGURES = ("timeline", "memory", "heat-map", "parity", "latency", "batches")
OVERLAPS = """[...document.querySelectorAll('[id^="user-defined-plot:autoauto"]')].filter(figure => {
    const legend = figure.querySelector('.legend')?.getBoundingClientRect();
    const titles = [...figure.querySelectorAll('.g-xtitle text')].map(title => title.getBoundingClientRect());
    return legend && titles.some(title => title.bottom > legend.top + 4);
}).map(figure => figure.id)"""
"""The figures whose legend lies on the title of an axis, in JavaScript."""
N_PORTS = 5
"""Ports that are tried: another process may take a free port before the dashboard does."""


def test_a_missing_extra_is_named(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study that is misspelt is named first: an installation would not help."""
    open_study(DEFAULT_STORAGE, "first", Objective.THROUGHPUT, {"target": "ipu-1"})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, err = run_cli("dashboard", "first")
    assert code == 2
    assert "the dashboard needs the extra dashboard; try: " in err
    assert (
        "there is no study 'frist' in sqlite:///studies/autoauto.db; did you mean 'first'?"
        in run_cli("dashboard", "frist").err
    )


def test_a_port_that_cannot_be_used_is_one_line(run_cli: RunCli, prepare: Prepare) -> None:
    prepare("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--study-name", "small")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (taken.getsockname()[1], 99999, 0, -1):
            code, out, err = run_cli("dashboard", "small", f"--port={port}")
            assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.slow
def test_the_dashboard_shows_the_study(run_cli: RunCli, tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard", reason="the extra dashboard is not installed")
    space = ("--n-ipu", "1", "--memory-proportion", "0.6", "--batch-size", "1:256")
    result = json.loads(run_cli("search", "resnet50", *space, "--method", "grid-bisect", "--json").out)
    for _ in range(2):  # the second time all is up to date
        with dashboard_of(result["study_name"], tmp_path) as (_, detail):
            assert len(detail["trials"]) == result["n_tried"]
            states = {trial["state"]: trial["constraints"] for trial in detail["trials"]}
            assert states["Complete"] == [0.0]
            assert states["Pruned"][0] > 0
            assert detail["note"]["version"] == 1
            assert "autoauto measure resnet50" in detail["note"]["body"]
            assert all(trial["note"]["body"] for trial in detail["trials"])
            names = {figure["id"] for figure in detail["plotly_graph_objects"]}
            assert names == {f"autoauto-{name}" for name in FIGURES}
            best = detail["trials"][result["best"]["trial"]]
            files = {file["filename"] for file in best["artifacts"]}
            assert files == {"plan.json", "trace.json", "timeline.svg", "memory.svg"}


@pytest.mark.slow
def test_a_browser_draws_the_figures_and_the_notes(run_cli: RunCli, browser: Any, tmp_path: Path) -> None:
    """In both colour schemes, without an error and without a request to another machine."""
    pytest.importorskip("optuna_dashboard", reason="the extra dashboard is not installed")
    space = ("--n-ipu", "1,2", "--memory-proportion", "0.6", "--batch-size", "1:64")
    run_cli("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--study-name", "another")
    several = ("--method", "grid-bisect")  # tries several, as charts of cells and of batch sizes need
    result = json.loads(run_cli("search", "resnet50", *space, *several, "--json").out)
    with dashboard_of(result["study_name"], tmp_path) as (address, detail):
        assert {figure["id"] for figure in detail["plotly_graph_objects"]} == {f"autoauto-{name}" for name in FIGURES}
        (printed,) = re.findall(r"http://\S+", (tmp_path / "dashboard.log").read_text())
        backgrounds = set()
        for scheme in ("light", "dark"):
            browser.open(printed, 1500, scheme)
            for name in FIGURES:
                browser.wait(
                    f"document.getElementById('user-defined-plot:autoauto-{name}')?.querySelector('svg') != null"
                )
            assert browser.ask(OVERLAPS) == []
            backgrounds.add(browser.ask("getComputedStyle(document.body).backgroundColor"))
            check_clean(browser, address)
            browser.open(f"{printed}/trials?numbers={result['best']['trial']}", 1280, scheme)
            pictures = "[...document.querySelectorAll('img[alt=timeline], img[alt=memory]')]"
            browser.wait(f"{pictures}.length === 2 && {pictures}.every(e => e.complete && e.naturalWidth > 500)")
            assert "compute cycles" in browser.ask("document.body.textContent")
            assert "compute_cycles" in browser.ask("document.body.textContent")  # the attributes are drawn, too
            assert browser.ask("document.documentElement.scrollWidth") <= 1280
            check_clean(browser, address)
        assert len(backgrounds) == 2


def check_clean(browser: Any, address: str) -> None:
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith((address, "data:", "blob:"))] == []


@contextmanager
def dashboard_of(study_name: str, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of a dashboard in its own process, and what it answers about the study."""
    server, address = started_dashboard(study_name, folder)
    try:
        summaries = fetch(f"{address}/api/studies", server)["study_summaries"]
        (number,) = [summary["study_id"] for summary in summaries if summary["study_name"] == study_name]
        yield address, fetch(f"{address}/api/studies/{number}", server)
    finally:
        server.terminate()
        assert server.wait(timeout=PATIENCE_S) == 0


def started_dashboard(study_name: str, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A process that serves the dashboard on a free port."""
    environment = {**os.environ, "PYTHONPATH": str(Path(autoauto.__file__).parents[1])}
    log = folder / "dashboard.log"
    for _ in range(N_PORTS):
        port = str(free_port())
        command = [sys.executable, "-m", "autoauto", "dashboard", study_name, "--port", port]
        with log.open("wb") as file:
            server = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
        address = f"http://127.0.0.1:{port}"
        if fetch(f"{address}/api/studies", server) is not None:
            return server, address
    pytest.fail(f"the dashboard ended: {log.read_text()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str, server: subprocess.Popen[bytes]) -> Any:
    """The answer of the server as soon as it gives one; None when the server has ended."""
    answers: list[Any] = []

    def has_answered() -> bool:
        with suppress(OSError, HTTPException), urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            answers.append(json.load(answer))
        return bool(answers) or server.poll() is not None

    wait_until(has_answered, "an answer of the dashboard")
    return answers[0] if server.poll() is None else None
