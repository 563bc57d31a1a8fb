"""PopTorch: stages that begin with modules, and the blocks of a model of PyTorch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from autoauto.exporters.graphcore.popart import IPU, MEMORY
from autoauto.exporters.graphcore.poptorch import first_module, module_path
from autoauto.exporters.registry import write_artifact
from autoauto.records.costs.stash import checkpoints
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerRange
from autoauto.records.schedule import Order
from tests.exporters.graphcore.conftest import Deploy, Recorder, with_cuts

Execute = Callable[..., dict[str, Any]]
NAMES = ["Cast", "a.0.x.MatMul", "a.0.x.Add", "a.0.Add_1", "a.1.x.MatMul", "a.1.y.Relu", "b.Gemm"]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/model/layers.0/self_attn/q_proj/MatMul", "model.layers.0.self_attn.q_proj"),
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("/features/features.0/features.0.1/Conv", "features.0.1"),
        ("resnet.encoder.stages.2.layers.0.activation.Relu", "resnet.encoder.stages.2.layers.0.activation"),
        ("/Add", ""),
        ("node_conv2d_3", ""),
    ],
)
def test_modules_are_found_in_names(name: str, module: str) -> None:
    assert ".".join(module_path(name)) == module


def test_a_stage_begins_with_the_outermost_module() -> None:
    assert first_module(NAMES, LayerRange(1, 4)) == "a.0"
    assert first_module(NAMES, LayerRange(1, 6)) == "a.0", "a list of modules is not called, so no block begins there"
    assert first_module(NAMES, LayerRange(4, 7)) == "a.1"
    assert first_module(NAMES, LayerRange(5, 7)) == "a.1.y"


@pytest.mark.parametrize("start", [2, 3])
def test_a_cut_inside_a_module_is_refused(start: int) -> None:
    with pytest.raises(BadInput, match=r"a stage begins inside one, at a\.0"):
        first_module(NAMES, LayerRange(start, 7))


@pytest.mark.parametrize("again", ["act.Relu_1", "act_1.Relu"])
def test_a_module_that_runs_again_in_another_stage_is_refused(again: str) -> None:
    with pytest.raises(BadInput, match="begins inside one"):
        first_module(["in.Gemm", "act.Relu", "out.Gemm", again], LayerRange(1, 3))


def test_names_without_modules_are_refused() -> None:
    with pytest.raises(
        BadInput, match=r"names of layers must contain PyTorch's modules, got 'node_2'; try --to popart"
    ):
        first_module(["node_1", "node_2"], LayerRange(1, 2))


def test_the_last_stage_of_a_ring_is_a_block_on_the_first_ipu(deploy: Deploy, tmp_path: Path, execute: Execute) -> None:
    ring = with_cuts(deploy(2, schedule=Order.POPART_RING, n_micro_batches=12), 6, 12)
    checks = write_artifact(ring, "poptorch", tmp_path / "ring", check=True)
    assert [check.passed for check in checks] == [True] * 3 + [None]
    poptorch = Recorder()
    program = execute(tmp_path / "ring" / "blocks.py", poptorch=poptorch)
    program["ipu_options"]()
    assert program["BLOCKS"] == {"net.blocks.2": 1, "net.blocks.4": 0}
    assert poptorch._calls["PipelinedExecution"] == (["AutoStage.AutoIncrement"], {})
    assert poptorch._calls["Options.setAvailableMemoryProportion"] == ([{"IPU0": 0.6, "IPU1": 0.6}], {})
    checks = write_artifact(ring, "popart", tmp_path / "popart", check=True)
    assert all(check.passed is not False for check in checks)
    write_artifact(ring, "tensorflow-ipu", tmp_path / "tensorflow")
    assert "device_mapping=[0, 1, 0]" in (tmp_path / "tensorflow" / "pipeline.py").read_text()


def test_options(deploy: Deploy, tmp_path: Path, execute: Execute) -> None:
    write_artifact(with_cuts(deploy(3), 6, 12), "poptorch", tmp_path / "inference", check=True)
    poptorch = Recorder()
    program = execute(tmp_path / "inference" / "blocks.py", poptorch=poptorch)
    program["ipu_options"]()
    assert program["BLOCKS"] == {"net.blocks.2": 1, "net.blocks.4": 2}
    assert poptorch._calls == {
        "Options": ([], {}),
        "Options.replicationFactor": ([1], {}),
        "Options.setAvailableMemoryProportion": ([{"IPU0": 0.6, "IPU1": 0.6, "IPU2": 0.6}], {}),
        "PipelinedExecution": (["AutoStage.SameAsIpu"], {}),
        "Options.setExecutionStrategy": (["PipelinedExecution"], {}),
        "Options.deviceIterations": ([48], {}),
        "Options.autoRoundNumIPUs": ([True], {}),
    }
    training = with_cuts(deploy(2, schedule=Order.POPART, n_micro_batches=8, recompute=True), 9)
    write_artifact(training, "poptorch", tmp_path / "training", check=True)
    poptorch = Recorder()
    program = execute(tmp_path / "training" / "blocks.py", poptorch=poptorch)
    program["ipu_options"]()
    graph = training.graph
    ends = [graph.layers[boundary - 1].name.rpartition(".")[0] for boundary in checkpoints(graph)]
    assert program["CHECKPOINTS"] == ends != []
    assert poptorch._calls["Options.Training.gradientAccumulation"] == ([8], {})
    assert poptorch._calls["Options._Popart.set"] == (["autoRecomputation", 3], {})


def test_outputs_at_checkpoints_are_stashed(deploy: Deploy, tmp_path: Path, execute: Execute) -> None:
    plan = with_cuts(deploy(2, schedule=Order.POPART, n_micro_batches=8, recompute=True), 9)
    write_artifact(plan, "poptorch", tmp_path / "artifact")
    hooks: dict[str, Callable[..., Any]] = {}

    class Module:
        def __init__(self, name: str) -> None:
            self.name = name

        def get_submodule(self, name: str) -> Any:
            return Module(name)

        def register_forward_hook(self, hook: Callable[..., Any]) -> None:
            hooks[self.name] = hook

        def __getattr__(self, name: str) -> Any:
            return self

    program = execute(tmp_path / "artifact" / "blocks.py", poptorch=Recorder())
    program["poptorch"].recomputationCheckpoint = lambda tensor: f"stashed {tensor}"
    program["begin_blocks"](Module("net"))
    assert list(hooks) == program["CHECKPOINTS"]
    hook = next(iter(hooks.values()))
    assert hook(None, (), "x") == "stashed x"
    assert hook(None, (), ("x", "y")) == ("stashed x", "stashed y")


def test_modules_run_on_the_ipus_of_the_plan(deploy: Deploy, tmp_path: Path, execute: Execute) -> None:
    """A block lasts until the next one begins: a stand-in for BeginBlock sets the IPU of all modules that run then."""
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.act = torch.nn.Linear(32, 32), torch.nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.act(self.dense(x))

    model = torch.nn.Module()
    model.net = torch.nn.Module()
    model.net.blocks = torch.nn.ModuleList(Block() for _ in range(6))
    current = [0]
    ran: dict[str, int] = {}

    class PopTorch(Recorder):
        @property
        def BeginBlock(self) -> Any:  # noqa: N802
            def begin(module: Any, ipu_id: int) -> Any:
                module.register_forward_pre_hook(lambda *_: current.__setitem__(0, ipu_id))
                return module

            return begin

        def __getattr__(self, name: str) -> Any:
            return self.BeginBlock if name == "BeginBlock" else super().__getattr__(name)

    plan = with_cuts(deploy(3), 5, 12)  # stage 1 begins with the activation of the second block
    write_artifact(plan, "poptorch", tmp_path / "artifact")
    execute(tmp_path / "artifact" / "blocks.py", poptorch=PopTorch())["begin_blocks"](model)
    for name, module in model.named_modules():
        if name.endswith(("dense", "act")):
            module.register_forward_hook(lambda *_, name=name: ran.__setitem__(name, current[0]))
    values = torch.zeros(2, 32)
    for block in model.net.blocks:
        values = block(values)
    stages = {name: stage for stage, names in enumerate(plan.layer_names) for name in names}
    assert ran == {name.rpartition(".")[0]: stage for name, stage in stages.items()}


@pytest.mark.parametrize(
    ("knobs", "loop"),
    [({}, "OverlapDeviceIterationLoop"), ({"schedule": "popart", "n_micro_batches": 8}, "OverlapAccumulationLoop")],
)
def test_inputs_and_outputs_overlap_with_computation(
    deploy: Deploy, tmp_path: Path, execute: Execute, knobs: dict[str, Any], loop: str
) -> None:
    write_artifact(deploy(1, io_tiles=32, **knobs), "poptorch", tmp_path / "artifact")
    poptorch, model = Recorder(), Recorder()
    program = execute(tmp_path / "artifact" / "blocks.py", poptorch=poptorch)
    program["ipu_options"]()
    assert poptorch._calls["Options.TensorLocations.numIOTiles"] == ([32], {})
    assert poptorch._calls["Options.setExecutionStrategy"] == (["ShardedExecution"], {})
    program["begin_blocks"](model)
    [before], [after] = (model._calls[f"register_forward_{hook}"][0] for hook in ("pre_hook", "hook"))
    before(model, ("x",))
    after(model, ("x",), "y")
    assert poptorch._calls["set_overlap_for_input"] == ([("x",), f"OverlapMode.{loop}"], {})
    assert poptorch._calls["set_overlap_for_output"] == (["y", f"OverlapMode.{loop}"], {})


@pytest.mark.parametrize(
    ("to", "n_ipu", "io_tiles", "message"),
    [
        ("poptorch", 2, 32, "without a pipeline only, got 2 stages; try --io-tiles 0, or --to popart"),
        ("poptorch", 1, 194, "PopTorch takes an even number of io tiles from 32 to 192, got 194"),
        ("popart", 1, 16, "PopART takes an even number of io tiles from 32 to 65536, got 16"),
        ("popart", 1, 33, "an even number of io tiles"),
        ("auto-pipeline", 2, 32, "auto_pipeline knows no transfers that overlap, got io_tiles 32; try --io-tiles 0"),
    ],
)
def test_io_tiles_that_a_runtime_does_not_take_are_refused(
    deploy: Deploy, tmp_path: Path, to: str, n_ipu: int, io_tiles: int, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        write_artifact(deploy(n_ipu, io_tiles=io_tiles), to, tmp_path / "artifact")


def test_devices_have_memory_proportions_of_their_own(deploy: Deploy, tmp_path: Path, execute: Execute) -> None:
    plan = with_cuts(deploy(3, memory_proportion="0.2:0.6:0.4"), 6, 12)
    write_artifact(plan, "poptorch", tmp_path / "poptorch")
    poptorch = Recorder()
    execute(tmp_path / "poptorch" / "blocks.py", poptorch=poptorch)["ipu_options"]()
    assert poptorch._calls["Options.setAvailableMemoryProportion"] == ([{"IPU0": 0.2, "IPU1": 0.6, "IPU2": 0.4}], {})
    write_artifact(plan, "popart", tmp_path / "popart")
    [model] = (tmp_path / "popart").glob("*.onnx")
    nodes = [
        {each.name: helper.get_attribute_value(each) for each in node.attribute} for node in onnx.load(model).graph.node
    ]
    pairs = {(node[IPU], round(node[MEMORY], 3)) for node in nodes if MEMORY in node}
    assert pairs == {(0, 0.2), (1, 0.6), (2, 0.4)}
    with pytest.raises(BadInput, match=r"one memory proportion for all devices, got 0\.2, 0\.6, 0\.4"):
        write_artifact(plan, "tensorflow-ipu", tmp_path / "tensorflow")
