import importlib.util
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

Door = Callable[..., Any]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str, server: subprocess.Popen[bytes]) -> Any:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)
        except URLError:
            assert server.poll() is None, "the dashboard ended"
            time.sleep(0.1)
    raise AssertionError("the dashboard did not answer")


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


@pytest.mark.slow
def test_the_dashboard_shows_the_study(door: Door, tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard", reason="the extra dashboard is not installed")
    found = json.loads(door("search", "resnet50", "--n-ipu", "1", "--batch-size", "1:64", "--json").out)
    port = free_port()
    command = [sys.executable, "-m", "autoauto", "dashboard", found["study_name"], "--port", str(port)]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        (summary,) = fetch(f"http://127.0.0.1:{port}/api/studies", server)["study_summaries"]
        assert summary["study_name"] == found["study_name"]
        detail = fetch(f"http://127.0.0.1:{port}/api/studies/{summary['study_id']}", server)
    finally:
        server.terminate()
        server.wait(timeout=30)
    assert len(detail["trials"]) == found["n_tried"]
    states = {trial["state"]: trial["constraints"] for trial in detail["trials"]}
    assert states["Complete"] == [0.0]
    assert states["Pruned"][0] > 0
