"""Which of the measured configurations of a question forecasts choose, with bounds on TPOT or TTFT and without.

    python studies/gpu_choice.py --rows FILE.csv --half odd [--bound ttft] [--measured FILE.csv | --n-measured N]

Rows have the columns of `systems/silicon_sample.csv` [aiconfigurator]; dense models in one pool are read. A question is
a model, engine, system, format, prompt and answer of which two configurations or more were measured, and a bound that
one of them keeps. Of those whose bound holds with a probability of `HELD` or more, the one with the most forecast
tokens/s a GPU is chosen:

    kept        the share of chosen configurations whose measured latency keeps the bound
    throughput  measured tokens/s a GPU of the chosen one over the most of those that keep the bound, 100 % at most,
                in the mean over answered questions; and over all questions, where no answer counts as 0

The curve has other probabilities in place of `HELD`, which was chosen on the even half for TPOT. `--n-measured` takes
so many rows of every group of the even half as measured, and asks of other rows; no row of a question tells of it.
"""

from __future__ import annotations

import argparse
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import inf, log, nan
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from autoauto.evaluate.serving.measured import forecast_of, replicas_of
from autoauto.evaluate.serving.rows import Row, measured_of, read_rows
from autoauto.records.costs.decoder import Workload
from autoauto.records.errors import AutoautoError
from autoauto.targets.gpu.calibration import HELD, INTERVAL, Factor, Group, Ratio, factor_of
from autoauto.targets.gpu.family_errors import priors_of
from studies.gpu_accuracy import MODELS, decoder_of_row, group_of, half, one_pool_rows, ratios_of
from studies.gpu_fit import UNEXPLAINED

BOUNDS_S = {"tpot": (0.015, 0.020, 0.030, 0.050), "ttft": (0.2, 0.5, 1.0, 2.0)}
SHARES = (0.5, 0.55, 0.6, HELD, 0.7, 0.75, 0.8, 0.9)
BINS = (0.0, 0.2, 0.5, 0.65, 0.8, 0.95, 1.0)


class Choosable(NamedTuple):
    """A configuration of a question.

    Attributes:
        identity: of its row.
        group: what shares a factor.
        requests: tokens of a prompt and of an answer.
        latency_s, tokens_per_s: measured; the latency that is bounded, and tokens of a GPU.
        forecast_latency_s, forecast_tokens_per_s: by the tables alone.
    """

    identity: str
    group: Group
    requests: Workload
    latency_s: float
    tokens_per_s: float
    forecast_latency_s: float
    forecast_tokens_per_s: float


class Score(NamedTuple):
    """How good choices are.

    Attributes:
        n_cases: that a measured configuration answers.
        n_unanswered: of them.
        met: the share of answers that keep the bound.
        throughput: of answers over the best, in the mean.
        throughput_of_all: the same where no answer is 0.
    """

    n_cases: int
    n_unanswered: int
    met: float
    throughput: float
    throughput_of_all: float


Case = Sequence[Choosable]
FactorOf = Callable[[Choosable], Factor]
"""The factor of a configuration, from rows of other questions."""


def main() -> None:
    """Print the scores."""
    arguments = _arguments()
    rows = [row for row in one_pool_rows(arguments.rows) if any(name in row.text("model") for name in MODELS)]
    measured = _few(rows, arguments.n_measured) if arguments.measured is None else read_rows(arguments.measured)
    taken = {row.text("id") for row in measured if arguments.n_measured}
    asked = [row for row in rows if half(row) == arguments.half and row.text("id") not in taken]
    every = [each for row in asked for each in choosable(row, arguments.bound)]
    factor = factors_of([(_requests(row), ratio) for row in measured for ratio in ratios_of(row)], arguments.bound)
    explained = [each for each in every if each.group not in UNEXPLAINED]
    for title, some in (("all groups", every), ("groups that the model explains", explained)):
        report(title, some, factor, BOUNDS_S[arguments.bound])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--half", choices=("even", "odd"), required=True)
    parser.add_argument("--bound", choices=tuple(BOUNDS_S), default="tpot")
    measured = parser.add_mutually_exclusive_group()
    measured.add_argument("--measured", type=Path, metavar="FILE.csv")
    measured.add_argument("--n-measured", type=int, default=0, metavar="N")
    return parser.parse_args()


def _few(rows: Iterable[Row], n_rows: int) -> list[Row]:
    """So many rows of every group of the even half, in an order that says nothing of them."""
    groups: dict[Group, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: zlib.crc32(row.text("id").encode())):
        if half(row) == "even" and len(groups[group_of(row)]) < n_rows and any(ratios_of(row)):
            groups[group_of(row)].append(row)
    return [row for some in groups.values() for row in some]


def _requests(row: Row) -> Workload:
    return Workload(row.count("input_tokens"), row.count("output_tokens"))


