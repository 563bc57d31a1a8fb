"""A target that needs no device: memory and cycles by formula. Tests use the fixtures, child processes run the file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import pytest

from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.trial import Knobs, Objective, Outcome, SearchSpace
from autoauto.records.units import samples_per_s
from autoauto.search.run import run_search
from autoauto.search.study import open_study

LIMIT_BYTES = 1000
CHILD_SPACE = SearchSpace((1, 2), (0.3, 0.6, 1.0), tuple(range(1, 128)))


def make_plan(knobs: Knobs, factor: float = 1.0) -> Plan:
    """`n_ipu` stages of 10 layers; cycles step every 6 samples, memory grows with batch and proportion."""
    cycles = int(ceil(knobs.batch_size / 6) * 6000 * factor) // knobs.n_ipu
    temporary_bytes = int(knobs.batch_size * 25 * knobs.memory_proportion / knobs.n_ipu)
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
    """Evaluates by formula; remembers what it was asked."""

    tied: int = -1  # this n_ipu never fits, for another reason than memory
    sleep_s: float = 0.0
    calls: list[Knobs] = field(default_factory=list)

    def __call__(self, knobs: Knobs) -> Outcome:
        self.calls.append(knobs)
        time.sleep(self.sleep_s)
        if knobs.n_ipu == self.tied:
            return Outcome(knobs, None, None, 0.0, 0.0, 0, LIMIT_BYTES, "tied weights leave no cut")
        plan = make_plan(knobs)
        excess_bytes = plan.stages[0].total_bytes - LIMIT_BYTES
        if excess_bytes > 0:
            return Outcome(knobs, plan, None, 0.0, 0.0, excess_bytes, LIMIT_BYTES, "stage 0 is out of memory")
        rate = samples_per_s(knobs.batch_size, plan.cost_cycles, 1e9)
        estimate = make_plan(knobs, 0.9)
        estimated_rate = samples_per_s(knobs.batch_size, estimate.cost_cycles, 1e9)
        return Outcome(knobs, estimate, plan, rate, estimated_rate, 0, LIMIT_BYTES, "")


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def child_space() -> SearchSpace:
    """The space that a child process searches; `[sys.executable, conftest.__file__, storage, sleep_s]` starts one."""
    return CHILD_SPACE


@pytest.fixture
def plan() -> Callable[[Knobs], Plan]:
    return make_plan


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/studies/search.db"


def search_slowly(storage: str, sleep_s: float) -> None:
    """What the child processes do: a whole search whose every measurement takes `sleep_s`."""
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    print("started", flush=True)
    run_search(CHILD_SPACE, Fake(sleep_s=sleep_s), study, Objective.THROUGHPUT)


if __name__ == "__main__":
    search_slowly(sys.argv[1], float(sys.argv[2]))
