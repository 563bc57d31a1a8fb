"""vLLM [vllm-serve]: sequences are counted over all micro-batches, the share of memory is of all, for everything.

Uneven stages are given by a variable [vllm-pp]; how steps are made, and figures of memory, are those of
[aiconfigurator].
"""

from __future__ import annotations

from autoauto.engines.command import (
    ALL_ADDRESSES,
    MASTER,
    Command,
    CommandOption,
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
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.units import MIB

_MAKES = {WeightFormat.FP8_DYNAMIC: "fp8_per_tensor", WeightFormat.FP8_BLOCK: "fp8_per_block"}
"""[vllm-serve] makes 4 bits and int8 of experts only, and static scales of activations not at all."""
_CACHE = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8"}
_VARIABLE = "VLLM_PP_LAYER_PARTITION"
_SYNTAX = CommandSyntax(
    ("vllm", "serve"),
    (
        CommandOption("--host"),
        CommandOption("--port", int),
        CommandOption("--tensor-parallel-size", int),
        CommandOption("--pipeline-parallel-size", int),
        CommandOption("--enable-expert-parallel", None),
        CommandOption("--max-num-seqs", int),
        CommandOption("--max-num-batched-tokens", int),
        CommandOption("--max-model-len", int),
        CommandOption("--gpu-memory-utilization", float),
        CommandOption("--kv-cache-dtype", str, ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")),
        CommandOption("--quantization", str, ("fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel")),
        CommandOption("--nnodes", int),
        CommandOption("--node-rank", int),
        CommandOption("--master-addr"),
        CommandOption("--master-port", int),
        CommandOption("--headless", None),
    ),
)


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


ENGINE = Engine(
    name="vllm",
    title="vLLM",
    kernel_times="vllm",
    mixes=True,
    memory=EngineMemory(ConstantShare(0.92), {1: 11, 2: 6.5, 4: 5, 8: 5}, 70 * MIB),
    host=HostCosts(0.31e-3, 34e-6, 0.05, 0.14),  # studies/gpu_fit.py, even half of the measured rows [aiconfigurator]
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
