"""How many measured rows lie in their intervals of 80 % after rows of the same or other lengths were measured.

    python studies/carried_ratios.py --rows FILE.csv [--seed 0]

Rows have the columns of `systems/silicon_sample.csv` [aiconfigurator]. A question is the rows of a model, an engine,
a system and a format that have the same lengths of prompts and answers. Some rows of one question are measured, drawn
at random; `--measured` makes factors of these, and the rows that are left, and those of other questions of the same
group, are counted where they lie in the interval of their factor. Questions whose `zlib.crc32` is even chose the
variance of an octave in `autoauto/targets/gpu/calibration.py`; the odd ones judge it.
"""

from __future__ import annotations

import argparse
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.decoder import Workload
from autoauto.targets.gpu.calibration import Factor, Group, Ratio, fit, octaves
from studies.gpu_accuracy import one_pool_rows, ratios_of
from studies.gpu_fit import UNEXPLAINED

NUMBERS = (1, 3, 5)
"""Rows that are measured."""
BINS = (("the same lengths", 0.0), ("to 1.5 octaves", 1.5), ("to 3.5", 3.5), ("further", np.inf))
MIN_ROWS = 5
"""Of a group."""


class Count(NamedTuple):
    """Rows of a question after some of a question were measured.

    Attributes:
        half: of the question.
        n_measured: rows.
        n_octaves: between the lengths of both.
        tpot, ttft: the shares in their intervals.
    """

    half: str
    n_measured: int
    n_octaves: float
    tpot: float
    ttft: float


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    ratios = [ratio for row in one_pool_rows(arguments.rows) for ratio in ratios_of(row)]
    counts = list(counts_of(ratios, np.random.default_rng(arguments.seed)))
    for half in ("even", "odd"):
        print(f"{half}: rows in their intervals of 80 %, by the distance of lengths")
        for title, some in binned([each for each in counts if each.half == half]):
            tpot, ttft = (mean(getattr(each, name) for each in some) for name in ("tpot", "ttft"))
            print(f"  {title:16} {len(some):5} pairs of questions  TPOT {tpot:6.1%}  TTFT {ttft:6.1%}")


def counts_of(ratios: Sequence[Ratio], random: np.random.Generator) -> Iterator[Count]:
    """Every question measured, and every question of its group judged."""
    for group, of_group in _by_group(ratios).items():
        if group in UNEXPLAINED or sum(map(len, of_group.values())) < MIN_ROWS:
            continue
        for measured in of_group.values():
            for n_measured in NUMBERS:
                if len(measured) < n_measured:
                    continue
                known = [measured[index] for index in random.choice(len(measured), n_measured, replace=False)]
                for requests, rows in of_group.items():
                    if rest := [row for row in rows if not any(row is each for each in known)]:
                        yield _count(group, requests, known, rest)


def _by_group(ratios: Sequence[Ratio]) -> dict[Group, dict[Workload, list[Ratio]]]:
    groups: dict[Group, dict[Workload, list[Ratio]]] = defaultdict(lambda: defaultdict(list))
    for ratio in ratios:
        assert ratio.requests is not None
        groups[ratio.group][ratio.requests].append(ratio)
    return groups


def _count(group: Group, requests: Workload, known: Sequence[Ratio], rest: Sequence[Ratio]) -> Count:
    factors = fit(known).of(group, requests)
    assert known[0].requests is not None
    return Count(
        "odd" if zlib.crc32("|".join(map(str, (*group, *requests))).encode()) % 2 else "even",
        len(known),
        octaves(requests, known[0].requests),
        _share([row.tpot for row in rest], factors.tpot),
        _share([row.ttft for row in rest], factors.ttft),
    )


def _share(ratios: Sequence[float | None], factor: Factor) -> float:
    known = [ratio for ratio in ratios if ratio is not None]
    return mean(factor.low <= ratio <= factor.high for ratio in known)


def binned(counts: Sequence[Count]) -> Iterator[tuple[str, list[Count]]]:
    """Counts by distance, the near ones first."""
    lowest = -1.0
    for title, most in BINS:
        some = [each for each in counts if lowest < each.n_octaves <= most]
        lowest = most
        if some:
            yield title, some


if __name__ == "__main__":
    main()
