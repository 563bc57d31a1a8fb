"""How many measurements find the best measured configuration of a question, by the product's own rule.

    python studies/truth_loop.py --rows FILE.csv [--measurements 5] [--noise 0.03] [--seed 1] [--json]

Rows have the columns of `systems/silicon_sample.csv` [aiconfigurator]. A question is the rows of equal model, system,
engine, format, prompt and answer, if six or more have a batch size; and a bound on TPOT, the 30, 50 or 70 % quantile of
its rows. A configuration is a row, and its rate a GPU batch_size / TPOT / (tp_size x pp_size). Measuring a row gives
its TPOT times exp(noise z), z standard normal. The rule of `autoauto/study/methods/engines/measure_next.py` knows the
bound,
the noise, the forecasts, and what it has measured.

`--json` prints one object a question: the six columns, `bound_s`, the ids that were `measured` in order, the best of
them after every measurement, `answers`, null while nothing is known to keep the bound, and the last `answer`. Without,
the share of the best measured rate after every measurement is printed, where an answer that breaks the bound by more
than twice the noise counts as 0, as none does.

`--stop` ends a question as the rule does, when nothing else is likely better by 2 %. `--intervals` prints how many of
the rows that were not measured lie in their interval of 80 %, after every measurement. `--half even|odd` takes the rows
of which `zlib.crc32(id)` is even or odd: the even half chose constants. `--questions even|odd` takes
whole questions by `zlib.crc32` of their six columns, joined by "|".
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import log, nan
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from autoauto.evaluate.serving.measured import forecast_of, replicas_of
from autoauto.evaluate.serving.rows import Row
from autoauto.records.costs.decoder import Workload
from autoauto.records.errors import AutoautoError
from autoauto.records.units import FloatArray
from autoauto.study.methods.engines.measure_next import TOLERANCE, MeasureNext
from autoauto.study.methods.engines.ratios import Likeness, Ratios, coordinates, correlations
from autoauto.targets.gpu.family_errors import ErrorKey, family_of, priors_of
from studies.gpu_accuracy import decoder_of_row, half, one_pool_rows
from studies.recorded_server import DOUBT

COLUMNS = ("model_path", "system", "backend", "gemm_quant_mode", "isl", "osl")
QUANTILES = (0.3, 0.5, 0.7)
MIN_ROWS = 6
INTERVAL = 0.8
GOOD = 0.85
"""A smaller share of the best is a bad answer."""


class Rows(NamedTuple):
    """The rows of a question.

    Attributes:
        columns: the six, which they have in common.
        ids: of rows.
        configurations: their counts.
        labels: numbers of the versions of the engine.
        n_sequences: in flight, of a GPU.
        log_forecasts: logarithms of seconds; nan where there is none.
        tpot_s: measured.
    """

    columns: tuple[str, ...]
    ids: tuple[str, ...]
    configurations: tuple[Likeness, ...]
    labels: FloatArray
    n_sequences: FloatArray
    log_forecasts: FloatArray
    tpot_s: FloatArray

    @property
    def half(self) -> str:
        """The half of the questions to which it belongs."""
        return "odd" if zlib.crc32("|".join(self.columns).encode()) % 2 else "even"


class Replayed(NamedTuple):
    """What came of a question.

    Attributes:
        rows: of it.
        bound_s: on TPOT.
        measured: the indices of rows, in order.
        answers: after every measurement, the index of a row.
        shares: of the best rate, after every measurement.
        within: the share of rows that were not measured in their interval, after every measurement.
    """

    rows: Rows
    bound_s: float
    measured: list[int]
    answers: list[int | None]
    shares: list[float]
    within: list[float]

    @property
    def json(self) -> dict[str, object]:
        """Ids in place of indices."""
        ids = self.rows.ids
        answers = [None if answer is None else ids[answer] for answer in self.answers]
        return {
            "question": dict(zip(COLUMNS, self.rows.columns, strict=True)),
            "bound_s": self.bound_s,
            "measured": [ids[index] for index in self.measured],
            "answers": answers,
            "answer": answers[-1] if answers else None,
        }


def main() -> None:
    """Replay all questions."""
    arguments = _arguments()
    rows = [row for row in one_pool_rows(arguments.rows) if arguments.half in ("all", half(row))]
    cases = [each for each in cases_of(rows) if arguments.questions in ("all", each.half)]
    replayed = [
        replay(asked, bound_s, arguments, np.random.default_rng([arguments.seed, number]))
        for number, (asked, bound_s) in enumerate(bounded(cases))
    ]
    if arguments.json:
        print(json.dumps([each.json for each in replayed], indent=1))
        return
    for title, some in (
        ("all", replayed),
        ("with forecasts", [each for each in replayed if not np.isnan(each.rows.log_forecasts).any()]),
        ("without", [each for each in replayed if np.isnan(each.rows.log_forecasts).any()]),
    ):
        if some:
            _report(title, some, arguments.measurements, with_intervals=arguments.intervals)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--measurements", type=int, default=5, metavar="K")
    parser.add_argument("--noise", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--seed", type=int, default=0)
    for name in ("--half", "--questions"):
        parser.add_argument(name, choices=("all", "even", "odd"), default="all")
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--intervals", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def cases_of(rows: Sequence[Row]) -> list[Rows]:
    """Those with enough rows that have a rate."""
    by_columns: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if has_rate(row.cells):
            by_columns[tuple(row.cells[column] for column in COLUMNS)].append(row)
    return [_rows(columns, some) for columns, some in by_columns.items() if len(some) >= MIN_ROWS]


def has_rate(cells: Mapping[str, str]) -> bool:
    """Whether a row says its batch, its GPUs and its TPOT: one of separate servers for prompts does not."""
    return all(_number(cells.get(name, "")) for name in ("batch_size", "tp_size", "silicon_tpot_ms"))


def _number(text: str) -> float:
    """Above 0; 0 for any other text."""
    try:
        number = float(text or 0)
    except ValueError:
        return 0.0
    return number if 0 < number < float("inf") else 0.0


def _rows(columns: tuple[str, ...], rows: Sequence[Row]) -> Rows:
    configurations = tuple(configuration_of(row.cells) for row in rows)
    versions = [row.cells.get("backend_version", "") for row in rows]
    n_gpus = np.array([each.tensor_parallel * each.n_stages for each in configurations])
    return Rows(
        columns,
        tuple(row.cells["id"] for row in rows),
        configurations,
        np.array([[float(sorted(set(versions)).index(version))] for version in versions]),
        np.array([each.n_sequences for each in configurations]) / n_gpus,
        np.array([_log_forecast(row) for row in rows]),
        np.array([_number(row.cells["silicon_tpot_ms"]) / 1e3 for row in rows]),
    )


def configuration_of(cells: Mapping[str, str]) -> Likeness:
    """The counts of a row; 1 where it says none."""
    names = ("batch_size", "tp_size", "pp_size", "moe_ep_size", "attention_dp_size")
    return Likeness(*(_number(cells.get(name, "")) or 1.0 for name in names))


def _log_forecast(row: Row) -> float:
    """As a search has it: with the factor of the family of the decoder."""
    try:
        decoder = decoder_of_row(row)
        serving, tpot_s = replicas_of(row, decoder).serving, forecast_of(row, decoder).tpot_s.item()
    except AutoautoError:
        return nan
    key = ErrorKey(family_of(decoder), serving.engine, serving.weights, serving.system)
    return log(tpot_s) + priors_of(key).tpot.centre


def bounded(cases: Sequence[Rows]) -> Iterator[tuple[Rows, float]]:
    """Every question with every bound."""
    for rows in cases:
        for quantile in QUANTILES:
            yield rows, float(np.quantile(rows.tpot_s, quantile))


class Rough(NamedTuple):
    """How TPOT goes with a configuration; exponents are of powers of 2.

    Attributes:
        n_free: sequences of one token that take as long as the rest of a step, on one GPU.
        n_free_growth: by the GPUs that share them.
        prompt_share: what a token of a prompt adds to a sequence's time for each token of its answer.
        context_share: what 1,000 tokens of context add.
        gpus, experts, attention: by which a step grows.
    """

    n_free: float
    n_free_growth: float
    prompt_share: float
    context_share: float
    gpus: float
    experts: float
    attention: float


ROUGH = Rough(46.0, 0.28, 0.26, 0.04, -0.064, 0.08, 0.127)
"""By the likelihood of measured rows of models without forecasts, of which `zlib.crc32(id)` is even."""


def rough_log_tpot(configurations: Sequence[Likeness], requests: Workload, rough: Rough = ROUGH) -> FloatArray:
    """The logarithm of TPOT up to a constant, for models that have no forecast.

    A step takes a constant time, and for every sequence a time that grows with its context and with the prompts that
    are computed between the tokens of answers.
    """
    of = Likeness(*np.log2(np.array(configurations, dtype=float)).T)
    log2_gpus = of.tensor_parallel + of.n_stages
    per_sequence = 1 + rough.prompt_share * requests.computed_tokens / requests.n_steps
    per_sequence += rough.context_share * requests.mean_length / 1000
    n_free = rough.n_free * 2 ** (rough.n_free_growth * log2_gpus)
    constant = rough.gpus * log2_gpus + rough.experts * of.expert_parallel + rough.attention * of.attention_parallel
    log_tpot: FloatArray = constant + np.log1p(2**of.n_sequences * per_sequence / n_free)
    return log_tpot


def expected_log_tpot(rows: Rows, bound_s: float) -> tuple[FloatArray, FloatArray]:
    """Logarithms of TPOT before anything is measured, and how doubtful they are.

    Where a row has no forecast the rough one stands for it, on the level of the forecasts of others. Where none has,
    half of the rows are taken to keep the bound: who asks for a bound knows about where it binds.
    """
    input_tokens, output_tokens = map(int, rows.columns[-2:])
    rough = rough_log_tpot(rows.configurations, Workload(input_tokens, output_tokens))
    is_rough = np.isnan(rows.log_forecasts)
    level = (
        np.median((rows.log_forecasts - rough)[~is_rough]) if not is_rough.all() else log(bound_s) - np.median(rough)
    )
    return np.where(is_rough, rough + level, rows.log_forecasts), np.where(is_rough, DOUBT, 1.0)


class Budget(Protocol):
    """What the command line says of a replay."""

    measurements: int
    noise: float
    stop: bool


def replay(rows: Rows, bound_s: float, budget: Budget, random: np.random.Generator) -> Replayed:
    """Measure rows of a question, as the rule says."""
    log_tpot, doubts = expected_log_tpot(rows, bound_s)
    noise = budget.noise
    ratios = Ratios(correlations(coordinates(rows.configurations), rows.labels, doubts), doubts**2, noise)
    loop = MeasureNext(rows.n_sequences / np.exp(log_tpot), log(bound_s) - log_tpot, ratios, noise)
    replayed = Replayed(rows, bound_s, [], [], [], [])
    while len(replayed.measured) < min(budget.measurements, len(rows.ids)):
        index = loop.next() if budget.stop else loop.candidate()
        if index is None or index in replayed.measured:  # of a finalist that would be measured again there is one row
            break
        ratios.add(index, log(rows.tpot_s[index]) + noise * random.standard_normal() - log_tpot[index])
        replayed.measured.append(index)
        replayed.answers.append(loop.answer())
        replayed.shares.append(share_of_best(rows, bound_s, replayed.answers[-1], noise))
        replayed.within.append(_share_within(loop, np.log(rows.tpot_s) - log_tpot))
    return replayed


def share_of_best(rows: Rows, bound_s: float, answer: int | None, noise: float) -> float:
    """The rate of an answer over the best of those that keep the bound, 1 at most; 0 for one that breaks it."""
    if answer is None or rows.tpot_s[answer] > bound_s * (1 + TOLERANCE * noise):
        return 0.0
    rates = rows.n_sequences / rows.tpot_s
    return min(1.0, float(rates[answer] / rates[rows.tpot_s <= bound_s].max()))


def _share_within(loop: MeasureNext, log_ratios: FloatArray) -> float:
    others = np.setdiff1d(np.arange(len(log_ratios)), loop.measured)
    low, high = loop.ratios.belief().interval(INTERVAL)
    ratios = np.exp(log_ratios)
    return float(np.mean((low <= ratios)[others] & (ratios <= high)[others])) if len(others) else nan


def _report(title: str, replayed: Sequence[Replayed], n_measurements: int, *, with_intervals: bool) -> None:
    n_measured = np.mean([len(each.measured) for each in replayed])
    print(f"{title}: {len(replayed)} questions with a bound, {n_measured:.2f} measured in the mean")
    for k in range(n_measurements):
        shares = np.array([each.shares[min(k, len(each.shares) - 1)] for each in replayed])
        line = f"  after {k + 1}: {shares.mean():7.2%}  worst {shares.min():6.1%}"
        line += f"  below {GOOD:.0%}: {np.mean(shares < GOOD):6.2%}"
        if with_intervals:
            within = [each.within[k] for each in replayed if k < len(each.within)]
            line += f"  in intervals {np.nanmean(within):6.1%}"
        print(line)


if __name__ == "__main__":
    main()
