"""The model with the IPU and the pipeline stage of every operator, as PopART's sessions read it [popart].

PopART reads them from attributes of nodes. An operator's schema does not have them; ONNX lets them pass since the names
of attributes that begin with "__" are an implementation's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import helper

from autoauto.exporters.exporter import TEMPORARY, Check, Deployment, Exporter
from autoauto.exporters.graphcore.ipu_plan import (
    batches_per_step,
    compiles,
    function,
    header,
    io_tiles,
    ipu_plan,
    n_ipus,
    not_run,
    proportions,
)
from autoauto.exporters.onnx_stages import equals_whole_model, save_whole
from autoauto.graph.onnx_file import first_line
from autoauto.graph.shapes.shape_rule import integer
from autoauto.processes.folders import temporary_folder
from autoauto.records.units import Precision

RUNTIME = "PopART"
MODEL, OPTIONS = "model.onnx", "options.py"
IPU, STAGE, MEMORY = "__ipu_number", "__pipeline_stage", "__available_memory"
TAKES_MEMORY = ("Conv", "ConvTranspose", "MatMul")
"""Operators that read MEMORY, a float; others have the proportion of the session."""
TILE_SET, STRATEGY = "__tile_set", "__exchange_strategy"
"""Of an input, in the metadata of the model, with a slash and its name: which tiles load it, and when."""
ON_IO_TILES, OVERLAPPED = 1, 1
"""Numbers of popart.TileSet.IO and popart.ExchangeStrategy.OverlapInnerLoop."""
LAST_OPSET = 11
"""The last one that PopART's documents name."""


def write(deployment: Deployment, folder: Path) -> None:
    """Write the annotated model and the program that makes a session of it."""
    plan, path = ipu_plan(deployment, RUNTIME), folder / MODEL
    save_whole(deployment, path)
    model = onnx.load(path, load_external_data=False)
    stages = stages_of_nodes(model.graph.node, deployment.stage_of_tensors, len(plan.stages) - 1)
    separate_constants(model.graph, [plan.stages[stage].device for stage in stages])
    of_devices = proportions(deployment)
    for node, stage in zip(model.graph.node, stages, strict=True):
        node.attribute.append(helper.make_attribute(IPU, plan.stages[stage].device))
        node.attribute.append(helper.make_attribute(STAGE, stage))
        if node.op_type in TAKES_MEMORY and not node.domain:
            node.attribute.append(helper.make_attribute(MEMORY, of_devices[plan.stages[stage].device]))
    if io_tiles(deployment, RUNTIME):
        # PopART loads every input while micro-batches before are computed.
        constants = {tensor.name for tensor in model.graph.initializer}
        settings: dict[str, str] = {}
        for entry in model.graph.input:
            if entry.name not in constants:
                settings[f"{TILE_SET}/{entry.name}"] = str(ON_IO_TILES)
                settings[f"{STRATEGY}/{entry.name}"] = str(OVERLAPPED)
        helper.set_model_props(model, settings)
    path.write_bytes(model.SerializeToString(deterministic=True))
    outputs = tuple(entry.name for entry in model.graph.output)
    (folder / OPTIONS).write_text(_program(deployment, outputs), encoding="utf-8")


def stages_of_nodes(nodes: Sequence[onnx.NodeProto], stage_of: Mapping[str, int], last: int) -> list[int]:
    """The stage of every node, in order; no node reads what a later stage computes.

    A node that is in no layer, as one that only reshapes, runs in the first stage that reads it. If none does, it makes
    an output of the model, and runs where its own inputs are.
    """
    # Forwards: the first stage in which all inputs of a node are there.
    made = dict(stage_of)
    for node in nodes:
        latest = max((made.get(name, 0) for name in node.input), default=0)
        made.update((name, latest) for name in node.output if name not in stage_of)
    # Backwards, so that all readers of a tensor have stages before its writer gets one.
    read: dict[str, int] = {}
    stages = []
    for node in reversed(nodes):
        own = [stage_of[name] for name in node.output if name in stage_of]
        readers = [read[name] for name in node.output if name in read]
        stage = own[0] if own else min(readers, default=made[node.output[0]])
        read.update((name, min(stage, read.get(name, last))) for name in node.input)
        stages.append(stage)
    return stages[::-1]


def separate_constants(graph: onnx.GraphProto, ipus: Sequence[int]) -> None:
    """Give every further IPU that reads a constant a copy of it; PopART refuses to copy variables between IPUs.

    Only small constants are copied: layers that share a weight share an IPU.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    owners: dict[str, int] = {}
    for node, ipu in zip(graph.node, ipus, strict=True):
        for position, name in enumerate(node.input):
            if name not in constants or owners.setdefault(name, ipu) == ipu:
                continue  # the first IPU that reads a constant has the constant itself
            copied = f"{name}__ipu{ipu}"
            if copied not in constants:
                constants[copied] = graph.initializer.add()
                constants[copied].CopyFrom(constants[name])
                constants[copied].name = copied
                owners[copied] = ipu
            node.input[position] = copied


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Read the attributes back, and compare the model without them with the whole model in ONNX Runtime."""
    model = onnx.load(folder / MODEL, load_external_data=False)
    planned_ipus = {number: stage.device for number, stage in enumerate(deployment.plan.stages)}
    counts = dict.fromkeys(planned_ipus, 0)
    made: dict[str, int] = {}
    n_wrong, n_back = 0, 0
    for node in model.graph.node:  # sorted: a writer comes before its readers
        stage = integer(node, STAGE, -1)
        if stage in counts:
            counts[stage] += 1
        n_wrong += integer(node, IPU, -1) != planned_ipus.get(stage)
        n_back += sum(made.get(name, stage) > stage for name in node.input)
        made.update(dict.fromkeys(node.output, stage))
    shown = f"operators of the stages: {', '.join(map(str, counts.values()))}"
    yield Check(f"every operator has {IPU} and {STAGE}", not n_wrong and all(counts.values()), shown)
    planned = deployment.stage_of_tensors
    n_right = sum(made.get(name) == stage for name, stage in planned.items())
    yield Check("layers have the stages of the plan", n_right == len(planned), f"{n_right} of {len(planned)} tensors")
    yield Check("no operator reads what a later stage computes", not n_back, f"{n_back} tensors go back")
    detail = "attributes whose names begin with __ are an implementation's own"
    accepted = True
    try:
        onnx.checker.check_model(folder / MODEL)
    except onnx.checker.ValidationError as error:
        accepted, detail = False, first_line(error)
    yield Check("onnx.checker accepts the file", accepted, detail)
    yield compiles(folder / OPTIONS)
    yield from _equal_outputs(deployment, folder)
    opset = max(entry.version for entry in model.opset_import if not entry.domain)
    newer = ""
    if opset > LAST_OPSET:
        newer = f", and its documents end at opset {LAST_OPSET}, the model has {opset}"
    yield from not_run(RUNTIME, newer)


