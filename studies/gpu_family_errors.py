"""Fits how far forecasts of every family of decoders are from measured rows: writes `data/errors/gpu.csv`.

    python -m studies.gpu_family_errors --rows FILE.csv > data/errors/gpu.csv

Rows have the columns of `systems/silicon_sample.csv` [aiconfigurator]; only those of which `zlib.crc32(id)` is even and
of other families than the dense one are read: the other half examines it (`studies/gpu_accuracy.py`).

    one system        the median of its rows, pulled to that of the family; spread: 80 % of rows lie within 1.28 of it
    other systems     the median of all rows, pulled to 1 where systems are few; spread: that of rows and of systems
    other families    1; spread: that of all rows around it

The time to the first token belongs to the load driver as much as to the engine: it is not multiplied, and its spread is
that of a family with an engine and a format on all systems.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np

from autoauto.evaluate.serving.measured import ratio_of, replicas_of
from autoauto.evaluate.serving.rows import Row, read_rows
from autoauto.records.errors import AutoautoError
from autoauto.targets.gpu.calibration import INTERVAL
from autoauto.targets.gpu.family_errors import DENSE, ErrorKey, FamilyErrors
from autoauto.targets.gpu.systems import system_named
from studies import gpu_accuracy

_WITHIN = NormalDist().inv_cdf(0.5 + INTERVAL / 2)
"""Standard deviations within which the rows of an interval lie."""
_OF_SYSTEMS, _OF_FAMILIES = 0.12, 0.2
"""How medians of systems differ in a family, and those of families, as standard deviations of logarithms."""
_SOURCE = "fitted to the even half of systems/silicon_sample.csv of aiconfigurator-core 0.12.0, NVIDIA; Apache-2.0"
_N_OF_SPREAD = 2
"""Rows that the spread of all groups counts as, beside those of a group."""
Logs = dict[ErrorKey, list[tuple[float, float]]]
"""Logarithms of measured over forecast TPOT and TTFT, by group."""


def main() -> None:
    """Print the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    rows = [row for row in read_rows(parser.parse_args().rows) if gpu_accuracy.half(row) == "even"]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow((*ErrorKey._fields, *FamilyErrors._fields, "source"))
    source = _SOURCE
    of_single, of_pools = (logs_of([row for row in rows if row.has_pools is has_pools]) for has_pools in (False, True))
    for key, errors in fitted_errors(of_single, of_pools):
        writer.writerow((*key, errors.n_rows, *(f"{number:.3f}" for number in errors[1:]), source))
        source = ""


def logs_of(rows: Sequence[Row]) -> Logs:
    """The ratios of all rows that have a forecast; of one pool those of groups inside a node, which others are not."""
    logs: Logs = defaultdict(list)
    for row in rows:
        try:
            decoder = gpu_accuracy.decoder_of_row(row)
            ratio, serving = ratio_of(row, decoder), replicas_of(row, decoder).serving
        except AutoautoError:
            continue
        if not row.has_pools and serving.tensor_parallel > system_named(serving.system).n_gpus_per_node:
            continue
        key = ratio.group.error_key
        if key.family != DENSE and ratio.tpot and ratio.ttft:
            logs[key].append((log(ratio.tpot), log(ratio.ttft)))
    return logs


def fitted_errors(logs: Logs, of_pools: Logs | None = None) -> Iterator[tuple[ErrorKey, FamilyErrors]]:
    """What rows say of all others, of every family with an engine and a format, and of it on every system.

    Rows of two pools say nothing of others, and have the spread of all others where they are few.
    """
    every = [pair for pairs in logs.values() for pair in pairs]
    around = [(tpot - _median(pairs), ttft) for pairs in logs.values() for tpot, ttft in pairs]
    pooled = _spread([tpot for tpot, _ in around])
    of_all = _spread([tpot for tpot, _ in every]), _spread([ttft for _, ttft in every])
    yield ErrorKey(), FamilyErrors(0, 1.0, 1.0, *of_all)
    logs = {**logs, **(of_pools or {})}
    families = sorted({key._replace(system="") for key in logs})
    for family in families:
        systems = {key: pairs for key, pairs in sorted(logs.items()) if key._replace(system="") == family}
        yield from _of_family(family, systems, pooled, of_all[1])


def _of_family(family: ErrorKey, systems: Logs, pooled: float, ttft: float) -> Iterator[tuple[ErrorKey, FamilyErrors]]:
    pairs = [pair for some in systems.values() for pair in some]
    weight = len(systems) / (len(systems) + (_OF_SYSTEMS / _OF_FAMILIES) ** 2)
    centre = weight * _median(pairs)
    of_systems = sqrt(_OF_SYSTEMS**2 + (1 - weight) * _OF_FAMILIES**2)
    spread = sqrt(pooled**2 + of_systems**2)
    ttft = _with_pooled(pairs, _spread([ttft for _, ttft in pairs]), ttft)
    yield family, FamilyErrors(len(pairs), exp(_median(pairs)), exp(centre), spread, ttft)
    for key, some in systems.items():
        share = len(some) / (len(some) + (pooled / of_systems) ** 2)
        middle = centre + share * (_median(some) - centre)
        own = _spread([tpot - middle for tpot, _ in some])
        yield key, FamilyErrors(len(some), exp(_median(some)), exp(middle), _with_pooled(some, own, pooled), ttft)


def _with_pooled(pairs: Sequence[object], own: float, pooled: float) -> float:
    """The spread of some rows, pulled to that of all where they are few."""
    return sqrt((len(pairs) * own**2 + _N_OF_SPREAD * pooled**2) / (len(pairs) + _N_OF_SPREAD))


def _median(pairs: Sequence[tuple[float, float]]) -> float:
    return float(np.median([tpot for tpot, _ in pairs]))


def _spread(values: Sequence[float]) -> float:
    """The standard deviation of a normal distribution around 0 with as many values in its interval."""
    return float(np.quantile(np.abs(values), INTERVAL)) / _WITHIN


if __name__ == "__main__":
    main()
