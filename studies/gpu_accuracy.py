"""How far forecasts of language models on GPUs are from measured rows, and what `--measured` rows make of them.

    python studies/gpu_accuracy.py --rows FILE.csv [--measured FILE.csv] --json

Rows have the columns of `systems/silicon_sample.csv` of aiconfigurator-core [aiconfigurator], or those of `--measured`,
such as published throughput in waves of requests. With `--json` the program prints one object a row,
`{"id", "tpot_s", "ttft_s", "tokens_per_s", "tokens_per_s_interval"}`, or `{"id", "reason"}` where there is no number.
Without, it prints the errors by group of the rows' own measurements. `--half even|odd` takes the rows of which
`zlib.crc32(id)` is even or odd: constants were fitted on the even half alone.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import nan
from pathlib import Path
from statistics import mean, median
from typing import cast

from autoauto.engines.registry import engine_named
from autoauto.evaluate.serving.measured import forecast_of, ratio_of
from autoauto.evaluate.serving.rows import Row, measured_of, read_rows
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.decoder import Decoder
from autoauto.records.errors import AutoautoError
from autoauto.targets.gpu.calibration import Calibration, Group, Ratio, fit

_BASE = {"nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B", "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B"}
"""The models of which these are the same in another format."""
DENSE = ("Llama-3.1", "Qwen3-32B")


def main() -> None:
    """Print forecasts, or errors."""
    arguments = _arguments()
    rows = [row for row in read_rows(arguments.rows) if arguments.half in ("all", half(row))]
    measured = () if arguments.measured is None else read_rows(arguments.measured)
    calibration = fit([ratio for row in measured for ratio in ratios_of(row)])
    answers = [_answer(row, calibration) for row in rows]
    if arguments.json:
        print(json.dumps(answers, indent=1))
        return
    pairs = list(zip(rows, answers, strict=True))
    _report([(row, answer) for row, answer in pairs if not row.text("tokens_per_s")])
    _report_throughput([(row, answer) for row, answer in pairs if row.text("tokens_per_s")])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--measured", type=Path, metavar="FILE.csv")
    parser.add_argument("--half", choices=("all", "even", "odd"), default="all")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def half(row: Row) -> str:
    """Whether constants may be fitted on a row, "even", or it examines them, "odd"."""
    return "odd" if zlib.crc32(row.text("id").encode()) % 2 else "even"


def _answer(row: Row, calibration: Calibration) -> dict[str, object]:
    """The forecast of a row, or why there is none."""
    try:
        tpot_s, ttft_s, tokens_per_s = _forecast(row)
    except AutoautoError as error:
        return {"id": row.text("id"), "reason": str(error)}
    stages_error = engine_named(row.text("engine")).stages_error(row.count("n_ipu", missing=1))
    factors = calibration.of(group_of(row)).widened(stages_error)
    return {
        "id": row.text("id"),
        "tpot_s": tpot_s * factors.tpot.factor,
        "ttft_s": ttft_s * factors.ttft.factor,
        "tokens_per_s": tokens_per_s / factors.tpot.factor,
        "tokens_per_s_interval": [tokens_per_s / factors.tpot.high, tokens_per_s / factors.tpot.low],
    }


def _forecast(row: Row) -> tuple[float, float, float]:
    rates = forecast_of(row, decoder_of_row(row))
    return rates.tpot_s.item(), rates.ttft_s.item(), rates.tokens_per_s.item()


@cache
def _decoder(name: str) -> Decoder:
    return decoder_of(_BASE.get(name, name))


def decoder_of_row(row: Row) -> Decoder:
    """The decoder of a row; raises as `decoder_of`."""
    return _decoder(row.text("model"))


def group_of(row: Row) -> Group:
    """What shares a factor, as the row names it."""
    return Group(*map(row.text, ("model", "engine", "system", "precision")))


def ratios_of(row: Row) -> Iterator[Ratio]:
    """How far a measured row is from its forecast; nothing where there is none."""
    try:
        yield ratio_of(row, decoder_of_row(row))._replace(group=group_of(row))
    except AutoautoError:
        return


Answered = Sequence[tuple[Row, Mapping[str, object]]]
"""Rows and their answers."""


def _report(answered: Answered) -> None:
    if not answered:
        return
    errors: dict[Group, list[tuple[float, float]]] = defaultdict(list)
    for row, answer in answered:
        if "reason" not in answer:
            measured = measured_of(row)
            tpot = float(str(answer["tpot_s"])) / (measured.tpot_s or nan) - 1
            ttft = float(str(answer["ttft_s"])) / (measured.ttft_s or nan) - 1
            errors[group_of(row)].append((tpot, ttft))
    for group, pairs in sorted(errors.items()):
        print(f"{' '.join(group):60} {_line(pairs)}")
    every = [pair for pairs in errors.values() for pair in pairs]
    dense = [pair for group, pairs in errors.items() if any(name in group.model for name in DENSE) for pair in pairs]
    print(f"{'dense':60} {_line(dense)}")
    print(f"{'all':60} {_line(every)}")
    _report_reasons(answered)


def _report_reasons(answered: Answered) -> None:
    """Print why rows have no number, the most frequent reason first."""
    reasons = Counter(str(answer["reason"])[:90] for _, answer in answered if "reason" in answer)
    for reason, n in reasons.most_common():
        print(f"{n:5} rows: {reason}")


def _report_throughput(answered: Answered) -> None:
    """Print the errors of tokens/s by engine, kind of model, and number of stages."""
    errors: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    inside: dict[tuple[str, str, int], list[bool]] = defaultdict(list)
    for row, answer in answered:
        if "reason" in answer:
            continue
        kind = "experts" if decoder_of_row(row).experts else "dense"
        key, measured = (row.text("engine"), kind, row.count("n_ipu", missing=1)), measured_of(row).tokens_per_s or nan
        low, high = cast("list[float]", answer["tokens_per_s_interval"])
        errors[key].append(cast("float", answer["tokens_per_s"]) / measured - 1)
        inside[key].append(low <= measured <= high)
    for (engine, kind, n_stages), some in sorted(errors.items()):
        print(
            f"{engine} {kind} PP {n_stages}: {len(some)} rows  tokens/s signed median {median(some):+6.1%} "
            f"absolute median {median(map(abs, some)):6.1%} mean {mean(map(abs, some)):6.1%} "
            f"in the interval {mean(inside[engine, kind, n_stages]):6.1%}"
        )
    _report_reasons(answered)


def _line(pairs: Sequence[tuple[float, float]]) -> str:
    if not pairs:
        return "no rows"
    tpot, ttft = zip(*pairs, strict=True)
    return (
        f"{len(pairs):5} rows  TPOT median {median(map(abs, tpot)):6.1%} mean {mean(map(abs, tpot)):6.1%} "
        f"signed {median(tpot):+6.1%}  TTFT median {median(map(abs, ttft)):6.1%} "
        f"mean {mean(map(abs, ttft)):6.1%} signed {median(ttft):+6.1%}"
    )


if __name__ == "__main__":
    main()
