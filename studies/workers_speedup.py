"""The speed-up of several workers on measurements that sleep, and whether the result is the one of a single worker.

    python studies/workers_speedup.py [--workers 1,2,4] [--seconds 1.0] [--quick] [--storage URL]

A measurement sleeps, then computes throughput and memory by a formula; predictions are wrong by 2 %. Every search is a
new study. Child processes measure; they are started before the clock, because starting them takes the same time for any
number of measurements. The ideal speed-up is the number of workers; a method whose next proposal depends on the last
measurement cannot always keep all workers busy.
"""

from __future__ import annotations

import argparse
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from time import perf_counter, sleep

import optuna

from autoauto.cli.options.values import integers
from autoauto.records.errors import OutOfMemory
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import samples_per_s
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result
from autoauto.space.objectives import Method, Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial, measured_trial, unfit_trial
from autoauto.study.execution.executors import ProcessExecutor
from autoauto.study.execution.process import Bounds
from autoauto.study.methods.registry import MethodChoice, predictor
from autoauto.study.run import SearchResult, SearchTask, run_task
from autoauto.study.store.study import open_study

LIMIT_BYTES = 1000
CLOCK_HZ = 1e9
SPACE, QUICK_SPACE = SearchSpace(), SearchSpace((1, 2), (0.6,), tuple(range(1, 33)))
METHODS = (Method.GRID_BISECT, Method.GUIDED)


@dataclass(frozen=True)
class Model:
    """Cycles and memory of a configuration by formula, after a wait.

    Attributes:
        wait_s: how long a measurement sleeps.
        factor: multiplies compute; 1.02 makes a prediction that is wrong by 2 %.
    """

    wait_s: float
    factor: float = 1.0

    def __call__(self, knobs: Knobs) -> Trial:
        """Cycles grow in steps of 6 samples, memory with the batch and the proportion."""
        sleep(self.wait_s)
        cycles = int(ceil(knobs.batch_size / 6) * 6000 * self.factor) // knobs.n_ipu
        n_bytes = int(100 + knobs.batch_size * 25 * knobs.session.values["memory_proportion"] / knobs.n_ipu)
        stages = [
            Stage(LayerRange(10 * i, 10 * i + 10), i, cycles, 0, 40, 60, {"temporary": n_bytes}, LIMIT_BYTES)
            for i in range(knobs.n_ipu)
        ]
        plan = Plan(tuple(stages))
        if n_bytes > LIMIT_BYTES:
            return unfit_trial(knobs, OutOfMemory("out of memory", n_bytes - LIMIT_BYTES), LIMIT_BYTES, plan)
        rate = samples_per_s(knobs.batch_size, plan.cost_cycles, CLOCK_HZ)
        return measured_trial(
            knobs,
            plan,
            plan,
            Result(samples_per_s=rate, estimated_samples_per_s=rate, latency_s=0.0),
            device=Device("bow", 1e9, LIMIT_BYTES, 1, 1),
        )


def search(
    storage: str, method: Method, n_workers: int, wait_s: float, space: SearchSpace = SPACE
) -> tuple[SearchResult, float]:
    """One search in a new study, and its wall time from the first measurement on."""
    name = f"workers-speedup-{uuid.uuid4()}"
    study = open_study(storage, name, Objective.THROUGHPUT, {})
    executor = ProcessExecutor(Model(wait_s), n_workers, Bounds())
    executor.start()
    expect = Model(0.0, 1.02)
    predict = predictor(expect, Objective.THROUGHPUT)
    start_s = perf_counter()
    task = SearchTask(
        space,
        Objective.THROUGHPUT,
        MethodChoice(method).proposer(predict, Objective.THROUGHPUT),
        expected_score=lambda knobs: predict.forecast(knobs).score,
    )
    result = run_task(task, study, executor)
    elapsed_s = perf_counter() - start_s
    optuna.delete_study(study_name=name, storage=storage)
    return result, elapsed_s


def main(workers: Sequence[int], wait_s: float, storage: str, space: SearchSpace = SPACE) -> None:
    """Print a line for each method and number of workers."""
    print(f"{'method':<12} {'workers':>7} {'tried':>6} {'time':>8} {'speed-up':>9}  best")
    for method in METHODS:
        alone: tuple[SearchResult, float] | None = None
        for n_workers in workers:
            result, elapsed_s = search(storage, method, n_workers, wait_s, space)
            alone = alone or (result, elapsed_s)
            assert result.best is not None
            assert alone[0].best is not None
            same = "the same" if result.best.knobs == alone[0].best.knobs else "ANOTHER"
            knobs = f"n_ipu {result.best.knobs.n_ipu}, batch {result.best.knobs.batch_size}"
            speed_up = alone[1] / elapsed_s
            print(
                f"{method:<12} {n_workers:>7} {result.counts.n_tried:>6} {elapsed_s:>6.1f} s {speed_up:>7.2f} x  ",
                end="",
            )
            print(knobs if result is alone[0] else f"{knobs}: {same}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=integers, default=(1, 2, 4))
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of a measurement")
    parser.add_argument("--quick", action="store_true", help="a space of 64 configurations")
    parser.add_argument("--storage", help="default: a new SQLite file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        storage = args.storage or f"sqlite:///{folder}/speedup.db"
        main(args.workers, args.seconds, storage, QUICK_SPACE if args.quick else SPACE)
