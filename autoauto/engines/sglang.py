"""SGLang [sglang-serve]: sequences are counted over all micro-batches and in the largest.

Its tensor-parallel size is of the whole group, and it divides sequences and tokens of a step among the ranks of the
attention [sglang-dp-attention]. The share of memory is of all, for weights and KV cache; SGLang derives it of the GPU.
Uneven stages are given by a variable [sglang-pp]; how steps are made, and figures of memory, are those of
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
    PoolFront,
    PoolPart,
    Pools,
    blocks_of_variable,
    option_words,
    partition_variable,
)
from autoauto.engines.engine import Engine, EngineMemory, HostCosts, MeasuredRows
from autoauto.engines.load_drivers import VARYING, LoadDriver, driver_of
from autoauto.engines.metrics import MetricNames
from autoauto.engines.rules import ENGINE_RULES, joined_blocks
from autoauto.engines.stand_in import KernelExceptions
from autoauto.engines.step_rules import StepRules, TakesBack
from autoauto.records.costs.decoder import Speculation, WeightFormat, Workload
from autoauto.records.units import GIB, MIB

_MAKES = {WeightFormat.FP8_DYNAMIC: "fp8"}
"""[sglang-serve] makes nvfp4 of experts only."""
_CACHE = {WeightFormat.BF16: "bf16", WeightFormat.FP8: "fp8_e4m3"}
_ROUTER = ("python3", "-m", "sglang_router.launch_router")
_VARIABLE = "SGLANG_PP_LAYER_PARTITION"
_SYNTAX = CommandSyntax(("python3", "-m", "sglang.launch_server"), "sglang", takes_model=False)


def _command(launch: Launch, port: int) -> Command:
    n_ranks = launch.split.attention_data_parallel
    words = option_words(
        [
            ("--model-path", launch.model),
            ("--host", ALL_ADDRESSES),
            ("--port", port),
            ("--tp-size", launch.split.n_gpus),
            ("--pp-size", launch.n_stages),
            ("--dp-size", launch.n_ranks),
            ("--enable-dp-attention", launch.n_ranks is not None),
            ("--ep-size", launch.n_dealt),
            ("--max-running-requests", launch.n_in_flight * n_ranks),
            ("--pp-max-micro-batch-size", launch.n_sequences if launch.n_stages > 1 else None),
            ("--cuda-graph-max-bs-decode", launch.n_sequences),
            ("--chunked-prefill-size", launch.max_batched_tokens * n_ranks),
            ("--context-length", launch.max_length),
            ("--mem-fraction-static", launch.memory_share),
            ("--kv-cache-dtype", launch.kv_cache and _CACHE[launch.kv_cache]),
            ("--quantization", launch.weights and _MAKES[launch.weights]),
            *_drafts(launch.drafts),
            *_pool(launch.pool),
            *_machines(launch.machines),
        ]
    )
    return Command((*_SYNTAX.program, *words), partition_variable(_VARIABLE, launch))


def _pool(part: PoolPart | None) -> list[tuple[str, object]]:
    """A server of answers asks one of prompts at its bootstrap port [sglang-pd]."""
    if part is None:
        return []
    return [
        ("--disaggregation-mode", "prefill" if part.is_prefill else "decode"),
        ("--disaggregation-bootstrap-port", part.port if part.is_prefill else None),
        ("--disaggregation-transfer-backend", "nixl"),
    ]


def _front(pools: Pools) -> Command:
    """The router sends a request to a server of each pool at the same time."""
    words = [*_ROUTER, "--host", ALL_ADDRESSES, "--port", str(pools.port), "--pd-disaggregation"]
    for address, port in pools.prefill:
        words += ["--prefill", f"http://{address}", str(port)]
    for address in pools.decode:
        words += ["--decode", f"http://{address}"]
    return Command(tuple(words), {})


def _drafts(drafts: Speculation) -> list[tuple[str, object]]:
    """Drafts by the checkpoint's own layers, or by an EAGLE-3 head, without a tree: one token after the other."""
    if not drafts.draft_tokens:
        return []
    return [
        ("--speculative-algorithm", "EAGLE3" if drafts.draft_model else "EAGLE"),
        ("--speculative-draft-model-path", drafts.draft_model),
        ("--speculative-num-steps", drafts.draft_tokens),
        ("--speculative-eagle-topk", 1),
        ("--speculative-num-draft-tokens", drafts.step_tokens),
    ]


def _machines(machines: Machines) -> list[tuple[str, object]]:
    if machines.n == 1:
        return []
    address = f"{MASTER}:{machines.port}"
    return [("--nnodes", machines.n), ("--node-rank", machines.rank), ("--dist-init-addr", address)]


