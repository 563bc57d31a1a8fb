"""A file a stage, `pipeline.json` that says how they go together, and a program that runs them in ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np

from autoauto.exporters.exporter import TEMPORARY, Check, Deployment, Exporter
from autoauto.exporters.pipeline_runner import RUNTIMES, save
from autoauto.graph.onnx_file import first_line
from autoauto.processes.folders import temporary_folder
from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput, missing_extra
from autoauto.records.files.json import to_json
from autoauto.records.hardware import MachineDevice
from autoauto.records.layers import LayerRange, Port
from autoauto.records.plans.plan import Plan
from autoauto.records.target import Origin
from autoauto.records.units import Array, Precision, relative_error
from autoauto.space.sessions import SESSION_KNOBS, session_of
from autoauto.targets.host.measure.examples import lengths_of
from autoauto.targets.host.run.independence import BatchTensor, SampleProbe, dependence

SCHEMA = 1
RUNNER = "run_pipeline.py"
INPUTS = "inputs.npz"
"""A micro-batch of the inputs that were given, if any were: on these, processes that serve the folder warm up."""
MAX_CHECKED_SAMPLES, CHECKED_SAMPLES = 8, 2
"""Samples of the largest micro-batch that a check runs many times, and of those that stand for larger ones."""
TOLERANCES = {Precision.FP32: 1e-3, Precision.TF32: 2e-2, Precision.FP16: 2e-2, Precision.BF16: 0.1}
"""The largest difference that counts as equal, relative to the largest output: a runtime fuses other operators in a
part of a model than in the whole, so that it rounds at other places, to 11 bits in tf32 and fp16, and to 8 in bf16."""


@dataclass(frozen=True, slots=True)
class ModelPort:
    """An input or output of the model, as a `Port`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    batch_axis: int | None  # None where the shape does not depend on the number of samples
    data_dependent: bool = False  # samples lie along no axis then


@dataclass(frozen=True, slots=True)
class StageFile:
    """A stage as `pipeline.json` has it.

    Attributes:
        file: the name of its ONNX file.
        layers: the half-open range of the model's layers.
        first_layer, last_layer: their names.
        inputs, outputs: of a micro-batch, each as in `Port`; with several streams the file takes an equal part of it.
        sends: the names of all tensors that the next stage gets, those that pass this stage included.
        n_replicas: how many devices run the stage, in turn.
        memory_bytes: by category.
        limit_bytes: the memory that the stage may fill.
        compute_s, receive_s, send_s: of one micro-batch.
        intra_op_threads: threads of the session; 0 lets the runtime choose.
        providers: execution providers of the runtime "onnxruntime"; for a device with a number
            `[["CUDAExecutionProvider", {"device_id": 1}]]`.
        runtime, precision, options: with which the stage was measured, so that nothing else runs it.
    """

    file: str
    layers: tuple[int, int]
    first_layer: str
    last_layer: str
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]
    sends: tuple[str, ...]
    n_replicas: int
    memory_bytes: dict[str, int]
    limit_bytes: int
    compute_s: float
    receive_s: float
    send_s: float
    intra_op_threads: int
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    runtime: str = "onnxruntime"
    precision: Precision = Precision.FP32
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def session(self) -> Session:
        """The session with which the stage was measured; `BadInput` if there is no such runtime, option or format."""
        if self.runtime not in RUNTIMES:
            raise BadInput(f"runtime is one of {', '.join(RUNTIMES)}, got {self.runtime!r:.60}")
        values: dict[str, Any] = {}
        for name, value in {**self.options, "cores_per_device": max(1, self.intra_op_threads)}.items():
            if name not in SESSION_KNOBS:
                raise BadInput(f"options.{name} must be left out, got {value!r:.60}")
            domain = SESSION_KNOBS[name].domain
            if not domain.allows(value):
                raise BadInput(f"options.{name} must be {domain.text}, got {value!r:.60}")
            values[name] = domain.read(value)
        session = session_of({**values, "runtime": self.runtime, "precision": self.precision})
        if not session.is_possible:
            raise BadInput(f"{self.runtime} must compute in {self.precision}, with a thread or more for every stream")
        return session


