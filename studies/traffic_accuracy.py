"""How far simulated traffic is from stages of servers that somebody measured under open load.

    python studies/traffic_accuracy.py --rows FILE.csv [--json]

A row is a stage of a load on one server: its flags, how requests arrived, how long they were, and what was measured.
With `--json` the program prints one object a row, `{"id", "ttft_s", "ttft_p99_s", "tpot_s", "e2e_s", "overloaded"}`, or
`{"id", "reason"}` where there is no forecast. Without, it prints the errors of each row, and their means by regime:

    repeated    each prompt is sent many times (`n_distinct_prompts`): its whole blocks are in the prefix cache from the
                second time on, where the cache has room for what is used between two times
    new         only what prompts share (`shared_prefix_tokens`) is in the cache
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from autoauto.engines.engine import ConstantShare, Engine
from autoauto.engines.registry import engine_named
from autoauto.engines.step_rules import Release
from autoauto.evaluate.serving.traffic.forecast import replica_of, traffic_of
from autoauto.evaluate.serving.traffic.replica import Replica
from autoauto.evaluate.serving.traffic.steps import StageBlocks
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.decoder import Decoder
from autoauto.records.costs.traffic.requests import Requests, TrafficResult
from autoauto.records.errors import AutoautoError
from autoauto.records.units import IntArray
from autoauto.targets.gpu.memory import block_cache_bytes, block_weight_bytes, memory_rule, table_bytes
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving

_DEFAULT_SHARE = 0.9
"""Of memory, that the engine takes where its flags do not say it: vLLM's default up to 0.20."""
_PERCENTS = {"min": 0, "p10": 10, "p50": 50, "p90": 90, "p99": 99, "max": 100}
_MEASURED = {"ttft_s": "ttft_mean_s", "ttft_p99_s": "ttft_p99_s", "tpot_s": "tpot_mean_s", "e2e_s": "e2e_mean_s"}
Row = Mapping[str, str]


def main() -> None:
    """Print forecasts, or errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, type=Path, metavar="FILE.csv")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with arguments.rows.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    answers = [answer_of(row) for row in rows]
    if arguments.json:
        print(json.dumps(answers, indent=1))
    else:
        _report(rows, answers)


def answer_of(row: Row) -> dict[str, Any]:
    """The forecast of a stage, or why there is none."""
    try:
        result = result_of_row(row)
    except AutoautoError as reason:
        return {"id": row["id"], "reason": str(reason)}
    return {
        "id": row["id"],
        "ttft_s": result.ttft_s.mean,
        "ttft_p99_s": result.ttft_s.p99,
        "tpot_s": result.tpot_s.mean,
        "e2e_s": result.latency_s.mean,
        "overloaded": result.is_overloaded,
    }


def result_of_row(row: Row) -> TrafficResult:
    """The simulation of a stage.

    Raises:
        BadInput: its model or engine is not known.
        DoesNotFit: the model or a request does not fit.
    """
    decoder, requests = decoder_of(row["model"]), new_requests(row)
    replica = replica_of_row(row, decoder, requests)
    cached = cached_tokens(row, requests, replica)
    return traffic_of([replica], requests._replace(cached_tokens=cached))


def replica_of_row(row: Row, decoder: Decoder, requests: Requests) -> Replica:
    """The server of a stage; weights, and keys and values, have the formats of the checkpoint."""
    engine, n_tokens = engine_named(row["engine"]), int(row["max_num_batched_tokens"])
    system, checkpoint = system_named(row["system"]), decoder.checkpoint
    weights, kv_cache = checkpoint.weights, checkpoint.kv_cache
    serving = Serving(system.name, engine.name, int(row["tensor_parallel"]), weights=weights, kv_cache=kv_cache)
    n_sequences = int(row["max_num_seqs"])
    return replica_of(
        decoder,
        (StageBlocks(serving, tuple(np.bincount(decoder.block_order).tolist()), is_first=True, is_last=True),),
        requests,
        n_sequences=n_sequences,
        n_kv_tokens=_kv_tokens(row, decoder, serving, engine, n_sequences),
        n_batched_tokens=n_tokens,
        release=_release(row),
    )


def _release(row: Row) -> Release:
    """The version of the engine; what stands behind its three numbers is left out."""
    numbers = [int(number) for number in re.findall(r"\d+", row["engine_version"])[:3]]
    first, second, third = [*numbers, 0, 0, 0][:3]
    return first, second, third


def _kv_tokens(row: Row, decoder: Decoder, serving: Serving, engine: Engine, n_sequences: int) -> int:
    """Tokens that the KV cache holds, by the release and the share of memory that the row names."""
    share = ConstantShare(float(row["gpu_memory_utilization"] or _DEFAULT_SHARE))
    memory = engine.memory.of(_release(row))._replace(share=share)
    system, n_tokens = system_named(serving.system), int(row["max_num_batched_tokens"])
    rule = memory_rule(decoder, serving, system, replace(engine, memory=memory), 1, n_tokens, n_sequences)
    length, n_blocks = int(row["max_model_len"]), np.bincount(decoder.block_order)
    kinds = list(zip(decoder.by_kind, n_blocks.tolist(), strict=True))
    weights = sum(n * block_weight_bytes(alike, serving) for alike, n in kinds)
    weights += table_bytes(decoder, serving) * (1 if decoder.is_tied else 2)
    sequence = sum(n * block_cache_bytes(alike, serving, length) for alike, n in kinds)
    return int(rule.max_kv_bytes(weights).item() / sequence * length)


def new_requests(row: Row) -> Requests:
    """The requests of a stage, none of whose tokens is cached; lengths have the row's percentiles and its mean."""
    n, rate = int(row["n_requests"]), float(row["achieved_rate_per_s"] or row["rate_per_s"])
    arrivals = np.arange(n) / rate
    if row["arrival"] == "poisson":
        arrivals = np.random.default_rng(0).exponential(1 / rate, n).cumsum()
    n_distinct = min(n, int(row["n_distinct_prompts"] or n))
    given = {percent: row.get(f"input_tokens_{name}", "") for name, percent in _PERCENTS.items()}
    known = {percent: float(value) for percent, value in given.items() if value}
    middle = float(row["input_tokens_mean"])
    lengths = np.full(n_distinct, middle)
    if known:
        shares = 100 * (np.arange(n_distinct) + 0.5) / n_distinct
        lengths = np.interp(shares, list(known), list(known.values()))
        lengths *= middle / lengths.mean()
    prompts = np.random.default_rng(0).permutation(np.maximum(1, np.round(lengths))).astype(np.int64)
    outputs = np.full(n, int(float(row["output_tokens"])))
    return Requests(arrivals, prompts[np.arange(n) % n_distinct], outputs, np.zeros(n, dtype=np.int64))


