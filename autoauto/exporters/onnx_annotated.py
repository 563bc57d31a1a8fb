"""The whole model as one ONNX file whose nodes say their stage, for multi-device runtimes and for ONNX Runtime.

    configuration { name: "pipeline" num_devices: 2 device: "c600 0" device: "c600 1" }              the model's
    device_configurations { configuration_id: "pipeline" pipeline_stage: 1 }                         a node's
    metadata_props { key: "layer_ann" value: "stage1" }                                              the same node's

The first two are fields of ONNX from IR version 11 on [onnx-multi-device], the third is matched by the session option
`session.layer_assignment_settings` of ONNX Runtime [onnxruntime-annotations].
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from autoauto.exporters.exporter import TEMPORARY, Check, Deployment, Exporter
from autoauto.exporters.onnx_stages import equals_whole_model, runtime, save_whole
from autoauto.graph.onnx_file import first_line
from autoauto.processes.folders import temporary_folder
from autoauto.records.costs.options import DeviceType
from autoauto.records.errors import BadInput

MODEL = "model.onnx"
OPTIONS = "session_options.json"
CONFIGURATION = "pipeline"
IR_VERSION = 11
"""The first with the fields of several devices [onnx-multi-device]."""
SETTINGS = "session.layer_assignment_settings"


def write(deployment: Deployment, folder: Path) -> None:
    """Write the model and the options of its session."""
    plan = deployment.one_plan()
    if any(stage.n_replicas > 1 for stage in plan.stages):
        raise BadInput("this format has one device a stage, got a stage on several; try --to onnx")
    n_layers, batch_size = len(deployment.graph), deployment.knobs.batch_size
    save_whole(deployment, folder / MODEL)
    # The file of the sub-model of all layers lacks inputs that nothing reads, and outputs that are inputs.
    model = onnx.load_model(folder / MODEL, load_external_data=False)
    model.ir_version = max(model.ir_version, IR_VERSION)
    name = deployment.cluster.devices[0].name
    devices = [f"{stage.device_kind or name} {stage.device}" for stage in plan.stages]
    model.configuration.add(name=CONFIGURATION, num_devices=len(plan.stages), device=devices)
    for node, stage in zip(model.graph.node, _stages(deployment, model.graph), strict=True):
        node.device_configurations.add(configuration_id=CONFIGURATION, pipeline_stage=stage)
        node.metadata_props.add(key="layer_ann", value=f"stage{stage}")
    for entries, cut in ((model.graph.input, 0), (model.graph.output, n_layers)):
        del entries[:]
        for port in deployment.source.carried(deployment.graph, cut, batch_size):
            dtype = helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype))
            entries.append(helper.make_tensor_value_info(port.name, dtype, port.shape))
    (folder / MODEL).write_bytes(model.SerializeToString(deterministic=True))
    options = json.dumps({SETTINGS: "; ".join(_rules(deployment))}, indent=1)
    (folder / OPTIONS).write_text(f"{options}\n", encoding="utf-8")


def _rules(deployment: Deployment) -> Iterator[str]:
    """Which device of ONNX Runtime has which stages; "=" stands before a whole annotation, not its beginning."""
    stages, device_type = deployment.plan.stages, deployment.knobs.session.device_type
    if device_type is DeviceType.GPU:
        for index, stage in enumerate(stages):
            yield f"gpu:{stage.device}(=stage{index})"
    else:
        names = [f"=stage{index}" for index in range(len(stages))]
        yield f"{device_type}({', '.join(names)})"


def _stages(deployment: Deployment, graph: onnx.GraphProto) -> list[int]:
    """The stage of every node: that of the layer whose tensors it writes.

    Views and constants are in no layer, and every stage that reads them computes them again: the first counts, and the
    last where only the outputs of the model read them.
    """
    last = len(deployment.plan.stages) - 1
    writers = deployment.stage_of_tensors
    readers: dict[str, int] = {}
    assigned = []
    # From the last node to the first, so that all readers of a tensor have stages before its writer gets one.
    for node in reversed(graph.node):
        own = [writers[name] for name in node.output if name in writers]
        reading = [readers[name] for name in node.output if name in readers]
        stage = min(own or reading, default=last)
        assigned.append(stage)
        for name in node.input:
            readers[name] = min(stage, readers.get(name, stage))
    return assigned[::-1]


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Read the file back, hold its stages against the sub-models of the plan, and run it."""
    model = onnx.load_model(folder / MODEL, load_external_data=False)
    try:
        onnx.checker.check_model(str(folder / MODEL))
        yield Check("the file is valid ONNX", True, f"IR version {model.ir_version}, {len(model.graph.node)} nodes")
    except onnx.checker.ValidationError as error:
        yield Check("the file is valid ONNX", False, first_line(error))
    yield _stages_are_those_of_the_plan(deployment, model)
    yield _stages_follow_each_other(model)
    yield from equals_whole_model(deployment, folder / MODEL)
    yield _placement(folder)


