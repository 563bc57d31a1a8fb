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
from typing import NamedTuple, cast

from autoauto.engines.registry import engine_named
from autoauto.evaluate.serving.measured import forecast_of, group_of_row, ratio_of
from autoauto.evaluate.serving.rows import Row, measured_of, read_rows
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.decoder import Decoder, WeightFormat
from autoauto.records.errors import AutoautoError
from autoauto.targets.gpu.calibration import Calibration, Group, Ratio, fit
from autoauto.targets.gpu.family_errors import DENSE, errors_of

_BASE = {
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "nvidia/DeepSeek-R1-NVFP4": "nvidia/DeepSeek-V3.1-NVFP4",
    "zhipuai/GLM-5": "zai-org/GLM-5-FP8",
}
"""The models of which these are the same in another format, or under another name."""
_IN_NVFP4 = {
    "deepseek-ai/DeepSeek-R1": "nvidia/DeepSeek-V3.1-NVFP4",
    "deepseek-ai/DeepSeek-V3": "nvidia/DeepSeek-V3.1-NVFP4",
    "MiniMaxAI/MiniMax-M2.5": "nvidia/MiniMax-M2.5-NVFP4",
    "moonshotai/Kimi-K2.5": "nvidia/Kimi-K2.5-NVFP4",
    "Qwen/Qwen3.5-397B-A17B": "nvidia/Qwen3.5-397B-A17B-NVFP4",
    "zhipuai/GLM-5": "nvidia/GLM-5-NVFP4",
}
"""The checkpoints that rows in nvfp4 ran, in which most attention stays in bf16: no engine makes nvfp4 of others."""
MODELS = ("Llama-3.1", "Qwen3-32B")
"""Parts of the names of dense ones."""


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


def one_pool_rows(path: Path) -> list[Row]:
    """The rows of a file whose servers compute prompts and answers; raises as `read_rows`."""
    return [row for row in read_rows(path) if not row.has_pools]


def half(row: Row) -> str:
    """Whether constants may be fitted on a row, "even", or it examines them, "odd"."""
    return "odd" if zlib.crc32(row.text("id").encode()) % 2 else "even"


def _answer(row: Row, calibration: Calibration) -> dict[str, object]:
    """The forecast of a row with the ends of its intervals, or why there is none."""
    try:
        tpot_s, ttft_s, tokens_per_s = _forecast(row)
    except AutoautoError as error:
        return {"id": row.text("id"), "reason": str(error)}
    stages_error = engine_named(row.text("engine")).measured.stages_error(row.count("n_ipu", missing=1))
    factors = calibration.of(group_of(row)).widened(stages_error)
    return {
        "id": row.text("id"),
        "tpot_s": tpot_s * factors.tpot.factor,
        "ttft_s": ttft_s * factors.ttft.factor,
        "tokens_per_s": tokens_per_s / factors.tpot.factor,
        "tpot_s_interval": [tpot_s * factors.tpot.low, tpot_s * factors.tpot.high],
        "ttft_s_interval": [ttft_s * factors.ttft.low, ttft_s * factors.ttft.high],
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
    name = row.text("model")
    return _decoder(_IN_NVFP4.get(name, name) if row.text("precision") == WeightFormat.NVFP4 else name)


def group_of(row: Row) -> Group:
    """What shares a factor: as the engine serves it, or where that is not modelled as the row names it."""
    try:
        return group_of_row(row, decoder_of_row(row))._replace(model=row.text("model"))
    except AutoautoError:
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
    """Print errors by group, and by family with the shares of rows in their intervals."""
    if not answered:
        return
    groups: dict[Group, list[RowError]] = defaultdict(list)
    families: dict[str, list[RowError]] = defaultdict(list)
    for row, answer in answered:
        if "reason" not in answer:
            group, error = group_of(row), _error(row, answer)
            groups[group].append(error)
            families[group.family].append(error)
    for group, errors in sorted(groups.items()):
        print(f"{' '.join(group[:4]):60} {_line(errors)}{_mark(group)}")
    for family, errors in sorted(families.items()):
        print(f"family {family:53} {_line(errors)}")
    every = [error for errors in groups.values() for error in errors]
    print(f"{'all':60} {_line(every)}")
    print(f"{len(every)} of {len(answered)} rows have a number, {len(every) / len(answered):.1%}")
    _report_reasons(answered)


class RowError(NamedTuple):
    """How far the forecast of a row is off, relative to what was measured, and whether its intervals hold that."""

    tpot: float
    ttft: float
    in_tpot: bool
    in_ttft: bool


def _error(row: Row, answer: Mapping[str, object]) -> RowError:
    measured = measured_of(row)
    tpot_s, ttft_s = measured.tpot_s or nan, measured.ttft_s or nan
    ends = [cast("list[float]", answer[f"{name}_s_interval"]) for name in ("tpot", "ttft")]
    return RowError(
        cast("float", answer["tpot_s"]) / tpot_s - 1,
        cast("float", answer["ttft_s"]) / ttft_s - 1,
        ends[0][0] <= tpot_s <= ends[0][1],
        ends[1][0] <= ttft_s <= ends[1][1],
    )


def _mark(group: Group) -> str:
    """What an answer says of groups whose rows contradict their times."""
    is_marked = group.family != DENSE and errors_of(group.error_key).is_contradicted
    return "  not trusted" * is_marked


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


def _line(errors: Sequence[RowError]) -> str:
    if not errors:
        return "no rows"
    tpot, ttft, in_tpot, in_ttft = zip(*errors, strict=True)
    return (
        f"{len(errors):5} rows  TPOT median {median(map(abs, tpot)):6.1%} mean {mean(map(abs, tpot)):6.1%} "
        f"signed {median(tpot):+6.1%} within {mean(in_tpot):6.1%}  TTFT median {median(map(abs, ttft)):6.1%} "
        f"mean {mean(map(abs, ttft)):6.1%} signed {median(ttft):+6.1%} within {mean(in_ttft):6.1%}"
    )


if __name__ == "__main__":
    main()
