"""A model repository of Triton Inference Server: a model a stage, and an ensemble that joins them [triton].

    NAME/config.pbtxt               input x ─▶ step NAME_stage0: x > a b ─▶ step NAME_stage1: a > c, b > y ─▶ output y
    NAME_stage0/config.pbtxt  1/model.onnx
    NAME_stage1/config.pbtxt  1/model.onnx

A tensor has one name in all models and in the ensemble, so that any later step may read it. Where samples lie on the
first axis of every tensor, that axis is open in all files: a request has as many samples as it likes, up to
`max_batch_size`. Elsewhere a request is one micro-batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from onnx import helper

from autoauto.exporters.exporter import TEMPORARY, Check, Deployment, Exporter
from autoauto.exporters.onnx_stages import compared, examples, run_file, whole_model
from autoauto.exporters.open_batch import AXIS, is_open, keeps_apart, opened
from autoauto.processes.folders import temporary_folder
from autoauto.records.costs.options import DeviceType
from autoauto.records.errors import BadInput
from autoauto.records.hardware import MachineDevice
from autoauto.records.layers import Port, SubModel
from autoauto.records.plans.plan import Stage
from autoauto.records.units import Array

TYPES = {
    "bool": "TYPE_BOOL",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
}
"""What Triton calls the types of NumPy."""
MODEL_FILE, CONFIG_FILE = "1/model.onnx", "config.pbtxt"
"""In the folder of a model: its first version, and how it is served."""


class EnsembleStep(NamedTuple):
    """A step of an ensemble."""

    model: str
    reads: Mapping[str, str]  # the names of the ensemble's tensors by those of the model's inputs
    writes: Mapping[str, str]  # likewise of the model's outputs


def write(deployment: Deployment, folder: Path) -> None:
    """Write the models of all stages, and the ensemble."""
    plan, graph, batch_size = deployment.one_plan(), deployment.graph, deployment.knobs.batch_size
    inputs = deployment.source.carried(graph, 0, batch_size)
    outputs = deployment.source.carried(graph, len(graph), batch_size)
    both = set(inputs).intersection(outputs)
    if both:
        raise BadInput(f"an ensemble of Triton makes every output, {min(both).name!r} is an input; try --to onnx")
    models = [folder / f"{graph.name}_stage{index}" for index in range(len(plan.stages))]
    saved: list[SubModel] = []
    for model, stage in zip(models, plan.stages, strict=True):
        (model / MODEL_FILE).parent.mkdir(parents=True)
        saved.append(deployment.source.save(graph, stage.layers, batch_size, model / MODEL_FILE))
    batching = _open_files(deployment, saved, models)
    read: set[str] = set()
    for model, stage, part in zip(models, plan.stages, saved, strict=True):
        read.update(port.name for port in part.inputs)
        lines = [f"name: {_text(model.name)}", f"max_batch_size: {batching.max_batch_size}", 'backend: "onnxruntime"']
        lines += _ports(part.inputs, part.outputs, batching)
        lines += _instances(deployment, stage)
        if batching.joins:
            lines.append(f"dynamic_batching {{ preferred_batch_size: [{batching.max_batch_size}] }}")
        _write_config(model, lines)
    lines = [f"name: {_text(graph.name)}", f"max_batch_size: {batching.max_batch_size}", 'platform: "ensemble"']
    lines += _ports([port for port in inputs if port.name in read], outputs, batching)
    lines.append("ensemble_scheduling {")
    lines += _steps(graph.name, saved, read.union(port.name for port in outputs))
    lines.append("}")
    version = folder / graph.name / "1"
    version.mkdir(parents=True)
    (version / ".keep").touch()  # Triton wants a version; git and many stores have no empty folders
    _write_config(folder / graph.name, lines)


class Batching(NamedTuple):
    """Limits of the number of samples of a request."""

    max_batch_size: int = 0  # of all models; 0 where the batch size is a fixed dimension
    joins: bool = False  # whether Triton may join requests to one batch, since no sample changes another


def _open_files(deployment: Deployment, saved: Sequence[SubModel], models: Sequence[Path]) -> Batching:
    graph, batch_size = deployment.graph, deployment.knobs.batch_size
    if graph.fixed_batch:
        return Batching()
    files: dict[Path, onnx.ModelProto] = {}
    with temporary_folder(TEMPORARY) as temporary:
        other = temporary / "model.onnx"
        for stage, part, model in zip(deployment.plan.stages, saved, models, strict=True):
            larger = deployment.source.save(graph, stage.layers, batch_size + 1, other)
            if not is_open(part.inputs + part.outputs, larger.inputs + larger.outputs, batch_size):
                return Batching()
            file = opened(model / MODEL_FILE, other, batch_size)
            if file is None:
                return Batching()
            files[model / MODEL_FILE] = file
    # Rules for operators read files with a fixed batch, so all are asked before one is overwritten.
    joins = batch_size > 1 and all(keeps_apart(path, batch_size) for path in files)
    for path, file in files.items():
        path.write_bytes(file.SerializeToString(deterministic=True))
    return Batching(batch_size, joins)


def _ports(inputs: Iterable[Port], outputs: Iterable[Port], batching: Batching) -> list[str]:
    lines = [f"input {{ {_tensor(port, batching)} }}" for port in inputs]
    lines += [f"output {{ {_tensor(port, batching)} }}" for port in outputs]
    return lines


def _tensor(port: Port, batching: Batching) -> str:
    """The name, type and shape of a tensor, without an open axis."""
    if port.data_dependent:
        raise BadInput(f"files for Triton have fixed shapes, lengths of {port.name!r} depend on data; try --to onnx")
    if port.dtype not in TYPES or not port.shape or 0 in port.shape:
        got = f"{port.name!r} is {port.dtype} of shape {list(port.shape)}"
        raise BadInput(f"Triton has tensors of one or more dimensions and of its own types, {got}; try --to onnx")
    shape = port.shape[1:] if batching.max_batch_size else port.shape
    return f"name: {_text(port.name)} data_type: {TYPES[port.dtype]} dims: {list(shape)}"


def _steps(name: str, saved: Sequence[SubModel], wanted: set[str]) -> Iterator[str]:
    """Lines of a step a stage; an output that no step reads and the ensemble does not return is left out."""
    for index, part in enumerate(saved):
        yield "step {"
        yield f"  model_name: {_text(f'{name}_stage{index}')}"
        yield "  model_version: -1"
        for port in part.inputs:
            yield f"  input_map {{ key: {_text(port.name)} value: {_text(port.name)} }}"
        for port in part.outputs:
            if port.name in wanted:
                yield f"  output_map {{ key: {_text(port.name)} value: {_text(port.name)} }}"
        yield "}"


def _instances(deployment: Deployment, stage: Stage) -> Iterator[str]:
    """Where a stage runs, and on how many devices: Triton has CPUs and GPUs."""
    session = deployment.knobs.session
    if session.device_type is DeviceType.GPU:
        yield f"instance_group {{ count: 1 kind: KIND_GPU gpus: {_gpus(deployment, stage)} }}"
        return
    yield f"instance_group {{ count: {deployment.knobs.replicas * stage.n_replicas} kind: KIND_CPU }}"
    if session.runtime is not None:
        n_threads = f'{{ string_value: "{session.group_size}" }}'
        yield f'parameters {{ key: "intra_op_thread_count" value: {n_threads} }}'


def _gpus(deployment: Deployment, stage: Stage) -> list[int]:
    replicas = deployment.plan.placement
    if not replicas:  # one replica on the first machine
        replicas = (tuple(MachineDevice(0, device) for device in range(len(deployment.cluster))),)
    devices: set[MachineDevice] = set()
    for replica in replicas:
        devices.update(replica[device] for device in stage.devices)
    n_others = len({device.machine for device in devices} - {0})
    if n_others:
        raise BadInput(f"a Triton server has one machine, the plan has {n_others + 1}; try fewer --replicas")
    return sorted(device.device for device in devices)


def _text(value: str) -> str:
    """A string in protobuf's text format, which has the escapes of JSON [protobuf]."""
    return json.dumps(value, ensure_ascii=False)


