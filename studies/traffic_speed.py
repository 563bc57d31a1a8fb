"""How long it takes to simulate an hour of real traffic, and how much shorter that is than one step at a time.

    python -m studies.traffic_speed [--requests 2000]

The hour is that of a service of Azure with conversations (data/traffic/README.md), on one replica of Llama-3.1-8B by
vLLM on an H100, and at twice the rate on two. Steps are taken one at a time by the oracle of the tests, for the first
requests alone; both have the same tables of steps.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from datetime import datetime
from time import process_time

import numpy as np

from autoauto.evaluate.serving.traffic.forecast import replica_of, traffic_of
from autoauto.evaluate.serving.traffic.replica import StepTimes
from autoauto.evaluate.serving.traffic.steps import StageBlocks
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.traffic.requests import Requests
from autoauto.records.installation import data_dir
from autoauto.targets.gpu.tables import Serving
from studies.single_steps import Engine, Request, Rules, simulate


def main() -> None:
    """Print seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="that are served one step at a time")
    n = parser.parse_args().requests
    requests = conversations()
    decoder = decoder_of("meta-llama/Meta-Llama-3.1-8B")
    stage = StageBlocks(Serving("h100_sxm", "vllm"), (decoder.n_layers,), is_first=True, is_last=True)
    start = process_time()
    replica = replica_of(
        decoder, (stage,), requests, n_sequences=256, n_kv_tokens=400_000, n_batched_tokens=8192, release=(0, 15, 1)
    )
    print(f"tables of steps: {process_time() - start:.2f} CPU seconds, once a configuration")
    for n_replicas in (1, 2):
        start = process_time()
        result = traffic_of([replica] * n_replicas, requests.faster(n_replicas))
        seconds = process_time() - start
        print(
            f"{len(requests.arrival_s):,} requests on {n_replicas} replica{'s' * (n_replicas > 1)}: {seconds:.2f} CPU "
            f"seconds; TTFT p99 {result.ttft_s.p99:.3f} s, latency p99 {result.latency_s.p99:.2f} s"
        )
    some, times = requests.first(n), StepTimes(replica.steps, replica.n_sequences)
    engine = Engine(
        Rules(True, replica.n_sequences, replica.step_tokens, 400_000 // 16, 16, asynchronous=True),
        lambda n, length: times.decode(n, length)[0],
        lambda n, parts: times.prompts(n, list(parts)),
    )
    columns = (column.tolist() for column in some)
    every = [Request(number, *cells) for number, cells in enumerate(zip(*columns, strict=True))]
    start = process_time()
    simulate(engine, every)
    single = process_time() - start
    start = process_time()
    traffic_of([replica], some)
    jumps = process_time() - start
    true = np.percentile([(each.end or 0.0) - each.arrival + replica.request_s for each in every], 99)
    own = traffic_of([replica], some).latency_s.p99
    print(
        f"the first {n:,} requests one step at a time: {single:.2f} CPU seconds, {single / jumps:.0f} times as long as "
        f"{jumps:.3f}; latency p99 {true:.3f} s and {own:.3f} s"
    )


def conversations() -> Requests:
    """All requests of the hour."""
    with gzip.open(data_dir() / "traffic" / "azure_llm_2023_conv.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    times = np.array([datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows])
    inputs, outputs = (np.array([int(row[key]) for row in rows]) for key in ("ContextTokens", "GeneratedTokens"))
    return Requests(times - times[0], inputs, outputs, np.zeros(len(rows), dtype=np.int64))


if __name__ == "__main__":
    main()
