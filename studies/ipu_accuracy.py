"""The cost model against published measurements of real IPUs: `python studies/ipu_accuracy.py [--picture FILE]`.

Prints throughput of whole models, estimated | published | error, each under its source's conditions ("fitted": a
constant was fitted to the row), then the largest batch sizes that fit beside the published answers, and the error of
every kind of kernel. `--series NAME ...` restricts the first two tables; `--models FOLDER` has the files of models that
are not built in, which `studies/unseen_models.py` exports; without it their series are left out. `--rows FILE` prints
the first table only, for the series of another file in the form of `throughput.json` (`data/measurements/README.md`).
The picture draws throughput by batch size: lines are the cost model, dots the publications. Figures and their sources:
`data/measurements/throughput.json` and `data/measurements/kernels.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from math import log10
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.load import load_graph
from autoauto.plan.pipeline.problem import evaluate
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import AutoautoError, BadInput, DoesNotFit
from autoauto.records.installation import data_dir
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.operator_cost import CompilerSettings
from autoauto.targets.ipu.session import IpuSession
from autoauto.targets.ipu.target import IpuTarget
from studies import fused_kernels as fused
from studies.published_rows import read_rows

HALF = Precision.FP16
IO_TILES = 32  # num_io_tiles in PopRT's examples [poprt]
NEEDED = ("name", "model", "cluster", "precision", "memory_proportion", "host", "batch_sizes", "samples_per_s")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # [okabe-ito]
KERNELS: dict[str, Callable[..., float]] = {
    "add": fused.add,
    "attention_merge": fused.attention_merge,
    "bias_gelu": fused.bias_gelu,
    "gelu": kernels.gelu,
    "gemm_interleaved": fused.gemm_interleaved,
    "gemm_packed": fused.gemm_packed,
    "layernorm": lambda rows, width: kernels.layernorm(rows, width, HALF),
    "layernorm_add": fused.layernorm_add,
    "matrix_units": lambda rows: float(kernels.gemm(rows, 1, 1, HALF)),
    "moments": lambda rows, width: kernels.moments(rows, width, HALF),
    "reduce": lambda n_outputs, n_partials: float(kernels.reduce(n_outputs, n_partials, HALF)),
    "softmax": lambda rows, _, padded: kernels.softmax(rows, padded, HALF),
    "whiten": lambda rows, width: kernels.whiten(rows, width, HALF),
}


class Point(NamedTuple):
    """One batch size of a series; None where the model does not fit, or where nothing was published.

    `fitted` says that a constant of the cost model was fitted to it, so that it is no evidence.
    """

    batch_size: int
    estimated: float | None
    published: float | None
    fitted: bool = False

    @property
    def error(self) -> float | None:
        """Relative error of the estimate."""
        return self.estimated / self.published - 1 if self.estimated and self.published else None


def flow_of(series: dict[str, Any]) -> Flow:
    """The model on its cluster under the conditions of a series."""
    partials, operators = Precision(series.get("partials", "fp16")), frozenset(series.get("float_operators", ()))
    settings = CompilerSettings(partials, operators, series.get("erf_gelu", False))
    cluster = load_cluster(series["cluster"])
    cluster = cluster.with_synthetic_data() if series["host"] == "synthetic" else cluster
    precision = Precision(series["precision"])
    return Flow(Setting(load_graph(series["model"]), cluster, IpuTarget(settings), precision, planning_proportion=1.0))


def fits(flow: Flow, knobs: Knobs) -> bool:
    """Whether the cost model's program fits; on one device without the estimate."""
    if knobs.n_ipu > 1:
        return samples_per_s(flow, knobs) is not None
    options = CompileOptions(knobs.batch_size, flow.setting.precision, session=knobs.session)
    device = flow.setting.device(options)
    try:
        program = flow.setting.compiler.compile(flow.graph, LayerRange(0, len(flow.graph)), device, options)
    except DoesNotFit:
        return False
    return sum(compiled_bytes(program).values()) <= device.memory_bytes


def samples_per_s(flow: Flow, knobs: Knobs) -> float | None:
    """The cost model's throughput, stages compiled whole; None when they do not fit.

    With one device there is nothing to plan, so that no estimate rules the model out.
    """
    try:
        plan = flow.predict(knobs) if knobs.n_ipu > 1 else evaluate(flow.table(knobs), (0, len(flow.graph)))
        return flow.samples_per_s(knobs, flow.measure(knobs, plan).plan)
    except DoesNotFit:
        return None


def with_file(series: dict[str, Any], folder: Path | None) -> dict[str, Any] | None:
    """A series with the path of its model in `folder` if it is not built in; None when there is no such file.

    The file is that of PyTorch's older exporter: the other one writes windows as look-ups that fix the batch.
    """
    if not series.get("exported"):
        return series
    path = folder / f"{series['model']}-script.onnx" if folder else None
    return {**series, "model": str(path)} if path and path.exists() else None


