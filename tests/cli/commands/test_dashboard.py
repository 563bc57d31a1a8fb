import importlib.util
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from tests.running import PATIENCE_S, wait_until

Door = Callable[..., Any]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str, server: subprocess.Popen[bytes]) -> Any:
    answers: list[Any] = []

    def answered() -> bool:
        assert server.poll() is None, "the dashboard ended"
        with suppress(URLError), urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            answers.append(json.load(answer))
        return bool(answers)

    wait_until(answered, "an answer of the dashboard")
    return answers[0]


def test_an_unknown_study_is_one_line(door: Door) -> None:
    code, _, err = door("dashboard", "nope")
    assert (code, err.count("\n")) == (2, 1)


def test_without_the_extra_its_name_is_told(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, err = door("dashboard", "nope")
    assert code == 2
    assert '"dashboard"' in err


def test_a_port_that_cannot_be_had_is_one_line(door: Door) -> None:
    door("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--study-name", "small")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (taken.getsockname()[1], 99999, 0, -1):
            code, out, err = door("dashboard", "small", f"--port={port}")
            assert (code, out, err.count("\n")) == (2, "", 1)


@contextmanager
def served(study_name: str, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of a dashboard and what it answers about the study; the dashboard is a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "autoauto", "dashboard", study_name, "--port", str(port)]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        (summary,) = fetch(f"{address}/api/studies", server)["study_summaries"]
        assert summary["study_name"] == study_name
        yield address, fetch(f"{address}/api/studies/{summary['study_id']}", server)
    finally:
        server.terminate()
        server.wait(timeout=PATIENCE_S)


@pytest.mark.slow
def test_the_dashboard_shows_the_study(door: Door, tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard", reason="the extra dashboard is not installed")
    found = json.loads(door("search", "resnet50", "--n-ipu", "1", "--batch-size", "1:256", "--json").out)
    for _ in range(2):  # what was written is not written again
        with served(found["study_name"], tmp_path) as (_, detail):
            assert len(detail["trials"]) == found["n_tried"]
            states = {trial["state"]: trial["constraints"] for trial in detail["trials"]}
            assert states["Complete"] == [0.0]
            assert states["Pruned"][0] > 0
            assert detail["note"]["version"] == 1
            assert "autoauto measure resnet50" in detail["note"]["body"]
            assert all(trial["note"]["body"] for trial in detail["trials"])
            names = {figure["id"] for figure in detail["plotly_graph_objects"]}
            assert names == {f"autoauto-{name}" for name in ("timeline", "memory", "heat-map", "parity", "batches")}
            best = detail["trials"][found["best"]["trial"]]
            files = {file["filename"] for file in best["artifacts"]}
            assert files == {"plan.json", "trace.json", "timeline.svg", "memory.svg"}


@pytest.mark.slow
def test_a_browser_draws_the_figures_and_the_notes(door: Door, browser: Any, tmp_path: Path) -> None:
    """In both themes, without a complaint and without a request to another machine."""
    pytest.importorskip("optuna_dashboard", reason="the extra dashboard is not installed")
    found = json.loads(door("search", "resnet50", "--n-ipu", "1,2", "--batch-size", "1:64", "--json").out)
    with served(found["study_name"], tmp_path) as (address, _):
        grounds = set()
        for scheme in ("light", "dark"):
            browser.open(f"{address}/dashboard/studies/1", 1500, scheme)
            for name in ("timeline", "memory", "heat-map", "parity", "batches"):
                browser.wait(
                    f"document.getElementById('user-defined-plot:autoauto-{name}')?.querySelector('svg') != null"
                )
            grounds.add(browser.ask("getComputedStyle(document.body).backgroundColor"))
            check(browser, address)
            browser.open(f"{address}/dashboard/studies/1/trials?numbers={found['best']['trial']}", 1500, scheme)
            pictures = "[...document.querySelectorAll('img[alt=timeline], img[alt=memory]')]"
            browser.wait(f"{pictures}.length === 2 && {pictures}.every(e => e.complete && e.naturalWidth > 500)")
            assert "compute cycles" in browser.ask("document.body.textContent")
            check(browser, address)
        assert len(grounds) == 2


def check(browser: Any, address: str) -> None:
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith((address, "data:", "blob:"))] == []
