"""How far forecasts of language models on GPUs are from measured rows, and what `--measured` rows make of them.

    python studies/gpu_accuracy.py --rows FILE.csv [--measured FILE.csv] --json

Rows have the columns of `systems/silicon_sample.csv` of aiconfigurator-core [aiconfigurator]. With `--json` the program
prints one object a row, `{"id", "tpot_s", "ttft_s", "tokens_per_s"}`, or `{"id", "reason"}` where the tables do not
have it. Without, it prints the errors by group of the rows' own measurements. `--half even|odd` takes the rows of which
`zlib.crc32(id)` is even or odd: constants were fitted on the even half alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, median

from autoauto.graph.huggingface import decoder_of
from autoauto.records.costs.decoder import Decoder, WeightFormat
from autoauto.records.errors import AutoautoError, Unsupported
from autoauto.targets.gpu.calibration import Calibration, Group, Ratio, fit
from autoauto.targets.gpu.forecast import ServingReplicas, closed_loop
from autoauto.targets.gpu.steps import workload
from autoauto.targets.gpu.tables import Serving

Row = Mapping[str, str]
_WEIGHTS = {
    "": WeightFormat.BF16,
    "bfloat16": WeightFormat.BF16,
    "fp8": WeightFormat.FP8,
    "fp8_static": WeightFormat.FP8,
    "fp8_block": WeightFormat.FP8_BLOCK,
    "int4_wo": WeightFormat.INT4,
    "nvfp4": WeightFormat.NVFP4,
}
_BASE = {"nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B", "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B"}
"""The models of which these are the same in another format."""
_FP8_CACHES = (WeightFormat.FP8, WeightFormat.NVFP4)
"""Rows do not name the format of the KV cache: checkpoints in these formats have scales for an fp8 cache."""
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
    else:
        _report(rows, answers)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--measured", type=Path, metavar="FILE.csv")
    parser.add_argument("--half", choices=("all", "even", "odd"), default="all")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def half(row: Row) -> str:
    """Whether constants may be fitted on a row, "even", or it examines them, "odd"."""
    return "odd" if zlib.crc32(row["id"].encode()) % 2 else "even"


def _answer(row: Row, calibration: Calibration) -> dict[str, object]:
    """The forecast of a row, or why there is none."""
    try:
        tpot_s, ttft_s, tokens_per_s = _forecast(row)
    except (AutoautoError, ValueError) as error:
        return {"id": row["id"], "reason": str(error)}
    step, first = calibration.tpot(group_of(row)).factor, calibration.ttft(group_of(row)).factor
    return {"id": row["id"], "tpot_s": tpot_s * step, "ttft_s": ttft_s * first, "tokens_per_s": tokens_per_s / step}


def _forecast(row: Row) -> tuple[float, float, float]:
    rates = closed_loop(replicas_of(row), int(float(row["batch_size"])))
    return rates.tpot_s.item(), rates.ttft_s.item(), rates.tokens_per_s.item()


@cache
def _decoder(name: str) -> Decoder:
    return decoder_of(_BASE.get(name, name))


def replicas_of(row: Row) -> ServingReplicas:
    """The configuration of a row.

    Raises:
        Unsupported: it is of a kind that is not modelled.
    """
    if row["mode"] != "agg":
        raise Unsupported("prompts and answers must be computed by one pool, these are computed by two")
    if _number(row, "attention_dp_size") > 1:
        raise Unsupported("attention must be split among the GPUs of a group, here each has sequences of its own")
    decoder = _decoder(row["model_path"])
    n_stages = _number(row, "pp_size")
    serving = Serving(
        system=row["system"],
        engine=row["backend"],
        tensor_parallel=_number(row, "tp_size"),
        expert_parallel=1 if decoder.experts is None else _number(row, "moe_ep_size"),
        weights=_weights(row),
        kv_cache=WeightFormat.FP8 if _weights(row) in _FP8_CACHES else WeightFormat.BF16,
    )
    requests = workload(int(row["isl"]), int(row["osl"]))
    return ServingReplicas(decoder, serving, requests, _sizes(decoder.n_layers + 3, n_stages))


def _sizes(n_layers: int, n_stages: int) -> tuple[int, ...]:
    """As even as whole layers can be."""
    return tuple(n_layers // n_stages + (i < n_layers % n_stages) for i in range(n_stages))


def _number(row: Row, column: str) -> int:
    """A count; 1 where it is missing or 0, as rows of dense models have it."""
    return max(1, int(float(row[column] or 1)))


def _weights(row: Row) -> WeightFormat:
    if row["gemm_quant_mode"] not in _WEIGHTS:
        raise Unsupported(f"weights must be {', '.join(_WEIGHTS)}, got {row['gemm_quant_mode']}")
    return _WEIGHTS[row["gemm_quant_mode"]]


def group_of(row: Row) -> Group:
    """What shares a factor."""
    return Group(row["model_path"], row["backend"], row["system"], row["gemm_quant_mode"])


def ratios_of(row: Row) -> Iterator[Ratio]:
    """How far a measured row is from its forecast; nothing where there is none."""
    try:
        tpot_s, ttft_s, _ = _forecast(row)
    except (AutoautoError, ValueError):
        return
    measured = float(row["silicon_tpot_ms"]) / 1e3, float(row["silicon_ttft_ms"]) / 1e3
    yield Ratio(group_of(row), measured[0] / tpot_s, measured[1] / ttft_s)


def _report(rows: Sequence[Row], answers: Sequence[Mapping[str, object]]) -> None:
    errors: dict[Group, list[tuple[float, float]]] = defaultdict(list)
    reasons: dict[str, int] = defaultdict(int)
    for row, answer in zip(rows, answers, strict=True):
        if "reason" in answer:
            reasons[str(answer["reason"])[:90]] += 1
        else:
            tpot = float(str(answer["tpot_s"])) * 1e3 / float(row["silicon_tpot_ms"]) - 1
            ttft = float(str(answer["ttft_s"])) * 1e3 / float(row["silicon_ttft_ms"]) - 1
            errors[group_of(row)].append((tpot, ttft))
    for group, pairs in sorted(errors.items()):
        print(f"{' '.join(group):60} {_line(pairs)}")
    every = [pair for pairs in errors.values() for pair in pairs]
    dense = [pair for group, pairs in errors.items() if any(name in group.model for name in DENSE) for pair in pairs]
    print(f"{'dense':60} {_line(dense)}")
    print(f"{'all':60} {_line(every)}")
    for reason, n in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"{n:5} rows: {reason}")


def _line(pairs: Sequence[tuple[float, float]]) -> str:
    if not pairs:
        return "no rows"
    tpot, ttft = zip(*pairs, strict=True)
    return (
        f"{len(pairs):5} rows  TPOT median {median(map(abs, tpot)):6.1%} mean {mean(map(abs, tpot)):6.1%} "
        f"signed {median(tpot):+6.1%}  TTFT median {median(map(abs, ttft)):6.1%}"
    )


if __name__ == "__main__":
    main()
