"""How vLLM, SGLang and TensorRT-LLM are told a configuration: `VLLM`, `SGLANG`, `TENSORRT_LLM`.

Names and values of options are those of their sources, which count differently:

                            sequences                     share of memory
    vllm [vllm-serve]       of all micro-batches          of all memory, for all
    sglang [sglang-serve]   of all, and of the largest    of all memory, for weights and KV cache
    trtllm [trtllm-serve]   of the largest                of what weights leave free, for the KV cache
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from autoauto.exporters.serving.command import MASTER, Command, CommandOption, CommandSyntax, Launch, Machines
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.errors import BadInput
from autoauto.targets.gpu.session import EngineName

HOST = "0.0.0.0"
"""An engine answers other machines, too."""
YAML_FILE = "llm_api.yaml"


class Limits(NamedTuple):
    """What a command says of a configuration, as the engine counts it.

    Attributes:
        model: its name or folder.
        blocks: of every stage; () where there is one, which has all.
        n_gpus: of the process, on its machine.
        n_in_flight: sequences of all micro-batches.
        max_batched_tokens: of a step.
        max_length: of a sequence, in tokens.
        memory_share: of a GPU, as the engine counts it.
        expert_parallel: among how many GPUs of a stage experts are dealt whole.
    """

    model: str
    blocks: tuple[int, ...]
    n_gpus: int
    n_in_flight: int
    max_batched_tokens: int
    max_length: int
    memory_share: float
    expert_parallel: int = 1


@dataclass(frozen=True, slots=True)
class ServingProgram:
    """A serving engine as a program that is started.

    Attributes:
        to: the name of the format.
        engine: that of the knob.
        package: its name.
        source: where its options were read.
        image: of a container that has it.
        syntax: how the program is called.
        command: of a replica that answers on a port.
        limits: reads a command and the files that it reads, by name.
        makes: the option for every format of weights that the engine makes of a checkpoint in bf16.
        spans_machines: whether a replica may have GPUs of several machines, with a process on each.
        remark: what is modelled, and no option says.
    """

    to: str
    engine: EngineName
    package: str
    source: str
    image: str
    syntax: CommandSyntax
    command: Callable[[Launch, int], Command]
    limits: Callable[[Command], Limits]
    makes: Mapping[WeightFormat, str]
    spans_machines: bool = True
    remark: str = ""


def _partition(variable: str, launch: Launch) -> dict[str, str]:
    """Nothing for one stage, which has all blocks."""
    return {variable: ",".join(map(str, launch.blocks))} if launch.n_stages > 1 else {}


def _blocks(command: Command, variable: str, n_stages: int) -> tuple[int, ...]:
    """The blocks of every stage; () where there is one.

    Raises:
        BadInput: there are more or fewer numbers than stages, which the engines refuse, too [vllm-pp], [sglang-pp].
    """
    text = command.environment.get(variable, "")
    return _checked_blocks(tuple(map(int, text.split(","))) if text else (), n_stages)


def _checked_blocks(blocks: tuple[int, ...], n_stages: int) -> tuple[int, ...]:
    if blocks and len(blocks) != n_stages:
        raise BadInput(f"a partition has a number for every stage, got {len(blocks)} for {n_stages} stages")
    return blocks


def _words(options: Sequence[tuple[str, object]]) -> tuple[str, ...]:
    """Options with their values; one whose value is None is left out, one whose value is True has none."""
    given = ((name, value) for name, value in options if value is not None)
    return tuple(word for name, value in given for word in ((name,) if value is True else (name, str(value))))


def _dealt(launch: Launch) -> int | None:
    """Among how many GPUs experts are dealt; None, the default of engines, where none are."""
    return launch.expert_parallel if launch.expert_parallel > 1 else None


VLLM_MAKES = {WeightFormat.FP8_DYNAMIC: "fp8_per_tensor", WeightFormat.FP8_BLOCK: "fp8_per_block"}
"""[vllm-serve] makes 4 bits and int8 of experts only, and static scales of activations not at all."""
_VLLM_CACHE = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8"}
_VLLM_VARIABLE = "VLLM_PP_LAYER_PARTITION"
VLLM_SYNTAX = CommandSyntax(
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


def _vllm(launch: Launch, port: int) -> Command:
    words = _words(
        [
            ("--host", HOST),
            ("--port", port),
            ("--tensor-parallel-size", launch.tensor_parallel),
            ("--pipeline-parallel-size", launch.n_stages),
            ("--enable-expert-parallel", True if launch.expert_parallel > 1 else None),
            ("--max-num-seqs", launch.n_in_flight),
            ("--max-num-batched-tokens", launch.max_batched_tokens),
            ("--max-model-len", launch.max_length),
            ("--gpu-memory-utilization", launch.memory_share),
            ("--kv-cache-dtype", launch.kv_cache and _VLLM_CACHE[launch.kv_cache]),
            ("--quantization", launch.weights and VLLM_MAKES[launch.weights]),
            *_vllm_machines(launch.machines),
        ]
    )
    return Command((*VLLM_SYNTAX.program, launch.model, *words), _partition(_VLLM_VARIABLE, launch))


def _vllm_machines(machines: Machines) -> list[tuple[str, object]]:
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


def _vllm_limits(command: Command) -> Limits:
    given = VLLM_SYNTAX.parse(command.words)
    n_stages = given["--pipeline-parallel-size"]
    return Limits(
        given["model"],
        _blocks(command, _VLLM_VARIABLE, n_stages),
        given["--tensor-parallel-size"] * n_stages // given.get("--nnodes", 1),
        given["--max-num-seqs"],
        given["--max-num-batched-tokens"],
        given["--max-model-len"],
        given["--gpu-memory-utilization"],
        given["--tensor-parallel-size"] if "--enable-expert-parallel" in given else 1,
    )


SGLANG_MAKES = {WeightFormat.FP8_DYNAMIC: "fp8"}
"""[sglang-serve] makes nvfp4 of experts only."""
_SGLANG_CACHE = {WeightFormat.BF16: "bf16", WeightFormat.FP8: "fp8_e4m3"}
_SGLANG_VARIABLE = "SGLANG_PP_LAYER_PARTITION"
SGLANG_SYNTAX = CommandSyntax(
    ("python3", "-m", "sglang.launch_server"),
    (
        CommandOption("--model-path"),
        CommandOption("--host"),
        CommandOption("--port", int),
        CommandOption("--tp-size", int),
        CommandOption("--pp-size", int),
        CommandOption("--ep-size", int),
        CommandOption("--max-running-requests", int),
        CommandOption("--pp-max-micro-batch-size", int),
        CommandOption("--chunked-prefill-size", int),
        CommandOption("--context-length", int),
        CommandOption("--mem-fraction-static", float),
        CommandOption("--kv-cache-dtype", str, ("auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bf16", "bfloat16")),
        CommandOption("--quantization", str, ("fp8", "mxfp8", "modelopt", "modelopt_fp8", "modelopt_fp4")),
        CommandOption("--nnodes", int),
        CommandOption("--node-rank", int),
        CommandOption("--dist-init-addr"),
    ),
    takes_model=False,
)


def _sglang(launch: Launch, port: int) -> Command:
    words = _words(
        [
            ("--model-path", launch.model),
            ("--host", HOST),
            ("--port", port),
            ("--tp-size", launch.tensor_parallel),
            ("--pp-size", launch.n_stages),
            ("--ep-size", _dealt(launch)),
            ("--max-running-requests", launch.n_in_flight),
            ("--pp-max-micro-batch-size", launch.n_sequences if launch.n_stages > 1 else None),
            ("--chunked-prefill-size", launch.max_batched_tokens),
            ("--context-length", launch.max_length),
            ("--mem-fraction-static", launch.memory_share),
            ("--kv-cache-dtype", launch.kv_cache and _SGLANG_CACHE[launch.kv_cache]),
            ("--quantization", launch.weights and SGLANG_MAKES[launch.weights]),
            *_sglang_machines(launch.machines),
        ]
    )
    return Command((*SGLANG_SYNTAX.program, *words), _partition(_SGLANG_VARIABLE, launch))


def _sglang_machines(machines: Machines) -> list[tuple[str, object]]:
    if machines.n == 1:
        return []
    address = f"{MASTER}:{machines.port}"
    return [("--nnodes", machines.n), ("--node-rank", machines.rank), ("--dist-init-addr", address)]


def _sglang_limits(command: Command) -> Limits:
    given = SGLANG_SYNTAX.parse(command.words)
    return Limits(
        given["--model-path"],
        _blocks(command, _SGLANG_VARIABLE, given["--pp-size"]),
        given["--tp-size"] * given["--pp-size"] // given.get("--nnodes", 1),
        given["--max-running-requests"],
        given["--chunked-prefill-size"],
        given["--context-length"],
        given["--mem-fraction-static"],
        given.get("--ep-size", 1),
    )


_TRTLLM_CACHE = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8"}
_TRTLLM_YAML = "--extra_llm_api_options"
TRTLLM_SYNTAX = CommandSyntax(
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
        CommandOption(_TRTLLM_YAML),
    ),
)


def _trtllm(launch: Launch, port: int) -> Command:
    """The engine has a micro-batch for every stage, each of at most `max_batch_size` sequences."""
    words = _words(
        [
            ("--host", HOST),
            ("--port", port),
            ("--backend", "pytorch"),
            ("--tensor_parallel_size", launch.tensor_parallel),
            ("--pipeline_parallel_size", launch.n_stages),
            ("--moe_expert_parallel_size", _dealt(launch)),
            ("--max_batch_size", launch.n_sequences),
            ("--max_num_tokens", launch.max_batched_tokens),
            ("--max_seq_len", launch.max_length),
            ("--enable_chunked_prefill", True),
            (_TRTLLM_YAML, YAML_FILE),
        ]
    )
    cache: dict[str, object] = {"free_gpu_memory_fraction": launch.memory_share}
    if launch.kv_cache:
        cache["dtype"] = _TRTLLM_CACHE[launch.kv_cache]
    content: dict[str, object] = {"kv_cache_config": cache}
    if launch.n_stages > 1:
        content["pp_partition"] = list(launch.blocks)
    return Command((*TRTLLM_SYNTAX.program, launch.model, *words), {}, {YAML_FILE: _yaml(content)})


def _yaml(content: Mapping[str, object]) -> str:
    """YAML whose values are JSON, a key a line."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in content.items())


