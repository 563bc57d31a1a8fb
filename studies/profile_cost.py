"""CPU time of making a profile with the cost model of the IPU: `python studies/profile_cost.py [--before CHECKOUT]`.

Every profile is made in a process of its own with an empty cache. "profile" is the time of `Flow.profile`, without
imports and reading the model; "command" is that of the whole `autoauto profile`. All times are medians of five. With
--before the package of another checkout of this repository makes the same profiles in turns with ours, and the ratios
are ours over theirs. `--quick` makes one small profile, once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import NamedTuple

N_REPEATS = 5
HERE = Path(__file__).parents[1]
PROGRAM = """
import sys, time
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.load import load_graph
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.target import CompileOptions, IpuTarget

model, batch_size, precision, mode = sys.argv[1:]
flow = Flow(Setting(load_graph(model), load_cluster("c600"), IpuTarget(), Precision(precision)))
start = time.process_time()
flow.profile(CompileOptions(int(batch_size), Precision(precision), mode == "training"))
print(time.process_time() - start)
"""
"""It names only what earlier versions of the package have, too, and where they have it."""


class Case(NamedTuple):
    """One profile."""

    model: str
    batch_size: int
    precision: str = "fp16"
    mode: str = "inference"


class Cost(NamedTuple):
    """CPU seconds of making a profile, and of the command that prints it."""

    profile_s: float
    command_s: float


CASES = (
    Case("bert-large-128", 1),
    Case("bert-large-128", 8),
    Case("bert-large-128", 18, "fp32"),
    Case("bert-large-128", 2, mode="training"),
    Case("resnet50", 1),
    Case("resnet50", 16),
    Case("resnet50", 90),
    Case("resnet50", 8, mode="training"),
    Case("gpt2-small", 1),
    Case("vit-b16", 8),
    Case("bert-base-256", 16),
)


def cost(case: Case, checkout: Path) -> Cost:
    """What one profile costs with the package of a checkout."""
    profile, _ = run(checkout, "-c", PROGRAM, *map(str, case))
    model, batch_size, precision, mode = map(str, case)
    options = ("--cluster", "c600", "--batch-size", batch_size, "--precision", precision, "--mode", mode)
    _, command_s = run(checkout, "-m", "autoauto", "profile", model, *options)
    return Cost(float(profile), command_s)


def run(checkout: Path, *argv: str) -> tuple[str, float]:
    """What a program prints that has an empty cache and one thread, and the CPU seconds that it takes."""
    with tempfile.TemporaryDirectory() as home:
        changed = {"PYTHONPATH": str(checkout), "HOME": home, "XDG_CACHE_HOME": home, "OMP_NUM_THREADS": "1"}
        before = getrusage(RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, *argv], check=False, cwd=home, env=os.environ | changed, capture_output=True, text=True
        )
        after = getrusage(RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{checkout}: {done.stderr}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def medians(case: Case, checkouts: Sequence[Path], n_repeats: int) -> list[Cost]:
    """Median costs of a case by checkout, which take turns."""
    rounds = [[cost(case, checkout) for checkout in checkouts] for _ in range(n_repeats)]
    return [Cost(*map(median, zip(*costs, strict=True))) for costs in zip(*rounds, strict=True)]


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line a case, and what all cases take together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="compare with this checkout's package")
    parser.add_argument("--quick", action="store_true", help="one small profile, once")
    args = parser.parse_args(argv)
    checkouts = [args.before.resolve(), HERE] if args.before else [HERE]
    cases, n_repeats = (CASES[-1:], 1) if args.quick else (CASES, N_REPEATS)
    columns = f"{'profile ms':>12}{'before':>8}{'ratio':>7}{'command s':>12}{'before':>8}{'ratio':>7}"
    print(f"{'model':16}{'batch':>6}  {'format':8}{'mode':11}{columns}")
    totals = [Cost(0.0, 0.0) for _ in checkouts]
    for case in cases:
        costs = medians(case, checkouts, n_repeats)
        totals = [Cost(*map(sum, zip(*both, strict=True))) for both in zip(totals, costs, strict=True)]
        print(f"{case.model:16}{case.batch_size:6}  {case.precision:8}{case.mode:11}{_cells(costs)}", flush=True)
    print(f"{'together':43}{_cells(totals)}")
    return 0


def _cells(costs: Sequence[Cost]) -> str:
    """Columns of ours, and of theirs before when there are any."""
    ours, before = costs[-1], costs[0] if len(costs) > 1 else None
    cells = []
    for name, factor, digits in (("profile_s", 1000, 1), ("command_s", 1, 2)):
        now = getattr(ours, name)
        cells.append(f"{factor * now:12.{digits}f}")
        cells.append(
            f"{factor * getattr(before, name):8.{digits}f}{now / getattr(before, name):7.2f}" if before else " " * 15
        )
    return "".join(cells).rstrip()


if __name__ == "__main__":
    sys.exit(main())
