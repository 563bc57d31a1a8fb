"""Measurements on a real Dask cluster of this machine: a scheduler and two workers of two devices."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from optuna.trial import TrialState

import autoauto
from autoauto.records.errors import BadInput
from autoauto.records.knobs import Knobs, Objective, SearchSpace
from autoauto.records.trial import Outcome, Status
from autoauto.study.execution.dask import DaskHands
from autoauto.study.execution.executors import Own
from autoauto.study.execution.process import Bounds
from autoauto.study.execution.worker_loop import Crew
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study
from autoauto.study.store.trials import ranges_of
from tests.running import PATIENCE_S

if TYPE_CHECKING:
    from tests.search.conftest import Fake

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what Dask's own libraries warn of
pytest.importorskip("distributed")

BOUNDS = Bounds(timeout_s=60.0)
A, B = Knobs(1, 0.3, 60), Knobs(2, 0.3, 64)
SPACE = SearchSpace((1, 2), (0.3,), (60, 64, 120, 127))


@dataclass(frozen=True)
class Noted:
    """Measures by formula, notes when, and dies at one batch size."""

    fake: Fake
    folder: Path
    deadly: int = -1

    def __call__(self, knobs: Knobs) -> Outcome:
        begun_s = time.time()
        if knobs.batch_size == self.deadly:
            os.abort()
        time.sleep(0.3)
        (self.folder / f"{knobs.n_ipu} {knobs.batch_size}").write_text(f"{begun_s} {time.time()} {os.getppid()}")
        return self.fake(knobs)


class Cluster(NamedTuple):
    address: str
    processes: list[subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time to connect."""
    monkeypatch.setattr("autoauto.study.execution.dask._CONNECT_S", PATIENCE_S)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with started(2) as cluster:
        yield cluster.address


@contextmanager
def started(n_workers: int) -> Iterator[Cluster]:
    """A scheduler and workers with two devices each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root = Path(autoauto.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root), "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}
    address = f"tcp://127.0.0.1:{port}"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--resources", "device=2"]
    words = [[*worker, "--no-dashboard", "--nthreads", "2", "--no-nanny"]] * n_workers
    words.insert(0, [*scheduler, "--no-dashboard"])
    processes = [
        subprocess.Popen(command, env=environment, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in words
    ]
    try:
        yield Cluster(address, processes)
    finally:
        for process in processes:
            process.kill()  # a worker that has lost its scheduler may wait for it after a SIGTERM
            process.wait()


@pytest.fixture
def ready(address: str) -> str:
    return wait_for(address, 2)


def wait_for(address: str, n_workers: int) -> str:
    from distributed import Client

    with Client(address, timeout=60.0, set_as_default=False) as client:
        client.wait_for_workers(n_workers, timeout=60)
    return address


def test_measurements_take_devices(ready: str, storage: str, fake: Fake, tmp_path: Path) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    hands = DaskHands(ready, Noted(fake, tmp_path), BOUNDS)
    assert hands.n_hands == 4
    several = [knobs for cell in SPACE.cells for knobs in cell]
    with Crew(study, hands, Objective.THROUGHPUT) as crew:
        left = {knobs: ranges_of(SPACE, knobs) for knobs in several}
        while left:
            for knobs in crew.measure(left, nullcontext):
                del left[knobs]
    trials = study.get_trials()
    assert len(trials) == len(several)
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    spans = [
        (int(file.name.split()[0]), *map(float, file.read_text().split()))
        for file in tmp_path.iterdir()
        if file.name[0] in "12" and " " in file.name
    ]
    assert len(spans) == len(several)
    for _, begun_s, _, place in spans:
        assert sum(n for n, b, e, p in spans if p == place and b <= begun_s < e) <= 2


def test_it_finds_what_one_process_finds(ready: str, storage: str, fake: Fake, tmp_path: Path) -> None:
    alone = run_search(SPACE, fake, open_study(storage, "one", Objective.THROUGHPUT, {}), Objective.THROUGHPUT)
    study = open_study(storage, "many", Objective.THROUGHPUT, {})
    hands = DaskHands(ready, Noted(fake, tmp_path), BOUNDS)
    together = run_search(SPACE, fake, study, Objective.THROUGHPUT, hands=hands)
    assert together.cells == alone.cells
    assert alone.best is not None
    assert together.best is not None
    assert together.best.knobs == alone.best.knobs


def test_a_crash_is_the_measurements_and_not_the_workers(ready: str, fake: Fake, tmp_path: Path) -> None:
    hands = DaskHands(ready, Noted(fake, tmp_path, deadly=64), BOUNDS)
    attempts: dict[Any, Any] = {}
    for batch_size in (64, 60):
        hands.begin(Knobs(1, 0.3, batch_size))
    with closing(hands):
        while len(attempts) < 2:  # within the time-out of `BOUNDS`
            hands.wait(1.0)
            attempts |= {attempt.knobs.batch_size: attempt for attempt in hands.ended()}
    assert (attempts[64].status, attempts[60].status) == (Status.CRASH, Status.OK)
    assert attempts[64].reason == "the measuring process died of SIGABRT"


def test_more_devices_than_any_worker_has_are_refused(ready: str, fake: Fake) -> None:
    refused = pytest.raises(BadInput, match=r"takes 4 devices of one Dask worker, the largest has 2; start one with")
    with closing(DaskHands(ready, fake, BOUNDS)) as hands, refused:
        hands.begin(Knobs(4, 0.3, 1))


def test_a_scheduler_that_is_not_there_is_one_line(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.study.execution.dask._CONNECT_S", 0.5)
    with pytest.raises(BadInput, match=r"^there must be a Dask scheduler at tcp://127.0.0.1:1, got ") as refused:
        DaskHands("tcp://127.0.0.1:1", fake, BOUNDS)
    assert "\n" not in str(refused.value)


def test_workers_are_there_whatever_the_client_remembers(ready: str, fake: Fake) -> None:
    with closing(DaskHands(ready, fake, BOUNDS)) as hands:
        hands._client._scheduler_identity = {"workers": {}}  # as its own update leaves it, in between
        assert hands._devices() == [2, 2]


def test_a_client_that_has_given_up_is_one_line(ready: str, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(DaskHands(ready, fake, BOUNDS)) as hands, monkeypatch.context() as patched:
        patched.setattr(hands._client, "status", "closed")
        with pytest.raises(BadInput, match="is gone, or all its workers are; start"):
            hands.begin(A)


def test_a_scheduler_that_dies_is_one_line_and_loses_no_finished_trial(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    with started(1) as cluster:
        hands = DaskHands(wait_for(cluster.address, 1), fake, BOUNDS)
        hands._client._timeout = 10.0  # so long it tries to connect again
        with Crew(study, hands, Objective.THROUGHPUT) as crew:
            first = crew.measure({A: ranges_of(SPACE, A)}, nullcontext)
            cluster.processes[0].kill()
            cluster.processes[0].wait()
            with pytest.raises(BadInput, match="is gone, or all its workers are; start") as told:
                crew.measure({B: ranges_of(SPACE, B)}, nullcontext)
    assert "\n" not in str(told.value)
    assert study.get_trials() == list(first.values())
    with Crew(study, Own(fake), Objective.THROUGHPUT) as crew:
        assert list(crew.measure({B: ranges_of(SPACE, B)}, nullcontext)) == [B]
    assert len(study.get_trials()) == 2
