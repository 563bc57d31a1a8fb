"""Traffic on configurations, by measured times of kernels: against the closed formulas of `rates_of`, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.engines.registry import ENGINES, engine_named
from autoauto.evaluate.open import load_flow
from autoauto.evaluate.serving.costs import blocks_of_kinds
from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.evaluate.serving.rates import AT_BOUND, HIGH, MIDDLE, End
from autoauto.evaluate.serving.traffic.forecast import replica_of, replicas_of, traffic_of
from autoauto.evaluate.serving.traffic.replica import Replica
from autoauto.evaluate.serving.traffic.steps import StageBlocks
from autoauto.evaluate.serving.ways import ReplicaWays
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.traffic.requests import Requests, TrafficResult
from autoauto.records.errors import Infeasible, Unsupported
from autoauto.space.knobs import Knobs
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
SYNCHRONOUS = [name for name, engine in ENGINES.items() if not engine.step_rules.is_asynchronous(None)]
MODEL, N_INPUT, N_OUTPUT = "meta-llama/Meta-Llama-3.1-8B", 512, 128


def even_requests(rate_per_s: float, n: int = 1200) -> Requests:
    return Requests(np.arange(n) / rate_per_s, np.full(n, N_INPUT), np.full(n, N_OUTPUT), np.zeros(n, dtype=np.int64))


@pytest.fixture(scope="module")
def ways() -> ReplicaWays:
    return ReplicaWays.of(load_flow(MODEL, "h100_sxm-4", "gpu").setting)


def forecast(ways: ReplicaWays, knobs: Knobs, requests: Requests, end: End = MIDDLE) -> TrafficResult:
    """What the only way of a configuration gives."""
    (way,) = ways.ways(knobs, (knobs.batch_size,))
    return traffic_of(replicas_of(ways.costs, knobs, way, requests, end=end), requests)


def knobs(n_ipu: int, batch_size: int, replicas: int, **values: object) -> Knobs:
    chosen: dict[str, Any] = {"engine": "trtllm", "input_tokens": N_INPUT, "output_tokens": N_OUTPUT, **values}
    return Knobs(n_ipu, batch_size, replicas, **chosen)


def fixed_replica(given: FixedReplicas, requests: Requests, n_sequences: int) -> Replica:
    """One of replicas whose cuts are given."""
    costs, n_stages = given.stages(-(-n_sequences // len(given.n_blocks))), len(given.n_blocks)
    n_blocks = blocks_of_kinds(given.decoder.block_order, np.array(given.n_blocks))
    links = system_named(given.serving.system).links_between(n_stages, given.serving.n_gpus)
    placed = tuple(
        StageBlocks(given.serving, tuple(n.tolist()), number == 0, number == n_stages - 1, link)
        for number, (n, link) in enumerate(zip(n_blocks, (*links, None), strict=True))
    )
    held = min(each.kv_sequences(n, 0) for each, n in zip(costs, n_blocks, strict=True)) * given.requests.max_length
    return replica_of(
        given.decoder,
        placed,
        requests,
        n_sequences=n_sequences,
        n_kv_tokens=int(held) * given.serving.attention_data_parallel,
        n_batched_tokens=given.n_max_batched_tokens,
        speculation=given.requests.speculation,
    )


@pytest.mark.parametrize("n_stages", [1, 2, 4])
def test_time_of_a_token_is_that_of_the_closed_formula_with_as_many_in_flight(n_stages: int) -> None:
    """With evenly spaced requests as many are in flight all the time; the host of the engine hides nothing."""
    n_blocks = (32 // n_stages,) * n_stages
    serving = Serving("h100_sxm", "trtllm")
    given = FixedReplicas(decoder_of(MODEL), serving, Workload(N_INPUT, N_OUTPUT), n_blocks)
    requests = even_requests(10.0)
    result = traffic_of([fixed_replica(given, requests, 64 * n_stages)], requests)
    in_flight = 10.0 * result.latency_s.mean
    rates = given.rates(max(1, round(in_flight / n_stages)))
    assert result.tpot_s.mean == pytest.approx(rates.tpot_s.item(), rel=0.05)


@pytest.mark.parametrize("engine", SYNCHRONOUS)
def test_replicas_are_overloaded_beyond_what_they_give_clients_that_ask_again(engine: str, ways: ReplicaWays) -> None:
    """So the closed formula brackets the largest rate."""
    chosen = knobs(1, 32, 2, engine=engine)
    most = max(float(way.rates.tokens_per_s[0]) for way in ways.ways(chosen, (32,)) if way.fits[0]) / N_OUTPUT
    assert not forecast(ways, chosen, even_requests(0.8 * most, 3000)).is_overloaded
    assert forecast(ways, chosen, even_requests(1.25 * most, 3000)).is_overloaded


def test_an_asynchronous_host_is_hidden_behind_kernels() -> None:
    """A step of vLLM 0.14 or later takes no time for sequences on the host; before it took 34 microseconds each."""
    stages = (StageBlocks(Serving("h100_sxm", "vllm"), (32,), is_first=True, is_last=True),)
    sizes: dict[str, Any] = {"n_sequences": 64, "n_kv_tokens": 100_000, "n_batched_tokens": 2048}
    decoder, requests = decoder_of(MODEL), even_requests(10.0)
    old, new = (replica_of(decoder, stages, requests, **sizes, release=each) for each in ((0, 13, 0), (0, 15, 1)))
    added = old.steps.decode_s - new.steps.decode_s
    host = engine_named("vllm").host
    assert added[old.steps.sequences == 64] == pytest.approx(64 * host.sequence_s)
    assert new.is_asynchronous
    assert not old.is_asynchronous


def test_times_at_an_end_of_the_interval_are_longer(ways: ReplicaWays) -> None:
    chosen, requests = knobs(1, 32, 4), even_requests(20.0)
    middle, bound, high = (forecast(ways, chosen, requests, end) for end in (lambda f: f.factor, AT_BOUND, HIGH))
    assert middle.latency_s.p99 < bound.latency_s.p99 < high.latency_s.p99


def test_more_replicas_wait_less(ways: ReplicaWays) -> None:
    requests = even_requests(60.0)
    two, four = (forecast(ways, knobs(1, 32, n), requests) for n in (2, 4))
    assert four.latency_s.p95 < two.latency_s.p95
    assert four.kv_share < two.kv_share


def test_a_request_that_is_longer_than_the_model_allows_is_refused() -> None:
    stages = (StageBlocks(Serving("h100_sxm", "vllm"), (32,), is_first=True, is_last=True),)
    requests = Requests(np.zeros(1), np.array([4000]), np.array([200]), np.array([0]))
    with pytest.raises(Unsupported, match=r"has 4,096 positions, got 4,000 input tokens and 200 output tokens"):
        replica_of(
            decoder_of("meta-llama/Llama-2-7b-hf"),
            stages,
            requests,
            n_sequences=8,
            n_kv_tokens=100_000,
            n_batched_tokens=2048,
        )


def test_a_model_that_does_not_fit_has_no_traffic() -> None:
    ways = ReplicaWays.of(load_flow("meta-llama/Llama-2-70b-hf", "h100_sxm-1", "gpu").setting)
    with pytest.raises(Infeasible, match=r"must fit its GPUs"):
        forecast(ways, knobs(1, 8, 1), even_requests(1.0, 10))