def _limits(command: Command) -> Limits:
    given = _SYNTAX.parse(command.words)
    n_ranks = given.get("--dp-size", 1) if "--enable-dp-attention" in given else 1
    return Limits(
        given["--model-path"],
        blocks_of_variable(_VARIABLE, command, given["--pp-size"]),
        given["--tp-size"] * given["--pp-size"] // given.get("--nnodes", 1),
        given["--max-running-requests"] // n_ranks,
        given["--chunked-prefill-size"] // n_ranks,
        given["--context-length"],
        given["--mem-fraction-static"],
        given.get("--ep-size", 1),
        given["--port"],
        n_ranks,
    )


_SIZES = ((20, 2048, 8, 8), (35, 2048, 24, 80), (60, 4096, 32, 160), (160, 8192, 256, 512))
"""Of GPUs with less memory than so many GiB: tokens of a prompt that are computed at once, and sequences of the largest
CUDA graph in groups of less than 4 GPUs and in larger ones."""


def _share(memory_bytes: int, tensor_parallel: int, n_stages: int) -> float:
    """SGLang leaves room for graphs and prompts by the size of the GPU [aiconfigurator].

    >>> round(_share(80 * GIB, 1, 1), 3)
    0.836
    """
    n_prompt_tokens, n_graph_sequences = _sizes(memory_bytes, tensor_parallel)
    reserved_mib = 512 + 1.5 * n_prompt_tokens + tensor_parallel * n_stages / 8 * 1024 + 2 * n_graph_sequences
    if memory_bytes > 60 * GIB:
        reserved_mib = max(reserved_mib, 10 * 1024)
    return round(1 - reserved_mib * MIB / memory_bytes, 3)


def _sizes(memory_bytes: int, tensor_parallel: int) -> tuple[int, int]:
    """Tokens of a prompt that SGLang computes at once, and sequences of its largest graph, by the size of a GPU."""
    for below_gib, n_tokens, n_small, n_large in _SIZES:
        if memory_bytes < below_gib * GIB:
            return n_tokens, n_large if tensor_parallel >= 4 else n_small
    return 16_384, 512


def _driver_of(source: str, tensor_parallel: int, longest: Workload) -> LoadDriver:
    """How rows were measured.

    Those of 0.5.6 fit neither prompts that come together nor ones whose kernels are there from the beginning: the first
    wave waits as long as DeepGEMM may take to compile its own.
    """
    if "sglang/0.5.6" in source:
        return LoadDriver(VARYING._replace(warm_up_s=5.0))
    return driver_of(source, tensor_parallel, longest)


ENGINE = Engine(
    name="sglang",
    title="SGLang",
    kernel_times="sglang",
    mixes=False,
    memory=EngineMemory(
        _share,
        {1: 14, 2: 8.5, 4: 6.5, 8: 6.5},
        90 * MIB,
        base_bytes=512 * MIB,
        group_bytes=1638 * MIB,  # of 367,404 tokens of Qwen3-235B in fp8 on four H100 at a share of 0.93 [sglang-kv]
        counts_activations=False,
    ),
    host=HostCosts(0.20e-3, 17e-6, 0.17, 0.88),  # studies/gpu_fit.py, even half of the measured rows [aiconfigurator]
    kernel_exceptions=KernelExceptions(
        of_experts={WeightFormat.MXFP4: ("w4a8_mxfp4_mxfp8_trtllm", "w4a16_mxfp4_cutlass")}
    ),
    measured=MeasuredRows(_driver_of),
    rules=(*ENGINE_RULES, joined_blocks),
    step_rules=StepRules(1, own_share=1.0, running_share=0.1, takes_back=TakesBack.FEWEST_ANSWERED),
    launcher=Launcher(
        to="sglang",
        source="package sglang 0.5.23",
        image="lmsysorg/sglang:v0.5.23",
        own_options=("--port", "--disaggregation-bootstrap-port"),
        front=PoolFront(
            _front,
            "lmsysorg/sgl-model-gateway:v0.3.2",
            "[sglang-pd]",
            ("dynamo.sglang", "nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.3.1"),
        ),
        syntax=_SYNTAX,
        command=_command,
        limits=_limits,
        makes=_MAKES,
    ),
)

METRICS = MetricNames(
    engine=ENGINE.title,
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    kv_usage=("sglang:token_usage",),
    preemptions=("sglang:num_retracted_requests_total",),
    output_tokens=("sglang:generation_tokens_total",),
)
