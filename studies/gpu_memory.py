"""How far the KV cache that memory leaves is from what engines print when they start.

    python studies/gpu_memory.py --rows FILE.csv [--json]

Rows have the columns of `tests/targets/gpu/kv_cache_logs.csv`: the model, whose shape it has, engine, version, system,
tensor_parallel, formats, gpu_memory_utilization, and what was printed: weights_gib, kv_cache_gib, kv_cache_tokens. The
program prints the error of the KV cache in tokens by group (model, format, system, tensor_parallel, version), with
weights as they are modelled, and with those of the log, which examines what is held besides alone. With `--json` it
prints one object a row, `{"id", "kv_cache_tokens", "kv_cache_tokens_of_log_weights"}`, or `{"id", "reason"}`.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from autoauto.engines.engine import ConstantShare
from autoauto.engines.registry import engine_named
from autoauto.engines.step_rules import Release
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.records.units import GIB, MIB
from autoauto.targets.gpu.memory import block_weight_bytes, memory_rule, table_bytes
from autoauto.targets.gpu.systems import GpuSystem, system_named, system_names, usable_bytes
from autoauto.targets.gpu.tables import Serving

_SHOWN_MIB = {
    **{"t4": 15_360, "l4": 23_034, "a10": 23_028, "a10g": 23_028, "a30": 24_576, "a5000": 24_564, "4090": 24_564},
    **{"3090": 24_576, "a100_40gb": 40_960, "l20": 46_068, "l40": 46_068, "a40": 46_068, "a6000": 49_140},
    **{"h100_pcie": 81_559, "h100_nvl": 95_830, "h20": 97_871},
}
"""What nvidia-smi shows as total of GPUs without measured kernels, by their names without words of `_MAKERS`."""
_MAKERS = ("nvidia_", "geforce_", "rtx_")
_LARGE_BYTES = 70 * GIB
_LIMITS, _LIMITS_OF_SMALL = (8192, 1024), (2048, 256)
"""Tokens of a step, and sequences in flight, where the engine is not told: on GPUs of 70 GiB and more but A100, and on
others [vllm-serve]."""


class Forecast(NamedTuple):
    """Tokens of the KV cache of a group.

    Attributes:
        tokens: with the weights of the model.
        of_log_weights: with those that the log says.
    """

    tokens: float
    of_log_weights: float


def main() -> None:
    """Print forecasts, or errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with arguments.rows.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if arguments.json:
        print(json.dumps([_answer(row) for row in rows], indent=1))
    else:
        _report(rows)


def forecast(row: Mapping[str, str]) -> Forecast:
    """The KV cache of a row.

    Raises:
        AutoautoError: the model or the GPU is not known.
    """
    decoder, system, engine = decoder_of(row["shape"]), _system(row["system"]), engine_named(row["engine"])
    if row["weights"] not in tuple(WeightFormat):
        raise BadInput(f"weights must be {', '.join(WeightFormat)}, got {row['weights']!r:.40}")
    weights = WeightFormat(row["weights"])
    kv_cache = WeightFormat.FP8 if row["kv_cache"].startswith("fp8") else WeightFormat.BF16
    serving = Serving(system.name, engine.name, int(row["tensor_parallel"]), 1, weights, kv_cache)
    held = engine.memory.of(_release(row["version"]))
    engine = replace(engine, memory=held._replace(share=ConstantShare(float(row["gpu_memory_utilization"]))))
    n_tokens, n_sequences = limits_of(system)
    rule = memory_rule(decoder, serving, system, engine, 1, n_tokens, n_sequences)
    n_tables = 1 if decoder.is_tied else 2
    of_kinds = [block_weight_bytes(alike, serving) for alike in decoder.by_kind]
    blocks = sum(of_kinds[kind] for kind in decoder.block_order)
    modelled = blocks + n_tables * table_bytes(decoder, serving)
    of_token = decoder.cached_bytes(serving.tensor_parallel, serving.kv_cache, 1)
    caches = (rule.max_kv_bytes(each).item() / of_token for each in (modelled, float(row["weights_gib"]) * GIB))
    return Forecast(*caches)


def limits_of(system: GpuSystem) -> tuple[int, int]:
    """Tokens of a step, and sequences in flight, where the engine is not told."""
    is_large = system.memory_bytes >= _LARGE_BYTES and not system.name.startswith("a100")
    return _LIMITS if is_large else _LIMITS_OF_SMALL


def error_of(row: Mapping[str, str]) -> float:
    """Forecast over measured tokens, less 1."""
    return forecast(row).tokens / float(row["kv_cache_tokens"]) - 1


def _release(version: str) -> Release:
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    if match is None:
        raise BadInput(f"a version must be as v0.11.2, got {version!r:.40}")
    return int(match[1]), int(match[2]), int(match[3])


def _system(name: str) -> GpuSystem:
    """A GPU that has measured kernels, or one of which only the memory is known."""
    if name in system_names():
        return system_named(name)
    plain = name.lower().replace("-", "_")
    for word in _MAKERS:
        plain = plain.removeprefix(word)
    if plain in _SHOWN_MIB:
        return replace(system_named("l40s"), name=plain, memory_bytes=usable_bytes(_SHOWN_MIB[plain] * MIB))
    raise BadInput(f"a GPU must be {', '.join((*system_names(), *_SHOWN_MIB))}, got {name!r:.40}")


def _answer(row: Mapping[str, str]) -> dict[str, object]:
    try:
        tokens, of_log_weights = forecast(row)
    except AutoautoError as error:
        return {"id": row["uuid"], "reason": str(error)}
    return {
        "id": row["uuid"],
        "kv_cache_tokens": round(tokens),
        "kv_cache_tokens_of_log_weights": round(of_log_weights),
    }


def _report(rows: Sequence[Mapping[str, str]]) -> None:
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    reasons: Counter[str] = Counter()
    for row in rows:
        try:
            tokens, of_log_weights = forecast(row)
        except AutoautoError as error:
            reasons[str(error)] += 1
            continue
        measured = float(row["kv_cache_tokens"])
        release = ".".join(map(str, _release(row["version"])))
        model = row["model"].rsplit("/", 1)[-1]
        group = f"{model} {row['weights']} {row['system']} TP {row['tensor_parallel']} {release}"
        groups[group].append((tokens / measured - 1, of_log_weights / measured - 1))
    for group, errors in sorted(groups.items()):
        print(f"{group:64} {_line(errors)}")
    if groups:
        print(f"{'all':64} {_line([pair for errors in groups.values() for pair in errors])}")
    for reason, n in reasons.most_common():
        print(f"{n:4} rows: {reason}")


def _line(errors: Sequence[tuple[float, float]]) -> str:
    modelled, of_log = zip(*errors, strict=True)
    return (
        f"{len(errors):4} rows  median {median(map(abs, modelled)):5.1%} signed {median(modelled):+5.1%} "
        f"worst {max(modelled, key=abs):+5.1%}  of the log's weights {median(of_log):+5.1%}"
    )


if __name__ == "__main__":
    main()
