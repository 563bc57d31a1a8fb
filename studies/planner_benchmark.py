"""The planner against the baselines: time and cost, from 24 layers to 10,000 and from 4 devices to 256.

    python studies/planner_benchmark.py [--quick] [--layers N,N] [--peers] [--csv FILE]
    python studies/planner_benchmark.py --periods [--quick] [--layers N,N]

Times are the median CPU time from prepared costs (`CostTable`) to the partition; a planner is stopped after 10 s. Costs
are max compute + max transfer, relative to the optimum; the dynamic programme of [auto-pipeline] (`three_axes`) must
return the same cost as `optimal` wherever it finishes. `--periods` compares the periods instead (`Period`), and devices
that exchange all to all, each with the time for a barrier. `--peers` also runs the public planners that are installed:

    pip install --no-deps torchgpipe                                   needs torch
    DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed          needs torch and setuptools
"""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from itertools import accumulate, chain, pairwise, repeat
from math import inf
from pathlib import Path
from platform import python_version
from random import Random
from statistics import median
from time import process_time, thread_time
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from autoauto.cli.main import main as autoauto
from autoauto.cli.options.values import integers
from autoauto.estimate.table import cost_table
from autoauto.plan.pipeline.optimal import anytime, optimal
from autoauto.plan.pipeline.problem import evaluate
from autoauto.records.costs.cost import CostTable, TensorUse
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.hardware import Cluster, Device, Link, Period
from autoauto.records.plans.plan import BoundedPlan
from autoauto.records.units import MIB, bytes_per_s
from studies.planner_baselines import (
    Partition,
    binary_search,
    block_partition,
    greedy_fill,
    three_axes,
    uniform_count,
    uniform_parameters,
)

Planner = Callable[[CostTable], Partition | None]

LAYERS, DEVICES = (24, 107, 200, 1000, 10_000), (4, 16, 64, 256)
SIZES = [(layers, devices) for layers in LAYERS for devices in DEVICES if devices <= layers / 2]
QUICK_SIZES = [(24, 4), (107, 16), (200, 16), (1000, 64), (10_000, 64)]
LIMIT_S, QUICK_LIMIT_S = 10.0, 1.0
RUNS, RUNS_S = 5, 1.0  # repetitions of a planner, fewer where they would take longer than this together
LINKS_GBPS = {"equal": (70.0,), "unequal": (10.0, 35.0, 70.0), "slow": (1.0, 3.5, 7.0)}  # between devices, in rotation
PLANNERS: dict[str, Planner] = {
    "optimal": lambda table: optimal(table).partition,
    "three axes": three_axes,
    "count": uniform_count,
    "parameters": uniform_parameters,
    "greedy fill": greedy_fill,
    "blocks": block_partition,
    "bisection": binary_search,
}


class Operation(NamedTuple):
    """One layer of a block: 1,000 cycles, MiB alive after it, and its weight in the parameters."""

    kcycles: float
    live_mib: float
    parameters: float


# Batch 16, sequence 128, hidden size 1024: 4 MiB a hidden state, the residual one is alive throughout.
TRANSFORMER = [
    Operation(*numbers)
    for numbers in (
        (20, 8, 0), (60, 12, 2), (60, 16, 2), (60, 16, 2), (40, 16, 0), (60, 16, 0), (40, 8, 0), (60, 8, 2),
        (10, 4, 0), (20, 8, 0), (220, 20, 8), (40, 20, 0), (220, 8, 8), (10, 4, 0),
    )
]  # fmt: skip
# A bottleneck block: convolutions 1x1, 3x3, 1x1 with activations, and the sum.
BOTTLENECK = [
    Operation(*numbers)
    for numbers in ((50, 30, 1), (10, 30, 0), (90, 30, 2.25), (10, 30, 0), (60, 48, 1), (15, 24, 0), (10, 24, 0))
]


def transformer(n_layers: int) -> list[Operation]:
    """Blocks between an embedding and a head, each with as many parameters as a block."""
    blocks = [TRANSFORMER[i % len(TRANSFORMER)] for i in range(n_layers - 2)]
    return [Operation(30, 4, 24), *blocks, Operation(400, 1, 24)]


