"""Search methods against each other: measurements, quality of the result, and time.

    python studies/search_efficiency.py [--models NAME ...] [--clusters NAME ...] [--quick | --batch-sizes N,N]

Every case is a model on a cluster with the default space: n_ipu 1, 2, 4 up to the size of the cluster, three memory
proportions, batch sizes 1 to 128. Without `--models` the cases are all built-in models and the light models of the onnx
wheel; a model of fixed batch size has no batch to search and is left out. "measured" counts configurations compiled
whole, "calls" also those that no plan fits; "found" is the best measured throughput in % of the best of all
configurations. Every search runs in a separate process with empty caches and a new database, two at a time, and
"CPU" and "wall" are a guided search's times over those of `grid-bisect`; no other program should run meanwhile.

`exhaustive` measures everything, which takes minutes a case; `--quick` leaves out two of three batch sizes, in all
methods. Measurements refine the estimate, and the estimate decides where a configuration is cut into stages, so a short
search may cut better than the exhaustive one and find more than 100 %.

Exits with 1 when `guided` does not meet a target: at least 99.5 % found and at most 12 measured in every case, 6 in
half of them, and no more wall time than `grid-bisect`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from typing import NamedTuple

from autoauto.cli.options.values import integers
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.load import load_graph
from autoauto.profile.cache import ProfileCache
from autoauto.records.installation import builtin_models
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method, Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial
from autoauto.study.methods.registry import MethodChoice, predictor
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.target import IpuTarget

CLUSTERS = ("bow-2000", "bow-pod16")
N_IPU = (1, 2, 4)
"""One pipeline: exhaustive would measure every replica of it again, with the same stages."""
METHODS = (Method.GUIDED, Method.GRID_BISECT, Method.EXHAUSTIVE)
BATCH_SIZES, QUICK_BATCH_SIZES = range(1, 129), range(1, 129, 3)
MIN_QUALITY, MAX_MEASURED, MEDIAN_MEASURED, MAX_TIME = 0.995, 12, 6, 1.0
HEADER = f"{'model':<20}{'cluster':<12}{'guided':>21}{'grid-bisect':>21}{'exhaustive':>16}{'guided/bisect':>15}"
COLUMNS = f"{'':<32}{'measured calls  found':>21}{'measured calls  found':>21}{'measured calls':>16}{'CPU   wall':>15}"


class Case(NamedTuple):
    """A model on a cluster, and the batch sizes of the space."""

    model: str
    cluster: str
    batch_sizes: Sequence[int]


class Result(NamedTuple):
    """The best throughput of a search and its effort: calls, and seconds without those of loading the model."""

    samples_per_s: float
    n_measured: int
    n_calls: int
    cpu_s: float
    wall_s: float


def search(case: Case, method: Method) -> Result:
    """One search with an empty cache and a new study."""
    graph, cluster = load_graph(case.model), load_cluster(case.cluster)
    space = SearchSpace(tuple(n for n in N_IPU if n <= len(cluster)), batch_size=tuple(case.batch_sizes))
    calls: list[Knobs] = []
    with tempfile.TemporaryDirectory() as folder:
        flow = Flow(Setting(graph, cluster, IpuTarget(), cache=ProfileCache(Path(folder) / "profiles.db")))

        def evaluate(knobs: Knobs) -> Trial:
            calls.append(knobs)
            return flow.evaluate(knobs)

        cpu_s, wall_s = process_time(), monotonic()
        if method is Method.EXHAUSTIVE:  # without a database: nothing is timed here, and each trial would cost more
            trials = [evaluate(knobs) for cell in space.cells for knobs in cell]
            best, n_measured = max(t.samples_per_s for t in trials), sum(t.was_measured for t in trials)
        else:
            study = open_study(f"sqlite:///{folder}/study.db", "study", Objective.THROUGHPUT, {"case": str(case)})
            predict = predictor(flow.expect, Objective.THROUGHPUT)
            propose = MethodChoice(method).proposer(predict, Objective.THROUGHPUT)
            result = run_search(space, evaluate, study, Objective.THROUGHPUT, method=propose)
            best, n_measured = 0.0 if result.best is None else result.best.samples_per_s, result.counts.n_measured
        return Result(best, n_measured, len(calls), process_time() - cpu_s, monotonic() - wall_s)


def default_models() -> list[str]:
    """The built-in models, and the light models of the onnx wheel where it is installed."""
    wheel = find_spec("onnx")
    folder = Path(wheel.origin).parent / "backend/test/data/light" if wheel and wheel.origin else Path()
    return [*builtin_models(), *map(str, sorted(folder.glob("light_*.onnx")))]


def cases(models: Sequence[str], clusters: Sequence[str], batch_sizes: Sequence[int]) -> Iterator[Case]:
    """Every model on every cluster, without models of a fixed batch size."""
    for model in models:
        if load_graph(model).fixed_batch is not None:
            print(f"{Path(model).stem} has a fixed batch size: left out", file=sys.stderr)
            continue
        for cluster in clusters:
            yield Case(model, cluster, batch_sizes)


def quality(result: Result, best: Result) -> float:
    """The throughput of a search as a share of the best possible one; 1 when nothing fits."""
    return result.samples_per_s / best.samples_per_s if best.samples_per_s else 1.0


def row(case: Case, guided: Result, bisect: Result, exhaustive: Result) -> str:
    """One line of the table."""
    both = "".join(
        f"{result.n_measured:>9}{result.n_calls:>6}{100 * quality(result, exhaustive):>6.1f}"
        for result in (guided, bisect)
    )
    ratios = f"{guided.cpu_s / bisect.cpu_s:>8.2f}{guided.wall_s / bisect.wall_s:>7.2f}"
    names = f"{Path(case.model).stem:<20}{case.cluster:<12}"
    return f"{names}{both}{exhaustive.n_measured:>9}{exhaustive.n_calls:>7}{ratios}"


def violations(rows: Sequence[tuple[Result, Result, Result]]) -> list[str]:
    """The targets that `guided` does not meet."""
    measured = [guided.n_measured for guided, _, _ in rows]
    shares = [quality(guided, exhaustive) for guided, _, exhaustive in rows]
    times = [guided.wall_s / bisect.wall_s for guided, bisect, _ in rows]
    targets = {
        f"found {100 * min(shares):.2f} % at least, wanted {100 * MIN_QUALITY} %": min(shares) < MIN_QUALITY,
        f"measured {max(measured)} at most, wanted {MAX_MEASURED}": max(measured) > MAX_MEASURED,
        f"measured {median(measured):g} in the median, wanted {MEDIAN_MEASURED}": median(measured) > MEDIAN_MEASURED,
        f"took {max(times):.2f} times as long as grid-bisect at most, wanted {MAX_TIME:g}": max(times) > MAX_TIME,
    }
    return [target for target, is_violated in targets.items() if is_violated]


def summary(rows: Sequence[tuple[Result, Result, Result]]) -> str:
    """Medians and extremes of all cases, method by method."""
    lines = []
    for method, column in zip(METHODS, zip(*rows, strict=True), strict=True):
        measured, calls = [result.n_measured for result in column], [result.n_calls for result in column]
        shares = [100 * quality(result, all_rows[2]) for result, all_rows in zip(column, rows, strict=True)]
        lines.append(
            f"{method:<12} measured median {median(measured):g}, max {max(measured)}; calls median {median(calls):g}, "
            f"max {max(calls)}; found median {median(shares):.2f} %, min {min(shares):.2f} %"
        )
    for name in ("cpu_s", "wall_s"):
        ratios = [getattr(guided, name) / getattr(bisect, name) for guided, bisect, _ in rows]
        lines.append(f"guided / grid-bisect {name}: median {median(ratios):.2f}, max {max(ratios):.2f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Search every case with every method, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", metavar="NAME|FILE", help="default: built-in and light models")
    parser.add_argument("--clusters", nargs="+", default=CLUSTERS, metavar="NAME|FILE", help="default: %(default)s")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="a third of the batch sizes")
    sizes.add_argument("--batch-sizes", type=integers, metavar="N,N", help="only these batch sizes; default: 1 to 128")
    args = parser.parse_args(argv)
    batch_sizes = args.batch_sizes or (QUICK_BATCH_SIZES if args.quick else BATCH_SIZES)
    print(f"{HEADER}\n{COLUMNS}")
    rows: list[tuple[Result, Result, Result]] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn, max_tasks_per_child=1) as pool:
        pending: list[tuple[Case, list[Future[Result]]]] = [
            (case, [pool.submit(search, case, method) for method in METHODS])
            for case in cases(args.models or default_models(), args.clusters, batch_sizes)
        ]
        for case, futures in pending:
            guided, bisect, exhaustive = (future.result() for future in futures)
            rows.append((guided, bisect, exhaustive))
            print(row(case, guided, bisect, exhaustive), flush=True)
    print(summary(rows))
    violated = violations(rows)
    print("\n".join(f"NOT MET: {target}" for target in violated) or "all targets met")
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main())
