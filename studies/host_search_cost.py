"""What a search on this machine costs: `python studies/host_search_cost.py [--before CHECKOUT|COMMIT]`.

Every search is a command in a process of its own, with an empty cache and a new database. "first" is when its first
trial is finished, "answer" when it has chosen, before turns, "end" when it ends, in seconds on the clock. "CPU s" is
user and system time of all its processes. "runs" are configurations that were measured, of which so many "early", and
"turns" the measurements at the end. With --before the package of another checkout or commit of this repository makes
every search just before, in turns, and "ratio" is the median of our CPU time over its. Seconds on the clock need an
idle machine; on a busy one compare CPU times and numbers of runs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from statistics import median
from time import time
from typing import Any, NamedTuple

import onnx

from studies.search_cost import HERE, checkout_of

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = ("squeezenet", "densenet121")
COLUMNS = (
    *(("first", 7), ("answer", 7), ("end", 7), ("CPU s", 7), ("runs", 5), ("early", 6), ("turns", 6)),
    ("samples/s", 10),
)


class Cost(NamedTuple):
    """What one search cost, and what it found.

    Attributes:
        first_s, answer_s, end_s: from its start, on the clock.
        cpu_s: user and system time of all its processes.
        n_runs: configurations that were measured.
        n_early: of them those whose run ended early.
        n_turns: measurements of the verification.
        samples_per_s: of its winner.
        winner: its winner in words.
    """

    first_s: float
    answer_s: float
    end_s: float
    cpu_s: float
    n_runs: int
    n_early: int
    n_turns: int
    samples_per_s: float
    winner: str

    @property
    def cells(self) -> str:
        """The numbers as cells of the table."""
        texts = (f"{value:.1f}" if isinstance(value, float) else str(value) for value in self[:-1])
        return "".join(f"{text:>{width}}" for text, (_, width) in zip(texts, COLUMNS, strict=True)) + f"  {self.winner}"


def search_cost(words: Sequence[str], checkout: Path) -> Cost:
    """What a search costs with the package of a checkout."""
    with tempfile.TemporaryDirectory() as home:
        argv = ["search", *words, "--target", "host", "--storage", f"sqlite:///{home}/studies.db", "--log", "json"]
        changed = {"PYTHONPATH": str(checkout), "AUTOAUTO_CACHE_DIR": home}
        before, start_s = _children_s(), time()
        done = subprocess.run(
            [sys.executable, "-m", "autoauto", *argv, "--json"],
            check=False,
            cwd=home,
            env=os.environ | changed,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(f"{checkout}: {done.stderr}")
        events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        return _cost(events, start_s, _children_s() - before, json.loads(done.stdout)["best"])


def _cost(events: Sequence[dict[str, Any]], start_s: float, cpu_s: float, best: dict[str, Any]) -> Cost:
    trials = [event for event in events if event["event"] == "trial" and event["measured"]]
    turns = [event for event in events if event["event"] == "progress" and event["phase"] == "verifying"]
    first_s, answer_s, end_s = (_seconds(event) - start_s for event in (trials[0], trials[-1], events[-1]))
    n_early = sum(event.get("ended_early", False) for event in trials)
    winner = f"{best['runtime']}, {best['n_ipu']} stages, {best['replicas']} x {best['cores_per_device']} cores"
    numbers = first_s, answer_s, end_s, cpu_s, len(trials), n_early, len(turns), best["samples_per_s"]
    return Cost(*numbers, f"{winner}, batch {best['batch_size']}")


def _model(name: str) -> str:
    """The light model of onnx of a name, or a file by its absolute path; else the name, of a built-in model."""
    light, file = LIGHT / f"light_{name}.onnx", Path(name)
    return str(light) if light.exists() else str(file.resolve()) if file.exists() else name


def _seconds(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def _children_s() -> float:
    """User and system time of all processes that this one has started and waited for, and of what those started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line a search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="light ones of onnx or paths; default %(default)s")
    parser.add_argument("--options", default="", help="of all searches, in quotes, for example '--repeats 0'")
    parser.add_argument("--before", metavar="CHECKOUT|COMMIT", help="compare with this package")
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="make each search so often; default 3")
    args = parser.parse_args(argv)
    heads = "".join(f"{name:>{width}}" for name, width in COLUMNS)
    print(f"{'model':14}{'':7}{heads}  winner")
    with ExitStack() as folders:
        before = folders.enter_context(checkout_of(args.before)) if args.before else None
        for name in args.models.split(","):
            words = [_model(name), *args.options.split()]
            ratios = []
            for _ in range(args.pairs):
                if before is not None:
                    earlier = search_cost(words, before)
                    print(f"{name:14}{'before':7}{earlier.cells}", flush=True)
                now = search_cost(words, HERE)
                print(f"{name:14}{'now':7}{now.cells}", flush=True)
                if before is not None:
                    ratios.append(now.cpu_s / earlier.cpu_s)
            if ratios:
                print(f"{name:14}CPU time: ratio {median(ratios):.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
