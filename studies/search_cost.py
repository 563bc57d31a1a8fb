"""What a first search costs, beside a fixed piece of work: `python studies/search_cost.py [--before CHECKOUT]`.

Every search is a command in a process of its own, with an empty cache and a new database; "again" is the same search
with that cache and another new database. One that does not count compiles a package to bytecode first, as pip does.
CPU seconds are user and system time of the whole command. "x work" divides them by the CPU seconds of a fixed piece of
pure Python, measured just before, so that it compares between machines. "MiB" is the peak of resident memory.
Forecasts, profiles and compilations are calls of the functions that make them, which the study wraps. With --before
the package of another checkout of this repository makes every search first, and "ratio" is our CPU time over its, of
the first search and of that again. `--small` makes one narrow search.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

HERE = Path(__file__).parents[1]
WORK_SIZE = 2_000_000
PROGRAM = """
import functools, json, resource, sys
from collections import Counter

calls = Counter()

def counted(owner, name):
    function = getattr(owner, name)

    @functools.wraps(function)
    def call(*args, **kwargs):
        calls[name] += 1
        return function(*args, **kwargs)

    setattr(owner, name, call)

from autoauto.profile import profiler
if hasattr(profiler, "profile_model"):  # of earlier versions; before others import it
    counted(profiler, "profile_model")
else:
    counted(profiler.Profiler, "profile")
from autoauto.evaluate.flow import Flow
from autoauto.targets.ipu.target import IpuTarget
counted(IpuTarget, "compile")
if hasattr(Flow, "forecast"):  # not in earlier versions, whose calls are not shown
    counted(Flow, "forecast")
from autoauto.__main__ import main

sys.argv = ["autoauto", "search", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
used = resource.getrusage(resource.RUSAGE_SELF)
seconds, mib = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
print(json.dumps([seconds, mib, calls["forecast"], calls["profile_model"] + calls["profile"], calls["compile"]]))
"""
SEARCHES = (
    "resnet50 --cluster bow-2000",
    "resnet50 --cluster bow-pod64",
    "gpt2-small --cluster bow-2000",
    "gpt2-small --cluster bow-pod64",
    "bert-base-128 --cluster bow-2000",
    "vit-b16 --cluster bow-pod16",
    "bert-large-128 --cluster bow-2000",
    "bert-large-128 --cluster bow-pod64",
    "bert-base-128 --cluster bow-2000 --mode training",
)
SMALL = ("resnet50 --cluster bow-2000 --batch-size 1:8 --memory-proportion 0.6",)


class Cost(NamedTuple):
    """What one search cost: CPU seconds, the peak of memory, and calls."""

    cpu_s: float
    peak_mib: float
    n_forecasts: int
    n_profiles: int
    n_compilations: int


def work_s() -> float:
    """CPU seconds of a fixed piece of pure Python: integers, a dictionary, texts and function calls."""

    def mixed(number: int) -> int:
        return (number * 2_654_435_761 + 12_345) % 1_000_003

    start = process_time()
    counts: dict[str, int] = {}
    number = 1
    for _ in range(WORK_SIZE):
        number = mixed(number)
        key = f"key_{number % 997}"
        counts[key] = counts.get(key, 0) + len(key.partition("_")[2])
    assert sum(counts.values()) > WORK_SIZE
    return process_time() - start


def first_and_again(options: str, checkout: Path) -> tuple[Cost, Cost]:
    """What a search costs with an empty cache, and then with what that one compiled."""
    with tempfile.TemporaryDirectory() as home:
        first, again = (_search(options, checkout, home, f"{turn}.db") for turn in range(2))
    return first, again


def _search(options: str, checkout: Path, home: str, database: str) -> Cost:
    changed = {"PYTHONPATH": str(checkout), "AUTOAUTO_CACHE_DIR": home, "OMP_NUM_THREADS": "1"}
    changed["PYTHONDONTWRITEBYTECODE"] = ""
    argv = [*options.split(), "--storage", f"sqlite:///{home}/{database}", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *argv],
        check=False,
        cwd=home,
        env=os.environ | changed,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{checkout}: {done.stderr}")
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line a search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="compare with this checkout's package")
    parser.add_argument("--small", action="store_true", help="one narrow search")
    args = parser.parse_args(argv)
    searches = SMALL if args.small else SEARCHES
    width = max(map(len, searches))
    before = f"{'before':>8}{'ratio':>7}" if args.before else ""
    columns = f"{'CPU s':>8}{before}{'x work':>8}{'again s':>9}{before}{'MiB':>6}"
    print(f"{'search':{width}}{columns}{'forecasts':>11}{'profiles':>10}{'compilations':>14}")
    checkouts = [args.before.resolve(), HERE] if args.before else [HERE]
    for checkout in checkouts:
        first_and_again(SMALL[0], checkout)
    for options in searches:
        earlier = first_and_again(options, checkouts[0]) if args.before else None
        work = work_s()
        first, again = now = first_and_again(options, HERE)
        ratios = [
            f"{then.cpu_s:8.2f}{cost.cpu_s / then.cpu_s:7.2f}" for cost, then in zip(now, earlier or (), strict=False)
        ]
        of_first, of_again = ratios or ("", "")
        seconds = (
            f"{first.cpu_s:8.2f}{of_first}{first.cpu_s / work:8.1f}{again.cpu_s:9.2f}{of_again}{first.peak_mib:6.0f}"
        )
        calls = f"{first.n_forecasts:11}{first.n_profiles:10}{first.n_compilations:14}"
        print(f"{options:{width}}{seconds}{calls}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
