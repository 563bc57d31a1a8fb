"""How soon the product's rule finds the best of recorded trials of any serving engine, with forecasts or without.

    python studies/recorded_server.py --rows studies/recorded/polyserve_a40.csv [--measurements 5] [--orders 200]

A row is a configuration: its columns are numbers, where every cell is one, or words; `tokens_per_s` is what was
measured, and empty where the engine failed. `forecast_tokens_per_s` may be there, too. The rule of
`autoauto/study/methods/engines/measure_next.py` measures rows, each once; one that failed takes its turn and is not
proposed
again. Without forecasts all rows are alike to it before the first, so the first of the file is measured first: rows
are also dealt in random orders, beside which rows drawn at random are shown.

`studies/recorded/polyserve_a40.csv` has figures of the 26 configurations of 29 trials [polyserve],
`polyserve_a100.csv` those of 22 on other GPUs. Neither chose a constant.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.units import FloatArray
from autoauto.study.methods.engines.measure_next import MeasureNext
from autoauto.study.methods.engines.ratios import Ratios, correlations

MEASURED, FORECAST = "tokens_per_s", "forecast_tokens_per_s"
LENGTH = 3.5
"""Powers of 2 of a number after which the correlation falls to 1/e, as of the groups of `Likeness`."""
NOISE = 0.01
DOUBT = 2.5
"""How many times more than a forecast a rough one is off between configurations."""
FOUND = 0.98
"""A row with this share of the best rate is as good as it."""


class Recorded(NamedTuple):
    """The rows of a file.

    Attributes:
        rates: tokens/s; 0 where the engine failed.
        forecasts: tokens/s; 1 where there are none.
        coordinates: (rows, numbers), in units in which the correlation falls to 1/e.
        labels: (rows, words), as numbers that are equal or not.
        has_forecasts: whether there are forecasts.
    """

    rates: FloatArray
    forecasts: FloatArray
    coordinates: FloatArray
    labels: FloatArray
    has_forecasts: bool

    def at(self, indices: Sequence[int]) -> Recorded:
        """Some of the rows."""
        chosen = list(indices)
        return self._replace(**{name: getattr(self, name)[chosen] for name in self._fields[:4]})


def main() -> None:
    """Print what was measured, and the shares of the best after every measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--measurements", type=int, default=5, metavar="K")
    parser.add_argument("--orders", type=int, default=200, metavar="N")
    arguments = parser.parse_args()
    recorded = read_recorded(arguments.rows)
    order = replay(recorded, arguments.measurements)
    print(f"{len(recorded.rates)} rows, {int((recorded.rates == 0).sum())} failed; measured in the order of the file:")
    print("  rows", *(index + 1 for index in order), " shares", *(f"{share:.1%}" for share in shares(recorded, order)))
    random = np.random.default_rng(0)
    orders = [random.permutation(len(recorded.rates)).tolist() for _ in range(arguments.orders)]
    by_rule, by_chance = list[list[float]](), list[list[float]]()
    for dealt in orders:
        own = recorded.at(dealt)
        by_rule.append(shares(own, replay(own, arguments.measurements)))
        by_chance.append(shares(own, range(arguments.measurements)))
    for title, every in (("by the rule", by_rule), ("at random", by_chance)):
        means, shares_good = np.mean(every, axis=0), np.mean(np.array(every) >= FOUND, axis=0)
        texts = (f"{mean:.1%} ({share:.0%})" for mean, share in zip(means, shares_good, strict=True))
        print(f"{title}, {len(every)} orders: share of the best, and how often it is found:", *texts)


def read_recorded(path: Path) -> Recorded:
    """The rows of a file.

    Raises:
        BadInput: nothing was measured in it.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or not any(row.get(MEASURED) for row in rows):
        raise BadInput(f"{path} must have rows with {MEASURED}, got none")
    names = [name for name in rows[0] if name not in (MEASURED, FORECAST)]
    numbers = [name for name in names if all(_is_number(row[name]) for row in rows)]
    coordinates = np.array([[np.log2(float(row[name])) / LENGTH for name in numbers] for row in rows])
    labels = np.array([_codes(rows, name) for name in names if name not in numbers]).reshape(-1, len(rows)).T
    has_forecasts = all(row.get(FORECAST) for row in rows)
    forecasts = np.array([float(row[FORECAST]) if has_forecasts else 1.0 for row in rows])
    rates = np.array([float(row[MEASURED] or 0) for row in rows])
    return Recorded(rates, forecasts, coordinates.reshape(len(rows), -1), labels, has_forecasts)


def _is_number(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _codes(rows: Sequence[Mapping[str, str]], name: str) -> list[int]:
    words = sorted({row[name] for row in rows})
    return [words.index(row[name]) for row in rows]


def replay(recorded: Recorded, n_measurements: int) -> list[int]:
    """The rows that the rule measures, in order."""
    measured: list[int] = []
    while len(measured) < min(n_measurements, len(recorded.rates)):
        index = _next(recorded, measured)
        if index is None:
            break
        measured.append(index)
    return measured


def _next(recorded: Recorded, measured: Sequence[int]) -> int | None:
    """The row to measure next of those that did not fail; times are in units of the first that was measured."""
    left = [index for index in range(len(recorded.rates)) if index not in measured or recorded.rates[index]]
    own, known = recorded.at(left), [left.index(index) for index in measured if recorded.rates[index]]
    doubts = np.full(len(left), 1.0 if recorded.has_forecasts else DOUBT)
    ratios = Ratios(correlations(own.coordinates, own.labels, doubts), doubts**2, NOISE)
    unit = 1.0 if recorded.has_forecasts or not known else float(own.rates[known[0]])
    for index in known:
        ratios.add(index, log(unit * own.forecasts[index] / own.rates[index]))
    chosen = MeasureNext(own.forecasts, np.full(len(left), np.inf), ratios, NOISE).candidate()
    return None if chosen is None else left[chosen]


def shares(recorded: Recorded, order: Sequence[int]) -> list[float]:
    """The best rate after every measurement, over the best of all."""
    best = np.maximum.accumulate(recorded.rates[list(order)]) / recorded.rates.max()
    return list(map(float, best))


if __name__ == "__main__":
    main()
