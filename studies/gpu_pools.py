"""How often forecasts choose rightly between the best measured one pool and the best measured two pools.

    python -m studies.gpu_pools --rows FILE.csv [--half even|odd]

Rows have the columns of `systems/silicon_sample.csv` of aiconfigurator-core [aiconfigurator]. A question is a model, a
system, an engine, a format, and lengths, with a bound on TPOT. Of the rows that keep it the best of each kind are those
with the most measured tokens/s of a GPU; where both kinds have one, the forecasts of these two say which is better. A
choice is right where it is the measured one, or where both give the same within 5 %.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

from autoauto.evaluate.serving.measured import forecast_of, group_of_row, n_clients_of, pools_of, replicas_of
from autoauto.evaluate.serving.rows import Row, measured_of, read_rows
from autoauto.records.errors import AutoautoError
from autoauto.targets.gpu.calibration import NOT_CALIBRATED
from studies.gpu_accuracy import decoder_of_row, half

BOUNDS_S = (0.008, 0.012, 0.02, 0.03, 0.05, inf)
"""On TPOT."""
SAME = 0.05
"""The share by which two may differ that give the same."""
_NAMED = {"deepseek-ai/DeepSeek-R1": "deepseek-ai/DeepSeek-V3"}
"""Models of which this is another name, with weights of the same shape."""


class Rated(NamedTuple):
    """A row.

    Attributes:
        asked: what it answers, but for the bound.
        has_pools: whether it is of two pools.
        tpot_s: measured.
        of_gpu: measured tokens/s of a GPU.
        forecast: of the same.
    """

    asked: tuple[str, ...]
    has_pools: bool
    tpot_s: float
    of_gpu: float
    forecast: float


def main() -> None:
    """Print how many questions there are, and how many choices are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--half", choices=("all", "even", "odd"), default="all")
    arguments = parser.parse_args()
    rows = [row for row in read_rows(arguments.rows) if arguments.half in ("all", half(row))]
    pairs = list(choices(rated(rows)))
    right = sum(map(is_right, pairs))
    print(f"{len({single.asked for single, _ in pairs})} questions have measured rows of one pool and of two")
    print(f"{right} of {len(pairs)} choices under bounds on TPOT are right, {right / max(len(pairs), 1):.1%}")
    better = sum(pooled.of_gpu > single.of_gpu for single, pooled in pairs)
    print(f"two pools are better in {better} of them by measurement, in {_n_pooled(pairs)} by forecast")


def _n_pooled(pairs: Sequence[tuple[Rated, Rated]]) -> int:
    return sum(pooled.forecast > single.forecast for single, pooled in pairs)


def is_right(pair: tuple[Rated, Rated]) -> bool:
    """Whether the forecasts of one pool and of two choose what was measured, or both give the same."""
    single, pooled = pair
    is_same = abs(pooled.of_gpu / single.of_gpu - 1) <= SAME
    return is_same or (pooled.of_gpu > single.of_gpu) == (pooled.forecast > single.forecast)


def choices(rows: Iterable[Rated]) -> Iterator[tuple[Rated, Rated]]:
    """For every question and bound the best measured row of one pool and of two."""
    by_asked: dict[tuple[str, ...], list[Rated]] = defaultdict(list)
    for row in rows:
        by_asked[row.asked].append(row)
    for every in by_asked.values():
        seen: set[tuple[Rated, Rated]] = set()
        for bound_s in BOUNDS_S:
            best = _best([row for row in every if row.tpot_s <= bound_s])
            if len(best) == 2 and (pair := (best[False], best[True])) not in seen:
                seen.add(pair)
                yield pair


def _best(rows: Sequence[Rated]) -> Mapping[bool, Rated]:
    best: dict[bool, Rated] = {}
    for row in rows:
        if row.has_pools not in best or row.of_gpu > best[row.has_pools].of_gpu:
            best[row.has_pools] = row
    return best


def rated(rows: Iterable[Row]) -> Iterator[Rated]:
    """Those that have a forecast."""
    for row in rows:
        try:
            yield _rated(row)
        except AutoautoError:
            continue


def _rated(row: Row) -> Rated:
    decoder = decoder_of_row(row)
    measured, rates, group = measured_of(row), forecast_of(row, decoder), group_of_row(row, decoder)
    n_gpus = pools_of(row, decoder).n_gpus if row.has_pools else replicas_of(row, decoder).n_gpus
    n_tokens, n_clients = row.count("output_tokens"), n_clients_of(row)
    tpot_s, ttft_s = measured.tpot_s or inf, measured.ttft_s or 0.0
    answered_s = ttft_s + (n_tokens - 1) * tpot_s
    factors = NOT_CALIBRATED.of(group)
    expected_s = rates.ttft_s.item() * factors.ttft.factor + (n_tokens - 1) * rates.tpot_s.item() * factors.tpot.factor
    name = row.text("model")
    asked = (
        *(_NAMED.get(name, name), group.system, group.engine, group.precision),
        *(row.text("input_tokens"), row.text("output_tokens")),
    )
    of_gpu = n_clients * n_tokens / n_gpus
    return Rated(asked, row.has_pools, tpot_s, of_gpu / answered_s, of_gpu / expected_s)


if __name__ == "__main__":
    main()