def knobs_of(series: dict[str, Any], batch_size: int) -> Knobs:
    """A series at one batch size; its transfers with the host may overlap with computation."""
    session = IpuSession(series["memory_proportion"], IO_TILES if series["host"] == "overlapped" else 0)
    return Knobs(n_ipu=series.get("n_ipu", 1), batch_size=batch_size, session=session)


def points(series: dict[str, Any]) -> Iterator[Point]:
    """The estimated and the published throughput of every batch size of a series."""
    flow = flow_of(series)
    for batch_size, published in zip(series["batch_sizes"], series["samples_per_s"], strict=True):
        estimated = samples_per_s(flow, knobs_of(series, batch_size))
        yield Point(batch_size, estimated, published, batch_size in series.get("fitted", ()))


def line(series: dict[str, Any]) -> Iterator[Point]:
    """Powers of two up to twice the largest published batch size, or until the model does not fit."""
    flow, batch_size = flow_of(series), 1
    while batch_size <= 2 * max(series["batch_sizes"]):
        estimated = samples_per_s(flow, knobs_of(series, batch_size))
        if estimated is None:
            return
        yield Point(batch_size, estimated, None)
        batch_size *= 2


def largest_batch(series: dict[str, Any]) -> int:
    """The largest batch size that fits, 0 when none does: doubled until it is too large, then bisected."""
    flow, too_large = flow_of(series), 1

    def is_too_large(batch_size: int) -> bool:
        return not fits(flow, knobs_of(series, batch_size))

    while not is_too_large(too_large):
        too_large *= 2
    fitting = too_large // 2
    return fitting + bisect_left(range(fitting + 1, too_large), True, key=is_too_large)


def kernel_errors(measured: dict[str, list[list[Any]]]) -> dict[str, list[float]]:
    """Relative errors of every kind of kernel."""
    return {
        name: [KERNELS[name](*arguments) / cycles - 1 for *arguments, cycles in rows] for name, rows in measured.items()
    }


