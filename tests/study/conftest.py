"""`Fake` and `World`, targets that need no device, and databases; as a program, a search that tests kill."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil, exp
from pathlib import Path
from random import Random

import optuna
import pytest
from optuna.storages import RDBStorage
from sqlalchemy import inspect, text

from autoauto.records.errors import BadInput, MissingExtra, OutOfMemory
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import samples_per_s
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial, measured_trial, unfit_trial, with_devices
from autoauto.study.execution.executors import InlineExecutor, ProcessExecutor
from autoauto.study.execution.process import Bounds
from autoauto.study.methods.protocol import Forecast, Observation, Proposals
from autoauto.study.run import run_search
from autoauto.study.store.database import open_storage
from autoauto.study.store.study import open_study
from tests.drawn import daily

LIMIT_BYTES = 1000
DEVICE = Device("bow", 1e9, LIMIT_BYTES, 1, 1, price_per_hour=3.6, power_limit_w=300.0)
CLUSTER = Cluster("bow-2", "ipu", (DEVICE,) * 2, (Link(1e9, 0),) * 2, (Link(1e9, 0),) * 2)
SLOW_SPACE = SearchSpace((1, 2), (0.3, 0.6, 1.0), tuple(range(1, 128)))


def make_plan(knobs: Knobs, factor: float = 1.0) -> Plan:
    """`n_ipu` stages of 10 layers; cycles step every 6 samples, memory grows with batch and proportion."""
    cycles = int(ceil(knobs.batch_size / 6) * 6000 * factor) // knobs.n_ipu
    temporary_bytes = int(knobs.batch_size * 25 * knobs.values.get("memory_proportion", 1.0) / knobs.n_ipu)
    stages = [
        Stage(
            LayerRange(10 * s, 10 * s + 10),
            s,
            cycles,
            0,
            40,
            60,
            {"parameter": 100, "temporary": temporary_bytes},
            LIMIT_BYTES,
        )
        for s in range(knobs.n_ipu)
    ]
    return Plan(tuple(stages))


@dataclass
class Fake:
    """A target that evaluates by formula and records the configurations."""

    tied: int = -1  # a pipeline of so many devices never fits, because of tied weights
    sleep_s: float = 0.0
    constraints: tuple[Constraint, ...] = ()
    calls: list[Knobs] = field(default_factory=list)

    def __call__(self, knobs: Knobs) -> Trial:
        self.calls.append(knobs)
        time.sleep(self.sleep_s)
        if knobs.n_ipu == self.tied:
            return Trial(knobs, Status.INFEASIBLE, "tied weights leave no cut")
        plan = make_plan(knobs)
        excess_bytes = plan.stages[0].total_bytes - LIMIT_BYTES
        if excess_bytes > 0:
            return unfit_trial(knobs, OutOfMemory("stage 0 is out of memory", excess_bytes), LIMIT_BYTES, plan)
        rate = samples_per_s(knobs.batch_size, plan.cost_cycles, 1e9)
        estimate = make_plan(knobs, 0.9)
        estimated_rate = samples_per_s(knobs.batch_size, estimate.cost_cycles, 1e9)
        return measured_trial(
            knobs,
            estimate,
            plan,
            with_devices(Result(rate, estimated_rate, plan.latency_cycles / 1e9), knobs, plan, CLUSTER),
            device=DEVICE,
            constraints=self.constraints,
        )


@dataclass
class World:
    """A space in which throughput rises by steps and memory falls at some, and an estimate of it that errs.

    Attributes:
        space: few cells, of which some batch sizes are missing.
        truth: the observation of every configuration.
        forecasts: the estimate of every configuration.
        predicted: the configurations whose forecast was read.
    """

    space: SearchSpace
    truth: dict[Knobs, Observation]
    forecasts: dict[Knobs, Forecast]
    predicted: list[Knobs] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The best score there is; 0 when nothing fits."""
        return max((observation.score or 0.0 for observation in self.truth.values()), default=0.0)

    def predict(self, knobs: Knobs, worth: float = 0.0) -> Forecast:
        """The estimate."""
        self.predicted.append(knobs)
        return self.forecasts[knobs]

    def run(self, proposals: Proposals) -> dict[Knobs, Observation]:
        """Run a method to its end; the observations in the order of its proposals."""
        tried: dict[Knobs, Observation] = {}
        observation = None
        while True:
            try:
                knobs, done, total, _ = proposals.send(observation)
            except StopIteration:
                return tried
            assert 0 <= done <= total
            observation = None if knobs is None else self.truth[knobs]
            if knobs is not None and observation is not None:
                tried.setdefault(knobs, observation)


