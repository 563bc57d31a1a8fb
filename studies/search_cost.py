"""What a first search costs, and the same search again: `python studies/search_cost.py [--before CHECKOUT|COMMIT]`.

Every search is a command in a process of its own, with an empty cache and a new database; "again" is the same search
with that cache and another new database. One that does not count compiles a package to bytecode first, as pip does.
CPU seconds are user and system time of the whole command, the median of --pairs. "x work" divides them by the CPU
seconds of a fixed piece of pure Python, measured just before, so that it compares between machines. "MiB" is the peak
of resident memory, "modules" how many were imported. Forecasts, profiles and compilations are calls of the functions
that make them, which the study wraps. With --before the package of another checkout or commit of this repository makes
every search just before, in turns, and "ratio" is the median of our CPU time over its, of the first search and of that
again. Searches on GPUs need the extra gpu.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
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
n_modules = len(sys.modules)
used = resource.getrusage(resource.RUSAGE_SELF)
seconds, mib = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
n_profiles = calls["profile_model"] + calls["profile"]
print(json.dumps([seconds, mib, n_modules, calls["forecast"], n_profiles, calls["compile"]]))
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
    "Qwen/Qwen3-32B --cluster h200_sxm-32",
    "Qwen/Qwen3-32B --cluster h100_sxm-32+l40s-32",
)
ON_GPUS = ("Qwen/Qwen3-32B --cluster h200_sxm-32", "Qwen/Qwen3-32B --cluster h100_sxm-32+h200_sxm-32")
SMALL = "resnet50 --cluster bow-2000 --batch-size 1:8 --memory-proportion 0.6"


class Cost(NamedTuple):
    """What one search cost: CPU seconds, the peak of memory, modules, and calls."""

    cpu_s: float
    peak_mib: float
    n_modules: int
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


@contextmanager
def checkout_of(before: str) -> Iterator[Path]:
    """The folder of a checkout, or one with the files of a commit, which is deleted at the end."""
    if Path(before).is_dir():
        yield Path(before).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        files = subprocess.run(["git", "archive", before], cwd=HERE, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x"], cwd=folder, check=True, input=files)
        yield Path(folder)


def measured(options: str, before: Path | None, n_pairs: int) -> str:
    """The line of a search."""
    work, then, now = work_s(), list[tuple[Cost, Cost]](), list[tuple[Cost, Cost]]()
    for _ in range(n_pairs):
        if before is not None:
            then.append(first_and_again(options, before))
        now.append(first_and_again(options, HERE))
    line = ""
    for turn, costs in enumerate(zip(*now, strict=True)):
        seconds = [cost.cpu_s for cost in costs]
        line += f"{median(seconds):9.2f}"
        if then:
            earlier = [pair[turn].cpu_s for pair in then]
            ratio = median(ours / theirs for ours, theirs in zip(seconds, earlier, strict=True))
            line += f"{median(earlier):8.2f}{ratio:7.2f}"
        line += f"{median(seconds) / work:8.1f}"
    first = now[-1][0]
    calls = f"{first.n_forecasts:11}{first.n_profiles:10}{first.n_compilations:14}"
    return f"{line}{first.peak_mib:6.0f}{first.n_modules:9}{calls}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line a search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("searches", nargs="*", help="options of searches, each in quotes; default: those of the study")
    parser.add_argument("--before", metavar="CHECKOUT|COMMIT", help="compare with this package")
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="make each search so often; default 3")
    args = parser.parse_args(argv)
    on_gpus = ON_GPUS if find_spec("aiconfigurator_core") else ()
    searches = args.searches or (*SEARCHES, *on_gpus)
    width = max(map(len, searches))
    ratio = f"{'before':>8}{'ratio':>7}" if args.before else ""
    columns = "".join(f"{name:>9}{ratio}{'x work':>8}" for name in ("CPU s", "again s"))
    print(f"{'search':{width}}{columns}{'MiB':>6}{'modules':>9}{'forecasts':>11}{'profiles':>10}{'compilations':>14}")
    with ExitStack() as folders:
        before = folders.enter_context(checkout_of(args.before)) if args.before else None
        for checkout in filter(None, (before, HERE)):
            first_and_again(SMALL, checkout)
        for options in searches:
            print(f"{options:{width}}{measured(options, before, args.pairs)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