def choosable(row: Row, bound: str) -> Iterable[Choosable]:
    """The configuration of a row; nothing where it has no forecast."""
    try:
        replicas, rates = replicas_of(row, decoder_of_row(row)), forecast_of(row, decoder_of_row(row))
    except AutoautoError:
        return
    measured = measured_of(row)
    yield Choosable(
        row.text("id"),
        group_of(row),
        _requests(row),
        (measured.tpot_s if bound == "tpot" else measured.ttft_s) or nan,
        row.count("batch_size") / (measured.tpot_s or nan) / replicas.n_gpus,
        (rates.tpot_s if bound == "tpot" else rates.ttft_s).item(),
        rates.tokens_per_s.item() / replicas.n_gpus,
    )


def factors_of(ratios: Sequence[tuple[Workload, Ratio]], bound: str) -> FactorOf:
    """The factor of every configuration by the ratios of its group that are of other requests."""
    made: dict[tuple[Group, Workload], Factor] = {}

    def factor(configuration: Choosable) -> Factor:
        key = configuration.group, configuration.requests
        if key not in made:
            others = [ratio for requests, ratio in ratios if ratio.group == key[0] and requests != key[1]]
            values = [ratio.tpot if bound == "tpot" else ratio.ttft for ratio in others]
            priors = priors_of(key[0].error_key)
            made[key] = factor_of([value for value in values if value], priors.tpot if bound == "tpot" else priors.ttft)
        return made[key]

    return factor


def cases(rows: Iterable[Choosable]) -> list[Case]:
    """Those with several configurations."""
    by_case: dict[object, list[Choosable]] = defaultdict(list)
    for row in rows:
        by_case[row.group, row.requests].append(row)
    return [some for some in by_case.values() if len(some) > 1]


def chosen(case: Case, bound_s: float, factor: Factor, share: float) -> Choosable | None:
    """The most forecast throughput among those that keep the bound with a probability; None where none does."""
    longest_s = bound_s / factor.at(share)
    keep = [each for each in case if each.forecast_latency_s <= longest_s]
    return max(keep, key=lambda each: each.forecast_tokens_per_s, default=None)


def score(asked: Sequence[Case], bounds_s: Sequence[float], factor: FactorOf, share: float = HELD) -> Score:
    """How good the choices of some questions are with some bounds, each a question of its own."""
    met, shares, n_unanswered = [], [], 0
    for case in asked:
        for bound_s in bounds_s:
            best = max((each.tokens_per_s for each in case if each.latency_s <= bound_s), default=None)
            if best is None:
                continue
            choice = chosen(case, bound_s, factor(case[0]), share)
            if choice is None:
                n_unanswered += 1
                continue
            met.append(choice.latency_s <= bound_s)
            shares.append(min(1.0, choice.tokens_per_s / best))
    n_cases = len(shares) + n_unanswered
    return Score(
        n_cases,
        n_unanswered,
        mean(met) if met else nan,
        mean(shares) if shares else nan,
        sum(shares) / n_cases if n_cases else nan,
    )


def report(title: str, rows: Sequence[Choosable], factor: FactorOf, bounds_s: Sequence[float]) -> None:
    """Print the scores by bound, the curve over probabilities, and how often bounds hold that are said to."""
    asked = cases(rows)
    print(f"{title}, bounds hold with a probability of {HELD:.0%}")
    print(line("no bound", score(asked, [inf], factor)))
    for bound_s in bounds_s:
        print(line(f"{1e3 * bound_s:.0f} ms", score(asked, [bound_s], factor)))
    print("all bounds, by the probability")
    for share in SHARES:
        print(line(f"{share:.0%}", score(asked, bounds_s, factor, share)))
    for low, high, n, share in reliability(rows, bounds_s, factor):
        print(f"said to hold with {low:.0%} to {high:.0%}: {n:4} bounds, kept {share:6.1%}")
    within, below = coverage(rows, factor)
    print(f"of {len(rows)} rows {within:.1%} lie in the interval of {INTERVAL:.0%}, {below:.1%} keep {HELD:.0%}\n")


def reliability(
    rows: Sequence[Choosable], bounds_s: Sequence[float], factor: FactorOf
) -> Iterable[tuple[float, float, int, float]]:
    """Of all rows and bounds whose probability lies between two ends: the ends, how many, the share that is kept."""
    said = [
        (factor(each).rows.share_below(log(bound_s / each.forecast_latency_s)), each.latency_s <= bound_s)
        for each in rows
        for bound_s in bounds_s
    ]
    for low, high in pairwise(BINS):
        some = [holds for probability, holds in said if low <= probability < high or probability == high == 1]
        if some:
            yield low, high, len(some), mean(some)


def coverage(rows: Sequence[Choosable], factor_of_row: FactorOf) -> tuple[float, float]:
    """The share of rows in their interval, and below the end at which bounds must hold."""
    pairs = [(each.latency_s / each.forecast_latency_s, factor_of_row(each)) for each in rows]
    within = mean(factor.low <= ratio <= factor.high for ratio, factor in pairs)
    return within, mean(ratio <= factor.held for ratio, factor in pairs)


def line(title: str, scored: Score) -> str:
    """Of a score."""
    counts = f"{scored.n_cases:4} questions  {scored.n_unanswered:2} without answer"
    shares = f"throughput {scored.throughput:6.1%}, of all {scored.throughput_of_all:6.1%}"
    return f"{title:>10}  {counts}  kept {scored.met:6.1%}  {shares}"


if __name__ == "__main__":
    main()