def make_world(
    seed: int, cell_error: float = 0.02, own_error: float = 0.003, memory_error: float = 0.06, most_drop: float = 0.15
) -> World:
    """Errors are standard deviations, shares of throughput and of memory; memory falls by `most_drop` of it at most."""
    random = Random(seed)
    n_ipu = tuple(sorted(random.sample((1, 2, 3, 4), random.randint(1, 3))))
    proportions = tuple(sorted(random.sample((0.2, 0.4, 0.6, 0.8, 1.0), random.randint(1, 3))))
    sizes = {1 + random.choice((0, 3)) + random.choice((1, 2)) * i for i in range(random.choice((1, 5, 20, 40)))}
    space = SearchSpace(n_ipu, proportions, tuple(sorted(sizes)))
    fixed, slope, jump = random.uniform(0, 20), random.uniform(1, 3), random.uniform(0, 6)
    base, growth, drop = random.uniform(0.1, 0.7), random.uniform(0.002, 0.03), random.uniform(0, most_drop)
    tile, memory_tile, bias = random.randint(1, 16), random.randint(5, 30), random.gauss(0, 0.05)
    world = World(space, {}, {})
    for cell in space.cells:
        error, memory = bias + random.gauss(0, cell_error), 1 + random.gauss(0, memory_error)
        for knobs in cell:
            n, n_ipu_used, proportion = knobs.batch_size, knobs.n_ipu, knobs.values.get("memory_proportion", 1.0)
            cycles = (fixed + slope * n + jump * ceil(n / tile)) / n_ipu_used**0.8 + 3 + 0.4 / proportion * n**0.5
            used = (base + growth * n * proportion - drop * (n // memory_tile % 2)) / n_ipu_used**0.7
            score = n / cycles
            estimate = score * exp(error + random.gauss(0, own_error))
            world.truth[knobs] = Observation(score if used <= 1 else None, True)
            world.forecasts[knobs] = Forecast(estimate if used * memory <= 1 else None, used * memory - 1)
    return world


@pytest.fixture
def world() -> Callable[..., World]:
    return make_world


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def slow_space() -> SearchSpace:
    """The space of `search_slowly`, which this file runs as a program with a storage, sleep_s and n_workers."""
    return SLOW_SPACE


@pytest.fixture
def plan() -> Callable[[Knobs], Plan]:
    return make_plan


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/studies/search.db"


POSTGRES = os.environ.get("AUTOAUTO_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")


@pytest.fixture
def postgres() -> str:
    """A server's URL; without a server the test is skipped, with AUTOAUTO_REQUIRE_POSTGRES it fails."""
    try:
        open_storage(POSTGRES)
    except (BadInput, MissingExtra) as error:
        if os.environ.get("AUTOAUTO_REQUIRE_POSTGRES"):
            raise
        pytest.skip(f"no PostgreSQL server: {error}")
    return POSTGRES


@pytest.fixture(params=daily(["sqlite", "postgresql"]))
def any_storage(request: pytest.FixtureRequest) -> str:
    """The URL of an SQLite file, then of a server; what differs between them is tested in `store` and with leases."""
    return str(request.getfixturevalue("storage" if request.param == "sqlite" else "postgres"))


@pytest.fixture
def study_name(any_storage: str) -> Iterator[str]:
    """A name that no other study has; its study is deleted at the end, also when the test fails."""
    yield from temporary_name(any_storage)


@pytest.fixture
def other_study_name(any_storage: str) -> Iterator[str]:
    """A second one."""
    yield from temporary_name(any_storage)


@pytest.fixture
def postgres_study_name(postgres: str) -> Iterator[str]:
    """The same on a server only."""
    yield from temporary_name(postgres)


def temporary_name(storage: str) -> Iterator[str]:
    name = f"autoauto-test-{uuid.uuid4()}"
    yield name
    backend = open_storage(storage)
    if name in optuna.get_all_study_names(backend):
        delete_leases(backend, backend.get_study_id_from_name(name))
        optuna.delete_study(study_name=name, storage=backend)
    backend.engine.dispose()


def delete_leases(backend: RDBStorage, study_id: int) -> None:
    if inspect(backend.engine).has_table("autoauto_leases"):
        with backend.engine.begin() as connection:
            connection.execute(text("DELETE FROM autoauto_leases WHERE study_id = :study"), {"study": study_id})


def search_slowly(storage: str, sleep_s: float, n_workers: int) -> None:
    """A search whose measurements take `sleep_s` each; without workers it hangs in its 15th measurement."""
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    print("started", flush=True)
    fake = Fake(sleep_s=sleep_s)

    def measure(knobs: Knobs) -> Trial:
        if len(fake.calls) == 14:
            time.sleep(600)
        return fake(knobs)

    executor = ProcessExecutor(fake, n_workers, Bounds()) if n_workers else InlineExecutor(measure)
    run_search(SLOW_SPACE, fake, study, Objective.THROUGHPUT, executor=executor)


if __name__ == "__main__":
    search_slowly(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
