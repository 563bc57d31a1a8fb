"""A file a stage, `pipeline.json` that says how they go together, and a program that runs them in ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
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
    """An input or output of the model.

    Attributes:
        name, shape, dtype: as in `Port` (`autoauto.records.layers`).
        batch_axis: the axis along which samples lie; None where the shape does not depend on their number.
        data_dependent: as in `Port`; samples lie along no axis then.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    batch_axis: int | None
    data_dependent: bool = False


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
        """The session with which the stage was measured.

        Raises:
            BadInput: there is no such runtime or option, or the runtime does not compute in the format.
        """
        if self.runtime not in RUNTIMES:
            raise BadInput(f"runtime is one of {', '.join(RUNTIMES)}, got {self.runtime!r:.60}")
        options = {**self.options, "cores_per_device": max(1, self.intra_op_threads)}
        for name, value in options.items():
            if name not in SESSION_KNOBS or not SESSION_KNOBS[name].domain.allows(value):
                known = SESSION_KNOBS[name].domain.text if name in SESSION_KNOBS else "left out"
                raise BadInput(f"options.{name} must be {known}, got {value!r:.60}")
        read = {name: SESSION_KNOBS[name].domain.read(value) for name, value in options.items()}
        session = session_of({**read, "runtime": self.runtime, "precision": self.precision})
        if not session.is_possible:
            raise BadInput(f"{self.runtime} must compute in {self.precision}, with a thread or more for every stream")
        return session


@dataclass(frozen=True, slots=True)
class PipelineFiles:
    """Replicas of one plan.

    Attributes:
        n_replicas: how many.
        placement: for every replica the devices of its stages, each by its machine and its number there.
        period_s: between two finished micro-batches of a replica.
        stages: in the order of their layers.
    """

    n_replicas: int
    placement: tuple[tuple[MachineDevice, ...], ...]
    period_s: float
    stages: tuple[StageFile, ...]


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The content of `pipeline.json`; all times and the throughput have one `origin`.

    Attributes:
        devices: by their numbers, as --device names them; empty where all are cores and alike, or of another target.
    """

    model: str
    cluster: str
    batch_size: int
    samples_per_s: float
    origin: Origin
    inputs: tuple[ModelPort, ...]
    outputs: tuple[ModelPort, ...]
    pipelines: tuple[PipelineFiles, ...]
    devices: tuple[str, ...] = ()


def write(deployment: Deployment, folder: Path) -> None:
    """Write the files of all stages, `pipeline.json` and the program, and inputs of a micro-batch if any were given."""
    plans = deployment.plan.plans
    pipelines = []
    for number, plan in enumerate(plans):
        prefix = f"plan{number}-" if len(plans) > 1 else ""
        n_replicas = len(plan.placement) if len(plans) > 1 else deployment.knobs.replicas
        stages = tuple(_save(deployment, plan, index, prefix, folder) for index in range(len(plan.stages)))
        period_s = plan.cost_cycles / deployment.cluster.clock_hz
        pipelines.append(PipelineFiles(n_replicas, plan.placement, period_s, stages))
    content = PipelineFile(
        model=deployment.graph.name,
        cluster=deployment.cluster.name,
        batch_size=deployment.knobs.batch_size,
        samples_per_s=deployment.performance.samples_per_s,
        origin=deployment.performance.origin,
        inputs=model_ports(deployment, 0),
        outputs=model_ports(deployment, len(deployment.graph)),
        pipelines=tuple(pipelines),
        devices=tuple(device.name for device in deployment.devices),
    )
    (folder / "pipeline.json").write_bytes(msgspec.json.format(to_json(content, SCHEMA), indent=1))
    program = Path(__file__).with_name("pipeline_runner.py").read_text(encoding="utf-8")
    (folder / RUNNER).write_text(program, encoding="utf-8")
    if deployment.inputs:
        save(str(folder / INPUTS), examples(deployment, 1)[1])


def _save(deployment: Deployment, plan: Plan, index: int, prefix: str, folder: Path) -> StageFile:
    """Write the file of a stage.

    Raises:
        BadInput: the program does not know the runtime that was measured.
    """
    stage, batch_size, clock_hz = plan.stages[index], deployment.knobs.batch_size, deployment.cluster.clock_hz
    file, names, session = f"{prefix}stage{index}.onnx", deployment.graph.layers, deployment.session(plan, stage)
    if session.runtime not in RUNTIMES:
        raise BadInput(f"{RUNNER} runs stages by {', '.join(RUNTIMES)}, got a plan for {session.runtime}; try those")
    part_size = batch_size // session.session.n_parts
    saved = deployment.source.save(deployment.graph, stage.layers, part_size, folder / file)
    received, sent = (deployment.source.carried(deployment.graph, cut, batch_size) for cut in stage.layers)
    ports = {port.name: port for port in (*received, *sent)}
    return StageFile(
        file=file,
        layers=stage.layers,
        first_layer=names[stage.layers.start].name,
        last_layer=names[stage.layers.stop - 1].name,
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
        options=_options(session.session),
    )


def _precision(deployment: Deployment) -> Precision:
    """The format in which stages compute."""
    return deployment.knobs.session.computes_in or Precision.FP32


def _options(session: Session) -> dict[str, Any]:
    """The knobs of a session by name, but those that a stage says itself."""
    return {name: value for name, value in session.values.items() if name not in ("precision", "cores_per_device")}


def model_ports(deployment: Deployment, cut: int) -> tuple[ModelPort, ...]:
    """Inputs of the model before layer 0, outputs behind the last; a batch axis is where two batch sizes differ."""
    graph, batch_size = deployment.graph, deployment.knobs.batch_size
    ports = deployment.source.carried(graph, cut, batch_size)
    others = ports if graph.fixed_batch else deployment.source.carried(graph, cut, 1 if batch_size > 1 else 2)
    pairs = zip(ports, others, strict=True)
    return tuple(
        ModelPort(port.name, port.shape, port.dtype, _batch_axis(port, other), port.data_dependent)
        for port, other in pairs
    )


def _batch_axis(port: Port, other: Port) -> int | None:
    """The axis in which the shapes at two batch sizes differ; bounds of lengths are no shapes."""
    axes = (axis for axis, (a, b) in enumerate(zip(port.shape, other.shape, strict=True)) if a != b)
    return None if port.data_dependent else next(axes, None)


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Run the program, and compare with the whole model as one stage.

    All micro-batches are small: larger ones would take many minutes and show the same. Where those of the plan are
    large, its files run one, whose first samples are compared.
    """
    with temporary_folder(TEMPORARY) as temporary:
        small = _small(deployment, temporary / "small")
        checked, files = (deployment, folder) if small is None else (small, temporary / "small")
        n_devices = max(stage.n_replicas for plan in deployment.plan.plans for stage in plan.stages)
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
    if any(port.batch_axis is None for cut in (0, len(deployment.graph)) for port in model_ports(deployment, cut)):
        return None
    small = replace(deployment, knobs=replace(deployment.knobs, batch_size=batch_size))
    folder.mkdir()
    try:
        write(small, folder)
    except BadInput:  # the model runs at some sizes only
        return None
    return small