def _stage(node: onnx.NodeProto) -> int | None:
    """The stage that a node says, where both annotations agree."""
    stages = [entry.pipeline_stage for entry in node.device_configurations if entry.configuration_id == CONFIGURATION]
    annotations = [entry.value for entry in node.metadata_props if entry.key == "layer_ann"]
    if len(stages) == 1 and annotations == [f"stage{stages[0]}"]:
        return int(stages[0])
    return None


def _stages_are_those_of_the_plan(deployment: Deployment, model: onnx.ModelProto) -> Check:
    """Every node says the first stage whose sub-model, cut out again, computes it."""
    first: dict[tuple[str, ...], int] = {}
    with temporary_folder(TEMPORARY) as temporary:
        for index, stage in enumerate(deployment.plan.stages):
            path = temporary / f"stage{index}.onnx"
            deployment.source.save(deployment.graph, stage.layers, deployment.knobs.batch_size, path)
            for node in onnx.load_model(path, load_external_data=False).graph.node:
                first.setdefault(tuple(node.output), index)
    wrong = [node.output[0] for node in model.graph.node if _stage(node) != first.get(tuple(node.output))]
    detail = f"{len(wrong)} of {len(model.graph.node)} nodes differ"
    if wrong:
        detail += f", {wrong[0]}"
    return Check("every node is in the stage that computes it", not wrong, detail)


def _stages_follow_each_other(model: onnx.ModelProto) -> Check:
    made: dict[str, int | None] = {}
    n_edges, n_back = 0, 0
    for node in model.graph.node:  # sorted: a writer comes before its readers
        stage = _stage(node)
        for name in node.input:
            if name in made:
                n_edges += 1
                written = made[name]
                n_back += written is None or stage is None or written > stage
        made.update(dict.fromkeys(node.output, stage))
    return Check("no stage reads what a later one makes", not n_back, f"{n_back} of {n_edges} edges lead back")


def _placement(folder: Path) -> Check:
    onnxruntime, what = runtime(), "ONNX Runtime places every node as the options say"
    settings: Mapping[str, str] = json.loads((folder / OPTIONS).read_text(encoding="utf-8"))
    version = f"ONNX Runtime {onnxruntime.__version__}"
    if not _reads_settings(onnxruntime):
        return Check(what, None, f"{version} does not know {SETTINGS}")
    options = _options(onnxruntime, {**settings, "session.record_ep_graph_assignment_info": "1"})
    session = onnxruntime.InferenceSession(folder / MODEL, options, providers=["CPUExecutionProvider"])
    if not settings[SETTINGS].startswith("cpu("):
        return Check(what, None, f"{version} read {settings[SETTINGS]!r}, here it has CPUs only")
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return Check(what, None, f"{version} does not report where its nodes are")
    parts = session.get_provider_graph_assignment_info()
    providers = {part.ep_name for part in parts}
    detail = f"{version} has {sum(len(part.get_nodes()) for part in parts)} nodes on {', '.join(sorted(providers))}"
    return Check(what, providers == {"CPUExecutionProvider"}, detail)


def _reads_settings(onnxruntime: Any) -> bool:
    """True if this version of ONNX Runtime knows the option: it refuses a value that is wrong."""
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "probe", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = _options(onnxruntime, {SETTINGS: "no parenthesis"})
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  # ONNX Runtime's errors have no common class
        return True
    return False


def _options(onnxruntime: Any, entries: Mapping[str, str]) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return options


EXPORTER = Exporter(
    name="onnx-annotated",
    summary="ONNX Runtime and multi-device runtimes, one file whose nodes say their stage",
    apply=(
        "import json, onnxruntime; options = onnxruntime.SessionOptions()",
        f'[options.add_session_config_entry(*entry) for entry in json.load(open("{OPTIONS}")).items()]',
        f'session = onnxruntime.InferenceSession("{MODEL}", options, providers=onnxruntime.get_available_providers())',
    ),
    write=write,
    check=check,
    notes=(
        "A replica is a session of its own. A session of ONNX Runtime has one device of every execution provider,\n"
        "runs the stages one after the other, and leaves out rules for devices that it does not have; they are a\n"
        "pipeline in a runtime that reads `pipeline_stage`. For ONNX Runtime, which has no IPUs, these are an\n"
        '"accelerator": any device that is no CPU.'
    ),
)
