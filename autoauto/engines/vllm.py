"""vLLM [vllm-serve]: sequences are counted over all micro-batches, the share of memory is of all, for everything.

Ranks of the attention are engines with sequences and tokens of their own, each with all stages [vllm-data-parallel].

Uneven stages are given by a variable [vllm-pp]; how steps are made, and figures of memory, are those of
[aiconfigurator].
"""

from __future__ import annotations

import json

from autoauto.engines.command import (
    ALL_ADDRESSES,
    MASTER,
    Command,
    CommandSyntax,
    Launch,
    Launcher,
    Limits,
    Machines,
    Placing,
    PoolFront,
    PoolPart,
    Pools,
    blocks_of_variable,
    option_words,
    partition_variable,
)
from autoauto.engines.engine import ConstantShare, Engine, EngineMemory, HostCosts
from autoauto.engines.metrics import MetricNames
from autoauto.engines.stand_in import AttentionStandIn, KernelExceptions, StandIn
from autoauto.engines.step_rules import StepRules
from autoauto.records.costs.decoder import Decoder, Speculation, WeightFormat
from autoauto.records.units import MIB

_MAKES = {WeightFormat.FP8_DYNAMIC: "fp8_per_tensor", WeightFormat.FP8_BLOCK: "fp8_per_block"}
"""[vllm-serve] makes 4 bits and int8 of experts only, and static scales of activations not at all."""
_CACHE = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8"}
_GRAPH_TOKENS = 512
"""Of the largest CUDA graph, where none is asked for [vllm-serve]; without drafts a sequence has one."""
_VARIABLE = "VLLM_PP_LAYER_PARTITION"
_SIDE_HOST, _SIDE_PORT = "VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT"
_SYNTAX = CommandSyntax(("vllm", "serve"), "vllm")


def _command(launch: Launch, port: int) -> Command:
    n_of_step = launch.n_sequences * launch.drafts.step_tokens
    words = option_words(
        [
            ("--host", ALL_ADDRESSES),
            ("--port", port),
            ("--tensor-parallel-size", launch.split.tensor_parallel),
            ("--pipeline-parallel-size", launch.n_stages),
            ("--data-parallel-size", launch.n_ranks),
            ("--enable-expert-parallel", launch.split.expert_parallel > 1),
            ("--max-num-seqs", launch.n_in_flight),
            ("--max-num-batched-tokens", launch.max_batched_tokens),
            ("--max-model-len", launch.max_length),
            ("--gpu-memory-utilization", launch.memory_share),
            ("--kv-cache-dtype", launch.kv_cache and _CACHE[launch.kv_cache]),
            ("--quantization", launch.weights and _MAKES[launch.weights]),
            ("--max-cudagraph-capture-size", n_of_step if n_of_step > _GRAPH_TOKENS else None),
            ("--speculative-config", _speculative_config(launch.drafts)),
            ("--enable-prefix-caching", launch.requests.cached_share > 0),
            ("--kv-transfer-config", _transfer(launch.pool)),
            *_machines(launch.machines),
        ]
    )
    variables = partition_variable(_VARIABLE, launch)
    if launch.pool is not None:
        variables |= {_SIDE_HOST: launch.pool.address, _SIDE_PORT: str(launch.pool.port)}
    return Command((*_SYNTAX.program, launch.model, *words), variables)


def _transfer(part: PoolPart | None) -> str | None:
    """Which role a server has in the transfer of caches [vllm-nixl]."""
    if part is None:
        return None
    role = "kv_producer" if part.is_prefill else "kv_consumer"
    return json.dumps({"kv_connector": "NixlConnector", "kv_role": role})


def _front(pools: Pools) -> Command:
    """A request goes to a server of prompts for one token, and with what that answers to one of answers."""
    options: list[tuple[str, object]] = [("--host", ALL_ADDRESSES), ("--port", pools.port)]
    options += [("--vllm-pd-disaggregation", True), ("--policy", "round_robin")]
    options += [("--prefill", f"http://{address}") for address, _ in pools.prefill]
    options += [("--decode", f"http://{address}") for address in pools.decode]
    return Command(("vllm-router", *option_words(options)), {})


def _speculative_config(drafts: Speculation) -> str | None:
    """Drafts by the checkpoint's own layers, or by an EAGLE-3 head [vllm-drafts]."""
    if not drafts.draft_tokens:
        return None
    config: dict[str, object] = {"method": "mtp", "num_speculative_tokens": drafts.draft_tokens}
    if drafts.draft_model:
        config |= {"method": "eagle3", "model": drafts.draft_model}
    return json.dumps(config)


def _machines(machines: Machines) -> list[tuple[str, object]]:
    """Only the first machine answers requests."""
    if machines.n == 1:
        return []
    return [
        ("--nnodes", machines.n),
        ("--node-rank", machines.rank),
        ("--master-addr", MASTER),
        ("--master-port", machines.port),
        ("--headless", machines.rank > 0),
    ]


