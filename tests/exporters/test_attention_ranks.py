"""Launch commands of groups whose ranks of the attention have sequences of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoauto.engines.command import Command
from autoauto.engines.registry import ENGINES
from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.exporters.registry import write_artifact
from autoauto.exporters.serving.files import read_script
from autoauto.space.knobs import Knobs

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
yaml: Any = pytest.importorskip("yaml", reason="YAML is read by a package of extra gpu")

SERVED = {engine.launcher.to: engine for engine in ENGINES.values()}
MODEL = "Qwen/Qwen3-30B-A3B"


def scripts(folder: Path, to: str, cluster: str, *, n_ipu: int = 1, **knobs: int) -> dict[str, Command]:
    """The checked scripts of a configuration with 64 sequences a group, by name."""
    flow = load_flow(MODEL, cluster, "gpu")
    chosen: dict[str, Any] = {"engine": SERVED[to].name, "input_tokens": 512, "output_tokens": 128, **knobs}
    made = deployment(flow, MODEL, flow.expect(Knobs(n_ipu, 64, **chosen)))
    checks = write_artifact(made, to, folder / "a", check=True)
    assert [each for each in checks if each.passed is False] == []
    return {path.stem: read_script(path) for path in sorted((folder / "a").glob("replica-*.sh"))}


def options(to: str, command: Command) -> dict[str, Any]:
    return SERVED[to].launcher.syntax.parse(command.words)


def test_vllm_has_ranks_and_the_sequences_of_one(tmp_path: Path) -> None:
    knobs = {"tensor_parallel": 2, "attention_data_parallel": 4, "expert_parallel": 8}
    given = options("vllm", scripts(tmp_path, "vllm", "h100_sxm-8", **knobs)["replica-0"])
    assert (given["--tensor-parallel-size"], given["--data-parallel-size"]) == (2, 4)
    assert given["--enable-expert-parallel"]
    assert (given["--max-num-seqs"], given["--max-num-batched-tokens"]) == (16, 8192)


def test_sglang_has_the_group_and_the_sequences_and_tokens_of_all_ranks(tmp_path: Path) -> None:
    knobs = {"tensor_parallel": 2, "attention_data_parallel": 4, "expert_parallel": 2}
    given = options("sglang", scripts(tmp_path, "sglang", "h100_sxm-8", **knobs)["replica-0"])
    assert (given["--tp-size"], given["--dp-size"], given["--ep-size"]) == (8, 4, 2)
    assert given["--enable-dp-attention"]
    assert (given["--max-running-requests"], given["--chunked-prefill-size"]) == (64, 4 * 8192)
    assert given["--cuda-graph-max-bs-decode"] == 16


def test_tensorrt_llm_has_the_group_and_the_sequences_of_a_rank(tmp_path: Path) -> None:
    knobs = {"attention_data_parallel": 4, "expert_parallel": 2}
    command = scripts(tmp_path, "tensorrt-llm", "h100_sxm-4", **knobs)["replica-0"]
    given = options("tensorrt-llm", command)
    assert (given["--tensor_parallel_size"], given["--moe_expert_parallel_size"]) == (4, 2)
    assert (given["--max_batch_size"], given["--max_num_tokens"]) == (16, 8192)
    (text,) = command.files.values()
    assert yaml.safe_load(text)["enable_attention_dp"] is True


@pytest.mark.parametrize(("to", "order"), [("vllm", "0,1,4,5,2,3,6,7"), ("sglang", "0,1,2,3,4,5,6,7")])
def test_stages_have_their_gpus_where_an_engine_counts_them(to: str, order: str, tmp_path: Path) -> None:
    """Stages of two ranks of two GPUs: vLLM counts both stages of a rank, then those of the other."""
    knobs = {"tensor_parallel": 2, "attention_data_parallel": 2}
    command = scripts(tmp_path, to, "h100_sxm-8", n_ipu=2, **knobs)["replica-0"]
    assert command.environment["CUDA_VISIBLE_DEVICES"] == order


@pytest.mark.parametrize("to", ["vllm", "sglang"])
def test_a_group_of_whole_nodes_has_a_process_on_each(to: str, tmp_path: Path) -> None:
    made = scripts(tmp_path, to, "h100_sxm-16", attention_data_parallel=16, expert_parallel=16)
    assert list(made) == ["replica-0-machine-0", "replica-0-machine-1"]
    for rank, command in enumerate(made.values()):
        given = options(to, command)
        assert (given["--nnodes"], given["--node-rank"]) == (2, rank)
        assert command.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