def _write_config(folder: Path, lines: Iterable[str]) -> None:
    (folder / CONFIG_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Parse all configurations by Triton's own definition, follow the ensemble's tensors, and run its steps."""
    name, n_stages = deployment.graph.name, len(deployment.plan.stages)
    stages = [f"{name}_stage{index}" for index in range(n_stages)]
    definition = _definition()
    if definition is None:
        missing = "Triton's definition is not installed; try: pip install tritonclient"
        yield Check("every config.pbtxt is as Triton defines it", None, missing)
        yield Check("the ensemble makes every tensor before it reads it", None, missing)
        steps = []
        for model in stages:  # tensors have their own names in the ensemble
            reads, writes = _ends_of_file(folder / model / MODEL_FILE)
            steps.append(EnsembleStep(model, {name: name for name in reads}, {name: name for name in writes}))
    else:
        from google.protobuf import text_format

        configs: dict[str, Any] = {}
        try:
            for model in (name, *stages):
                text = (folder / model / CONFIG_FILE).read_text(encoding="utf-8")
                configs[model] = text_format.Parse(text, definition())
        except text_format.ParseError as error:
            yield Check("every config.pbtxt is as Triton defines it", False, str(error))
            return
        yield Check("every config.pbtxt is as Triton defines it", True, f"{len(configs)} files")
        steps = []
        for step in configs[name].ensemble_scheduling.step:
            steps.append(EnsembleStep(step.model_name, dict(step.input_map), dict(step.output_map)))
        problem = next(_problems(folder, configs, configs[name], steps), None)
        detail = problem or f"{n_stages} steps, with the types and shapes of their files"
        yield Check("the ensemble makes every tensor before it reads it", problem is None, detail)
    n, inputs = examples(deployment, 1)
    try:
        outputs = _run(folder, steps, inputs)
        yield from compared(outputs, whole_model(deployment, inputs), n)
        first = onnx.load_model(folder / stages[0] / MODEL_FILE, load_external_data=False).graph
        is_open = any(entry.type.tensor_type.shape.dim[0].dim_param == AXIS for entry in first.input)
        if deployment.knobs.batch_size > 1 and is_open:
            yield from _check_one_sample(deployment, folder, steps, inputs)
    except BadInput as error:
        yield Check("ONNX Runtime runs the steps", False, str(error))


def _check_one_sample(
    deployment: Deployment, folder: Path, steps: Sequence[EnsembleStep], inputs: Mapping[str, Array]
) -> Iterator[Check]:
    alone = {name: array[:1] for name, array in inputs.items()}
    outputs = _run(folder, steps, alone)
    whole = replace(deployment, knobs=replace(deployment.knobs, batch_size=1))
    for name, passed, detail in compared(outputs, whole_model(whole, alone), 1):
        yield Check(f"{name}, of a request of one sample", passed, detail.replace("micro-batch", "sample"))
    if "dynamic_batching" in (folder / steps[0].model / CONFIG_FILE).read_text(encoding="utf-8"):
        joined = _run(folder, steps, inputs)
        rows = compared({name: joined[name][:1] for name in outputs}, outputs, 1)
        same = all(row.passed for row in rows)
        yield Check("a sample gets the same alone and among others", same, "so Triton may join requests")


def _definition() -> Any:
    """The class ModelConfig of tritonclient, None where it is not installed; its package would load gRPC."""
    package = find_spec("tritonclient")
    if package is None:
        return None
    for folder in package.submodule_search_locations or ():
        path = Path(folder) / "grpc" / "model_config_pb2.py"
        spec = spec_from_file_location("autoauto_triton_model_config", path)
        if path.exists() and spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module.ModelConfig
    return None


_ANY_LENGTH = -1
Ends = tuple[dict[str, str], dict[str, str]]
"""Inputs and outputs: the type and shape of each by its name."""


def _ends_of_config(config: Any) -> Ends:
    samples = [_ANY_LENGTH] if config.max_batch_size else []
    types = config.DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_number

    def ends(ports: Iterable[Any]) -> dict[str, str]:
        return {port.name: f"{types[port.data_type].name} {[*samples, *port.dims]}" for port in ports}

    return ends(config.input), ends(config.output)


def _ends_of_file(path: Path) -> Ends:
    graph = onnx.load_model(path, load_external_data=False).graph

    def ends(entries: Iterable[onnx.ValueInfoProto]) -> dict[str, str]:
        texts: dict[str, str] = {}
        for entry in entries:
            tensor = entry.type.tensor_type
            dtype = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
            lengths = [_ANY_LENGTH if dim.dim_param else dim.dim_value for dim in tensor.shape.dim]
            texts[entry.name] = f"{TYPES.get(dtype, dtype)} {lengths}"
        return texts

    return ends(graph.input), ends(graph.output)


def _problems(folder: Path, configs: Mapping[str, Any], ensemble: Any, steps: Sequence[EnsembleStep]) -> Iterator[str]:
    """What Triton refuses of an ensemble, with the files that its models have [triton]."""
    tensors, returned = _ends_of_config(ensemble)  # `tensors` are those that are there before a step
    unread = set(tensors)
    for model, reads, writes in steps:
        if configs[model].max_batch_size != ensemble.max_batch_size:
            yield f"the batches of {model} are not those of the ensemble"
        inputs, outputs = _ends_of_config(configs[model])
        if (inputs, outputs) != _ends_of_file(folder / model / MODEL_FILE):
            yield f"the inputs and outputs of {model} are not those of its file"
        if reads.keys() != inputs.keys() or not writes.keys() <= outputs.keys():
            yield f"the step of {model} does not have the tensors of the model"
        for end, name in reads.items():
            if tensors.get(name) != inputs[end]:
                yield f"{model} reads {name} as {inputs[end]}, got {tensors.get(name)}"
            unread.discard(name)
        for name in writes.values():
            if name in tensors:
                yield f"{model} makes {name} again"
        for end, name in writes.items():
            tensors[name] = outputs[end]
            unread.add(name)
    for name in sorted(unread - returned.keys()):
        yield f"nothing reads {name}"
    for name, kind in returned.items():
        if tensors.get(name) != kind:
            yield f"nothing makes output {name}"


def _run(folder: Path, steps: Sequence[EnsembleStep], inputs: Mapping[str, Array]) -> dict[str, Array]:
    tensors = dict(inputs)
    for model, reads, writes in steps:
        for name in reads.values():
            if name not in tensors:
                raise BadInput(f"{model} reads {name!r}, which nothing has made")
        feeds = {end: tensors[name] for end, name in reads.items()}
        made = run_file(folder / model / MODEL_FILE, feeds)
        tensors |= {name: made[end] for end, name in writes.items()}
    return tensors


EXPORTER = Exporter(
    name="triton",
    summary="Triton Inference Server, a model repository",
    apply=('tritonserver --model-repository="$PWD"',),
    write=write,
    check=check,
    notes=(
        "Where `max_batch_size` is above 0, a request has up to so many samples, and stages with\n"
        "`dynamic_batching` join requests, since no sample changes another. Where it is 0, a request is one\n"
        "micro-batch: the batch size is a fixed dimension of every file. Every replica is one more instance of\n"
        "each stage; any instance of the next stage may take what one has computed. Triton has no IPUs: their\n"
        "stages are on CPUs."
    ),
)
