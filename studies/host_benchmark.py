"""The result of a search on this machine against simpler ways to run a model: `python studies/host_benchmark.py`.

Entrants for every model, runtime, format and batch size are one session with all cores as its threads, one device
alone, one replica a device, and where the model can be cut an even split by count of layers and the planned split. One
more entrant a model and format is the configuration that `autoauto search --target host` returns. In every round all
entrants of a model run in turn. The table shows means over rounds with their 95 % confidence intervals; "predicted" is
the estimated period, "error" its difference to the measured one; "ratio" is the throughput relative to the search's
configuration in the same format. In the summary "by best" is the search's throughput over the best of the others, with
the interval of that ratio over the rounds: the two tie where it contains 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import onnx

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.cut import onnx_source
from autoauto.graph.load import load_graph
from autoauto.plan.pipeline.optimal import optimal
from autoauto.plan.pipeline.problem import evaluate
from autoauto.records.costs.options import Session
from autoauto.records.errors import Infeasible
from autoauto.records.interval import Interval, interval
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Run
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.space.sessions import session_of
from autoauto.space.space import SearchSpace
from autoauto.study.defaults import on_cluster
from autoauto.study.search import search_flow
from autoauto.targets.host.detect import host_cluster
from autoauto.targets.host.run.pace import RUN_S
from autoauto.targets.host.runtimes.registry import SESSIONS, installed
from autoauto.targets.host.target import HostTarget
from studies.planner_baselines import uniform_count

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = ("resnet50", "bert-base-128", "gpt2-small", "vit-b16", "densenet121", "squeezenet")
BATCH_SIZES = (1, 4, 16)
COLUMNS = (
    ("model", -14),
    ("session", -16),
    ("batch", 5),
    ("what", -22),
    ("samples/s", 10),
    ("+-", 7),
    ("ratio", 6),
    ("latency ms", 10),
    ("period ms", 10),
    ("predicted", 10),
    ("error", 8),
)
ALL_CORES, ALONE, REPLICAS = "one session, all cores", "one device alone", "one replica a device"
EVEN, PLANNED, SEARCH = "even split", "planned split", "search"
NAMES = (ALL_CORES, ALONE, REPLICAS, EVEN, PLANNED, SEARCH)
SUMMARY = (
    ("model", -14),
    ("format", -6),
    ("all cores", 10),
    ("alone", 8),
    ("replicas", 9),
    ("even", 8),
    ("planned", 8),
    ("search", 8),
    ("by best", 8),
    ("+-", 5),
    ("error", 8),
)


class Entrant(NamedTuple):
    """One way to run a model on this machine.

    Attributes:
        name: its name in the table.
        flow: the model on the machine's devices.
        knobs: batch size, replicas, runtime and format.
        plan: its stages, with estimated costs.
    """

    name: str
    flow: Flow
    knobs: Knobs
    plan: Plan

    def run(self) -> Run:
        """Run the model until its period is steady."""
        return self.flow.measure(self.knobs, self.plan)

    @property
    def predicted_ms(self) -> float:
        """Milliseconds between two finished micro-batches, estimated."""
        return self.plan.cost_cycles / self.knobs.replicas / 1e6

    @property
    def format(self) -> Precision:
        """In which its products are computed."""
        return self.knobs.session.computes_in or Precision.FP32


class MeasuredEntrant(NamedTuple):
    """An entrant and its runs."""

    entrant: Entrant
    runs: list[Run]


def open_flow(name: str) -> Flow:
    """A built-in model, or a light one that comes with the onnx package, on this machine."""
    light = LIGHT / f"light_{name}.onnx"
    model = str(light) if light.exists() and name != "resnet50" else name
    return Flow(Setting(load_graph(model), host_cluster(), HostTarget(onnx_source(model)), Precision.FP32))


def entrants(flow: Flow, session: Session, batch_size: int) -> Iterator[Entrant]:
    """The simpler ways to run a model, and the planned split."""
    n_devices, alone = len(flow.cluster), Knobs(n_ipu=1, batch_size=batch_size, session=session)
    whole = {ALL_CORES: alone.with_values(cores_per_device=n_devices), ALONE: alone}
    if n_devices > 1:
        whole[REPLICAS] = replace(alone, replicas=n_devices)
    for name, knobs in whole.items():
        yield Entrant(name, flow, knobs, flow.predict(knobs))
    if n_devices > 1:
        split = replace(alone, n_ipu=n_devices)
        table = flow.table(split)
        even = uniform_count(table)
        if even is not None:
            yield Entrant(EVEN, flow, split, evaluate(table, even))
        with suppress(Infeasible):  # tied weights may leave no legal cut
            yield Entrant(PLANNED, flow, split, optimal(table))


def searched(flow: Flow, batch_sizes: Sequence[int], runtimes: Sequence[str], precision: Precision) -> Entrant:
    """What a search returns, verified: pipelines, replicas or both, at any of the batch sizes, in a format."""
    counts = tuple(n for n in (1, 2, 4, 8) if n <= len(flow.cluster))
    able = tuple(runtime for runtime in runtimes if precision in SESSIONS[runtime].precisions)
    space = SearchSpace(
        n_ipu=counts,
        batch_size=tuple(batch_sizes),
        replicas=counts,
        cores_per_device=counts,
        runtime=able,
        precision=(precision,),
    )
    best = search_flow(flow, on_cluster(space, flow)).best
    assert best is not None
    assert isinstance(best.estimate, Plan)
    return Entrant(SEARCH, flow, best.knobs, best.estimate)


def run_in_turns(entrants: Sequence[Entrant], n_rounds: int) -> list[MeasuredEntrant]:
    """Run every entrant once a round."""
    results = [MeasuredEntrant(entrant, []) for entrant in entrants]
    for _ in range(n_rounds):
        for result in results:
            result.runs.append(result.entrant.run())
    return results


def period_ms(result: MeasuredEntrant) -> float:
    """Milliseconds between two finished micro-batches, measured."""
    return mean(run.period_cycles for run in result.runs) / 1e6


def speeds_of(result: MeasuredEntrant) -> list[float]:
    """Throughput of every round, measured, in samples/s."""
    return [1e9 * result.entrant.knobs.batch_size / run.period_cycles for run in result.runs]


def speed_of(result: MeasuredEntrant) -> Interval:
    """Throughput, measured, in samples/s."""
    return interval(speeds_of(result))


def latency_ms(result: MeasuredEntrant) -> float:
    """Milliseconds of a micro-batch from its first stage to its end, measured."""
    return mean(run.latency_cycles for run in result.runs) / 1e6


def error(result: MeasuredEntrant) -> float:
    """The predicted period less the measured one, as a part of the latter."""
    return result.entrant.predicted_ms / period_ms(result) - 1


def in_words(session: Session) -> str:
    """Its runtime and format."""
    return f"{session.runtime} {session.computes_in}"


def row(model: str, result: MeasuredEntrant, reference: float) -> list[str]:
    """A line of the table; `reference` is the throughput of the search's configuration in the same format."""
    entrant, speed = result.entrant, speed_of(result)
    cells = [model, in_words(entrant.knobs.session), str(entrant.knobs.batch_size), entrant.name, f"{speed.mean:.2f}"]
    cells += ["-" if speed.error is None else f"{speed.error:.2f}", f"{speed.mean / reference:.2f}"]
    cells += [f"{latency_ms(result):.1f}", f"{period_ms(result):.2f}", f"{entrant.predicted_ms:.2f}"]
    return [*cells, f"{100 * error(result):+.1f} %"]


