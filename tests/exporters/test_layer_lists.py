"""Numbers of blocks as four runtimes spell them, read back by readers that are not those of the exporter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from autoauto.exporters.registry import write_artifact
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from tests.exporters.block_plans import MakeChain, deployment, graph_of_blocks, written

PARTITION, COUNTS = [0, 2, 8, 12], [1, 3, 2]


def sourced(folder: Path, file: str, printed: str) -> str:
    """What a shell prints after it has read a file."""
    command = ["bash", "-c", f'set -a; . "$0"; set +a; {printed}', str(folder / file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("to", "variable"), [("vllm", "VLLM_PP_LAYER_PARTITION"), ("sglang", "SGLANG_PP_LAYER_PARTITION")]
)
def test_a_shell_exports_the_partition(chain: MakeChain, tmp_path: Path, to: str, variable: str) -> None:
    files = written(deployment(graph_of_blocks(chain), PARTITION), to, tmp_path / "artifact")
    seen = sourced(tmp_path / "artifact", "pipeline.env", f'printenv {variable}; echo "$PIPELINE_PARALLEL_SIZE"')
    assert seen.split() == ["1,3,2", "3"]
    assert '"$PIPELINE_PARALLEL_SIZE"' in files["README.md"]


def test_tensorrt_llm_has_a_number_for_every_stage(chain: MakeChain, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    files = written(deployment(graph_of_blocks(chain), PARTITION), "tensorrt-llm", tmp_path / "artifact")
    assert yaml.safe_load(files["llm_api.yaml"]) == {"pipeline_parallel_size": 3, "pp_partition": COUNTS}


@pytest.mark.parametrize("to", ["vllm", "sglang", "tensorrt-llm"])
def test_a_server_does_not_train(chain: MakeChain, tmp_path: Path, to: str) -> None:
    made = deployment(graph_of_blocks(chain), PARTITION, schedule=Order.ONE_F_ONE_B, n_micro_batches=8)
    with pytest.raises(BadInput, match="is for inference, got a plan for training"):
        write_artifact(made, to, tmp_path / "artifact")


LAYERS = ["Embedding", "Position", *["DecoderLayer"] * 6, "Norm", "Head"]


class PipelineModule:
    """What the program uses of DeepSpeed's class, which the constructor of that calls in this order."""

    def __init__(self, n_stages: int, stage: int, method: str) -> None:
        self._layer_specs, self.global_rank = LAYERS, stage
        self._topo = SimpleNamespace(get_dim=lambda _: n_stages, get_coord=lambda rank: SimpleNamespace(pipe=rank))
        self._partition_layers(method=method)

    def _partition_layers(self, method: str = "uniform") -> None:
        raise NotImplementedError

    def _find_layer_type(self, name: str) -> list[int]:
        return [index for index, layer in enumerate(self._layer_specs) if name.lower() in layer.lower()]

    def _set_bounds(self, start: int, stop: int) -> None:
        self.bounds = start, stop


@pytest.fixture
def planned(chain: MakeChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of an artifact, on a stand-in for DeepSpeed's."""
    files = written(deployment(graph_of_blocks(chain), PARTITION), "deepspeed", tmp_path / "artifact")
    assert json.loads(files["ds_config.json"]) == {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 16 * 3,  # a step of inference fills the pipeline
    }
    package, pipe = ModuleType("deepspeed"), ModuleType("deepspeed.pipe")
    pipe.PipelineModule = PipelineModule  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepspeed", package)
    monkeypatch.setitem(sys.modules, "deepspeed.pipe", pipe)
    names: dict[str, Any] = {}
    exec(files["planned_pipeline.py"], names)
    return names["PlannedPipelineModule"]


def test_deepspeed_gets_the_boundaries_around_the_blocks(planned: Any) -> None:
    bounds = [planned(3, stage, "type:decoder").bounds for stage in range(3)]
    assert bounds == [(0, 3), (3, 6), (6, 10)]


@pytest.mark.parametrize(("n_stages", "method"), [(2, "type:decoder"), (3, "type:norm"), (3, "uniform")])
def test_deepspeed_refuses_layers_that_are_not_those_of_the_plan(planned: Any, n_stages: int, method: str) -> None:
    with pytest.raises(ValueError, match="the plan has 3 stages of 6 blocks"):
        planned(n_stages, 0, method)
