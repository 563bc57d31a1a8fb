"""What autoauto finds on this machine against what a user would do instead: `python studies/host_benchmark.py`.

For every model and batch size, in rounds in which all take turns: one session with all cores as its threads, one device
alone, one replica a device, and where the model can be cut an even split by count of layers and the planned split.
Then, once a model, the configuration that `autoauto search --target host` returns, in the same rounds. The table shows
medians over rounds; "predicted" is the estimated period, "error" its difference to the measured one; the ratio is to
the search's answer.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import onnx

from autoauto.evaluate.flow import Flow
from autoauto.graph.cut.source import onnx_source
from autoauto.graph.load import load_graph
from autoauto.plan.pipeline.evaluate import evaluate
from autoauto.plan.pipeline.optimal import optimal
from autoauto.records.errors import Infeasible
from autoauto.records.knobs import DEFAULT_NOISE, Knobs, Method, Objective, SearchSpace
from autoauto.records.plan import Plan
from autoauto.records.timeline import Run
from autoauto.records.units import Precision
from autoauto.study.methods.registry import method_of
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study
from autoauto.targets.host.machine.detect import host_cluster
from autoauto.targets.host.target import HostTarget
from studies.planner_baselines import uniform_count

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = ("resnet50", "bert-base-128", "gpt2-small", "vit-b16", "densenet121", "squeezenet")
BATCH_SIZES = (1, 4, 16)
COLUMNS = ("model", "batch", "what", "samples/s", "ratio", "latency ms", "period ms", "predicted", "error")
WIDTHS = (-14, 5, -22, 10, 6, 10, 10, 10, 8)
ALL_CORES, ALONE, REPLICAS = "one session, all cores", "one device alone", "one replica a device"
EVEN, PLANNED, SEARCH = "even split", "planned split", "search"
NAMES = (ALL_CORES, ALONE, REPLICAS, EVEN, PLANNED, SEARCH)
SUMMARY = ("model", "all cores", "alone", "replicas", "even", "planned", "search", "by best", "error")
SUMMARY_WIDTHS = (-14, 10, 8, 9, 8, 8, 8, 8, 8)


class Rival(NamedTuple):
    """One way to run a model on this machine.

    Attributes:
        name: how the table calls it.
        flow: the model on the machine's devices.
        knobs: batch size and replicas.
        plan: its stages, with estimated costs where they are predicted.
        predicted: whether they are.
    """

    name: str
    flow: Flow
    knobs: Knobs
    plan: Plan
    predicted: bool = True

    def run(self) -> Run:
        """Run it until it is steady."""
        return self.flow.measure(self.knobs, self.plan)

    @property
    def predicted_ms(self) -> float:
        """Milliseconds between two finished micro-batches, estimated."""
        return self.plan.cost_cycles / self.knobs.replicas / 1e6


class Race(NamedTuple):
    """A rival and its runs."""

    rival: Rival
    runs: list[Run]


def open_flow(name: str, cores_per_device: int = 1) -> Flow:
    """A built-in model, or a light one that comes with the onnx package, on this machine."""
    light = LIGHT / f"light_{name}.onnx"
    model = str(light) if light.exists() and name != "resnet50" else name
    target = HostTarget(onnx_source(model), cores_per_device)
    return Flow(load_graph(model), host_cluster(cores_per_device), target, Precision.FP32)


def rivals(flow: Flow, all_cores: Flow, batch_size: int) -> Iterator[Rival]:
    """What a user would do instead, and the planned split."""
    n_devices, n_layers = len(flow.cluster), len(flow.graph)
    alone, side_by_side = (Knobs(1, 1.0, batch_size, replicas=n) for n in (1, n_devices))
    whole = evaluate(flow.table(alone), (0, n_layers))
    yield Rival(ALL_CORES, all_cores, alone, whole, predicted=False)
    yield Rival(ALONE, flow, alone, whole)
    if n_devices > 1:
        yield Rival(REPLICAS, flow, side_by_side, whole)
        split = Knobs(n_devices, 1.0, batch_size)
        table = flow.table(split)
        even = uniform_count(table)
        if even is not None:
            yield Rival(EVEN, flow, split, evaluate(table, even))
        with suppress(Infeasible):  # tied weights may leave no place to cut
            yield Rival(PLANNED, flow, split, optimal(table))


def searched(flow: Flow, batch_sizes: Sequence[int]) -> Rival:
    """What the search returns: pipelines, replicas or both, at any of the batch sizes."""
    counts = tuple(n for n in (1, 2, 4, 8) if n <= len(flow.cluster))
    space = SearchSpace(counts, (1.0,), tuple(batch_sizes), replicas=counts)
    with tempfile.TemporaryDirectory() as folder:
        study = open_study(f"sqlite:///{folder}/study.db", "benchmark", Objective.THROUGHPUT, flow.fingerprint())
        guided = method_of(Method.GUIDED, flow.expect, Objective.THROUGHPUT, DEFAULT_NOISE)
        best = run_search(space, flow.evaluate, study, Objective.THROUGHPUT, None, guided, DEFAULT_NOISE).best
    assert best is not None
    return Rival(SEARCH, flow, best.knobs, flow.predict(best.knobs))


def rounds(contestants: Sequence[Rival], n_rounds: int) -> list[list[Run]]:
    """Runs of every contestant, all in turn."""
    runs: list[list[Run]] = [[] for _ in contestants]
    for _ in range(n_rounds):
        for contestant, its_runs in zip(contestants, runs, strict=True):
            its_runs.append(contestant.run())
    return runs


def period_ms(race: Race) -> float:
    """Milliseconds between two finished micro-batches, measured."""
    return median(run.period_cycles for run in race.runs) / 1e6


def samples_per_s(race: Race) -> float:
    """Throughput, measured."""
    return 1e3 * race.rival.knobs.batch_size / period_ms(race)


def latency_ms(race: Race) -> float:
    """Milliseconds of a micro-batch from its first stage to its end, measured."""
    return median(run.latency_cycles for run in race.runs) / 1e6


def error(race: Race) -> float:
    """The predicted period less the measured one, as a part of the latter."""
    return race.rival.predicted_ms / period_ms(race) - 1


def row(model: str, race: Race, reference: float) -> list[str]:
    """A line of the table; `reference` is the throughput of the search's answer."""
    rival, speed = race.rival, samples_per_s(race)
    cells = [model, str(rival.knobs.batch_size), rival.name, f"{speed:.2f}", f"{speed / reference:.2f}"]
    cells += [f"{latency_ms(race):.1f}", f"{period_ms(race):.2f}"]
    if rival.predicted:
        cells += [f"{rival.predicted_ms:.2f}", f"{100 * error(race):+.1f} %"]
    return cells