def _equal_outputs(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Whether the model, without the attributes that ONNX Runtime refuses, computes the same as the whole model."""
    with temporary_folder(TEMPORARY) as temporary:
        plain = temporary / "plain"
        shutil.copytree(folder, plain)
        model = onnx.load(plain / MODEL, load_external_data=False)
        for node in model.graph.node:
            other = [entry for entry in node.attribute if entry.name not in (IPU, STAGE, MEMORY)]
            del node.attribute[:]
            node.attribute.extend(other)
        (plain / MODEL).write_bytes(model.SerializeToString())
        yield from equals_whole_model(deployment, plain / MODEL)


def _program(deployment: Deployment, outputs: tuple[str, ...]) -> str:
    training = deployment.knobs.training
    constants = (
        "from pathlib import Path\n\nimport popart\n\n"
        f"N_IPUS = {n_ipus(deployment)}\n"
        f"BATCHES_PER_STEP = {1 if training else batches_per_step(deployment)}\n"
        f"OUTPUTS = {outputs!r}\n"
    )
    options = function(
        "session_options()", "The options that go with the attributes of the model.", _options(deployment)
    )
    lines = [f'transformer = popart.GraphTransformer(str(Path(__file__).with_name("{MODEL}")))']
    if deployment.precision is Precision.FP16:  # PopART computes in the format of the model's tensors
        lines.append("transformer.convertFloatsToHalfs()")
    lines.append("return transformer.getModelProto()")
    model = function("model()", "The model in the precision of the plan.", lines)
    session = _session(training, overlaps=io_tiles(deployment, RUNTIME) > 0)
    return header(deployment, "PopART's session") + constants + options + model + session


def _options(deployment: Deployment) -> Iterator[str]:
    knobs, pipelined = deployment.knobs, len(deployment.plan.stages) > 1
    yield "options = popart.SessionOptions()"
    yield "options.virtualGraphMode = popart.VirtualGraphMode.Manual"
    yield f"options.enablePipelining = {pipelined}"
    yield f"options.enableReplicatedGraphs = {knobs.replicas > 1}"
    yield f"options.replicatedGraphCount = {knobs.replicas}"
    proportion = min(proportions(deployment))  # of operators without one of their own, on any device
    for kind in ("convolution", "matmul"):
        yield f'options.{kind}Options = {{"availableMemoryProportion": "{proportion}"}}'
    if knobs.training:
        yield f"options.enableGradientAccumulation = {knobs.mode.n_micro_batches > 1}"
        yield f"options.accumulationFactor = {knobs.mode.n_micro_batches}"
    if n_io_tiles := io_tiles(deployment, RUNTIME):
        yield f"options.numIOTiles = {n_io_tiles}"
        yield "options.enableExplicitIR(True)  # loops and copies that can overlap"
    if deployment.recomputes:
        kind = "Pipeline" if pipelined else "RecomputeAll"
        yield f"options.autoRecomputation = popart.RecomputationType.{kind}"
    yield "return options"


def _session(training: bool, *, overlaps: bool) -> str:
    on_io_tiles = ", popart.TileSet.IO, popart.ExchangeStrategy.OverlapInnerLoop" if overlaps else ""
    lines = [
        f'returned = popart.AnchorReturnType("All"{on_io_tiles})',
        "flow = popart.DataFlow(BATCHES_PER_STEP, {name: returned for name in OUTPUTS})",
        "device = popart.DeviceManager().acquireAvailableDevice(N_IPUS)",
    ]
    if not training:
        lines.append("return popart.InferenceSession(model(), flow, device, userOptions=session_options())")
        return function("session()", "Run it with popart.PyStepIO.", lines)
    lines += [
        "options = session_options()",
        "return popart.TrainingSession(",
        "    proto, dataFlow=flow, deviceInfo=device, loss=loss, optimizer=optimizer, userOptions=options",
        ")",
    ]
    docstring = "`proto` is that of popart.Builder(model()) with a `loss` on the last stage and its IPU."
    return function("session(proto, loss, optimizer)", docstring, lines)


EXPORTER = Exporter(
    name="popart",
    summary="PopART, an ONNX file with the stage of every operator",
    apply=(
        "# needs Graphcore's Poplar SDK with PopART",
        "from options import session",
        "session()  # for training: session(proto, loss, optimizer)",
    ),
    write=write,
    check=check,
    trains=True,
    sets_recompute=True,
)
