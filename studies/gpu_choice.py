"""Which of the measured configurations of a question forecasts choose, with bounds on TPOT and without.

    python studies/gpu_choice.py --rows FILE.csv --half even|odd [--measured FILE.csv | --n-measured 3]

Rows have the columns of `systems/silicon_sample.csv` [aiconfigurator]; dense models in one pool are read. A question is
a model, engine, system, format, prompt and answer of which two configurations or more were measured, and a bound that
one of them keeps. Of those whose forecast keeps it at the end of the interval at which bounds must hold, the one with
the most forecast tokens/s a GPU is chosen:

    kept        the share of chosen configurations whose measured TPOT keeps the bound
    throughput  measured tokens/s a GPU of the chosen one over the most of those that keep the bound, 100 % at most,
                in the mean over answered questions; and over all questions, where no answer counts as 0

The curve has other shares of rows in place of `HELD`, which was chosen on the even half. `--n-measured` takes so many
rows of every group of the even half as measured, and asks of other rows.
"""

from __future__ import annotations

import argparse
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, nan
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from autoauto.evaluate.serving.measured import Row, forecast_of, measured_of, read_rows, replicas_of
from autoauto.records.errors import AutoautoError
from autoauto.targets.gpu.calibration import HELD, INTERVAL, TPOT_PRIOR, Factor, Group, factor_of
from studies.gpu_accuracy import DENSE, decoder_of_row, group_of, half, ratios_of
from studies.gpu_fit import UNEXPLAINED

BOUNDS_S = (0.015, 0.020, 0.030, 0.050)
SHARES = (0.5, 0.55, 0.6, HELD, 0.7, 0.8, 0.9)


class Choosable(NamedTuple):
    """A configuration of a question.

    Attributes:
        identity: of its row.
        group: what shares a factor.
        requests: tokens of a prompt and of an answer.
        tpot_s, tokens_per_s: measured; tokens are of a GPU.
        forecast_tpot_s, forecast_tokens_per_s: by the tables alone.
    """

    identity: str
    group: Group
    requests: tuple[int, int]
    tpot_s: float
    tokens_per_s: float
    forecast_tpot_s: float
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
Factors = Callable[[Group], Factor]


def main() -> None:
    """Print the scores."""
    arguments = _arguments()
    rows = [row for row in read_rows(arguments.rows) if any(name in row.text("model") for name in DENSE)]
    measured = _few(rows, arguments.n_measured) if arguments.measured is None else read_rows(arguments.measured)
    taken = {row.text("id") for row in measured if arguments.n_measured}
    asked = [row for row in rows if half(row) == arguments.half and row.text("id") not in taken]
    every = [each for row in asked for each in choosable(row)]
    ratios = ratios_by_group(measured)
    explained = [each for each in every if each.group not in UNEXPLAINED]
    for title, some in (("all groups", every), ("groups that the model explains", explained)):
        report(title, some, ratios)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--half", choices=("even", "odd"), required=True)
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


def choosable(row: Row) -> Iterable[Choosable]:
    """The configuration of a row; nothing where it has no forecast."""
    try:
        replicas, rates = replicas_of(row, decoder_of_row(row)), forecast_of(row, decoder_of_row(row))
    except AutoautoError:
        return
    tpot_s = measured_of(row).tpot_s or nan
    yield Choosable(
        row.text("id"),
        group_of(row),
        replicas.requests,
        tpot_s,
        row.count("batch_size") / tpot_s / replicas.n_gpus,
        rates.tpot_s.item(),
        rates.tokens_per_s.item() / replicas.n_gpus,
    )


def ratios_by_group(rows: Iterable[Row]) -> Mapping[Group, Sequence[float]]:
    """Measured TPOT over its forecast, by group."""
    ratios: dict[Group, list[float]] = defaultdict(list)
    for ratio in (ratio for row in rows for ratio in ratios_of(row)):
        ratios[ratio.group].append(ratio.tpot or nan)
    return ratios


def factors_with(ratios: Mapping[Group, Sequence[float]], share: float) -> Factors:
    """The factor of every group, whose bounds hold at an end that a share of rows keep."""
    return lambda group: factor_of(ratios.get(group, ()), TPOT_PRIOR, share)


def cases(rows: Iterable[Choosable]) -> list[Case]:
    """Those with several configurations."""
    by_case: dict[object, list[Choosable]] = defaultdict(list)
    for row in rows:
        by_case[row.group, row.requests].append(row)
    return [some for some in by_case.values() if len(some) > 1]


def chosen(case: Case, bound_s: float, factor: Factor) -> Choosable | None:
    """The most forecast throughput among those whose forecast keeps the bound; None where none does."""
    keep = [each for each in case if each.forecast_tpot_s * factor.held <= bound_s]
    return max(keep, key=lambda each: each.forecast_tokens_per_s, default=None)


def score(asked: Sequence[Case], bounds_s: Sequence[float], factors: Factors) -> Score:
    """How good the choices of some questions are with some bounds, each a question of its own."""
    met, shares, n_unanswered = [], [], 0
    for case in asked:
        factor = factors(case[0].group)
        for bound_s in bounds_s:
            best = max((each.tokens_per_s for each in case if each.tpot_s <= bound_s), default=None)
            if best is None:
                continue
            choice = chosen(case, bound_s, factor)
            if choice is None:
                n_unanswered += 1
                continue
            met.append(choice.tpot_s <= bound_s)
            shares.append(min(1.0, choice.tokens_per_s / best))
    n_cases = len(shares) + n_unanswered
    return Score(
        n_cases,
        n_unanswered,
        mean(met) if met else nan,
        mean(shares) if shares else nan,
        sum(shares) / n_cases if n_cases else nan,
    )


def report(title: str, rows: Sequence[Choosable], ratios: Mapping[Group, Sequence[float]]) -> None:
    """Print the scores by bound, and the curve over shares."""
    asked, factors = cases(rows), factors_with(ratios, HELD)
    print(f"{title}, bounds hold at an end that {HELD:.0%} of rows keep")
    print(line("no bound", score(asked, [inf], factors)))
    for bound_s in BOUNDS_S:
        print(line(f"{1e3 * bound_s:.0f} ms", score(asked, [bound_s], factors)))
    print("all bounds, by the share of rows")
    for share in SHARES:
        print(line(f"{share:.0%}", score(asked, BOUNDS_S, factors_with(ratios, share))))
    within, below = coverage(rows, factors)
    print(f"of {len(rows)} rows {within:.1%} lie in the interval of {INTERVAL:.0%}, {below:.1%} keep {HELD:.0%}\n")


def coverage(rows: Sequence[Choosable], factors: Factors) -> tuple[float, float]:
    """The share of rows in their interval, and below the end at which bounds must hold."""
    pairs = [(each.tpot_s / each.forecast_tpot_s, factors(each.group)) for each in rows]
    within = mean(factor.low <= ratio <= factor.high for ratio, factor in pairs)
    return within, mean(ratio <= factor.held for ratio, factor in pairs)


def line(title: str, scored: Score) -> str:
    """Of a score."""
    counts = f"{scored.n_cases:4} questions  {scored.n_unanswered:2} without answer"
    shares = f"throughput {scored.throughput:6.1%}, of all {scored.throughput_of_all:6.1%}"
    return f"{title:>10}  {counts}  kept {scored.met:6.1%}  {shares}"


if __name__ == "__main__":
    main()