def cnn(n_layers: int) -> list[Operation]:
    """Four parts: from each to the next the tensors halve and the parameters double."""
    parts = [4 * i // n_layers for i in range(n_layers)]
    blocks = [BOTTLENECK[i % len(BOTTLENECK)] for i in range(n_layers)]
    return [
        Operation(op.kcycles, op.live_mib / 2**part, op.parameters * 2**part)
        for op, part in zip(blocks, parts, strict=True)
    ]


def repeated(n_layers: int) -> list[Operation]:
    """Blocks of 12 random layers."""
    random = Random(0)
    block = [Operation(random.uniform(10, 400), random.choice((0.5, 1, 2, 4)), random.random()) for _ in range(12)]
    return [block[i % len(block)] for i in range(n_layers)]


# And the MiB of parameters for every device.
MODELS = {"transformer": (transformer, 450), "cnn": (cnn, 350), "repeated": (repeated, 450)}
LARGEST_MIB = 250  # parameters of one layer


def profile(operations: Sequence[Operation], parameter_mib: float) -> ModelProfile:
    """The operations as layers whose cycles vary by 5 %; equal operations share their code.

    They have `parameter_mib` in all, or less where one layer would have too many.
    """
    random = Random(0)
    code = {op: random.randint(1, 6) * MIB for op in dict.fromkeys(operations)}
    parameters = [op.parameters for op in operations]
    weight = MIB * min(parameter_mib / sum(parameters), LARGEST_MIB / max(parameters))
    live = [MIB // 4, *(int(op.live_mib * MIB) for op in operations)]
    layers = tuple(
        LayerProfile(
            forward_cycles=int(1000 * op.kcycles * random.uniform(0.95, 1.05)),
            backward_cycles=0,
            shared={f"vertexCode_{op}": code[op]},
            exclusive={"parameter": int(op.parameters * weight)},
            temporary_bytes=live[i + 1] + random.randint(1, 10) * MIB,
            carried_bytes=0,
            input_bytes=live[i],
            output_bytes=live[i + 1],
            activation_bytes=0,
        )
        for i, op in enumerate(operations)
    )
    names = tuple(map(str, range(len(layers))))
    return ModelProfile("random", "none", None, names, names, (None,) * len(layers), layers)


def cluster(n_devices: int, gbps: Sequence[float]) -> Cluster:
    """Devices of the example of [auto-pipeline]; the links between them have the given speeds in rotation."""
    device = Device("bow", 1.85e9, 894 * MIB, 1472, 638_976)
    host = Link(bytes_per_s(7), 50_000)
    between = tuple(Link(bytes_per_s(gbps[i % len(gbps)]), 3000) for i in range(n_devices - 1))
    return Cluster("pod", "ipu", (device,) * n_devices, (host, *between), (*between, host))


class Setting(NamedTuple):
    """A row of the table; every row is for all `MODELS`."""

    n_layers: int
    n_devices: int
    links: str


class Run(NamedTuple):
    """One planner on one model: infinite time where it was stopped, no cost where it returned no partition."""

    cpu_ms: float
    cost_cycles: int | None
    excess_bytes: int


Runs = dict[tuple[Setting, str, str], Run]  # by setting, planner and model


class OutOfTime(Exception):
    """A planner was stopped."""


@contextmanager
def stopped_after(cpu_s: float) -> Iterator[None]:
    """Raise `OutOfTime` when this much CPU time has passed."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def measure(planner: Planner, table: CostTable, limit_s: float) -> Run:
    """Run a planner a few times and evaluate its partition."""
    times_s: list[float] = []
    partition = None
    while len(times_s) < RUNS and (not times_s or sum(times_s) + times_s[-1] < RUNS_S):
        start_s = thread_time()  # the clock of the process is coarse while a timer runs
        try:
            with stopped_after(limit_s):
                partition = planner(table)
        except OutOfTime:
            return Run(inf, None, 0)
        times_s.append(thread_time() - start_s)
    cpu_ms = 1000 * median(times_s)
    if partition is None or any(start >= stop for start, stop in pairwise(partition)):
        return Run(cpu_ms, None, 0)
    plan = evaluate(table, partition)
    return Run(cpu_ms, plan.cost_cycles, max(stage.total_bytes - stage.limit_bytes for stage in plan.stages))


def measure_all(planners: dict[str, Planner], setting: Setting, limit_s: float) -> Runs:
    """Run every planner on every model of one setting."""
    runs: Runs = {}
    links = cluster(setting.n_devices, LINKS_GBPS[setting.links])
    for model, (operations, mib_a_device) in MODELS.items():
        layers = profile(operations(setting.n_layers), mib_a_device * setting.n_devices)
        table = cost_table(layers, links, 0.85)
        for name, planner in planners.items():
            runs[setting, name, model] = measure(planner, table, limit_s)
        exact = runs[setting, "three axes", model]
        assert exact.cpu_ms == inf or exact.cost_cycles == runs[setting, "optimal", model].cost_cycles
    return runs


def cpu_ms(runs: Runs, setting: Setting, planner: str) -> float:
    """The median CPU time of all models."""
    return median(runs[setting, planner, model].cpu_ms for model in MODELS)


def relative_cost(runs: Runs, setting: Setting, planner: str, model: str) -> float | None:
    """Cost over the optimum; None without a partition."""
    cost, best = runs[setting, planner, model].cost_cycles, runs[setting, "optimal", model].cost_cycles
    return None if cost is None or best is None else cost / best


def growth(runs: Runs, setting: Setting) -> float | None:
    """The time of `optimal` over that with the next fewer layers; None for the fewest."""
    fewer = [other for other in dict.fromkeys(key[0] for key in runs) if other[1:] == setting[1:] and other < setting]
    return cpu_ms(runs, setting, "optimal") / cpu_ms(runs, fewer[-1], "optimal") if fewer else None


def print_row(cells: Iterable[object]) -> None:
    """One line of the table."""
    widths = chain((6, 8, 8, 9, 11, 10, 8), repeat(14))
    print("".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False)).rstrip(), flush=True)


def row(runs: Runs, setting: Setting, planners: Iterable[str], limit_s: float) -> Iterator[str]:
    """The cells of one setting."""
    ours, exact, factor = cpu_ms(runs, setting, "optimal"), cpu_ms(runs, setting, "three axes"), growth(runs, setting)
    yield from map(str, setting)
    yield from (in_ms(ours, limit_s), in_ms(exact, limit_s))
    yield f"> {1000 * limit_s / ours:,.0f}x" if exact == inf else f"{exact / ours:,.0f}x"
    yield "-" if factor is None else f"{factor:.1f}x"
    for name in planners:
        time = cpu_ms(runs, setting, name)
        yield in_ms(time, limit_s) + ("" if time == inf else f" {cost_cell(runs, setting, name):>6}")


def in_ms(time: float, limit_s: float) -> str:
    """A time, or that the planner was stopped."""
    return f"> {limit_s:.0f} s" if time == inf else f"{time:.2f}" if time < 10 else f"{time:,.0f}"


def cost_cell(runs: Runs, setting: Setting, planner: str) -> str:
    """The highest relative cost of all models."""
    ratios = [relative_cost(runs, setting, planner, model) for model in MODELS]
    known = [ratio for ratio in ratios if ratio is not None]
    over = any(runs[setting, planner, model].excess_bytes > 0 for model in MODELS)
    return f"{max(known):.2f}{'!' if over else ' '}" if len(known) == len(ratios) else "none "


def legend(limit_s: float) -> str:
    """The meaning of the columns."""
    links = ", ".join(f"{name} {'/'.join(f'{gbps:g}' for gbps in speeds)}" for name, speeds in LINKS_GBPS.items())
    return f"""\
Links in GB/s: {links}. Models: {", ".join(MODELS)}.
CPU ms, the median of the models, then the worst cost / optimum of them; > {limit_s:.0f} s: stopped;
!: a model exceeds memory; none: on a model, a device is left without layers.
speed-up: three axes / optimal; growth: optimal / optimal with the next fewer layers. Python {python_version()}."""


def planning_shares() -> Iterator[str]:
    """The share of planning in the CPU time of `autoauto search` with the default space."""
    times_s: list[float] = []

    def timed(table: CostTable) -> BoundedPlan:
        start_s = process_time()
        try:
            return anytime(table)
        finally:
            times_s.append(process_time() - start_s)

    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"AUTOAUTO_CACHE_DIR": folder}):
        for profiles in ("new", "known"):
            times_s.clear()
            start_s = process_time()
            with patch("autoauto.evaluate.modes.inference.anytime", timed), redirect_stdout(io.StringIO()):
                assert autoauto(["search", "--storage", f"sqlite:///{folder}/{profiles}.db", "--json"]) == 0
            total_s = process_time() - start_s
            share = sum(times_s) / total_s
            yield f"Default search, {profiles} profiles: {len(times_s)} plans, {share:.1%} of {total_s:.1f} s"


def cycles(table: CostTable) -> list[int]:
    """The compute of every layer, which other planners balance."""
    prefix: list[int] = table.compute_prefix_cycles.tolist()
    return [stop - start for start, stop in pairwise(prefix)]


def torchgpipe(module: Any, table: CostTable) -> Partition:
    """`torchgpipe.balance.blockpartition.solve`, which returns the costs in every part."""
    parts = module.solve(cycles(table), partitions=table.n_devices)
    return tuple(accumulate(map(len, parts), initial=0))


def deepspeed(module: Any, table: CostTable) -> Partition:
    """`deepspeed.runtime.utils.partition_balanced`, which returns boundaries."""
    return tuple(map(int, module.partition_balanced(cycles(table), table.n_devices)))


PEERS = {"torchgpipe.balance.blockpartition": torchgpipe, "deepspeed.runtime.utils": deepspeed}


def installed_peers() -> dict[str, Planner]:
    """The public planners that can be imported; prints which ones cannot."""
    peers: dict[str, Planner] = {}
    for module_name, adapter in PEERS.items():
        try:
            with redirect_stdout(sys.stderr):
                module = importlib.import_module(module_name)
        except ImportError as error:
            print(f"{adapter.__name__} is not installed: {error}")
        else:
            peers[adapter.__name__] = partial(adapter, module)
    return peers


def periods_row(n_layers: int, n_devices: int, limit_s: float) -> Iterator[str]:
    """CPU ms for every period on links of unequal speed, and all to all, each over that for a barrier."""
    links = cluster(n_devices, LINKS_GBPS["unequal"])
    yield from (str(n_layers), str(n_devices))
    layers = {model: profile(operations(n_layers), mib * n_devices) for model, (operations, mib) in MODELS.items()}
    barrier_ms = 0.0
    for period, spread in [*((period, False) for period in Period), (Period.SERIAL, True)]:
        times_ms = []
        for model_profile in layers.values():
            sizes = [layer.output_bytes for layer in model_profile.layers[:-1]]
            tensors = [TensorUse(i, (i + 1,), n_bytes) for i, n_bytes in enumerate(sizes)] if spread else None
            table = cost_table(model_profile, links, 0.85, period, tensors=tensors)
            times_ms.append(measure(PLANNERS["optimal"], table, limit_s).cpu_ms)
        time = median(times_ms)
        barrier_ms = barrier_ms or time
        yield in_ms(time, limit_s) + ("" if time == inf else f"  {time / barrier_ms:.2f}x")


def print_periods(sizes: Sequence[tuple[int, int]], limit_s: float) -> None:
    """The table of `--periods`."""
    for cells in [("layers", "devices", *Period, "all to all"), *(periods_row(*size, limit_s) for size in sizes)]:
        first, second, *rest = cells
        print(f"{first:>6}{second:>9}", *(f"{cell:>18}" for cell in rest), sep="", flush=True)
    print(f"CPU ms, the median of {', '.join(MODELS)}, over that for a barrier; all to all with the period serial.")


def write_csv(path: Path, runs: Runs) -> None:
    """One line a run; empty where there is no value."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow((*Setting._fields, "planner", "model", *Run._fields, "relative_cost"))
        for (setting, planner, model), run in runs.items():
            writer.writerow((*setting, planner, model, *run, relative_cost(runs, setting, planner, model)))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table, its legend, the growth of the planner and its share of a search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sizes, planners stopped after 1 s: under a minute")
    parser.add_argument(
        "--layers", type=integers, metavar="N,N", help="only models of so many layers; default: all sizes"
    )
    parser.add_argument("--peers", action="store_true", help="run the public planners that are installed, too")
    parser.add_argument("--periods", action="store_true", help="compare the periods, not the planners")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every run to a file")
    args = parser.parse_args(argv)
    sizes, limit_s = (QUICK_SIZES, QUICK_LIMIT_S) if args.quick else (SIZES, LIMIT_S)
    sizes = [size for size in sizes if size[0] in (args.layers or LAYERS)]
    if args.periods:
        print_periods(sizes, limit_s)
        return
    planners = PLANNERS | (installed_peers() if args.peers else {})
    others = list(planners)[2:]
    runs: Runs = {}
    print_row((*("layers", "devices", "links", "optimal", "three axes", "speed-up", "growth"), *others))
    for setting in (Setting(*size, links) for size in sizes for links in LINKS_GBPS):
        runs |= measure_all(planners, setting, limit_s)
        print_row(row(runs, setting, others, limit_s))
    print(legend(limit_s))
    factors = [growth(runs, setting) for setting in {key[0] for key in runs} if setting.n_layers == LAYERS[-1]]
    if known := [factor for factor in factors if factor is not None]:
        print(f"From 1,000 to 10,000 layers on as many devices: at most {max(known):.1f}x the time.")
    for line in planning_shares():
        print(line, flush=True)
    if args.csv:
        write_csv(args.csv, runs)


if __name__ == "__main__":
    main()
