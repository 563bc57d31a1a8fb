"""Forecasts that another command made are not made again, and are the same; damage costs time and one line."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from autoauto.evaluate.costs import forecasts
from autoauto.evaluate.costs.forecasts import StoredForecasts
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.modes.inference import InferenceFlow
from autoauto.evaluate.setting import Setting
from autoauto.profile.cache import ProfileCache
from autoauto.profile.last_writes import write_waiting
from autoauto.records.costs.correction import Estimator
from autoauto.records.costs.profile import CompiledRange
from autoauto.records.hardware import StreamingMemory
from autoauto.records.plans.plan import BoundedPlan
from autoauto.records.schedule import Order
from autoauto.records.target import RUNS_PLANS
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.trial import Trial
from tests.evaluate.linear import LinearTarget

ASKED = [
    Knobs(n_ipu=2, batch_size=4),
    Knobs(n_ipu=1, batch_size=4, replicas=2),
    Knobs(n_ipu=1, batch_size=4, memory_proportion=0.1),
    Knobs(n_ipu=1, batch_size=40),  # does not fit
    Knobs(n_ipu=2, batch_size=2, schedule=Order.ONE_F_ONE_B, n_micro_batches=4),
    Knobs(n_ipu=2, batch_size=2, schedule=Order.ZB1P, n_micro_batches=4),
    Knobs(n_ipu=2, batch_size=24, strategy=Strategy.PHASED, n_micro_batches=4),
    Knobs(n_ipu=1, batch_size=200, strategy=Strategy.PHASED, n_micro_batches=4),  # does not fit either
]


@pytest.fixture
def setting(flow: Flow) -> Setting:
    cluster = replace(flow.cluster, streaming_memory=StreamingMemory(1e12, 1000, 10**12))
    return replace(flow.setting, cluster=cluster, estimator=Estimator.REGRESSION)


def answers(setting: Setting) -> list[tuple[Trial, bool]]:
    """What a command says of the configurations; its flow has ended, and so has stored what it made."""
    flow = Flow(setting)
    given = [(flow.forecast(knobs), flow.fits(knobs)) for knobs in ASKED]
    inference = [knobs for knobs in ASKED if not (knobs.training or knobs.is_phased)]
    given += [(replace(flow.evaluate(knobs), timeline=None), True) for knobs in inference]
    flow.is_bounded_by(ASKED[4], 1.0)
    flow.step_bounds(ASKED[5])
    del flow
    gc.collect()
    write_waiting()
    return given


@contextmanager
def nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object, **__: object) -> CompiledRange:
        raise AssertionError("it was made before")

    with monkeypatch.context() as patch:
        patch.setattr(LinearTarget, "compile", refuse)
        patch.setattr("autoauto.profile.profiler.Profiler.profile", refuse)
        patch.setattr("autoauto.evaluate.costs.layer_costs.LayerCosts.table_on", refuse)
        patch.setattr("autoauto.evaluate.modes.phased.PhasedFlow._fastest_by_replicas", refuse)
        yield


def database(setting: Setting) -> Path:
    assert isinstance(setting.cache.location, Path)
    return setting.cache.location


def run_sql(setting: Setting, statement: str) -> list[tuple[str]]:
    with closing(sqlite3.connect(database(setting))) as db, db:
        return list(db.execute(statement))


def test_forecasts_of_another_command_are_the_same_and_not_made_again(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = answers(setting)
    assert {trial.fits for trial, _ in first} == {True, False}
    assert any(trial.knobs.is_phased and trial.fits for trial, _ in first)
    with nothing_is_made(monkeypatch):
        again = answers(setting)
    assert again == first
    assert [repr(trial) for trial, _ in again] == [repr(trial) for trial, _ in first]  # whole numbers stay whole


def test_other_bounds_are_served(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    [(trial, _), *_] = answers(setting)
    bound = Constraint(f"latency_s <= {trial.latency_s / 2}")
    with nothing_is_made(monkeypatch):
        [(bounded, fits), *_] = answers(replace(setting, constraints=(bound,)))
    assert bounded.violation > 0
    assert not fits
    assert bounded.latency_s == trial.latency_s


@pytest.mark.parametrize(
    "changed",
    [
        lambda setting: replace(setting, planning_proportion=0.5),
        lambda setting: replace(setting, cluster=setting.cluster.with_headroom(0.3)),
        lambda setting: replace(setting, estimator=Estimator.SUM),
    ],
)
def test_another_setting_has_its_own(setting: Setting, changed: Callable[[Setting], Setting], tmp_path: Path) -> None:
    answers(setting)
    own = answers(changed(setting))
    assert own == answers(replace(changed(setting), cache=ProfileCache(tmp_path / "alone.db")))
    assert own != answers(setting)


def test_another_version_makes_its_own(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    first, made = answers(setting), list[Knobs]()
    best = InferenceFlow.best

    def counted(self: InferenceFlow, knobs: Knobs, start: int, progress: object = None) -> BoundedPlan:
        made.append(knobs)
        return best(self, knobs, start)

    monkeypatch.setattr(InferenceFlow, "best", counted)
    monkeypatch.setattr(forecasts, "code_version", lambda: "99.0")
    assert answers(setting) == first
    assert made
    made.clear()
    assert answers(setting) == first
    assert not made


DAMAGES = [
    "UPDATE autoauto_forecasts SET forecast = '{'",
    "UPDATE autoauto_forecasts SET forecast = '7'",
    'UPDATE autoauto_forecasts SET forecast = \'{"value": "many"}\'',
    "UPDATE autoauto_forecasts SET forecast = substr(forecast, 1, length(forecast) / 2)",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_forecasts_are_made_anew_with_one_line(
    damage: str, setting: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = answers(setting)
    run_sql(setting, damage)
    assert answers(setting) == first
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("autoauto: forecasts are made anew: a stored forecast")
    with nothing_is_made(monkeypatch):  # the damaged ones were replaced
        assert answers(setting) == first
    assert not capsys.readouterr().err


def test_another_table_of_that_name_costs_one_line(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    first = answers(setting)
    run_sql(setting, "DROP TABLE autoauto_forecasts")
    run_sql(setting, "CREATE TABLE autoauto_forecasts (x)")
    assert answers(setting) == first
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_deleted_forecasts_are_made_again(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = answers(setting)
    for file in database(setting).parent.glob("cache.db*"):
        file.unlink()
    assert answers(setting) == first
    with nothing_is_made(monkeypatch):
        assert answers(setting) == first
    assert not capsys.readouterr().err


def test_a_full_disk_changes_no_answer(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    first = answers(setting)
    run_sql(setting, "DELETE FROM autoauto_forecasts")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        assert answers(setting) == first
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not capsys.readouterr().err
    assert run_sql(setting, "SELECT * FROM autoauto_forecasts") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_folder_that_is_only_read_changes_no_answer(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    first = answers(setting)
    run_sql(setting, "DELETE FROM autoauto_forecasts")
    database(setting).chmod(0o400)
    database(setting).parent.chmod(0o500)
    try:
        assert answers(setting) == first
    finally:
        database(setting).parent.chmod(0o700)
    assert len(capsys.readouterr().err.splitlines()) <= 1


def test_ten_commands_at_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(10) as pool:
        given = list(pool.map(answers, [setting] * 10))
    assert given == given[:1] * 10
    with nothing_is_made(monkeypatch):
        assert answers(setting) == given[0]


def test_what_a_long_command_made_is_written_before_it_ends(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "WRITE_EVERY_S", 0.0)
    flow = Flow(setting)
    flow.forecast(ASKED[0])
    assert run_sql(setting, "SELECT digest FROM autoauto_forecasts")
    assert flow.forecast(ASKED[0]).fits


def test_another_process_reads_and_writes_by_itself(setting: Setting) -> None:
    flow = Flow(setting)
    flow.forecast(ASKED[0])
    sent = pickle.loads(pickle.dumps(flow.costs.forecasts))
    assert isinstance(sent, StoredForecasts)
    sent.of("number", 1, int, lambda: 7)
    del sent
    gc.collect()
    write_waiting()
    assert flow.costs.forecasts.of("number", 1, int, lambda: 8) == 8  # it had read before
    assert Flow(setting).costs.forecasts.of("number", 1, int, lambda: 8) == 7


def test_nothing_is_stored_of_real_devices(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearTarget, "traits", RUNS_PLANS, raising=False)
    first, second = (Flow(setting).costs.forecasts.of("number", 1, int, partial(int, n)) for n in (7, 8))
    assert (first, second) == (7, 8)
