"""TensorRT-LLM [trtllm-serve]: sequences are counted in the largest micro-batch.

The share of memory is of what weights leave free, for the KV cache. Uneven stages are given in a file of YAML
[tensorrt-llm-pp]; how steps are made, and figures of memory, are those of [aiconfigurator].
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from autoauto.engines.command import (
    ALL_ADDRESSES,
    Command,
    CommandOption,
    CommandSyntax,
    Launch,
    Launcher,
    Limits,
    checked_blocks,
    dealt_among,
    option_words,
)
from autoauto.engines.contradiction import Contradiction
from autoauto.engines.engine import ConstantShare, Engine, EngineMemory, HostCosts
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.units import MIB

_YAML_FILE = "llm_api.yaml"
_CACHE = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8"}
_YAML_OPTION = "--extra_llm_api_options"
_SYNTAX = CommandSyntax(
    ("trtllm-serve", "serve"),
    (
        CommandOption("--host"),
        CommandOption("--port", int),
        CommandOption("--backend", str, ("pytorch", "tensorrt", "_autodeploy")),
        CommandOption("--tensor_parallel_size", int),
        CommandOption("--pipeline_parallel_size", int),
        CommandOption("--moe_expert_parallel_size", int),
        CommandOption("--max_batch_size", int),
        CommandOption("--max_num_tokens", int),
        CommandOption("--max_seq_len", int),
        CommandOption("--enable_chunked_prefill", None),
        CommandOption(_YAML_OPTION),
    ),
)


def _command(launch: Launch, port: int) -> Command:
    """The engine has a micro-batch for every stage, each of at most `max_batch_size` sequences."""
    words = option_words(
        [
            ("--host", ALL_ADDRESSES),
            ("--port", port),
            ("--backend", "pytorch"),
            ("--tensor_parallel_size", launch.tensor_parallel),
            ("--pipeline_parallel_size", launch.n_stages),
            ("--moe_expert_parallel_size", dealt_among(launch)),
            ("--max_batch_size", launch.n_sequences),
            ("--max_num_tokens", launch.max_batched_tokens),
            ("--max_seq_len", launch.max_length),
            ("--enable_chunked_prefill", True),
            (_YAML_OPTION, _YAML_FILE),
        ]
    )
    cache: dict[str, object] = {"free_gpu_memory_fraction": launch.memory_share}
    if launch.kv_cache:
        cache["dtype"] = _CACHE[launch.kv_cache]
    content: dict[str, object] = {"kv_cache_config": cache}
    if launch.n_stages > 1:
        content["pp_partition"] = list(launch.blocks)
    return Command((*_SYNTAX.program, launch.model, *words), {}, {_YAML_FILE: _yaml(content)})


def _yaml(content: Mapping[str, object]) -> str:
    """YAML whose values are JSON, a key a line."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in content.items())


def _limits(command: Command) -> Limits:
    import yaml  # of extra gpu

    given = _SYNTAX.parse(command.words)
    content = yaml.safe_load(command.files[Path(given[_YAML_OPTION]).name])
    n_stages = given["--pipeline_parallel_size"]
    return Limits(
        given["model"],
        checked_blocks(tuple(content.get("pp_partition", ())), n_stages),
        given["--tensor_parallel_size"] * n_stages,
        given["--max_batch_size"] * n_stages,
        given["--max_num_tokens"],
        given["--max_seq_len"],
        content["kv_cache_config"]["free_gpu_memory_fraction"],
        given.get("--moe_expert_parallel_size", 1),
        given["--port"],
    )


ENGINE = Engine(
    name="trtllm",
    title="TensorRT-LLM",
    kernel_times="trtllm",
    mixes=True,
    memory=EngineMemory(
        ConstantShare(0.9),
        {1: 11, 2: 6.5, 4: 5, 8: 5},
        70 * MIB,
        base_bytes=2816 * MIB,  # 3.5 GiB of [aiconfigurator], less what the driver keeps; no start was measured
        group_bytes=392 * MIB,
        is_of_free=True,
    ),
    # studies/gpu_fit.py, even half of the measured rows [aiconfigurator]; the last by rows of 2, 4 and 8 stages
    # [perf-overview]: of 30, 35, 40, 45, 50 and 55 microseconds the best (studies/gpu_accuracy.py).
    host=HostCosts(0.06e-3, 10e-6, 0.10, 0.16, 45e-6),
    # Rows of nvfp4 seem to hold a kernel that rounds activations, which the engine joins to the one before. Of 0.6, 0.7
    # and 0.8 the best for 38 even rows.
    product_factors={WeightFormat.NVFP4: 0.7},
    stage_error=0.03,  # rows of 2, 4 and 8 stages scatter hardly more than those of one (docs/validation.md)
    contradicted=(
        Contradiction(
            "gb200",
            WeightFormat.BF16,
            has_experts=False,
            n_rows=10,
            tpot=(2.6, 4.7, 11.1),
            reason="all are of Qwen3-32B with TP 2, where one request in flight takes 21 to 42 ms a token although its "
            "weights are read in 4, as of an engine without CUDA graphs",
        ),
    ),
    launcher=Launcher(
        to="tensorrt-llm",
        source="commit 00209af1 of trtllm-serve",
        image="nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc22",
        syntax=_SYNTAX,
        command=_command,
        limits=_limits,
        makes={},
        own_options=("--port", _YAML_OPTION),
        spans_machines=False,  # it would be started by MPI
    ),
)