def summary(model: str, races: Sequence[Race]) -> list[str]:
    """The best of every way to run a model, the search's answer by the best of the others, and the mean error."""
    best = {name: max((samples_per_s(r) for r in races if r.rival.name == name), default=0.0) for name in NAMES}
    ratio = best[SEARCH] / max(speed for name, speed in best.items() if name != SEARCH)
    mean_error = mean(abs(error(race)) for race in races if race.rival.predicted)
    speeds = [f"{speed:.2f}" if speed else "-" for speed in best.values()]
    return [model, *speeds, f"{ratio:.2f}", f"{100 * mean_error:.1f} %"]


def show(cells: Sequence[str], widths: Sequence[int]) -> None:
    """Print a line of a table; negative widths are to the left."""
    places = zip(cells, widths, strict=False)
    print(
        " ".join(f"{cell:<{-width}}" if width < 0 else f"{cell:>{width}}" for cell, width in places).rstrip(),
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, then how good the predictions and the search's answers are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="with commas; default %(default)s")
    parser.add_argument("--batch-sizes", default=",".join(map(str, BATCH_SIZES)), help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    args = parser.parse_args(argv)
    batch_sizes = [int(size) for size in args.batch_sizes.split(",")]
    raced = {}
    show(COLUMNS, WIDTHS)
    for model in args.models.split(","):
        raced[model] = model_rounds(model, batch_sizes, args.rounds)
        reference = samples_per_s(raced[model][-1])
        for race in raced[model]:
            show(row(model, race, reference), WIDTHS)
    print("\nsamples/s, the best of all batch sizes, and the mean error of predicted periods")
    show(SUMMARY, SUMMARY_WIDTHS)
    for model, races in raced.items():
        show(summary(model, races), SUMMARY_WIDTHS)
    every = [error(race) for races in raced.values() for race in races if race.rival.predicted]
    print(f"predicted period: mean error {100 * mean(map(abs, every)):.1f} % over {len(every)} cells, measured")
    return 0


def model_rounds(model: str, batch_sizes: Sequence[int], n_rounds: int) -> list[Race]:
    """All ways to run a model, the search's answer last, and their runs."""
    flow, all_cores = open_flow(model), open_flow(model, len(os.sched_getaffinity(0)))
    contestants = [rival for size in batch_sizes for rival in rivals(flow, all_cores, size)]
    contestants.append(searched(flow, batch_sizes))
    return [Race(*both) for both in zip(contestants, rounds(contestants, n_rounds), strict=True)]


if __name__ == "__main__":
    sys.exit(main())
