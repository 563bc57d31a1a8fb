"""EnginePipelines of given cuts: what stages hold, what they give, and clients that wait for the cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoauto.engines.registry import engine_named
from autoauto.evaluate.serving.costs import KV_CACHE, StagePosition, position_costs
from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.records.costs.decoder import Decoder, Workload
from autoauto.records.costs.profile import WEIGHTS
from autoauto.records.errors import Unsupported
from autoauto.records.hardware import Link
from autoauto.targets.gpu.costs import layer_costs
from autoauto.targets.gpu.memory import memory_rule
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving

QWEN_8B = Decoder("Qwen3-8B", "Qwen3ForCausalLM", 4096, 36, 32, 8, 128, 12288, 151936, is_tied=False)
REQUESTS = Workload(1024, 256)
H100 = Serving("h100_sxm", "vllm")


@pytest.fixture(scope="module", autouse=True)
def package() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")


def replicas(*n_blocks: int, serving: Serving = H100) -> FixedReplicas:
    return FixedReplicas(QWEN_8B, serving, REQUESTS, n_blocks)


def test_the_head_takes_as_long_as_a_block() -> None:
    """Half of the blocks each leaves the head to the second stage: a block more on the first is faster."""
    serving = Serving("h100_sxm", "trtllm")
    even, uneven = (replicas(*n_blocks, serving=serving).rates(64) for n_blocks in ((18, 18), (19, 17)))
    assert uneven.period_s < even.period_s


def test_a_slower_link_between_stages_takes_longer() -> None:
    system, engine = system_named("h100_sxm"), engine_named("vllm")
    layers = layer_costs(QWEN_8B, H100, system, engine, REQUESTS, np.array([1, 8]), 8192)
    rule = memory_rule(QWEN_8B, H100, system, engine, 2, 8192)
    send_s = [
        position_costs(layers, StagePosition(0, True, is_last, Link(rate, 10_000)), np.ones(2), rule, 1).send_s[1]
        for rate, is_last in ((450e9, False), (1e9, False), (1e9, True))
    ]
    # 8 sequences with prompts of 4 tokens a token send 8 * 5 vectors of 4,096 elements of 2 bytes
    assert send_s[1] == pytest.approx(1e-5 + 8 * 5 * 4096 * 2 / 1e9, abs=1e-9)
    assert 0 == send_s[2] < send_s[0] < send_s[1]


def test_every_stage_holds_its_blocks_and_the_cache_of_all_sequences_in_flight() -> None:
    (whole,), (first, last) = replicas(36).memory_bytes(16), replicas(18, 18).memory_bytes(16)
    assert first[WEIGHTS] + last[WEIGHTS] == pytest.approx(whole[WEIGHTS])
    assert first[KV_CACHE] + last[KV_CACHE] == pytest.approx(2 * whole[KV_CACHE]), "twice as many are in flight"


def test_one_stage_has_one_table_of_a_tied_pair() -> None:
    tied = replace(QWEN_8B, is_tied=True)
    (tied_held,), (untied,) = (FixedReplicas(each, H100, REQUESTS, (36,)).memory_bytes(1) for each in (tied, QWEN_8B))
    assert untied[WEIGHTS] - tied_held[WEIGHTS] == 2 * 151936 * 4096


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    pipeline = replicas(18, 18)
    most = pipeline.max_sequences()
    limit_bytes = pipeline.stages(1)[0].limit_bytes
    fullest = [max(sum(held.values()) for held in pipeline.memory_bytes(b)) for b in (most, most + 1)]
    assert fullest[0] <= limit_bytes < fullest[1]


def test_clients_beyond_the_cache_wait_and_get_no_more() -> None:
    alone = replicas(36)
    most = alone.max_sequences()
    full, over = alone.closed_loop(most), alone.closed_loop(2 * most)
    assert over.tokens_per_s == pytest.approx(full.tokens_per_s)
    assert over.ttft_s > full.ttft_s + 200 * full.tpot_s


def test_requests_that_wait_together_come_in_waves() -> None:
    """A last wave of one request takes as long as a full one: 2 b + 1 requests get 2 b + 1 of 3 b of the tokens/s."""
    alone = replicas(36)
    for n_requests in (1, 2 * alone.max_sequences() + 1, 3000):
        of_waves = alone.of_waves(n_requests).tokens_per_s.item()
        by_size = [
            alone.rates(b).tokens_per_s.item() * n_requests / (b * -(-n_requests // b))
            for b in range(1, min(alone.max_sequences(), n_requests) + 1)
        ]
        assert 0.98 * max(by_size) <= of_waves <= max(by_size) * (1 + 1e-9)


def test_pipelines_and_replicas_share_the_requests() -> None:
    pipeline, both = replicas(18, 18), replace(replicas(18, 18), n_replicas=2)
    assert both.of_waves(400).tokens_per_s == pytest.approx(2 * pipeline.of_waves(200).tokens_per_s)


def test_replicas_multiply_the_throughput_and_nothing_else() -> None:
    single, three = replicas(18, 18).rates(5), replace(replicas(18, 18), n_replicas=3).rates(5)
    assert three.tokens_per_s == pytest.approx(3 * single.tokens_per_s)
    assert (three.tpot_s, three.ttft_s, three.period_s) == (single.tpot_s, single.ttft_s, single.period_s)


def test_a_model_that_does_not_fit_at_all_is_refused() -> None:
    large = Decoder("llama", "LlamaForCausalLM", 8192, 80, 64, 8, 128, 28672, 128256, is_tied=False)
    with pytest.raises(Unsupported, match="one sequence must fit beside the weights of llama, none does"):
        FixedReplicas(large, H100, REQUESTS, (80,)).closed_loop(1)