@dataclass(frozen=True, slots=True)
class PipelineFiles:
    """Replicas of one plan."""

    n_replicas: int
    placement: tuple[tuple[MachineDevice, ...], ...]  # for every replica the devices of its stages
    period_s: float  # between two finished micro-batches of a replica
    stages: tuple[StageFile, ...]


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The content of `pipeline.json`; all times and the throughput have one `origin`."""

    model: str
    cluster: str
    batch_size: int
    samples_per_s: float
    origin: Origin
    inputs: tuple[ModelPort, ...]
    outputs: tuple[ModelPort, ...]
    pipelines: tuple[PipelineFiles, ...]
    devices: tuple[str, ...] = ()  # by number, as --device names them; empty where alike, or of another target


def write(deployment: Deployment, folder: Path) -> None:
    """Write the files of all stages, `pipeline.json` and the program, and inputs of a micro-batch if any were given."""
    plans = deployment.plan.plans
    pipelines = []
    for number, plan in enumerate(plans):
        prefix, n_replicas = "", deployment.knobs.replicas
        if len(plans) > 1:  # each plan has some of the replicas, and files of its own
            prefix, n_replicas = f"plan{number}-", len(plan.placement)
        stages = tuple(_save(deployment, plan, index, prefix, folder) for index in range(len(plan.stages)))
        period_s = plan.cost_cycles / deployment.cluster.clock_hz
        pipelines.append(PipelineFiles(n_replicas, plan.placement, period_s, stages))
    inputs, outputs = model_ends(deployment)
    content = PipelineFile(
        model=deployment.graph.name,
        cluster=deployment.cluster.name,
        batch_size=deployment.knobs.batch_size,
        samples_per_s=deployment.performance.samples_per_s,
        origin=deployment.performance.origin,
        inputs=inputs,
        outputs=outputs,
        pipelines=tuple(pipelines),
        devices=tuple(device.name for device in deployment.devices),
    )
    (folder / "pipeline.json").write_bytes(msgspec.json.format(to_json(content, SCHEMA), indent=1))
    program = Path(__file__).with_name("pipeline_runner.py").read_text(encoding="utf-8")
    (folder / RUNNER).write_text(program, encoding="utf-8")
    if deployment.inputs:
        save(str(folder / INPUTS), examples(deployment, 1)[1])


def _save(deployment: Deployment, plan: Plan, index: int, prefix: str, folder: Path) -> StageFile:
    stage = plan.stages[index]
    batch_size, clock_hz = deployment.knobs.batch_size, deployment.cluster.clock_hz
    source, graph = deployment.source, deployment.graph
    session = deployment.session(plan, stage)
    if session.runtime not in RUNTIMES:
        raise BadInput(f"{RUNNER} runs stages by {', '.join(RUNTIMES)}, got a plan for {session.runtime}; try those")
    # The file takes the part of a micro-batch that one stream of the session computes; ports are of all of it.
    file, part_size = f"{prefix}stage{index}.onnx", batch_size // session.session.n_parts
    saved = source.save(graph, stage.layers, part_size, folder / file)
    received = source.carried(graph, stage.layers.start, batch_size)
    sent = source.carried(graph, stage.layers.stop, batch_size)
    ports = {port.name: port for port in received + sent}
    options = dict(session.session.values)
    for name in ("precision", "cores_per_device"):  # fields of their own
        options.pop(name, None)
    return StageFile(
        file=file,
        layers=stage.layers,
        first_layer=graph.layers[stage.layers.start].name,
        last_layer=graph.layers[stage.layers.stop - 1].name,
        inputs=tuple(ports[port.name]._asdict() for port in saved.inputs),
        outputs=tuple(ports[port.name]._asdict() for port in saved.outputs),
        sends=tuple(port.name for port in sent),
        n_replicas=stage.n_replicas,
        memory_bytes=dict(stage.memory_bytes),
        limit_bytes=stage.limit_bytes,
        compute_s=stage.compute_cycles / clock_hz,
        receive_s=stage.receive_cycles / clock_hz,
        send_s=stage.send_cycles / clock_hz,
        intra_op_threads=session.n_threads,
        runtime=session.runtime,
        precision=session.precision,
        options=options,
    )


def _precision(deployment: Deployment) -> Precision:
    return deployment.knobs.session.computes_in or Precision.FP32


def model_ends(deployment: Deployment) -> tuple[tuple[ModelPort, ...], tuple[ModelPort, ...]]:
    """The inputs and the outputs of the model."""
    return _model_ports(deployment, 0), _model_ports(deployment, len(deployment.graph))


def _model_ports(deployment: Deployment, cut: int) -> tuple[ModelPort, ...]:
    """The tensors that the model carries over a cut; a batch axis is where the shapes at two batch sizes differ."""
    graph, batch_size = deployment.graph, deployment.knobs.batch_size
    ports = others = deployment.source.carried(graph, cut, batch_size)
    if graph.fixed_batch is None:
        others = deployment.source.carried(graph, cut, 1 if batch_size > 1 else 2)
    made: list[ModelPort] = []
    for port, other in zip(ports, others, strict=True):
        batch_axis: int | None = None
        if not port.data_dependent:  # bounds of lengths are no shapes
            lengths = enumerate(zip(port.shape, other.shape, strict=True))
            batch_axis = next((axis for axis, (length, other_length) in lengths if length != other_length), None)
        made.append(ModelPort(port.name, port.shape, port.dtype, batch_axis, port.data_dependent))
    return tuple(made)


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Run the program, and compare with the whole model as one stage.

    All micro-batches are small: larger ones would take many minutes and show the same. Where those of the plan are
    large, its files run one, whose first samples are compared.
    """
    with temporary_folder(TEMPORARY) as temporary:
        checked, files = deployment, folder
        small = _small(deployment, temporary / "small")
        if small is not None:
            checked, files = small, temporary / "small"
        stages = chain.from_iterable(plan.stages for plan in deployment.plan.plans)
        n_devices = max(stage.n_replicas for stage in stages)
        # Every device of every stage computes a micro-batch, and one of them a second one.
        yield from _check_stages(checked, files, temporary, deployment.knobs.replicas * n_devices + 1)
        has_own_samples = yield from _check_independence(checked, lambda batches: _run(files, batches, temporary))
        if small is None:
            return
        if has_own_samples:
            yield from _check_first_samples(deployment, small, folder, temporary)
        else:
            yield from _check_stages(deployment, folder, temporary, 1)


