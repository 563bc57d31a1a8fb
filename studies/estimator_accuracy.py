"""Sums of layers and their correction against ranges compiled whole: `python studies/estimator_accuracy.py [--quick]`.

For every model a few ranges are compiled whole, at a batch size and a quarter of it, and the correction is fitted. Then
other ranges, at half and at twice that batch size, are predicted and compiled. They are as long as stages are: from a
sixteenth of the model to all of it, evenly by ratio. The columns of the table:

- the errors in % of the plain sums [auto-pipeline] and of the corrected ones: median, mean, 95th percentile;
- inside: how often, in %, cycles lie in their prediction interval (90 by construction);
- below: how often memory lies below the upper end of its interval (95 by construction); that of programs without a
  subgraph for equal layers: what such a program saves has the same formula in the estimate and when it is compiled;
- ranges, s: the ranges that the correction is fitted to, and the seconds that takes;
- us: microseconds to predict a range;
- plan: by how many % the plan that a search measures costs more than the best one that moving its cuts gives, with
  stages compiled whole ("-": no plan fits). The cheapest of many measurements is partly so by luck, so on real devices
  both plans run again as pipelines, in turns.

`--plot FILE.html` draws predicted against measured (extra `plot`). `--keep FOLDER` stores measurements, except those of
plans, and uses the stored ones; `--no-plans` leaves plans out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean, median
from time import perf_counter
from typing import NamedTuple

import numpy as np

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.cut import onnx_source
from autoauto.graph.load import load_graph
from autoauto.plan.pipeline.problem import evaluate
from autoauto.plan.queries import k_best
from autoauto.profile.cache import ProfileCache
from autoauto.records.costs.correction import Correction, Estimator, PredictionInterval
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.errors import DoesNotFit, missing_extra
from autoauto.records.installation import data_dir
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs

SHORTEST = 16  # a held-out range has at least this part of the layers
QUICK = ("resnet50", "bert-base-128")
ENDLESS_BYTES = 2.0**60
MOVES = (-8, -4, -2, -1, 1, 2, 4, 8)  # layers by which a cut is moved in search of a better plan
COLOURS = {"sum": "#e69f00", "regression": "#0072b2"}  # [okabe-ito]


class Effort(NamedTuple):
    """What differs between targets.

    Attributes:
        batch_size: at which the correction is fitted.
        n_ranges: held-out ranges of a batch size.
        n_ipu: stages of the plans that are compared.
        n_best: how many of the cheapest plans by an estimate are compared.
        n_tries: how many plans with one cut moved are compared.
        n_rounds: how often the planned and the best partition run as pipelines.
    """

    batch_size: int
    n_ranges: int
    n_ipu: int
    n_best: int
    n_tries: int
    n_rounds: int


SETTINGS = {"ipu": Effort(16, 40, 4, 10, 400, 1), "host": Effort(4, 12, 2, 3, 12, 5)}


class Reading(NamedTuple):
    """A held-out range: measured, estimated by the plain sum, and by the corrected sum."""

    batch_size: int
    cycles: int
    sum_cycles: int
    our_cycles: int
    n_bytes: int
    sum_bytes: int
    our_bytes: int


class FittedCorrection(NamedTuple):
    """A model's correction, and how long sampling and fitting took."""

    correction: Correction
    seconds: float


@contextmanager
def ipu_flow(model: str, cache: ProfileCache) -> Iterator[Flow]:
    """The model on the cost model of a Bow-2000."""
    from autoauto.targets.clusters import load_cluster
    from autoauto.targets.ipu.target import IpuTarget

    yield Flow(Setting(load_graph(model), load_cluster("bow-2000"), IpuTarget(), cache=cache))


@contextmanager
def host_flow(model: str, cache: ProfileCache) -> Iterator[Flow]:
    """The model on processes of this machine, one core each."""
    from autoauto.targets.host.detect import host_cluster
    from autoauto.targets.host.target import HostTarget

    with HostTarget(onnx_source(model)) as target:
        yield Flow(Setting(load_graph(model), host_cluster(), target, Precision.FP32, cache=cache))


FLOWS: dict[str, Callable[[str, ProfileCache], AbstractContextManager[Flow]]] = {"ipu": ipu_flow, "host": host_flow}


