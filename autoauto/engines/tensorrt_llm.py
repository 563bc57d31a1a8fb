"""TensorRT-LLM [trtllm-serve]: sequences are counted in the largest micro-batch, of a rank of the attention.

The attention of a group is split, or every GPU is a rank [trtllm-mapping]; its tensor-parallel size is of the group.

The share of memory is of what weights leave free, for the KV cache. Uneven stages are given in a file of YAML
[tensorrt-llm-pp]; how steps are made, and figures of memory, are those of [aiconfigurator].
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from autoauto.engines.command import (
    ALL_ADDRESSES,
    Command,
    CommandSyntax,
    Launch,
    Launcher,
    Limits,
    Placing,
    PoolFront,
    Pools,
    checked_blocks,
    option_words,
)
from autoauto.engines.engine import ConstantShare, Engine, EngineMemory, HostCosts, MeasuredRows
from autoauto.engines.load_drivers import INFERENCEMAX, INFERENCEMAX_ROWS, VARYING, LoadDriver, driver_of
from autoauto.engines.rules import ENGINE_RULES, joined_blocks
from autoauto.engines.stand_in import Contradiction, KernelExceptions, StandIn
from autoauto.engines.step_rules import StepRules
from autoauto.records.costs.decoder import Decoder, Speculation, WeightFormat, Workload
from autoauto.records.units import MIB

_YAML_FILE = "llm_api.yaml"
_CACHE = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8"}
_YAML_OPTION = "--extra_llm_api_options"
_SYNTAX = CommandSyntax(("trtllm-serve", "serve"), "tensorrt_llm")
_IMAGE = "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc22"
_FRONT_FILE = "pools.yaml"
_CACHE_BLOCK = 32
"""Tokens; buffers hold whole blocks."""


def _command(launch: Launch, port: int) -> Command:
    """The engine has a micro-batch for every stage, each of at most `max_batch_size` sequences."""
    words = option_words(
        [
            ("--host", ALL_ADDRESSES),
            ("--port", port),
            ("--backend", "pytorch"),
            ("--tensor_parallel_size", launch.split.n_gpus),
            ("--pipeline_parallel_size", launch.n_stages),
            ("--moe_expert_parallel_size", launch.n_dealt),
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
    if launch.requests.cached_share:
        cache["enable_block_reuse"] = True
    # By default graphs are made for few batch sizes, and a batch of another size runs without one.
    graphs = {"enable_padding": True, "max_batch_size": launch.n_sequences}
    content: dict[str, object] = {"kv_cache_config": cache, "cuda_graph_config": graphs}
    if launch.n_ranks:
        content["enable_attention_dp"] = True
    if launch.n_stages > 1:
        content["pp_partition"] = list(launch.blocks)
    if launch.pool is not None:  # [trtllm-disagg]
        n_tokens = -(-launch.max_length // _CACHE_BLOCK) * _CACHE_BLOCK
        content["cache_transceiver_config"] = {"backend": "DEFAULT", "max_tokens_in_buffer": n_tokens}
    if launch.pool is not None and launch.pool.is_prefill:
        content["disable_overlap_scheduler"] = True  # a server of prompts has no next step to prepare
    if launch.drafts.draft_tokens:
        content["speculative_config"] = _drafts(launch.drafts)
    return Command((*_SYNTAX.program, launch.model, *words), {}, {_YAML_FILE: _yaml(content)})


def _front(pools: Pools) -> Command:
    """A server that has the addresses of both pools in a file [trtllm-disagg]."""
    content: dict[str, object] = {"hostname": ALL_ADDRESSES, "port": pools.port, "backend": "pytorch"}
    for name, urls in (
        ("context_servers", [address for address, _ in pools.prefill]),
        ("generation_servers", list(pools.decode)),
    ):
        content[name] = {"num_instances": len(urls), "urls": urls}
    return Command(("trtllm-serve", "disaggregated", "-c", _FRONT_FILE), {}, {_FRONT_FILE: _yaml(content)})


def _drafts(drafts: Speculation) -> dict[str, object]:
    """Drafts by the checkpoint's own layers, or by an EAGLE-3 head [trtllm-drafts]."""
    if drafts.draft_model is None:
        return {"decoding_type": "MTP", "max_draft_len": drafts.draft_tokens}
    return {
        "decoding_type": "Eagle3",
        "max_draft_len": drafts.draft_tokens,
        "speculative_model": drafts.draft_model,
    }


def _yaml(content: Mapping[str, object]) -> str:
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in content.items())


