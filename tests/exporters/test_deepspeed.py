"""DeepSpeed gets the boundaries of the stages, read back by a stand-in for its class."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.exporters.block_plans import MakeChain, deployment, graph_of_blocks, written

PARTITION = [0, 2, 8, 12]


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