def picture(drawn: Sequence[tuple[str, Sequence[Point], Sequence[Point]]]) -> str:
    """An SVG of (name, line, dots) by batch size, both axes logarithmic."""
    all_points = [point for _, lines, dots in drawn for point in (*lines, *dots)]
    batches = [point.batch_size for point in all_points]
    speeds = [speed for point in all_points for speed in (point.estimated, point.published) if speed]
    across = _axis(min(batches), max(batches), 70, 620)
    up = _axis(min(speeds) / 1.3, max(speeds) * 1.3, 360, 20)
    parts = [*_grid(across, up, max(batches), speeds)]
    for number, (name, lines, dots) in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(p.batch_size):.1f},{up(p.estimated):.1f}" for p in lines if p.estimated)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{across(p.batch_size):.1f}" cy="{up(p.published):.1f}" r="4" fill="{colour}"/>'
            for p in dots
            if p.published
        ]
        parts.append(f'<text x="640" y="{40 + 20 * number}" fill="{colour}">{name}</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 410" font-family="sans-serif" font-size="12">'
    return "\n".join((head, '<rect width="800" height="410" fill="white"/>', *parts, "</svg>\n"))


def _axis(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    """The function from a value to its position on a logarithmic axis."""
    span = log10(high / low) or 1.0
    return lambda value: start + (stop - start) * log10(value / low) / span


def _grid(
    across: Callable[[float], float], up: Callable[[float], float], max_batch_size: int, speeds: Sequence[float]
) -> Iterator[str]:
    for batch_size in (2**n for n in range(max_batch_size.bit_length())):
        x = across(batch_size)
        yield f'<line x1="{x:.1f}" y1="20" x2="{x:.1f}" y2="360" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="378" text-anchor="middle">{batch_size}</text>'
    for speed in (step * 10**power for power in range(6) for step in (1, 2, 5)):
        if min(speeds) <= speed <= max(speeds):
            y = up(speed)
            yield f'<line x1="70" y1="{y:.1f}" x2="620" y2="{y:.1f}" stroke="#ddd"/>'
            yield f'<text x="62" y="{y + 4:.1f}" text-anchor="end">{speed:,}</text>'
    yield '<text x="345" y="398" text-anchor="middle">batch size</text>'
    yield '<text x="70" y="14">samples/s; line: cost model, dot: published</text>'


def print_models(compared: Sequence[tuple[str, Sequence[Point]]]) -> None:
    """Print one line a published batch size."""
    width = max(21, *(len(name) + 1 for name, _ in compared))
    print(f"{'series':{width}}{'batch':>6}{'estimated':>11}{'published':>11}{'error':>9}  fits")
    for name, series_points in compared:
        for point in series_points:
            estimated, published = (
                "no fit" if speed is None else f"{speed:,.0f}" for speed in (point.estimated, point.published)
            )
            error = "" if point.error is None else f"{100 * point.error:+.1f} %"
            note = "no " if point.estimated is None else "yes"
            row = f"{name:{width}}{point.batch_size:6}{estimated:>11}{published:>11}{error:>9}  {note}"
            print((row + ("  fitted" if point.fitted else "")).rstrip())
    errors = [(abs(point.error), point.fitted) for _, dots in compared for point in dots if point.error is not None]
    if not errors:
        return
    others = [error for error, fitted in errors if not fitted] or [0.0]
    print(f"mean error {100 * mean(error for error, _ in errors):.1f} % of {len(errors)} rows,", end=" ")
    print(f"{100 * mean(others):.1f} % of those not fitted, the largest {100 * max(others):.1f} %")


class Boundary(NamedTuple):
    """Where a series ends: the largest batch sizes that fit, and the published answers that the cost model has wrong.

    Attributes:
        largest: by the cost model.
        published: that ran.
        too_large: the smallest that was out of memory; None when none was published.
        wrong: published batch sizes for which the cost model gives the other answer.
    """

    largest: int
    published: int
    too_large: int | None
    wrong: tuple[int, ...]


def boundary(series: dict[str, Any]) -> Boundary:
    """The largest batch sizes of a series; what fits at a batch size fits below."""
    largest = largest_batch(series)
    answers = dict(zip(series["batch_sizes"], (speed is not None for speed in series["samples_per_s"]), strict=True))
    return Boundary(
        largest,
        max(n for n, ran in answers.items() if ran),
        min((n for n, ran in answers.items() if not ran), default=None),
        tuple(n for n, ran in answers.items() if ran != (n <= largest)),
    )


def print_batches(all_series: Sequence[dict[str, Any]]) -> None:
    """Print where every series ends by the cost model and by its source, and how many answers differ."""
    print(f"\n{'largest batch':21}{'cost model':>11}{'ran':>6}{'out of memory':>15}  wrong answers")
    n_wrong = 0
    for series in all_series:
        ends = boundary(series)
        n_wrong += len(ends.wrong)
        wrong = ", ".join(f"{n} fits" if n <= ends.largest else f"{n} does not fit" for n in ends.wrong)
        note = "  fitted" if ends.too_large in series.get("fitted", ()) else ""
        row = f"{series['name']:21}{ends.largest:11}{ends.published:6}{ends.too_large or '-':>15}  {wrong}{note}"
        print(row.rstrip())
    n_rows = sum(len(series["batch_sizes"]) for series in all_series)
    print(f"{n_wrong} of {n_rows} answers to whether a batch size fits are wrong")


def print_kernels(errors: dict[str, list[float]]) -> None:
    """Print one line a kind of kernel."""
    print(f"\n{'kernel':20}{'rows':>6}{'mean error':>12}{'largest':>9}")
    for name, signed in errors.items():
        sizes = [abs(error) for error in signed]
        print(f"{name:20}{len(signed):6}{100 * mean(sizes):10.1f} %{100 * max(sizes):7.1f} %")


def print_rows(path: Path, models: Path | None) -> None:
    """Print the series of another file, one line a batch size, with whether it fits."""
    compared, failures = [], []
    for given in read_rows(path, ("series", "inference"), NEEDED):
        series = given if Path(given["model"]).is_file() else with_file(given, models)
        try:
            if series is None:
                raise BadInput(f"its file {given['model']}-script.onnx must be in the folder of --models")
            compared.append((given["name"], list(points(series))))
        except AutoautoError as error:
            failures.append(f"{given['name']}: no number, {error}")
    if compared:
        print_models(compared)
    print(*failures, sep="\n", end="\n" if failures else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, and draw the picture when asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw throughput by batch size, as SVG")
    parser.add_argument("--series", nargs="+", metavar="NAME", help="of the whole models only these; default: all")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="has the exported models, NAME-script.onnx")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="evaluate the series of this file only")
    args = parser.parse_args(argv)
    if args.rows:
        try:
            print_rows(args.rows, args.models)
        except BadInput as error:
            parser.error(str(error))
        return 0
    folder = data_dir() / "measurements"
    published = json.loads((folder / "throughput.json").read_text(encoding="utf-8"))["series"]
    names = [series["name"] for series in published]
    unknown = sorted(set(args.series or ()) - set(names))
    if unknown:
        parser.error(f"--series must name some of {names}; got {unknown}")
    chosen = [series for series in published if series["name"] in (args.series or names)]
    all_series = [known for series in chosen if (known := with_file(series, args.models))]
    if not all_series:
        parser.error(f"--series {' '.join(args.series)} needs --models FOLDER with its files")
    compared = [(series["name"], list(points(series))) for series in all_series]
    print_models(compared)
    print_batches(all_series)
    print_kernels(kernel_errors(json.loads((folder / "kernels.json").read_text(encoding="utf-8"))["kernels"]))
    if args.picture:
        drawn = [(name, list(line(series)), dots) for series, (name, dots) in zip(all_series, compared, strict=True)]
        args.picture.write_text(picture(drawn), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