def _keys(content: Mapping[str, object]) -> Iterator[str]:
    """The keys of a file; a key inside another is written "kv_cache_config.dtype"."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in value)
        else:
            yield key


def _limits(command: Command) -> Limits:
    import yaml  # of extra gpu

    given = _SYNTAX.parse(command.words)
    content = yaml.safe_load(command.files[Path(given[_YAML_OPTION]).name])
    _SYNTAX.check_others(_keys(content))
    n_stages, n_gpus = given["--pipeline_parallel_size"], given["--tensor_parallel_size"]
    return Limits(
        given["model"],
        checked_blocks(tuple(content.get("pp_partition", ())), n_stages),
        n_gpus * n_stages,
        given["--max_batch_size"] * n_stages,
        given["--max_num_tokens"],
        given["--max_seq_len"],
        content["kv_cache_config"]["free_gpu_memory_fraction"],
        given.get("--moe_expert_parallel_size", 1),
        given["--port"],
        n_gpus if content.get("enable_attention_dp") else 1,
    )


_WAITING = Workload(1024, 1024)


def _driver_of(source: str, tensor_parallel: int, longest: Workload) -> LoadDriver:
    """How rows were measured.

    [inferencemax] gives steps 16,384 tokens, and has requests of 1024 and 1024 tokens wait for others in groups of less
    than 8 GPUs. Times of the 8B model grow with the length of answers over the number of clients, as if one more asked
    and waited for an answer to end, which spreads requests of one length.
    """
    if source.startswith(INFERENCEMAX_ROWS):
        waits = longest == _WAITING and tensor_parallel < 8
        arrivals = VARYING._replace(wait_steps=20 if waits else 0)
        return INFERENCEMAX._replace(arrivals=arrivals, n_max_batched_tokens=16_384)
    if "trtllm/1.0.0rc3/meta-llama_Llama-3.1-8B" in source:
        return LoadDriver(VARYING, n_beyond=1)
    return driver_of(source, tensor_parallel, longest)


_NOT_OF_PYTORCH = (
    "MiniMaxM2",
    "DeepseekV2",
    "SeedOss",
    "SmolLM3",
    "Granite",
    "Olmo",
    "CohereFor",
    "Ernie4_5",
    "MiMoV2",
)
"""Classes that its backend of PyTorch, which is exported, does not list begin with these [trtllm-models]."""


def _classes(decoder: Decoder, *_: object) -> str | None:
    if not decoder.architecture.startswith(_NOT_OF_PYTORCH):
        return None
    return (
        f"TensorRT-LLM must have the class of {decoder.name} in its backend of PyTorch, which does not list "
        f"{decoder.architecture}; try another engine"
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
    host=HostCosts(0.06e-3, 10e-6, 0.03, 0.0, 45e-6, 2.6),
    rules=(*ENGINE_RULES, joined_blocks),
    model_rules=(_classes,),
    kernel_exceptions=KernelExceptions(
        dispatch_reduces=True,
        stand_ins=(StandIn(WeightFormat.MXFP4, (), None, "split ones were not measured; they read as many weights"),),
        # Rows of nvfp4 seem to hold a kernel that rounds activations, which the engine joins to the one before. Of 0.6,
        # 0.7 and 0.8 the best for 38 even rows.
        product_factors={WeightFormat.NVFP4: 0.7},
    ),
    measured=MeasuredRows(
        _driver_of,
        stage_error=0.03,  # rows of 2, 4 and 8 stages scatter hardly more than those of one (docs/validation.md)
        contradicted=(
            Contradiction(
                "gb200",
                WeightFormat.BF16,
                has_experts=False,
                n_rows=10,
                tpot=(2.6, 4.7, 11.1),
                reason="all are of Qwen3-32B with TP 2, where one request in flight takes 21 to 42 ms a token although "
                "its weights are read in 4, as of an engine without CUDA graphs",
            ),
        ),
    ),
    step_rules=StepRules(32, own_share=1.0, running_share=1.0),
    launcher=Launcher(
        to="tensorrt-llm",
        source="commit 00209af1 of trtllm-serve",
        image=_IMAGE,
        syntax=_SYNTAX,
        command=_command,
        limits=_limits,
        makes={},
        own_options=("--port", _YAML_OPTION),
        placing=Placing(
            spans_machines=False,  # it would be started by MPI
            splits_ranks=False,  # enable_attention_dp is for all GPUs of a group or for none
        ),
        front=PoolFront(_front, _IMAGE, "[trtllm-disagg]"),
    ),
)
