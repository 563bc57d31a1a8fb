"""The result of a search on this machine against simpler ways to run a model: `python studies/host_benchmark.py`.

Entrants for every model and batch size are one session with all cores as its threads, one device alone, one replica a
device, and where the model can be cut an even split by count of layers and the planned split. One more entrant a model
is the configuration that `autoauto search --target host` returns. In every round all entrants of a model run in turn.
The table shows medians over rounds; "predicted" is the estimated period, "error" its difference to the measured one;
"ratio" is the throughput relative to the search's configuration.
"""

from __future__ import annotations

import argparse
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
from autoauto.records.knobs.knobs import Knobs, Method, Objective, SearchSpace
from autoauto.records.plan import Plan
from autoauto.records.timeline import Run
from autoauto.records.units import Precision
from autoauto.study.defaults import on_cluster
from autoauto.study.methods.registry import method_of, predictor
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


class Entrant(NamedTuple):
    """One way to run a model on this machine.

    Attributes:
        name: its name in the table.
        flow: the model on the machine's devices.
        knobs: batch size and replicas.
        plan: its stages, with estimated costs where `predicted`.
        predicted: whether the costs of `plan` are an estimate of this way to run the model.
    """

    name: str
    flow: Flow
    knobs: Knobs
    plan: Plan
    predicted: bool = True

    def run(self) -> Run:
        """Run the model until its period is steady."""
        return self.flow.measure(self.knobs, self.plan)

    @property
    def predicted_ms(self) -> float:
        """Milliseconds between two finished micro-batches, estimated."""
        return self.plan.cost_cycles / self.knobs.replicas / 1e6


class MeasuredEntrant(NamedTuple):
    """An entrant and its runs."""

    entrant: Entrant
    runs: list[Run]


def open_flow(name: str) -> Flow:
    """A built-in model, or a light one that comes with the onnx package, on this machine."""
    light = LIGHT / f"light_{name}.onnx"
    model = str(light) if light.exists() and name != "resnet50" else name
    return Flow(load_graph(model), host_cluster(), HostTarget(onnx_source(model)), Precision.FP32)


def entrants(flow: Flow, batch_size: int) -> Iterator[Entrant]:
    """The simpler ways to run a model, and the planned split."""
    n_devices, n_layers = len(flow.cluster), len(flow.graph)
    alone, side_by_side = (Knobs(1, 1.0, batch_size, replicas=n) for n in (1, n_devices))
    whole = evaluate(flow.table(alone), (0, n_layers))
    yield Entrant(ALL_CORES, flow, Knobs(1, 1.0, batch_size, cores_per_device=n_devices), whole, predicted=False)
    yield Entrant(ALONE, flow, alone, whole)
    if n_devices > 1:
        yield Entrant(REPLICAS, flow, side_by_side, whole)
        split = Knobs(n_devices, 1.0, batch_size)
        table = flow.table(split)
        even = uniform_count(table)
        if even is not None:
            yield Entrant(EVEN, flow, split, evaluate(table, even))
        with suppress(Infeasible):  # tied weights may leave no legal cut
            yield Entrant(PLANNED, flow, split, optimal(table))


def searched(flow: Flow, batch_sizes: Sequence[int]) -> Entrant:
    """The configuration that a search returns: pipelines, replicas or both, at any of the batch sizes."""
    counts = tuple(n for n in (1, 2, 4, 8) if n <= len(flow.cluster))
    space = SearchSpace(counts, (1.0,), tuple(batch_sizes), replicas=counts, cores_per_device=(*counts,))
    space = on_cluster(space, flow)
    with tempfile.TemporaryDirectory() as folder:
        study = open_study(f"sqlite:///{folder}/study.db", "benchmark", Objective.THROUGHPUT, flow.fingerprint())
        predict = predictor(flow.expect, Objective.THROUGHPUT)
        guided = method_of(Method.GUIDED, predict, Objective.THROUGHPUT, flow.traits.noise)
        best = run_search(space, flow.evaluate, study, Objective.THROUGHPUT, None, guided, flow.traits.noise).best
    assert best is not None
    return Entrant(SEARCH, flow, best.knobs, flow.predict(best.knobs))