def _trtllm_limits(command: Command) -> Limits:
    import yaml  # of extra gpu

    given = TRTLLM_SYNTAX.parse(command.words)
    content = yaml.safe_load(command.files[Path(given[_TRTLLM_YAML]).name])
    n_stages = given["--pipeline_parallel_size"]
    return Limits(
        given["model"],
        _checked_blocks(tuple(content.get("pp_partition", ())), n_stages),
        given["--tensor_parallel_size"] * n_stages,
        given["--max_batch_size"] * n_stages,
        given["--max_num_tokens"],
        given["--max_seq_len"],
        content["kv_cache_config"]["free_gpu_memory_fraction"],
        given.get("--moe_expert_parallel_size", 1),
    )


VLLM = ServingProgram(
    "vllm",
    EngineName.VLLM,
    "vLLM",
    "package vllm 0.33.0",
    "vllm/vllm-openai:v0.33.0",
    VLLM_SYNTAX,
    _vllm,
    _vllm_limits,
    VLLM_MAKES,
    remark="None is for the size of a micro-batch:\nwhere vLLM forms unequal ones, a pipeline gives less.",
)
SGLANG = ServingProgram(
    "sglang",
    EngineName.SGLANG,
    "SGLang",
    "package sglang 0.5.23",
    "lmsysorg/sglang:v0.5.23",
    SGLANG_SYNTAX,
    _sglang,
    _sglang_limits,
    SGLANG_MAKES,
)
TENSORRT_LLM = ServingProgram(
    "tensorrt-llm",
    EngineName.TRTLLM,
    "TensorRT-LLM",
    "commit 00209af1 of trtllm-serve",
    "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc22",
    TRTLLM_SYNTAX,
    _trtllm,
    _trtllm_limits,
    {},
    spans_machines=False,  # it would be started by MPI
)
