"""TensorFlow for IPUs: stages of Keras layers by the names of operators, options of a pipeline."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoauto.exporters.exporter import Deployment
from autoauto.exporters.graphcore.stage_assignment import stages_of_layers
from autoauto.exporters.registry import write_artifact
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from tests.exporters.graphcore.conftest import Deploy, Recorder, with_cuts

Execute = Callable[..., dict[str, Any]]
OPERATORS = [("model/dense/MatMul", 0), ("model/dense/Relu", 0), ("model/inner/dense_1/MatMul", 1)]


def layer(name: str) -> SimpleNamespace:
    return SimpleNamespace(is_nested_model=False, layer=SimpleNamespace(name=name), pipeline_stage=None)


def nested(name: str, layers: Iterable[SimpleNamespace]) -> SimpleNamespace:
    inner = SimpleNamespace(name=name)
    return SimpleNamespace(is_nested_model=True, nested_model=inner, pipeline_stage_assignments=list(layers))


def test_layers_have_the_stages_of_their_operators() -> None:
    paths = [("dense",), ("dropout",), ("inner", "dense_1")]
    assert stages_of_layers(paths, OPERATORS) == [0, 0, 1]


def test_a_layer_in_two_stages_is_refused() -> None:
    with pytest.raises(ValueError, match=r"operators of model are in \[0, 1\]"):
        stages_of_layers([("model",)], OPERATORS)


def test_operators_with_other_names_are_refused() -> None:
    with pytest.raises(ValueError, match="operators must be called as layers"):
        stages_of_layers([("conv",)], OPERATORS)


def test_keras_gets_the_stages_of_the_plan(deploy: Deploy, tmp_path: Path, execute: Execute) -> None:
    plan = with_cuts(deploy(2, schedule=Order.POPART, n_micro_batches=8, recompute=True), 9)
    checks = write_artifact(plan, "tensorflow-ipu", tmp_path / "artifact", check=True)
    assert [check.passed for check in checks] == [True, True, True, None]
    ipu, model = Recorder(), Recorder()
    # Operators are called net.blocks.0.dense.MatMul and so on: the model has a nested model a block.
    layers = [nested(str(i), map(layer, ("dense", "dropout", "act"))) for i in range(6)]
    model.__dict__["get_pipeline_stage_assignment"] = lambda: layers
    tensorflow = SimpleNamespace(__getattr__=lambda name: ipu)
    program = execute(tmp_path / "artifact" / "pipeline.py", tensorflow=tensorflow, tensorflow__python=tensorflow)
    program["set_pipeline"](model)
    stages = [[each.pipeline_stage for each in block.pipeline_stage_assignments] for block in layers]
    assert stages == [[0] * 3] * 3 + [[1] * 3] * 3
    assert model._calls["set_pipeline_stage_assignment"] == ([layers], {})
    assert model._calls["set_pipelining_options"][1] == {
        "gradient_accumulation_steps_per_replica": 8,
        "recomputation_mode": "pipelining_ops.RecomputationMode.RecomputeThenBackpropagate",
        "offload_weight_update_variables": False,
        "offload_activations": False,
        "offload_gradient_accumulation_buffers": False,
        "device_mapping": [0, 1],
        "pipeline_schedule": "pipelining_ops.PipelineSchedule.Grouped",
    }
    program["ipu_config"]()
    assert ipu._calls["config.IPUConfig.auto_select_ipus"] == 2
    assert ipu._calls["config.IPUConfig.matmuls.poplar_options"] == {"availableMemoryProportion": "0.6"}
    assert ipu._calls["config.IPUConfig.allow_recompute"] is True


def test_a_grouped_pipeline_takes_whole_turns(deploy: Deploy, tmp_path: Path) -> None:
    plan = deploy(2, schedule=Order.POPART, n_micro_batches=6)
    with pytest.raises(BadInput, match="a multiple of 4 micro-batches, got 6; try --n-micro-batches 8"):
        write_artifact(plan, "tensorflow-ipu", tmp_path / "artifact")


def test_pipelines_with_io_tiles_take_any_number_of_micro_batches_that_fills_them(
    deploy: Deploy, tmp_path: Path, execute: Execute
) -> None:
    def plan(n_micro_batches: int) -> Deployment:
        return with_cuts(deploy(2, schedule=Order.POPART, n_micro_batches=n_micro_batches, io_tiles=32), 9)

    with pytest.raises(BadInput, match="of 2 stages with io tiles trains on 6 micro-batches or more, got 4; try"):
        write_artifact(plan(4), "tensorflow-ipu", tmp_path / "refused")
    write_artifact(plan(7), "tensorflow-ipu", tmp_path / "artifact")
    ipu = Recorder()
    tensorflow = SimpleNamespace(__getattr__=lambda name: ipu)
    program = execute(tmp_path / "artifact" / "pipeline.py", tensorflow=tensorflow, tensorflow__python=tensorflow)
    program["ipu_config"]()
    assert ipu._calls["config.IPUConfig.io_tiles.num_io_tiles"] == 32
    assert ipu._calls["config.IPUConfig.io_tiles.place_ops_on_io_tiles"] is True


@pytest.mark.parametrize("training", [False, True])
def test_one_stage_is_no_pipeline(deploy: Deploy, tmp_path: Path, execute: Execute, training: bool) -> None:
    knobs = {"schedule": Order.POPART, "n_micro_batches": 8} if training else {}
    write_artifact(deploy(1, **knobs), "tensorflow-ipu", tmp_path / "artifact", check=True)
    tensorflow = SimpleNamespace(__getattr__=lambda name: Recorder())
    program = execute(tmp_path / "artifact" / "pipeline.py", tensorflow=tensorflow, tensorflow__python=tensorflow)
    model = Recorder()
    program["set_pipeline"](model)
    accumulated: dict[str, Any] = {
        "set_gradient_accumulation_options": ([], {"gradient_accumulation_steps_per_replica": 8})
    }
    assert model._calls == (accumulated if training else {})