def _check_stages(deployment: Deployment, folder: Path, temporary: Path, n: int) -> Iterator[Check]:
    """Run n micro-batches, and compare with the whole model."""
    n, inputs = examples(deployment, n)
    expected = _whole_outputs(deployment, inputs, temporary)
    try:
        outputs = _run(folder, inputs, temporary)
    except BadInput as error:
        yield Check(f"{RUNNER} runs all stages", False, str(error))
        return
    yield from compared(outputs, expected, n, _precision(deployment))


def _check_first_samples(deployment: Deployment, small: Deployment, folder: Path, temporary: Path) -> Iterator[Check]:
    """Run a micro-batch of the plan, and compare its first samples with what the whole model computes of them."""
    sizes = small.knobs.batch_size, deployment.knobs.batch_size
    _, inputs = examples(deployment, 1)
    of_inputs, of_outputs = (model_ports(deployment, cut) for cut in (0, len(deployment.graph)))
    expected = _whole_outputs(small, _first_samples(inputs, of_inputs, *sizes), temporary)
    try:
        outputs = _first_samples(_run(folder, inputs, temporary), of_outputs, *sizes)
    except BadInput as error:
        yield Check(f"{RUNNER} runs a micro-batch of {sizes[1]} samples", False, str(error))
        return
    for what, passed, detail in compared(outputs, expected, 1, _precision(deployment)):
        shown = detail.replace("1 micro-batch differs", f"the first {sizes[0]} samples of {sizes[1]} differ")
        yield Check(f"{what}, at the batch size of the plan", passed, shown)