def run_in_turns(entrants: Sequence[Entrant], n_rounds: int) -> list[MeasuredEntrant]:
    """Run every entrant once a round."""
    results = [MeasuredEntrant(entrant, []) for entrant in entrants]
    for _ in range(n_rounds):
        for result in results:
            result.runs.append(result.entrant.run())
    return results


def period_ms(result: MeasuredEntrant) -> float:
    """Milliseconds between two finished micro-batches, measured."""
    return median(run.period_cycles for run in result.runs) / 1e6


def samples_per_s(result: MeasuredEntrant) -> float:
    """Throughput, measured."""
    return 1e3 * result.entrant.knobs.batch_size / period_ms(result)


def latency_ms(result: MeasuredEntrant) -> float:
    """Milliseconds of a micro-batch from its first stage to its end, measured."""
    return median(run.latency_cycles for run in result.runs) / 1e6


def error(result: MeasuredEntrant) -> float:
    """The predicted period less the measured one, as a part of the latter."""
    return result.entrant.predicted_ms / period_ms(result) - 1


def row(model: str, result: MeasuredEntrant, reference: float) -> list[str]:
    """A line of the table; `reference` is the throughput of the search's configuration."""
    entrant, speed = result.entrant, samples_per_s(result)
    cells = [model, str(entrant.knobs.batch_size), entrant.name, f"{speed:.2f}", f"{speed / reference:.2f}"]
    cells += [f"{latency_ms(result):.1f}", f"{period_ms(result):.2f}"]
    if entrant.predicted:
        cells += [f"{entrant.predicted_ms:.2f}", f"{100 * error(result):+.1f} %"]
    return cells


def summary(model: str, results: Sequence[MeasuredEntrant]) -> list[str]:
    """The best throughput of every way to run a model, the search's over the best of the others, and the mean error."""
    best = {name: max((samples_per_s(r) for r in results if r.entrant.name == name), default=0.0) for name in NAMES}
    ratio = best[SEARCH] / max(speed for name, speed in best.items() if name != SEARCH)
    mean_error = mean(abs(error(result)) for result in results if result.entrant.predicted)
    speeds = [f"{speed:.2f}" if speed else "-" for speed in best.values()]
    return [model, *speeds, f"{ratio:.2f}", f"{100 * mean_error:.1f} %"]


def print_row(cells: Sequence[str], widths: Sequence[int]) -> None:
    """Print a line of a table; cells of negative widths are aligned to the left."""
    aligned = zip(cells, widths, strict=False)
    print(
        " ".join(f"{cell:<{-width}}" if width < 0 else f"{cell:>{width}}" for cell, width in aligned).rstrip(),
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of runs, then the table of models and the error of the predictions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="with commas; default %(default)s")
    parser.add_argument("--batch-sizes", default=",".join(map(str, BATCH_SIZES)), help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    args = parser.parse_args(argv)
    batch_sizes = [int(size) for size in args.batch_sizes.split(",")]
    measured = {}
    print_row(COLUMNS, WIDTHS)
    for model in args.models.split(","):
        measured[model] = measure_model(model, batch_sizes, args.rounds)
        reference = samples_per_s(measured[model][-1])
        for result in measured[model]:
            print_row(row(model, result, reference), WIDTHS)
    print("\nsamples/s, the best of all batch sizes, and the mean error of predicted periods")
    print_row(SUMMARY, SUMMARY_WIDTHS)
    for model, results in measured.items():
        print_row(summary(model, results), SUMMARY_WIDTHS)
    errors = [error(result) for results in measured.values() for result in results if result.entrant.predicted]
    print(f"predicted period: mean error {100 * mean(map(abs, errors)):.1f} % over {len(errors)} cells, measured")
    return 0


def measure_model(model: str, batch_sizes: Sequence[int], n_rounds: int) -> list[MeasuredEntrant]:
    """All entrants of a model and their runs; the search's configuration is the last."""
    flow = open_flow(model)
    simpler = [entrant for size in batch_sizes for entrant in entrants(flow, size)]
    return run_in_turns([*simpler, searched(flow, batch_sizes)], n_rounds)


if __name__ == "__main__":
    sys.exit(main())