def summary(model: str, precision: Precision, results: Sequence[MeasuredEntrant]) -> list[str]:
    """The best throughput of every way to run a model, the search's over the best of the others, and the mean error.

    The ratio is the mean of those of the rounds, so what disturbs a whole round does not count.
    """
    of_name = {name: [result for result in results if result.entrant.name == name] for name in NAMES}
    best = {name: max(rows, key=lambda row: speed_of(row).mean) for name, rows in of_name.items() if rows}
    speeds = [f"{speed_of(best[name]).mean:.2f}" if name in best else "-" for name in NAMES]
    search = speeds_of(best.pop(SEARCH))
    other = speeds_of(max(best.values(), key=lambda row: speed_of(row).mean))
    ratio = interval([a / b for a, b in zip(search, other, strict=True)])
    by_best = [f"{ratio.mean:.2f}", "-" if ratio.error is None else f"{ratio.error:.2f}"]
    mean_error = mean(abs(error(result)) for result in results)
    return [model, precision, *speeds, *by_best, f"{100 * mean_error:.1f} %"]


def print_row(cells: Iterable[str], columns: Sequence[tuple[str, int]]) -> None:
    """Print a line of a table; cells of negative widths are aligned to the left."""
    aligned = zip(cells, (width for _, width in columns), strict=True)
    print(
        " ".join(f"{cell:<{-width}}" if width < 0 else f"{cell:>{width}}" for cell, width in aligned).rstrip(),
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of runs, then the table of models and the error of the predictions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="with commas; default %(default)s")
    parser.add_argument("--batch-sizes", default=",".join(map(str, BATCH_SIZES)), help="default %(default)s")
    parser.add_argument("--runtimes", default=",".join(installed()), help="default %(default)s")
    parser.add_argument("--precisions", help="default: all in which a runtime computes on this machine")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    parser.add_argument(
        "--min-s", type=float, default=RUN_S, help="of a run, at most twice as long; default %(default)s"
    )
    args = parser.parse_args(argv)
    os.environ["AUTOAUTO_RUN_S"] = str(args.min_s)
    batch_sizes = [int(size) for size in args.batch_sizes.split(",")]
    runtimes = args.runtimes.split(",")
    measured: dict[tuple[str, Precision], list[MeasuredEntrant]] = {}
    print_row((name for name, _ in COLUMNS), COLUMNS)
    for model in args.models.split(","):
        flow = open_flow(model)
        known = target_precisions(flow)
        precisions = [Precision(name) for name in args.precisions.split(",")] if args.precisions else known
        for result in measure_model(flow, batch_sizes, runtimes, precisions, args.rounds):
            measured.setdefault((model, result.entrant.format), []).append(result)
        for precision in precisions:
            results = measured[model, precision]
            for result in results:
                print_row(row(model, result, speed_of(results[-1]).mean), COLUMNS)
    print("\nsamples/s, the best of all runtimes and batch sizes, and the mean error of predicted periods")
    print_row((name for name, _ in SUMMARY), SUMMARY)
    for (model, precision), results in measured.items():
        print_row(summary(model, precision, results), SUMMARY)
    errors = [error(result) for results in measured.values() for result in results]
    print(f"predicted period: mean error {100 * mean(map(abs, errors)):.1f} % over {len(errors)} cells, measured")
    return 0


def target_precisions(flow: Flow) -> list[Precision]:
    """The formats in which the runtimes of this machine compute."""
    assert isinstance(flow.target, HostTarget)
    return list(flow.target.precisions())


def measure_model(
    flow: Flow,
    batch_sizes: Sequence[int],
    runtimes: Sequence[str],
    precisions: Sequence[Precision],
    n_rounds: int,
) -> list[MeasuredEntrant]:
    """All entrants of a model and their runs; of each format the search's configuration is the last."""
    every = []
    for precision in precisions:
        for kind in (SESSIONS[runtime] for runtime in runtimes if precision in SESSIONS[runtime].precisions):
            session = session_of({"runtime": kind.runtime, "precision": precision})
            every += [entrant for size in batch_sizes for entrant in entrants(flow, session, size)]
        every.append(searched(flow, batch_sizes, runtimes, precision))
    return run_in_turns(every, n_rounds)


if __name__ == "__main__":
    sys.exit(main())