def known_models() -> list[str]:
    """The built-in models and the light ones of the onnx package."""
    import onnx

    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    built_in = sorted(path.stem for path in (data_dir() / "models").glob("*.onnx"))
    return [*built_in, *map(str, sorted(light.glob("*.onnx")))]


def knobs_at(flow: Flow, batch_size: int, n_ipu: int = 1) -> Knobs:
    """A configuration; a model of a fixed batch has its own."""
    return Knobs(n_ipu=n_ipu, memory_proportion=0.6, batch_size=1 if flow.graph.fixed_batch else batch_size)


def fit(flow: Flow, batch_size: int) -> FittedCorrection:
    """Sample ranges near a batch size and fit the correction."""
    knobs = knobs_at(flow, batch_size)
    flow.profile(flow.options(knobs))
    start_s = perf_counter()
    correction = flow.costs.correction(knobs)
    return FittedCorrection(correction, perf_counter() - start_s)


class CompiledRanges:
    """Ranges of a model compiled whole, stored in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[int, int]] = json.loads(path.read_text()) if path.exists() else {}

    def compile(self, flow: Flow, layers: LayerRange, knobs: Knobs) -> tuple[int, int]:
        """Cycles and bytes of a range.

        Raises:
            DoesNotFit: the range needs more memory than the device has.
        """
        key = f"{flow.target.version}, batch size {knobs.batch_size}, {layers}"
        if key not in self._known:
            device = flow.cluster.devices[0]
            if not flow.traits.runs_plans:  # a range that does not fit would have a subgraph for equal layers
                device = replace(device, memory_bytes=ENDLESS_BYTES)
            whole = flow.setting.compiler.compile(flow.graph, layers, device, flow.options(knobs))
            self._known[key] = whole.forward_cycles, sum(compiled_bytes(whole).values())
            self._path.write_text(json.dumps(self._known))
        return self._known[key]


def held_out(flow: Flow, setting: Effort, compiled: CompiledRanges, seed: int = 1) -> list[Reading]:
    """Ranges at half and twice the batch size of the correction, predicted and compiled."""
    readings = []
    for batch_size in sorted({knobs_at(flow, n).batch_size for n in (setting.batch_size // 2, setting.batch_size * 2)}):
        knobs = knobs_at(flow, batch_size)
        ours, plain = flow.table(knobs), flow.with_setting(estimator=Estimator.SUM).table(knobs)
        for layers in ranges(len(flow.graph), setting.n_ranges, Random(seed)):
            try:
                n_cycles, n_bytes = compiled.compile(flow, layers, knobs)
            except DoesNotFit:
                continue
            sum_cycles, our_cycles = (table.compute_cycles(*layers) for table in (plain, ours))
            sum_bytes, our_bytes = (sum(table.memory.by_category(*layers, 0).values()) for table in (plain, ours))
            readings.append(Reading(batch_size, n_cycles, sum_cycles, our_cycles, n_bytes, sum_bytes, our_bytes))
    return readings


def ranges(n_layers: int, n_ranges: int, random: Random) -> Iterator[LayerRange]:
    """Ranges as long as stages are."""
    shortest = max(2, n_layers // SHORTEST)
    for _ in range(n_ranges):
        length = round(shortest * pow(n_layers / shortest, random.random()))
        start = random.randrange(n_layers - length + 1)
        yield LayerRange(start, start + length)


def coverage(readings: Sequence[Reading], correction: Correction) -> tuple[float, float]:
    """How often cycles lie in their prediction interval, and memory below the upper end of its own."""

    def inside(interval: PredictionInterval, predicted: int, measured: int) -> bool:
        return interval.low * predicted <= measured <= interval.high * predicted

    cycles = [inside(correction.cycles_interval, r.our_cycles, r.cycles) for r in readings]
    memory = [r.n_bytes <= correction.memory_interval.high * r.our_bytes for r in readings]
    return mean(cycles), mean(memory)


def regret(flow: Flow, setting: Effort) -> float | None:
    """By how much the planned partition costs more than the best known one, both measured; None when none fits.

    Compared are the cheapest plans by either estimate and then, from the best of them on, plans with one cut moved.
    """
    knobs = knobs_at(flow, setting.batch_size * 2, setting.n_ipu)
    costs, plain = MeasuredCosts(flow, knobs), flow.with_setting(estimator=Estimator.SUM, planning_proportion=1.0)
    try:
        others = [
            plan.partition for table in (costs.table, plain.table(knobs)) for plan in k_best(table, setting.n_best)
        ]
    except DoesNotFit:
        return None
    evaluated = flow.evaluate(knobs).measured
    if evaluated is None:
        return None
    planned = evaluated.partition
    best = climb(costs, min((planned, *others), key=costs), setting.n_tries)
    if best == planned:
        return 0.0
    again = [(costs.period_cycles(planned), costs.period_cycles(best)) for _ in range(setting.n_rounds)]
    return median(ours / theirs for ours, theirs in again) - 1


class MeasuredCosts:
    """The cost of a partition with stages compiled whole; where a stage does not fit, it is larger than any other."""

    def __init__(self, flow: Flow, knobs: Knobs) -> None:
        self._flow, self._knobs = flow, knobs
        self.table: CostTable = flow.table(knobs)
        self._known: dict[LayerRange, int] = {}

    def __call__(self, partition: Sequence[int]) -> int:
        """The slowest stage and the longest transfer."""
        stages = [LayerRange(*ends) for ends in pairwise(partition)]
        transfers = [self.table.transfer_cycles(device, *layers) for device, layers in enumerate(stages)]
        return max(map(self._compute, stages)) + max(transfers)

    def period_cycles(self, partition: Sequence[int]) -> float:
        """The period of a pipeline of these stages, as a search measures it."""
        return self._flow.measure(self._knobs, evaluate(self.table, partition)).period_cycles

    def _compute(self, layers: LayerRange) -> int:
        if layers not in self._known:
            flow, device = self._flow, self._flow.cluster.devices[0]
            whole = flow.setting.compiler.compile(flow.graph, layers, device, flow.options(self._knobs))
            fits = sum(compiled_bytes(whole).values()) <= device.memory_bytes
            self._known[layers] = whole.forward_cycles if fits else sys.maxsize
        return self._known[layers]


def climb(costs: MeasuredCosts, start: Sequence[int], n_tries: int) -> tuple[int, ...]:
    """Move one cut at a time while that lowers the cost, in at most `n_tries` evaluations."""
    best, evaluated = tuple(start), {tuple(start)}
    improved = True
    while improved:
        improved = False
        for candidate in neighbours(best, costs.table):
            if candidate in evaluated or len(evaluated) > n_tries:
                continue
            evaluated.add(candidate)
            if costs(candidate) < costs(best):
                best, improved = candidate, True
                break
    return best


def neighbours(partition: tuple[int, ...], table: CostTable) -> Iterator[tuple[int, ...]]:
    """Legal partitions with one cut moved."""
    for s in range(1, len(partition) - 1):
        for move in MOVES:
            cut = partition[s] + move
            if partition[s - 1] < cut < partition[s + 1] and table.cut_allowed[cut]:
                yield (*partition[:s], cut, *partition[s + 1 :])


def prediction_us(flow: Flow, setting: Effort) -> float:
    """Microseconds to predict a range's cycles."""
    table, n_layers = flow.table(knobs_at(flow, setting.batch_size)), len(flow.graph)
    start_s = perf_counter()
    for start in range(1000):
        table.compute_cycles(start % n_layers, n_layers)
    return (perf_counter() - start_s) * 1e3


