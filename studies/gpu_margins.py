"""How far the forecast ratio of two configurations of one question is from the measured one, by what differs.

    python -m studies.gpu_margins --rows FILE.csv [--fit > data/errors/margins.csv]

Rows have the columns of `systems/silicon_sample.csv` [aiconfigurator]. A pair is two rows of one half of equal model,
system, prompt and answer; its error is the logarithm of (measured ratio of tokens/s a GPU / forecast ratio). `--fit`
prints the standard deviations of the even half (`zlib.crc32(id)`), by the largest difference of a pair. Without, both
halves are judged by the stored file:

    in the interval   the share of pairs whose error lies within 80 %
    order             the share of pairs whose measured order is the forecast one, by the forecast margin
    thresholds        measured tokens/s a GPU of the simplest that is not told apart, over the best, mean of questions;
                      of questions with engine and format, and of those that leave them open
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from math import exp, log
from pathlib import Path
from statistics import NormalDist, mean
from typing import NamedTuple

import numpy as np

from autoauto.evaluate.serving.margins import DIFFERENCES, EngineChoice, difference, error_of, probability_better
from autoauto.evaluate.serving.measured import forecast_of, replicas_of
from autoauto.evaluate.serving.rows import Row, measured_of
from autoauto.records.errors import AutoautoError
from autoauto.targets.gpu.family_errors import ErrorKey, family_of, priors_of
from studies.gpu_accuracy import decoder_of_row, half, one_pool_rows

_WITHIN = NormalDist().inv_cdf(0.9)
MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9)
_SOURCE = "fitted to the even half of systems/silicon_sample.csv of aiconfigurator-core 0.12.0, NVIDIA; Apache-2.0"


class Point(NamedTuple):
    """A measured configuration.

    Attributes:
        case: model, system, tokens of a prompt and of an answer.
        group: of what a search that was told engine and format chooses.
        served: the configuration.
        forecast, measured: logarithms of tokens/s a GPU.
    """

    case: tuple[str, ...]
    group: tuple[str, ...]
    served: EngineChoice
    forecast: float
    measured: float


def main() -> None:
    """Print the fit, or how good it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    rows = one_pool_rows(arguments.rows)
    halves = {name: [p for row in rows if half(row) == name for p in points_of(row)] for name in ("even", "odd")}
    if arguments.fit:
        _print_fit(halves["even"])
        return
    for name, points in halves.items():
        report(name, points)


def points_of(row: Row) -> Iterator[Point]:
    """The configuration of a row; nothing where it has no forecast."""
    try:
        decoder = decoder_of_row(row)
        replicas, rates, tpot_s = replicas_of(row, decoder), forecast_of(row, decoder), measured_of(row).tpot_s
    except AutoautoError:
        return
    if not tpot_s or not rates.tpot_s.item():
        return
    serving, requests = replicas.serving, (row.text("input_tokens"), row.text("output_tokens"))
    key = ErrorKey(family_of(decoder), serving.engine, serving.weights, serving.system)
    expected = log(rates.tpot_s.item()) + priors_of(key).tpot.centre
    served = log(row.count("batch_size") / replicas.n_gpus)
    weights, cache = str(serving.weights), str(serving.kv_cache)
    group = (serving.tensor_parallel, serving.expert_parallel, serving.attention_data_parallel)
    configuration = EngineChoice(serving.engine, (weights, cache), len(replicas.n_blocks), group)
    case = (row.text("model"), serving.system, *requests)
    of_engine = (*case, serving.engine, weights)
    yield Point(case, of_engine, configuration, served - expected, served - log(tpot_s))


def pairs_of(points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """All pairs of one question, the higher forecast first."""
    cases: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in points:
        cases[point.case].append(point)
    pairs = []
    for some in cases.values():
        ranked = sorted(some, key=lambda point: -point.forecast)
        pairs += list(combinations(ranked, 2))
    return pairs


def _margin(pair: tuple[Point, Point]) -> float:
    """The logarithm of the ratio of both forecasts."""
    return pair[0].forecast - pair[1].forecast


def _error(pair: tuple[Point, Point]) -> float:
    high, low = pair
    return (high.measured - low.measured) - (high.forecast - low.forecast)


def _by_difference(pairs: Sequence[tuple[Point, Point]]) -> dict[str, list[tuple[Point, Point]]]:
    by_name: dict[str, list[tuple[Point, Point]]] = {name: [] for name in DIFFERENCES}
    for pair in pairs:
        by_name[difference(pair[0].served, pair[1].served)].append(pair)
    return by_name


def _print_fit(points: Sequence[Point]) -> None:
    """Half the interval of 80 % of pairs around 0, in units of a normal distribution."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("difference", "n_pairs", "deviation", "source"))
    for name, pairs in _by_difference(pairs_of(points)).items():
        errors = np.abs([_error(pair) for pair in pairs])
        deviation = f"{np.quantile(errors, 0.8) / _WITHIN:.3f}" if len(errors) else ""
        writer.writerow((name, len(pairs), deviation, _SOURCE))


def report(title: str, points: Sequence[Point]) -> None:
    """Print how often pairs lie in their interval and in their order, and what thresholds choose."""
    pairs = pairs_of(points)
    print(f"{title}: {len(points)} rows, {len(pairs)} pairs of one question")
    for name, some in _by_difference(pairs).items():
        if some:
            within = mean(abs(_error(pair)) <= _WITHIN * error_of(pair[0].served, pair[1].served) for pair in some)
            print(f"  {name:10} {len(some):6} pairs  in the interval {within:6.1%}")
    for low, high in pairwise(MARGINS):
        some = [pair for pair in pairs if low <= exp(_margin(pair)) - 1 < high]
        if some:
            said = mean(probability_better(_margin(pair), pair[0].served, pair[1].served) for pair in some)
            ordered = mean(pair[0].measured > pair[1].measured for pair in some)
            counted = f"{len(some):6} pairs, order as forecast {ordered:6.1%}, said {said:6.1%}"
            print(f"  margin {low:4.0%} to {high:4.0%}: {counted}")
    for kind in ("group", "case"):
        for threshold in THRESHOLDS:
            shares, changed = chosen_shares(points, kind, threshold)
            if shares:
                print(f"  {kind} {threshold:.0%}: {len(shares)} questions, {changed} simpler, kept {mean(shares):.2%}")


def _order(point: Point) -> tuple[int, ...]:
    """Smaller for the simpler: fewer stages, smaller groups, fewer ranks of the attention, experts on fewer GPUs."""
    tensor_parallel, n_dealt, n_ranks = point.served.group
    return (point.served.n_stages, tensor_parallel * n_ranks, n_ranks, n_dealt)


def chosen_shares(points: Sequence[Point], kind: str, threshold: float) -> tuple[list[float], int]:
    """Measured tokens/s over the best of every question, and how many answers are not the highest forecast."""
    cases: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in points:
        cases[getattr(point, kind)].append(point)
    shares, n_changed = [], 0
    for some in cases.values():
        if len(some) == 1:
            continue
        best = answer = max(some, key=lambda point: point.forecast)
        ties = [
            point for point in some if probability_better(_margin((best, point)), best.served, point.served) < threshold
        ]
        simplest = min([best, *ties], key=lambda point: (_order(point), -point.forecast))
        if _order(simplest) < _order(best):
            answer = simplest
            n_changed += 1
        shares.append(exp(answer.measured - max(point.measured for point in some)))
    return shares, n_changed


if __name__ == "__main__":
    main()
