"""Serialised against naive loops of phased execution, measured and predicted: `python studies/phased_gain.py`.

Trains the network of [popxl-mnist] on handwritten digits, in one process whose memory budget the model exceeds. A
round measures the parts of every phase alone and then updates of each number of steps by both loops; the table shows
medians over rounds, in seconds of CPU time. "predicted" is the sum of the parts: serialised V + N (L + C + S), naive
N (V + L + C + S), with the sums of gradients and the optimiser as in `PhaseTimes`. "busy" is wall time over CPU time; a
round on a busy machine is measured again, and the least busy round counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from autoauto.programs.phased_training.network import Network, read_samples
from autoauto.programs.phased_training.training import UpdateLoop
from autoauto.targets.host.memory_budget import run_alone
from studies.phase_times import MeasuredRound, PhaseTimes, measure, medians

DIGITS = Path(__file__).parents[1] / "data/samples/digits.csv.gz"
STEPS = (1, 2, 4, 8, 16, 32, 64)
NAIVE, SERIALISED = UpdateLoop(serialised=False), UpdateLoop(serialised=True)
BUSY = 1.2
COLUMNS = ("steps", "naive s", "predicted", "serialised s", "predicted", "gain", "predicted", "difference", "busy")
WIDTHS = (5, 9, 11, 14, 11, 7, 11, 12, 6)


class Study(NamedTuple):
    """The size of the study."""

    network: Network
    budget_bytes: int
    n_rounds: int
    n_tries: int
    repeats: int


FULL = Study(Network(n_hidden=1024, steps=64), 20 * 2**20, n_rounds=5, n_tries=3, repeats=9)
QUICK = Study(Network(n_hidden=64, steps=64), 8 * 2**20, n_rounds=1, n_tries=1, repeats=2)


def measure_round(study: Study) -> MeasuredRound:
    """The first round that other processes do not disturb, or the least disturbed of `n_tries`."""
    rounds: list[MeasuredRound] = []
    while len(rounds) < study.n_tries and not (rounds and busy(rounds[-1]) < BUSY):
        worker = (study.network, read_samples(DIGITS), STEPS, (NAIVE, SERIALISED), study.repeats)
        rounds.append(run_alone(measure, *worker, budget_bytes=study.budget_bytes).result)
    return min(rounds, key=busy)


def busy(measured: MeasuredRound) -> float:
    """Wall time over CPU time of all loops."""
    times = measured.loops.values()
    return sum(time.wall_s for time in times) / sum(time.cpu_s for time in times)


def phase_medians(rounds: Sequence[MeasuredRound]) -> list[PhaseTimes]:
    """Every part of every phase, the median over rounds."""
    parts = PhaseTimes.__slots__
    calls = zip(*(measured.phases for measured in rounds), strict=True)
    return [PhaseTimes(**medians([{part: getattr(run, part) for part in parts} for run in runs])) for runs in calls]


def row(rounds: Sequence[MeasuredRound], phases: Sequence[PhaseTimes], steps: int) -> tuple[str, ...]:
    """One line of the table."""
    naive, serialised = (median(run.loops[steps, loop].cpu_s for run in rounds) for loop in (NAIVE, SERIALISED))
    naive_predicted = sum(phase.naive_s(steps) for phase in phases)
    serialised_predicted = sum(phase.serialised_s(steps) for phase in phases)
    gain, predicted = naive / serialised, naive_predicted / serialised_predicted
    wall_over_cpu = median(run.loops[steps, NAIVE].wall_s / run.loops[steps, NAIVE].cpu_s for run in rounds)
    seconds = (f"{value:.4f}" for value in (naive, naive_predicted, serialised, serialised_predicted))
    ratios = (f"{gain:.2f}", f"{predicted:.2f}", f"{100 * (predicted / gain - 1):+.1f} %", f"{wall_over_cpu:.2f}")
    return (str(steps), *seconds, *ratios)


def print_row(cells: Sequence[str]) -> None:
    """Print cells under each other."""
    print("".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True)), flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small network, one round: a few seconds")
    study = QUICK if parser.parse_args(argv).quick else FULL
    rounds = []
    for i in range(study.n_rounds):
        print(f"round {i + 1} of {study.n_rounds}", file=sys.stderr)
        rounds.append(measure_round(study))
    phases = phase_medians(rounds)
    print_row(COLUMNS)
    for steps in STEPS:
        print_row(row(rounds, phases, steps))
    trained_mib, budget_mib = study.network.trained_bytes / 2**20, study.budget_bytes / 2**20
    print(
        f"Weights and optimiser {trained_mib:.1f} MiB, budget {budget_mib:.1f} MiB by RLIMIT_DATA of the worker, to "
        "which the memory of the runtime itself is added."
    )


if __name__ == "__main__":
    main()