def errors(readings: Sequence[Reading], predicted: str, measured: str) -> list[float]:
    """Relative errors of one column against another."""
    return [abs(getattr(r, predicted) / getattr(r, measured) - 1) for r in readings]


def percents(values: Sequence[float]) -> str:
    """Median, mean and 95th percentile."""
    statistics = (median(values), mean(values), float(np.percentile(values, 95)))
    return "".join(f"{100 * value:6.1f}" for value in statistics)


def draw(drawn: dict[str, list[Reading]], target: str, path: Path) -> None:
    """Predicted against measured cycles, relative to measured, as a page.

    Raises:
        MissingExtra: plotly is not installed.
    """
    try:
        from plotly.graph_objects import Figure, Scatter
    except ImportError:
        raise missing_extra("--plot", "plot") from None
    points = [(name, reading) for name, readings in drawn.items() for reading in readings]
    figure = Figure(
        layout={"template": "plotly_white", "title": f"Ranges of layers on {target}, at held-out batch sizes"}
    )
    for estimator, column in (("sum", "sum_cycles"), ("regression", "our_cycles")):
        figure.add_trace(
            Scatter(
                x=[reading.cycles for _, reading in points],
                y=[getattr(reading, column) / reading.cycles for _, reading in points],
                text=[f"{name}, batch {reading.batch_size}" for name, reading in points],
                mode="markers",
                name=estimator,
                marker={"color": COLOURS[estimator], "size": 5},
            )
        )
    figure.update_xaxes(title="measured cycles", type="log")
    figure.update_yaxes(title="predicted / measured")
    figure.write_html(path, include_plotlyjs=True)