def repeats(row: Row) -> bool:
    """True if prompts are sent several times."""
    return 0 < int(row["n_distinct_prompts"] or 0) < int(row["n_requests"])


def cached_tokens(row: Row, requests: Requests, replica: Replica) -> IntArray:
    """Tokens of each prompt that the prefix cache has when it arrives, shape (requests,)."""
    block, n = replica.rules.block_tokens, len(requests.arrival_s)
    shared = int(row["shared_prefix_tokens"] or 0) // block * block
    cached = np.full(n, shared)
    cached[: int(row["n_distinct_prefixes"] or 0)] = 0
    if int(row["stage"] or 0):
        cached[:] = shared
    if not repeats(row):
        return np.asarray(np.minimum(cached, requests.input_tokens - 1))
    n_distinct = int(row["n_distinct_prompts"])
    # Between two times that a prompt is sent all others are, and their answers are written to the cache, too. The least
    # recently used blocks go first.
    used = int((requests.input_tokens + requests.output_tokens)[:n_distinct].sum())
    if used <= replica.kv_tokens:
        whole = (requests.input_tokens - 1) // block * block
        first = n_distinct if int(row["stage"] or 0) == 0 else 0
        cached[first:] = whole[first:]
    return cached


def _report(rows: Sequence[Row], answers: Sequence[Mapping[str, Any]]) -> None:
    """A line a row, then mean absolute errors by regime."""
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    right: dict[str, list[bool]] = defaultdict(list)
    print(f"{'row':54}{'overloaded':>12}" + "".join(f"{name:>12}{'':>7}" for name in _MEASURED))
    for row, answer in zip(rows, answers, strict=True):
        regime, name = "repeated" if repeats(row) else "new", row["id"][-54:]
        if "reason" in answer:
            print(f"{name:54}no forecast: {answer['reason']}")
            continue
        is_right = answer["overloaded"] == (row["overloaded"] == "yes")
        right[regime].append(is_right)
        cells = f"{'yes' if answer['overloaded'] else 'no':>6}{'' if is_right else ' wrong':6}"
        for key, column in _MEASURED.items():
            if row["overloaded"] == "yes":
                continue
            error = answer[key] / float(row[column]) - 1
            errors[regime, key].append(abs(error))
            cells += f"{answer[key]:>12.4g}{error:>+7.0%}"
        print(f"{name:54}{cells}")
    for regime, each in right.items():
        means = ", ".join(f"{key} {mean(errors[regime, key]):.1%}" for key in _MEASURED if errors[regime, key])
        print(f"{regime}: {sum(each)} of {len(each)} overloaded or stable rightly; mean absolute errors: {means}")


if __name__ == "__main__":
    main()