def _limits(command: Command) -> Limits:
    given = _SYNTAX.parse(command.words)
    n_stages, n_ranks = given["--pipeline-parallel-size"], given.get("--data-parallel-size", 1)
    n_gpus = given["--tensor-parallel-size"] * n_ranks
    return Limits(
        given["model"],
        blocks_of_variable(_VARIABLE, command, n_stages),
        n_gpus * n_stages // given.get("--nnodes", 1),
        given["--max-num-seqs"],
        given["--max-num-batched-tokens"],
        given["--max-model-len"],
        given["--gpu-memory-utilization"],
        n_gpus if "--enable-expert-parallel" in given else 1,
        None if "--headless" in given else given["--port"],
        n_ranks,
    )


def _experts_among(n_gpus: int) -> tuple[int, ...]:
    """Experts are dealt among none or all GPUs of a group: --enable-expert-parallel has no number [vllm-serve]."""
    return (1, n_gpus) if n_gpus > 1 else (1,)


def _windows(decoder: Decoder, *_: object) -> str | None:
    """Models of the class Qwen2Model have a window of attention in all blocks or in none [vllm-serve]."""
    n_windowed = decoder.n_windowed
    if n_windowed in (0, decoder.n_layers) or not decoder.architecture.startswith(("Qwen", "MiMoFor")):
        return None
    return (
        f"vLLM takes {decoder.name} with a window of attention in all of its {decoder.n_layers} blocks or in none, got "
        f"{n_windowed}; try another engine, or a config with use_sliding_window false"
    )


_SORTS = EngineMemory(
    ConstantShare(0.92),
    {1: 11, 2: 6.5, 4: 5, 8: 5},
    70 * MIB,
    base_bytes=512 * MIB,
    group_bytes=665 * MIB,
    logit_bytes=34,
)
"""To sample, all logits were sorted: values of 4 bytes and places of 8, both twice, beside 10 bytes that are held in
any case, the logit in 2 and in 4 bytes and its probability. `studies/gpu_memory.py` has the logs that say so."""
_DOES_NOT_SORT = _SORTS._replace(group_bytes=1843 * MIB, logit_bytes=14)
"""A kernel does not sort [vllm-sampler]; 4 bytes of random numbers are a part of the 14."""
_EARLIER = (
    ((0, 11, 0), _SORTS),
    ((0, 11, 1), _SORTS._replace(logit_bytes=10)),  # sampled with FlashInfer
    ((0, 18, 0), _SORTS),
    ((0, 20, 0), _DOES_NOT_SORT),
)
_COUNTS_GRAPHS = _DOES_NOT_SORT._replace(graph_bytes=6 * MIB, earlier=_EARLIER)
"""An estimate of CUDA graphs counts in the share [vllm-graphs]."""

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    kernel_times="vllm",
    mixes=True,
    memory=_COUNTS_GRAPHS,  # studies/gpu_memory.py
    # studies/gpu_fit.py, even half of the measured rows [aiconfigurator]
    host=HostCosts(0.31e-3, 34e-6, 0.05, 0.0, n_behind=1.4),
    model_rules=(_windows,),
    step_rules=StepRules(
        block_tokens=16,
        counts_whole_prompt=False,
        asynchronous_from=(0, 14, 0),
        request_s=8e-3,
        counts_all_sequences=True,
    ),
    kernel_exceptions=KernelExceptions(
        stand_ins=(
            StandIn(
                WeightFormat.FP8_BLOCK,
                ("b200_sxm", "b300_sxm", "gb200", "gb300", "l40s"),
                WeightFormat.FP8_DYNAMIC,
                "of 128 x 128 blocks all were measured at 0.2 ms or more whatever their size, ten times those of other "
                "engines, as of kernels that each wait for the host; measured rows of MiniMax-M2.5 take half of that",
            ),
        ),
        attention=AttentionStandIn(
            ("h100_sxm", "h200_sxm"),
            "sglang",
            "both call FlashAttention, but those of vLLM take 3.5 times as long where one sequence decodes, and with "
            "them stages of Llama-2-7B take 3 to 8 % longer than was measured, the host left out (docs/traffic.md)",
        ),
    ),
    launcher=Launcher(
        to="vllm",
        source="package vllm 0.33.0",
        image="vllm/vllm-openai:v0.33.0",
        syntax=_SYNTAX,
        command=_command,
        limits=_limits,
        makes=_MAKES,
        placing=Placing(ranks_first=True, experts_among=_experts_among),
        front=PoolFront(
            _front,
            "vllm/vllm-router:v0.1.15",
            "[vllm-router]: public scripts",
            ("dynamo.vllm", "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1"),
            "ghcr.io/llm-d/llm-d-cuda:latest",
        ),
        remark="None is for the size of a micro-batch:\nwhere vLLM forms unequal ones, a pipeline gives less.",
    ),
)

METRICS = MetricNames(
    engine=ENGINE.title,
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    preemptions=("vllm:num_preemptions_total",),
    output_tokens=("vllm:generation_tokens_total",),
)