def _first_samples(
    arrays: Mapping[str, Array], ports: Sequence[ModelPort], n_samples: int, batch_size: int
) -> dict[str, Array]:
    """The first samples of a micro-batch, whose tensors all have an axis of samples."""
    axes = {port.name: port.batch_axis for port in ports}
    return {
        name: array.take(range(array.shape[axis] * n_samples // batch_size), axis)
        for name, array in arrays.items()
        if (axis := axes.get(name)) is not None
    }


def _whole_outputs(deployment: Deployment, inputs: dict[str, Array], temporary: Path) -> dict[str, Array]:
    """What the whole model as one stage computes."""
    folder = temporary / f"whole-{deployment.knobs.batch_size}"
    if not folder.exists():
        folder.mkdir()
        write(_whole(deployment), folder)
    return _run(folder, inputs, temporary)


def _check_independence(
    deployment: Deployment, run: Callable[[dict[str, Array]], dict[str, Array]]
) -> Generator[Check, None, bool]:
    """Whether requests may share micro-batches, where every tensor has an axis of samples; returns it, too."""
    inputs, outputs = (
        [BatchTensor(port.name, port.shape, port.dtype, port.batch_axis) for port in model_ports(deployment, cut)]
        for cut in (0, len(deployment.graph))
    )
    batch_size = deployment.knobs.batch_size
    if batch_size == 1 or not inputs or any(tensor.axis is None for tensor in (*inputs, *outputs)):
        return False
    given = deployment.inputs([Port(*tensor[:3]) for tensor in inputs]) if deployment.inputs else None
    probe = SampleProbe(inputs, outputs, batch_size, _precision(deployment), given)
    reason = dependence(probe, run)
    detail = "one micro-batch ran with other samples in the other places, and no row changed"
    if reason is not None:
        detail = f"a request to a server must hold all samples of a micro-batch, because {reason}"
    yield Check("no request gets numbers of another", True, detail)
    return reason is None


def examples(deployment: Deployment, n: int) -> tuple[int, dict[str, Array]]:
    """Inputs of n micro-batches, given or made up, or of one where the program takes no more; how many they are."""
    rng, ports = np.random.default_rng(0), model_ports(deployment, 0)
    is_alone = any(port.data_dependent for port in model_ports(deployment, len(deployment.graph)))
    n = 1 if is_alone or all(port.batch_axis is None for port in ports) else n
    long = [Port(port.name, _shape(port, n), port.dtype) for port in ports]
    return n, dict(deployment.inputs(long)) if deployment.inputs else made_up(long, rng)


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


def _whole(deployment: Deployment) -> Deployment:
    """The whole model as one stage."""
    stage = replace(deployment.plan.stages[0], layers=LayerRange(0, len(deployment.graph)), n_replicas=1)
    plan = replace(deployment.plan, stages=(stage,), other_plans=(), placement=())
    return replace(deployment, plan=plan, knobs=replace(deployment.knobs, n_ipu=1, replicas=1))


def _shape(port: ModelPort, n: int) -> tuple[int, ...]:
    """The shape of n micro-batches."""
    return tuple(size * n if axis == port.batch_axis else size for axis, size in enumerate(port.shape))


def made_up(ports: Sequence[Port], rng: np.random.Generator) -> dict[str, Array]:
    """Inputs that a model takes, by name."""
    lengths = lengths_of(ports)
    return {
        port.name: np.full(port.shape, lengths[port.name], port.dtype) if port.name in lengths else _made_up(port, rng)
        for port in ports
    }


def _made_up(port: Port, rng: np.random.Generator) -> Array:
    """Noise for floats, 0 and 1 for integers (valid indices), true for masks."""
    kind = np.dtype(port.dtype).kind
    if kind == "f":
        return rng.standard_normal(port.shape).astype(port.dtype)
    return np.ones(port.shape, port.dtype) if kind == "b" else rng.integers(0, 2, port.shape).astype(port.dtype)


def _run(artifact: Path, inputs: dict[str, Array], temporary: Path) -> dict[str, Array]:
    """What the program of an artifact computes, in a process of its own as a user would run it.

    Raises:
        MissingExtra: ONNX Runtime is not installed.
        BadInput: the program fails.
    """
    runtime()
    files = [str(temporary / "inputs.npz"), str(temporary / "outputs.npz")]
    save(files[0], inputs)
    command = [sys.executable, str(artifact / RUNNER), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"its runtime must run every stage, got: {done.stderr.strip().splitlines()[-1]}")
    with np.load(files[1]) as outputs:
        return dict(outputs)


def runtime() -> ModuleType:
    """ONNX Runtime.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module("onnxruntime")
    except ImportError as error:
        raise missing_extra("--check", "host") from error


def run_file(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a model file in ONNX Runtime on the CPU of this machine; inputs that it lacks are ignored.

    Raises:
        MissingExtra: ONNX Runtime is not installed.
        BadInput: it cannot run the file.
    """
    onnxruntime = runtime()
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        outputs = session.run(None, {entry.name: inputs[entry.name] for entry in session.get_inputs()})
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise BadInput(f"ONNX Runtime must run {path.name}, got: {first_line(error)}") from error
    return {entry.name: array for entry, array in zip(session.get_outputs(), outputs, strict=True)}


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
