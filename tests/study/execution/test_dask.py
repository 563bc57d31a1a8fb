"""Measurements on a real Dask cluster of this machine: a scheduler and two workers of two devices."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from optuna.trial import TrialState

from autoauto.processes.dask import workers_of
from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.execution.dask import DaskExecutor
from autoauto.study.execution.executors import InlineExecutor
from autoauto.study.execution.process import Bounds
from autoauto.study.execution.worker_loop import WorkerLoop
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study
from autoauto.study.store.trials import from_optuna, ranges_of
from tests.dask_cluster import started, wait_for
from tests.running import PATIENCE_S
from tests.study.cells import essence

if TYPE_CHECKING:
    from tests.study.conftest import Fake

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what Dask's own libraries warn of

BOUNDS = Bounds(timeout_s=60.0)
A, B = Knobs(n_ipu=1, memory_proportion=0.3, batch_size=60), Knobs(n_ipu=2, memory_proportion=0.3, batch_size=64)
SPACE = SearchSpace((1, 2), (0.3,), (60, 64, 120, 127))


@dataclass(frozen=True)
class Noted:
    """Measures by formula, notes start and end on the machine's clock, and dies at one batch size."""

    fake: Fake
    folder: Path
    deadly: int = -1

    def __call__(self, knobs: Knobs) -> Trial:
        started_s = time.monotonic()
        if knobs.batch_size == self.deadly:
            os.abort()
        time.sleep(0.3)
        worker = Path(f"/proc/{os.getppid()}/stat").read_text().split()[3]  # the parent of the guard
        (self.folder / f"{knobs.n_ipu} {knobs.batch_size}").write_text(f"{started_s} {time.monotonic()} {worker}")
        return self.fake(knobs)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long to connect."""
    pytest.importorskip("distributed")
    monkeypatch.setattr("autoauto.study.execution.dask._CONNECT_S", PATIENCE_S)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(2, tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster.address


@pytest.fixture
def ready(address: str) -> str:
    return wait_for(address, 2)


def test_measurements_take_devices(ready: str, storage: str, fake: Fake, tmp_path: Path) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    executor = DaskExecutor(ready, Noted(fake, tmp_path), BOUNDS)
    assert executor.n_slots == 4
    configurations = [knobs for cell in SPACE.cells for knobs in cell]
    with WorkerLoop(study, executor, Objective.THROUGHPUT) as loop:
        left = {knobs: ranges_of(SPACE, knobs) for knobs in configurations}
        while left:
            for knobs in loop.measure(left, nullcontext):
                del left[knobs]
    trials = study.get_trials()
    assert len(trials) == len(configurations)
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    spans = [
        (int(file.name.split()[0]), *map(float, file.read_text().split()))
        for file in tmp_path.iterdir()
        if file.name[0] in "12" and " " in file.name
    ]
    assert len(spans) == len(configurations)
    for _, started_s, _, worker in spans:
        assert sum(n for n, start, stop, where in spans if where == worker and start <= started_s < stop) <= 2


def test_a_cluster_finds_what_one_process_finds(ready: str, storage: str, fake: Fake, tmp_path: Path) -> None:
    alone = run_search(SPACE, fake, open_study(storage, "one", Objective.THROUGHPUT, {}), Objective.THROUGHPUT)
    study = open_study(storage, "many", Objective.THROUGHPUT, {})
    executor = DaskExecutor(ready, Noted(fake, tmp_path), BOUNDS)
    together = run_search(SPACE, fake, study, Objective.THROUGHPUT, executor=executor)
    assert essence(together.cells) == essence(alone.cells)
    assert alone.best is not None
    assert together.best is not None
    assert together.best.knobs == alone.best.knobs


def test_a_crash_is_the_measurements_and_not_the_workers(ready: str, fake: Fake, tmp_path: Path) -> None:
    executor = DaskExecutor(ready, Noted(fake, tmp_path, deadly=64), BOUNDS)
    trials: dict[Any, Any] = {}
    for batch_size in (64, 60):
        executor.submit(Knobs(n_ipu=1, memory_proportion=0.3, batch_size=batch_size))
    with closing(executor):
        while len(trials) < 2:  # within the time-out of `BOUNDS`
            executor.wait(1.0)
            trials |= {trial.knobs.batch_size: trial for trial in executor.finished()}
    assert (trials[64].status, trials[60].status) == (Status.CRASH, Status.OK)
    assert trials[64].reason == "the measuring process died of SIGABRT"


def test_more_devices_than_any_worker_has_are_refused(ready: str, fake: Fake) -> None:
    refused = pytest.raises(BadInput, match=r"takes 4 devices of one Dask worker, the largest has 2; start one with")
    with closing(DaskExecutor(ready, fake, BOUNDS)) as executor, refused:
        executor.submit(Knobs(n_ipu=4, memory_proportion=0.3, batch_size=1))


def test_a_scheduler_that_is_not_there_is_one_line(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.study.execution.dask._CONNECT_S", 0.5)
    with pytest.raises(BadInput, match=r"^there must be a Dask scheduler at tcp://127.0.0.1:1, got ") as refused:
        DaskExecutor("tcp://127.0.0.1:1", fake, BOUNDS)
    assert "\n" not in str(refused.value)


def test_devices_are_read_from_the_scheduler_and_not_from_the_clients_copy(ready: str, fake: Fake) -> None:
    with closing(DaskExecutor(ready, fake, BOUNDS)) as executor:
        executor._client._scheduler_identity = {"workers": {}}  # as its own update leaves it, in between
        assert executor._devices() == [2, 2]


def test_a_client_that_has_given_up_is_one_line(ready: str, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(DaskExecutor(ready, fake, BOUNDS)) as executor, monkeypatch.context() as patched:
        patched.setattr(executor._client, "status", "closed")
        with pytest.raises(BadInput, match="is gone, or all its workers are; start"):
            executor.submit(A)


def test_whatever_is_asked_of_a_client_that_closed_itself_is_refused_in_a_line(ready: str, fake: Fake) -> None:
    """It raises errors of three types, of which `ClosedClientError` is one."""
    with closing(DaskExecutor(ready, fake, BOUNDS)) as executor:
        executor.submit(A)
        client = executor._client
        client.close()
        gone = "is gone, or all its workers are; start"
        for ask in (lambda: executor.submit(B), lambda: executor.wait(1.0), executor.finished):
            with pytest.raises(BadInput, match=gone):
                ask()
        causes = []
        for of_client in (lambda: client.submit(str, 1), lambda: workers_of(client), lambda: client.cancel([])):
            with pytest.raises(BadInput, match=gone) as refused, executor._scheduler_errors():
                of_client()
            causes.append(type(refused.value.__cause__).__name__)
    assert len({*causes}) > 1


def test_a_scheduler_that_dies_is_one_line_and_loses_no_finished_trial(
    storage: str, fake: Fake, tmp_path: Path
) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    with started(1, tmp_path) as cluster:
        executor = DaskExecutor(wait_for(cluster.address, 1), fake, BOUNDS)
        with WorkerLoop(study, executor, Objective.THROUGHPUT) as loop:
            first = loop.measure({A: ranges_of(SPACE, A)}, nullcontext)
            executor._client._timeout = 2.0  # it tries to connect again for so long, on a whole core
            cluster.processes[0].kill()
            cluster.processes[0].wait()
            with pytest.raises(BadInput, match="is gone, or all its workers are; start") as refused:
                loop.measure({B: ranges_of(SPACE, B)}, nullcontext)
    assert "\n" not in str(refused.value)
    assert [from_optuna(trial) for trial in study.get_trials()] == list(first.values())
    with WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT) as loop:
        assert list(loop.measure({B: ranges_of(SPACE, B)}, nullcontext)) == [B]
    assert len(study.get_trials()) == 2