def _small(deployment: Deployment, folder: Path) -> Deployment | None:
    """The deployment with small micro-batches, its files in a folder; None where they are small or cannot be others."""
    batch_size = CHECKED_SAMPLES * deployment.knobs.session.n_parts
    if deployment.knobs.batch_size <= MAX_CHECKED_SAMPLES or deployment.graph.fixed_batch is not None:
        return None
    inputs, outputs = model_ends(deployment)
    if any(port.batch_axis is None for port in inputs + outputs):
        return None
    small = replace(deployment, knobs=replace(deployment.knobs, batch_size=batch_size))
    folder.mkdir()
    try:
        write(small, folder)
    except BadInput:  # the model runs at some sizes only
        return None
    return small


def _check_stages(deployment: Deployment, folder: Path, temporary: Path, n: int) -> Iterator[Check]:
    n, inputs = examples(deployment, n)
    expected = _whole_outputs(deployment, inputs, temporary)
    try:
        outputs = _run(folder, inputs, temporary)
    except BadInput as error:
        yield Check(f"{RUNNER} runs all stages", False, str(error))
        return
    yield from compared(outputs, expected, n, _precision(deployment))


def _check_first_samples(deployment: Deployment, small: Deployment, folder: Path, temporary: Path) -> Iterator[Check]:
    n_first, n_samples = small.knobs.batch_size, deployment.knobs.batch_size
    _, inputs = examples(deployment, 1)
    of_inputs, of_outputs = model_ends(deployment)
    expected = _whole_outputs(small, _first_samples(inputs, of_inputs, n_first, n_samples), temporary)
    try:
        outputs = _first_samples(_run(folder, inputs, temporary), of_outputs, n_first, n_samples)
    except BadInput as error:
        yield Check(f"{RUNNER} runs a micro-batch of {n_samples} samples", False, str(error))
        return
    for what, passed, detail in compared(outputs, expected, 1, _precision(deployment)):
        shown = detail.replace("1 micro-batch differs", f"the first {n_first} samples of {n_samples} differ")
        yield Check(f"{what}, at the batch size of the plan", passed, shown)