def print_model(
    name: str, readings: Sequence[Reading], fitted: FittedCorrection, extra_cost: float | None, predict_us: float
) -> None:
    """Print the line of a model."""
    cycles, memory = (
        [errors(readings, f"{estimator}_{quantity}", measured) for estimator in ("sum", "our")]
        for quantity, measured in (("cycles", "cycles"), ("bytes", "n_bytes"))
    )
    within, below = coverage(readings, fitted.correction)
    print(
        f"{name[:18]:18}{percents(cycles[0]):>20}{percents(cycles[1]):>20}{percents(memory[0]):>20}"
        f"{percents(memory[1]):>20}{100 * within:6.0f}{100 * below:7.0f}{fitted.correction.n_examples:8}"
        f"{fitted.seconds:7.1f}{predict_us:6.1f}{'-' if extra_cost is None else f'{100 * extra_cost:.1f}':>8}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, and draw it when asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", choices=sorted(FLOWS), default="ipu", help="default %(default)s")
    parser.add_argument("--models", metavar="NAME,FILE", help="default: the built-in ones and the onnx package's")
    parser.add_argument("--quick", action="store_true", help="resnet50 and bert-base-128, a quarter of the ranges")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw predicted against measured, as HTML")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="store measurements there, and use the stored ones")
    parser.add_argument("--no-plans", action="store_true", help="compare no plans")
    args = parser.parse_args(argv)
    setting = SETTINGS[args.target]
    names = args.models.split(",") if args.models else known_models()
    if args.quick:
        names, setting = names if args.models else list(QUICK), shorter(setting)
    print(f"{'errors in %':18}{'cycles, sum':>20}{'regression':>20}{'memory, sum':>20}{'regression':>20}")
    other_columns = f"{'inside':>8}{'below':>6}{'ranges':>7}{'s':>6}{'us':>6}{'plan':>7}"
    print(f"{'model':18}{4 * '  median mean  p95':>80}{other_columns}")
    studied = {Path(name).stem: study(name, args.target, setting, args.keep, not args.no_plans) for name in names}
    drawn = {name: readings for name, (readings, _) in studied.items()}
    all_readings = [reading for readings in drawn.values() for reading in readings]
    for estimator in ("sum", "our"):
        error = mean(errors(all_readings, f"{estimator}_cycles", "cycles"))
        print(f"{estimator}: mean error of cycles {100 * error:.1f} %")
    shares = [[share * len(pair[0]) / len(all_readings) for share in coverage(*pair)] for pair in studied.values()]
    within, below = (100 * sum(column) for column in zip(*shares, strict=True))
    print(
        f"of {len(all_readings)} ranges: cycles inside their interval {within:.1f} %, "
        f"memory below its end {below:.1f} %"
    )
    if args.plot:
        draw(drawn, args.target, args.plot)
    return 0


def shorter(setting: Effort) -> Effort:
    """A quarter of the ranges and of the moved cuts."""
    return setting._replace(n_ranges=setting.n_ranges // 4, n_tries=setting.n_tries // 4)


def study(name: str, target: str, setting: Effort, keep: Path | None, plans: bool) -> tuple[list[Reading], Correction]:
    """Fit the correction of a model, predict held-out ranges, and print the line of the model."""
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        flow = stack.enter_context(FLOWS[target](name, ProfileCache(folder / "cache.db")))
        fitted = fit(flow, setting.batch_size)
        readings = held_out(flow, setting, CompiledRanges(folder / f"{target}-{Path(name).stem}.json"))
        extra_cost = regret(flow, setting) if plans else None
        print_model(Path(name).stem, readings, fitted, extra_cost, prediction_us(flow, setting))
    return readings, fitted.correction


if __name__ == "__main__":
    sys.exit(main())
