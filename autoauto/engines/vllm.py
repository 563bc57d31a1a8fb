"""vLLM [vllm-serve]: sequences are counted over all micro-batches, the share of memory is of all, for everything.

Uneven stages are given by a variable [vllm-pp]; how steps are made, and figures of memory, are those of
[aiconfigurator].
"""

from __future__ import annotations

from autoauto.engines.command import (
    ALL_ADDRESSES,
    MASTER,
    Command,
    CommandSyntax,
    Launch,
    Launcher,
    Limits,
    Machines,
    blocks_of_variable,
    option_words,
    partition_variable,
)
from autoauto.engines.engine import ConstantShare, Engine, EngineMemory, HostCosts
from autoauto.engines.metrics import MetricNames
from autoauto.engines.rules import ENGINE_RULES
from autoauto.records.costs.decoder import Decoder, WeightFormat
from autoauto.records.units import MIB

_MAKES = {WeightFormat.FP8_DYNAMIC: "fp8_per_tensor", WeightFormat.FP8_BLOCK: "fp8_per_block"}
"""[vllm-serve] makes 4 bits and int8 of experts only, and static scales of activations not at all."""
_CACHE = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8"}
_GRAPH_SEQUENCES = 512
"""Of the largest CUDA graph, where none is asked for [vllm-serve]."""
_VARIABLE = "VLLM_PP_LAYER_PARTITION"
_SYNTAX = CommandSyntax(("vllm", "serve"), "vllm")


def _command(launch: Launch, port: int) -> Command:
    words = option_words(
        [
            ("--host", ALL_ADDRESSES),
            ("--port", port),
            ("--tensor-parallel-size", launch.tensor_parallel),
            ("--pipeline-parallel-size", launch.n_stages),
            ("--enable-expert-parallel", True if launch.expert_parallel > 1 else None),
            ("--max-num-seqs", launch.n_in_flight),
            ("--max-num-batched-tokens", launch.max_batched_tokens),
            ("--max-model-len", launch.max_length),
            ("--gpu-memory-utilization", launch.memory_share),
            ("--kv-cache-dtype", launch.kv_cache and _CACHE[launch.kv_cache]),
            ("--quantization", launch.weights and _MAKES[launch.weights]),
            ("--max-cudagraph-capture-size", launch.n_sequences if launch.n_sequences > _GRAPH_SEQUENCES else None),
            *_machines(launch.machines),
        ]
    )
    return Command((*_SYNTAX.program, launch.model, *words), partition_variable(_VARIABLE, launch))


def _machines(machines: Machines) -> list[tuple[str, object]]:
    """Only the first machine answers requests."""
    if machines.n == 1:
        return []
    return [
        ("--nnodes", machines.n),
        ("--node-rank", machines.rank),
        ("--master-addr", MASTER),
        ("--master-port", machines.port),
        ("--headless", True if machines.rank else None),
    ]


def _limits(command: Command) -> Limits:
    given = _SYNTAX.parse(command.words)
    n_stages = given["--pipeline-parallel-size"]
    return Limits(
        given["model"],
        blocks_of_variable(_VARIABLE, command, n_stages),
        given["--tensor-parallel-size"] * n_stages // given.get("--nnodes", 1),
        given["--max-num-seqs"],
        given["--max-num-batched-tokens"],
        given["--max-model-len"],
        given["--gpu-memory-utilization"],
        given["--tensor-parallel-size"] if "--enable-expert-parallel" in given else 1,
        None if "--headless" in given else given["--port"],
    )


def _dealt_among(tensor_parallel: int) -> tuple[int, ...]:
    """Experts are dealt among none or all GPUs of a group: --enable-expert-parallel has no number [vllm-serve]."""
    return (1, tensor_parallel) if tensor_parallel > 1 else (1,)


def _windows(decoder: Decoder, *_: object) -> str | None:
    """Models of the class Qwen2Model have a window of attention in all blocks or in none [vllm-serve]."""
    window = decoder.checkpoint.window
    if window is None or window.n_layers == decoder.n_layers or not decoder.architecture.startswith(("Qwen", "MiMo")):
        return None
    return (
        f"vLLM takes {decoder.name} with a window of attention in all of its {decoder.n_layers} blocks or in none, got "
        f"{window.n_layers}; try another engine, or a config with use_sliding_window false"
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
    rules=(*ENGINE_RULES, _windows),
    dealt_among=_dealt_among,
    counts_all_sequences=True,
    launcher=Launcher(
        to="vllm",
        source="package vllm 0.33.0",
        image="vllm/vllm-openai:v0.33.0",
        syntax=_SYNTAX,
        command=_command,
        limits=_limits,
        makes=_MAKES,
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
