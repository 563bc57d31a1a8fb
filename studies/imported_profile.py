"""A profile of ONNX Runtime against our own profiler, on this machine: `python studies/imported_profile.py`.

    python studies/imported_profile.py [MODEL ...] [--runs N] [--rounds N]

Every model is run in ONNX Runtime with profiling on, in one thread on one core, and the file that this writes is
imported and planned for two devices. So is the model by our own profiler. Both plans then run on the host in turn.
Columns: where the first stage ends, the predicted period, the median of the measured ones, and how far the first is
from the second; "ratio" is the measured period relative to that of our own plan.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import onnx

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow, open_problem
from autoauto.graph.cut import onnx_source
from autoauto.graph.load import load_graph
from autoauto.plan.pipeline.problem import evaluate
from autoauto.records.layers import LayerRange, SubModel
from autoauto.records.plans.plan import Plan
from autoauto.space.knobs import Knobs
from autoauto.space.requests.problem import Problem, ProfileFiles
from autoauto.targets.host.measure.examples import examples

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = ("squeezenet", "bert-base-128")
KNOBS = Knobs(n_ipu=2, batch_size=1, runtime="onnxruntime")
COLUMNS = ("model", "profile", "cut", "predicted ms", "measured ms", "error", "ratio")
WIDTHS = (-14, -12, 5, 13, 12, 8, 6)


class Row(NamedTuple):
    """A plan: what made it, where its first stage ends, and its predicted and measured periods."""

    profile: str
    cut: int
    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """The prediction relative to the measurement, less 1."""
        return self.predicted_ms / self.measured_ms - 1


def model_file(name: str) -> str:
    """A built-in name as it is; a name of ONNX's light models as the path of its file."""
    path = LIGHT / f"light_{name}.onnx"
    return str(path) if path.is_file() else name


def record(model: str, folder: Path, n_runs: int) -> Path:
    """Run a model with profiling on in a process of its own; the file that ONNX Runtime writes."""
    graph = load_graph(model)
    whole = onnx_source(model).cut(graph, LayerRange(0, len(graph)), KNOBS.batch_size)
    with get_context("spawn").Pool(1) as process:
        return Path(process.apply(_run, (whole, str(folder / "profile"), n_runs)))


def _run(whole: SubModel, prefix: str, n_runs: int) -> str:
    import onnxruntime

    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_profiling, options.profile_file_prefix = True, prefix
    session: Any = onnxruntime.InferenceSession(whole.content, options, providers=["CPUExecutionProvider"])
    inputs = examples(whole.inputs)
    for _ in range(n_runs):
        session.run(None, inputs)
    return str(session.end_profiling())


def imported(model: str, profile: Path) -> Flow:
    """The model on this machine with the costs of a profile of ONNX Runtime."""
    files = ProfileFiles((str(profile),), "onnxruntime")
    return open_problem(Problem(model, cluster="host", profile=files))


def rows(model: str, n_runs: int, n_rounds: int) -> Iterator[Row]:
    """The plan of the imported profile, then that of our own profiler."""
    own = load_flow(model, target="host")
    with tempfile.TemporaryDirectory() as folder:
        flows = {"onnxruntime": imported(model, record(model, Path(folder), n_runs)), "our own": own}
    plans = {name: flow.predict(KNOBS) for name, flow in flows.items()}
    periods: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(n_rounds):
        for name, plan in plans.items():
            periods[name].append(measured_ms(own, plan))
    for name, plan in plans.items():
        predicted_ms = 1e3 * plan.cost_cycles / flows[name].cluster.clock_hz
        yield Row(name, plan.partition[1], predicted_ms, median(periods[name]))


def measured_ms(own: Flow, plan: Plan) -> float:
    """The period of the stages of a plan, run on the host."""
    run = own.measure(KNOBS, evaluate(own.table(KNOBS), plan.partition))
    return 1e3 * run.period_cycles / own.cluster.clock_hz


def line(cells: Sequence[str]) -> str:
    """A line of the table."""
    aligned = (
        cell.ljust(-width) if width < 0 else cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True)
    )
    return "  ".join(aligned).rstrip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help="default: all of the study")
    parser.add_argument("--runs", type=int, default=20, help="of a model with profiling on; default %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="in which both plans run; default %(default)s")
    args = parser.parse_args(arguments)
    print(line(COLUMNS))
    for name in args.models:
        both = list(rows(model_file(name), args.runs, args.rounds))
        for row in both:
            ratio = row.measured_ms / both[-1].measured_ms
            numbers = (f"{row.predicted_ms:.2f}", f"{row.measured_ms:.2f}", f"{row.error:+.1%}", f"{ratio:.2f}")
            print(line([name, row.profile, str(row.cut), *numbers]), flush=True)


if __name__ == "__main__":
    main()