def _first_samples(
    arrays: Mapping[str, Array], ports: Sequence[ModelPort], n_samples: int, batch_size: int
) -> dict[str, Array]:
    axes = {port.name: port.batch_axis for port in ports}
    first: dict[str, Array] = {}
    for name, array in arrays.items():
        axis = axes.get(name)
        if axis is not None:
            first[name] = array.take(range(array.shape[axis] * n_samples // batch_size), axis)
    return first


def _whole_outputs(deployment: Deployment, inputs: dict[str, Array], temporary: Path) -> dict[str, Array]:
    """The outputs of the whole model, run as one stage."""
    folder = temporary / f"whole-{deployment.knobs.batch_size}"
    if not folder.exists():
        folder.mkdir()
        stage = replace(deployment.plan.stages[0], layers=LayerRange(0, len(deployment.graph)), n_replicas=1)
        plan = replace(deployment.plan, stages=(stage,), other_plans=(), placement=())
        write(replace(deployment, plan=plan, knobs=replace(deployment.knobs, n_ipu=1, replicas=1)), folder)
    return _run(folder, inputs, temporary)


def _check_independence(
    deployment: Deployment, run: Callable[[dict[str, Array]], dict[str, Array]]
) -> Generator[Check, None, bool]:
    """Whether requests may share micro-batches, where every tensor has an axis of samples; returns it, too."""
    ports, output_ports = model_ends(deployment)
    inputs = [BatchTensor(port.name, port.shape, port.dtype, port.batch_axis) for port in ports]
    outputs = [BatchTensor(port.name, port.shape, port.dtype, port.batch_axis) for port in output_ports]
    batch_size = deployment.knobs.batch_size
    if batch_size == 1 or not inputs or any(tensor.axis is None for tensor in inputs + outputs):
        return False
    given: Mapping[str, Array] | None = None
    if deployment.inputs:
        given = deployment.inputs([Port(tensor.name, tensor.shape, tensor.dtype) for tensor in inputs])
    probe = SampleProbe(inputs, outputs, batch_size, _precision(deployment), given)
    reason = dependence(probe, run)
    detail = "one micro-batch ran with other samples in the other places, and no row changed"
    if reason is not None:
        detail = f"a request to a server must hold all samples of a micro-batch, because {reason}"
    yield Check("no request gets numbers of another", True, detail)
    return reason is None


def examples(deployment: Deployment, n: int) -> tuple[int, dict[str, Array]]:
    """Inputs of n micro-batches, given or made up, or of one where the program takes no more; how many they are."""
    ports, outputs = model_ends(deployment)
    if any(port.data_dependent for port in outputs) or all(port.batch_axis is None for port in ports):
        n = 1
    long: list[Port] = []
    for port in ports:
        shape = list(port.shape)
        if port.batch_axis is not None:
            shape[port.batch_axis] *= n
        long.append(Port(port.name, tuple(shape), port.dtype))
    if deployment.inputs:
        return n, dict(deployment.inputs(long))
    return n, made_up(long, np.random.default_rng(0))


def compared(
    outputs: Mapping[str, Array],
    expected: Mapping[str, Array],
    n: int,
    precision: Precision = Precision.FP32,
) -> Iterator[Check]:
    """Whether the stages compute what the whole model computes of n micro-batches."""
    tolerance = TOLERANCES[precision]
    for name, array in expected.items():
        error = relative_error(outputs[name], array) if name in outputs else float("inf")
        batches = "1 micro-batch differs" if n == 1 else f"{n} micro-batches differ"
        detail = f"{batches} by {error:.1e} of the largest value, at most {tolerance:.0e} allowed"
        yield Check(f"output {name} equals that of the whole model", error <= tolerance, detail)


def made_up(ports: Sequence[Port], rng: np.random.Generator) -> dict[str, Array]:
    """Inputs that a model takes, by name."""
    lengths = lengths_of(ports)
    arrays: dict[str, Array] = {}
    for port in ports:
        if port.name in lengths:  # noise would be no length of the other inputs
            arrays[port.name] = np.full(port.shape, lengths[port.name], port.dtype)
        elif np.dtype(port.dtype).kind == "f":
            arrays[port.name] = rng.standard_normal(port.shape).astype(port.dtype)
        elif np.dtype(port.dtype).kind == "b":
            arrays[port.name] = np.ones(port.shape, port.dtype)
        else:  # 0 and 1 are valid indices
            arrays[port.name] = rng.integers(0, 2, port.shape).astype(port.dtype)
    return arrays


def _run(artifact: Path, inputs: dict[str, Array], temporary: Path) -> dict[str, Array]:
    """The outputs of the program of an artifact, which runs in a process of its own as a user would run it."""
    runtime()
    inputs_file, outputs_file = str(temporary / "inputs.npz"), str(temporary / "outputs.npz")
    save(inputs_file, inputs)
    command = [sys.executable, str(artifact / RUNNER), inputs_file, outputs_file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"its runtime must run every stage, got: {done.stderr.strip().splitlines()[-1]}")
    with np.load(outputs_file) as outputs:
        return dict(outputs)


def runtime() -> ModuleType:
    """ONNX Runtime; raises `MissingExtra` if it is not installed."""
    try:
        return import_module("onnxruntime")
    except ImportError as error:
        raise missing_extra("--check", "host") from error


def run_file(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a model file in ONNX Runtime on the CPU of this machine; inputs that it lacks are ignored.

    Raises MissingExtra without ONNX Runtime, and BadInput if it cannot run the file.
    """
    onnxruntime = runtime()
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        outputs = session.run(None, {entry.name: inputs[entry.name] for entry in session.get_inputs()})
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise BadInput(f"ONNX Runtime must run {path.name}, got: {first_line(error)}") from error
    return {entry.name: array for entry, array in zip(session.get_outputs(), outputs, strict=True)}


def equals_whole_model(deployment: Deployment, path: Path) -> Iterator[Check]:
    """Whether a model file computes the same as the whole model, on the inputs of a micro-batch."""
    n, inputs = examples(deployment, 1)
    try:
        yield from compared(run_file(path, inputs), whole_model(deployment, inputs), n)
    except BadInput as error:
        yield Check("ONNX Runtime runs the file", False, str(error))


def whole_model(deployment: Deployment, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run the whole model; returns its outputs by name, without outputs that are inputs."""
    with temporary_folder(TEMPORARY) as temporary:
        path = temporary / "model.onnx"
        save_whole(deployment, path)
        return run_file(path, inputs)


def save_whole(deployment: Deployment, path: Path) -> None:
    """Write the whole model at the batch size of the plan."""
    layers = LayerRange(0, len(deployment.graph))
    deployment.source.save(deployment.graph, layers, deployment.knobs.batch_size, path)


EXPORTER = Exporter(
    name="onnx",
    summary="ONNX Runtime or OpenVINO, a file a stage",
    apply=("pip install {packages}", f"python {RUNNER} INPUTS.npz OUTPUTS.npz"),
    write=write,
    check=check,
    keeps_session=True,
)
