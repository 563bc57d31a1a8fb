"""Servers of this machine: how loads are compared, and a search that runs the real engine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from autoauto.engines.llama_cpp import server_command
from autoauto.evaluate.serving.live.readings import LoadReading, Readings, StepFit, times_faster
from autoauto.processes.start import descendants
from autoauto.records.costs.decoder import Workload
from autoauto.records.errors import OutOfMemory
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.study.methods.protocol import Observation, Proposer, drive, limited
from autoauto.study.methods.registry import exhaustive
from autoauto.targets.host.detect import usable_cores
from autoauto.targets.host.runtimes.llamacpp.server import RunningServer
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession
from tests.gguf_models import write_model
from tests.running import command_line, is_running, wait_until

N_TOKENS = 512


def readings(*loads: tuple[float, float]) -> Readings:
    """Loads of one server by their CPU milliseconds a token and the cores that it had."""
    return Readings([LoadReading(ms / 1e3, cores) for ms, cores in loads])


def test_servers_on_a_busy_machine_are_compared_by_the_minimum_of_cpu_time_per_token() -> None:
    slow, fast = readings((4.0, 0.3), (3.0, 0.9), (3.9, 0.5)), readings((2.0, 0.2), (2.8, 0.7), (2.1, 0.4))
    assert times_faster(fast, slow) == pytest.approx(3.0 / 2.0)


def test_on_an_undisturbed_machine_the_cores_that_a_server_uses_count_too() -> None:
    half, whole = readings((2.0, 1.0), (2.0, 0.99), (2.0, 1.0)), readings((2.0, 1.98), (2.0, 2.0), (2.0, 2.0))
    assert times_faster(whole, half) == pytest.approx(2.0)
    disturbed = readings((2.0, 1.0), (2.0, 0.5), (2.0, 1.0))
    assert times_faster(whole, disturbed) == pytest.approx(1.0)


def test_loads_end_when_the_two_shortest_times_agree() -> None:
    assert not readings((2.0, 1.0), (2.001, 1.0)).is_enough  # two may agree by chance
    assert readings((2.0, 1.0), (3.0, 1.0), (2.015, 1.0)).is_enough
    assert not readings((2.0, 1.0), (3.0, 1.0), (2.05, 1.0)).is_enough


@pytest.mark.parametrize("n", [1, 4, 16])
def test_a_fit_gives_what_it_was_fitted_to(n: int) -> None:
    def cpu_s(n_sequences: int) -> float:
        return 6e-3 / n_sequences + 2e-3

    fit = StepFit.of(cpu_s(1), cpu_s(n), n, 1.5)
    assert fit.tokens_per_s(n) == pytest.approx(1.5 / cpu_s(n))
    if n > 1:
        assert fit.tokens_per_s(8) == pytest.approx(1.5 / cpu_s(8))


@pytest.mark.parametrize(("n_known", "n_new"), [(0, 3), (2, 1), (5, 0)])
def test_a_limit_counts_what_was_measured_before(n_known: int, n_new: int) -> None:
    space = SearchSpace(n_ipu=(1,), replicas=(1,), batch_size=tuple(range(1, 11)))
    every = [knobs for cell in space.cells for knobs in cell]
    known = dict.fromkeys(every[:n_known], Observation(1.0, measured=True))
    seen: list[Knobs] = []

    def observe(knobs: Knobs) -> Observation:
        seen.append(knobs)
        return Observation(1.0, measured=True)

    drive(limited(Proposer(lambda of, _: exhaustive(of)), 3).start(space, known), observe)
    assert len(seen) == n_new


def search_words(path: Path, *options: str) -> list[str]:
    storage = f"sqlite:///{path.parent / 'study.db'}"
    words = ["search", str(path), "--target", "host", "--runtime", "llamacpp", "--storage", storage, "--json"]
    return [sys.executable, "-m", "autoauto", *words, "--input-tokens", "16", "--output-tokens", "8", *options]


def servers_of(pid: int) -> set[int]:
    """The servers that a search has started."""
    return {child for child in descendants(pid) if b"autoauto.processes.start" in command_line(child)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_search_leaves_no_server_and_continues(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="extra llamacpp is not installed")
    path = tmp_path / "tiny.gguf"
    write_model(path)
    words = search_words(path, "--clients", "4")
    search = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    servers: set[int] = set()
    while search.poll() is None and not servers:
        time.sleep(0.1)
        servers = servers_of(search.pid)
    assert servers
    started = descendants(search.pid)
    os.kill(search.pid, signal.SIGKILL)
    search.wait()
    wait_until(lambda: not any(map(is_running, started)), "all have ended")

    first = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    best: dict[str, Any] = first["best"]
    assert best["tokens_per_s"] > 0
    assert best["command"][:3] == ["llama-server", "-m", str(path)]
    assert {f"--parallel {best['batch_size']}", "--poll 0"} <= set(map(" ".join, pairwise(best["command"])))
    assert 1 <= best["n_measured"] == first["n_measured"] <= 8
    again = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert again["n_measured"] == first["n_measured"], (first["cells"], again["cells"])
    assert again["best"]["trial"] == best["trial"]
    assert again["best"]["tokens_per_s"] == best["tokens_per_s"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_server_is_out_of_memory_as_soon_as_its_connections_end(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="extra llamacpp is not installed")
    path = tmp_path / "tiny.gguf"
    write_model(path)
    with RunningServer(server_command(LlamaCppSession().options(str(path), 4, Workload(16, 8)))) as server:
        assert server.is_alive
        where = urlsplit(server.address)
        with socket.create_connection((str(where.hostname), where.port or 0)) as connection:
            os.kill(server.pid, signal.SIGKILL)
            connection.recv(1)
        assert isinstance(server.failure(), OutOfMemory)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(usable_cores() < 2, reason="two servers need two cores")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_servers_side_by_side_end_with_their_search(number: signal.Signals, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="extra llamacpp is not installed")
    path = tmp_path / "tiny.gguf"
    write_model(path)
    words = search_words(path, "--clients", "4", "--replicas", "2", "--cores-per-device", "1")
    search = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started: set[int] = set()
    while search.poll() is None and len(started) < 2:
        time.sleep(0.1)
        started = servers_of(search.pid)
    assert len(started) == 2
    os.kill(search.pid, number)
    search.wait()
    wait_until(lambda: not any(map(is_running, started)), "all have ended")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_that_does_not_come_up_is_refused_with_the_words_of_its_log(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="extra llamacpp is not installed")
    path = tmp_path / "cut.gguf"
    write_model(path)
    path.write_bytes(path.read_bytes()[:-40])
    ended = subprocess.run(search_words(path), capture_output=True, text=True, check=False)
    assert ended.returncode in (2, 3)
    [line] = ended.stderr.strip().splitlines()[-1:]
    assert "the server ended" in line
    assert "Traceback" not in ended.stderr
