"""The speed-up of several workers on measurements that wait, and whether they find what one finds.

    python studies/workers_speedup.py [--workers 1,2,4] [--seconds 1.0] [--storage URL]

A measurement sleeps, then tells throughput and memory by formula; predictions tell them 2 % wrong. Every search is a
new study: measurements are made by child processes, which are started before the clock is (their start is the same for
any number of measurements). The ideal is as many times as there are workers; a method that chooses by what came of the
last measurement cannot always know what comes next.
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

from autoauto.cli.options.numbers import integers
from autoauto.records.knobs import Knobs, Method, Objective, SearchSpace
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.trial import Outcome
from autoauto.records.units import samples_per_s
from autoauto.study.execution.executors import Children
from autoauto.study.execution.process import Bounds
from autoauto.study.methods.registry import method_of, predictor
from autoauto.study.run import SearchResult, run_search
from autoauto.study.store.study import open_study

LIMIT_BYTES = 1000
CLOCK_HZ = 1e9
SPACE = SearchSpace()
METHODS = (Method.GRID_BISECT, Method.GUIDED)


@dataclass(frozen=True)
class Model:
    """Takes so long to measure, and so much of everything.

    Attributes:
        wait_s: of a measurement.
        factor: of compute, by which a prediction differs from a measurement.
    """

    wait_s: float
    factor: float = 1.0

    def __call__(self, knobs: Knobs) -> Outcome:
        """Cycles grow in steps of 6 samples, memory with the batch and the proportion."""
        sleep(self.wait_s)
        cycles = int(ceil(knobs.batch_size / 6) * 6000 * self.factor) // knobs.n_ipu
        n_bytes = int(100 + knobs.batch_size * 25 * knobs.memory_proportion / knobs.n_ipu)
        stages = [
            Stage(LayerRange(10 * i, 10 * i + 10), i, cycles, 0, 40, 60, {"temporary": n_bytes}, LIMIT_BYTES)
            for i in range(knobs.n_ipu)
        ]
        plan = Plan(tuple(stages))
        rate = samples_per_s(knobs.batch_size, plan.cost_cycles, CLOCK_HZ)
        excess_bytes = max(0, n_bytes - LIMIT_BYTES)
        if excess_bytes:
            return Outcome(knobs, plan, None, 0.0, rate, excess_bytes, LIMIT_BYTES, "out of memory")
        return Outcome(knobs, plan, plan, rate, rate, 0, LIMIT_BYTES, "")


def search(storage: str, method: Method, n_workers: int, wait_s: float) -> tuple[SearchResult, float]:
    """One search in a study of its own, and its wall time from the first measurement on."""
    name = f"workers-speedup-{uuid.uuid4()}"
    study = open_study(storage, name, Objective.THROUGHPUT, {})
    children = Children(Model(wait_s), n_workers, Bounds())
    children.start()
    expect = Model(0.0, 1.02)
    predict = predictor(expect, Objective.THROUGHPUT)
    begun_s = perf_counter()
    result = run_search(
        SPACE,
        Model(wait_s),
        study,
        Objective.THROUGHPUT,
        method=method_of(method, expect, Objective.THROUGHPUT),
        hands=children,
        guess=lambda knobs: predict(knobs).score,
    )
    elapsed_s = perf_counter() - begun_s
    optuna.delete_study(study_name=name, storage=storage)
    return result, elapsed_s


def main(workers: Sequence[int], wait_s: float, storage: str) -> None:
    """Print a line for each method and number of workers."""
    print(f"{'method':<12} {'workers':>7} {'tried':>6} {'time':>8} {'speed-up':>9}  best")
    for method in METHODS:
        alone: tuple[SearchResult, float] | None = None
        for n_workers in workers:
            result, elapsed_s = search(storage, method, n_workers, wait_s)
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
    parser.add_argument("--seconds", type=float, default=1.0, help="that a measurement takes")
    parser.add_argument("--storage", help="default: a new SQLite file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(args.workers, args.seconds, args.storage or f"sqlite:///{folder}/speedup.db")
