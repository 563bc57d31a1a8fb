"""An exported folder as what is served: `ServedModel`, and the pipelines of its stage files: `Artifact`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from weakref import finalize

from autoauto.exporters.onnx_stages import INPUTS, ModelPort, StageFile
from autoauto.records.costs.options import SessionOptions
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph, LayerRange, Port, SubModel
from autoauto.records.target import Origin
from autoauto.records.units import Array
from autoauto.serve.pipeline_file import ports_of, read_pipeline_file
from autoauto.serve.protocol import ServedTensor
from autoauto.targets.host.devices import HostDevices
from autoauto.targets.host.machine import cores
from autoauto.targets.host.run.independence import ROUNDING, BatchTensor, SampleProbe
from autoauto.targets.host.run.pipelines import Pipelines
from autoauto.targets.host.run.stage import StageResources
from autoauto.targets.host.samples import read_samples


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model with its configuration, as it is served.

    Attributes:
        period_s: between two finished micro-batches of one pipeline, by the plan.
        samples_per_s: of all pipelines, by the plan.
        origin: of the two numbers.
    """

    name: str
    batch_size: int
    inputs: tuple[ServedTensor, ...]
    outputs: tuple[ServedTensor, ...]
    n_pipelines: int
    n_processes: int
    period_s: float
    samples_per_s: float
    origin: Origin

    @property
    def merges(self) -> bool:
        """True if samples of several requests may share a micro-batch: every tensor has an axis of samples.

        Where one has none, a tensor may depend on all samples at once, so a request is exactly one micro-batch.
        """
        return all(port.batch_axis is not None for port in (*self.inputs, *self.outputs))

    @property
    def sample_bytes(self) -> int:
        """Bytes of the inputs of one sample."""
        return sum(port.sample_bytes for port in self.inputs)

    @property
    def answer_bytes(self) -> int:
        """Bytes of the outputs of one sample."""
        return sum(port.sample_bytes for port in self.outputs)

    def metadata(self, version: str) -> dict[str, Any]:
        """Name, tensors and properties as the protocol has them."""
        properties = {
            "batch_size": str(self.batch_size),
            "n_processes": str(self.n_pipelines * self.n_processes),
            "plan_samples_per_s": f"{self.samples_per_s:.6g}",
            "plan_origin": str(self.origin),
        }
        return {
            "name": self.name,
            "versions": [version],
            "platform": "onnxruntime_onnx",
            "inputs": [port.metadata for port in self.inputs],
            "outputs": [port.metadata for port in self.outputs],
            "properties": properties,
        }


class Artifact:
    """A folder that `autoauto export --to onnx` wrote for a plan on this machine; it may be deleted meanwhile.

    Raises:
        BadInput: it is no such folder, or this machine cannot run what it says.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = read_pipeline_file(folder)
        if len(self._file.pipelines) != 1:
            raise BadInput(f"replicas that are served must be alike, {folder} has {len(self._file.pipelines)} plans")
        [self._pipeline] = self._file.pipelines
        try:
            self._host_devices = HostDevices.listed(self._file.devices)
        except BadInput as error:
            raise BadInput(f"{folder} is for {', '.join(self._file.devices)}: {error}") from error
        self._placed = self._placed_stages()
        self._check_machine()
        self._descriptors = {LayerRange(*stage.layers): self._open(stage) for stage in self._pipeline.stages}
        self._given = self._read_inputs()
        batch_size = self._file.batch_size
        self.model = ServedModel(
            name=self._file.model,
            batch_size=batch_size,
            inputs=_served(self._file.inputs, batch_size),
            outputs=_served(self._file.outputs, batch_size),
            n_pipelines=self._pipeline.n_replicas,
            n_processes=sum(stage.n_replicas for stage in self._pipeline.stages),
            period_s=self._pipeline.period_s,
            samples_per_s=self._file.samples_per_s,
            origin=self._file.origin,
        )

    def pipelines(self) -> Pipelines:
        """The pipelines of the artifact, whose processes start when the context is entered."""
        stages = [LayerRange(*stage.layers) for stage in self._pipeline.stages]
        return Pipelines(
            LayerGraph(self._file.model, (), (), None, ""),
            _StageFiles(self._descriptors, self._file.inputs, self._pipeline.stages),
            stages,
            self._file.batch_size,
            self._resources(),
            [stage.n_replicas for stage in self._pipeline.stages],
            serves=True,
            given=self._given,
        )

    def probe(self) -> SampleProbe | None:
        """A probe of whether samples depend on each other; None where no requests share a micro-batch anyway."""
        model = self.model
        if model.batch_size == 1 or not model.merges or not model.inputs:
            return None
        inputs, outputs = _batch_tensors(model.inputs), _batch_tensors(model.outputs)
        coarsest = max((stage.precision for stage in self._pipeline.stages), key=lambda precision: ROUNDING[precision])
        return SampleProbe(inputs, outputs, model.batch_size, coarsest, self._given)

    def _resources(self) -> list[list[StageResources]]:
        devices = self._host_devices
        resources = []
        for placed in self._placed:
            of_pipeline = []
            for number, stage in placed:
                session = SessionOptions(stage.intra_op_threads, stage.session, devices.gpu(number))
                stage_cores = devices.cores(number, stage.intra_op_threads)
                of_pipeline.append(StageResources(stage_cores, session, stage.limit_bytes))
            resources.append(of_pipeline)
        return resources

    def _placed_stages(self) -> list[list[tuple[int, StageFile]]]:
        """The number of every device with its stage, by pipeline: by the plan, or else one after the other."""
        stages: list[StageFile] = []
        for stage in self._pipeline.stages:
            stages += [stage] * stage.n_replicas
        placed = []
        for replica in range(self._pipeline.n_replicas):
            if self._pipeline.placement:
                numbers = [number for _, number in self._pipeline.placement[replica]]
            else:
                numbers = list(range(replica * len(stages), (replica + 1) * len(stages)))
            placed.append(list(zip(numbers, stages, strict=True)))
        return placed

    def _check_machine(self) -> None:
        threads = {stage.intra_op_threads for stage in self._pipeline.stages}
        if 0 in threads:  # a plan for no cores of this machine, whose runtime chooses
            raise BadInput(
                f"a plan of processes of this machine can be served, {self._folder} has one for {self._file.cluster}; "
                "try one with --target host"
            )
        machines = {machine for machine, _ in chain.from_iterable(self._pipeline.placement)}
        if max(machines, default=0) > 0:
            n_machines = 1 + max(machines)
            raise BadInput(
                f"a plan of processes of one machine can be served, {self._folder} has one for {n_machines}; "
                "search without --dask"
            )
        numbered = list(chain.from_iterable(self._placed))
        if self._file.devices and max(number for number, _ in numbered) >= len(self._file.devices):
            raise BadInput(f"{self._folder} must name all its devices, got {', '.join(self._file.devices)}")
        n_cores = max(self._host_devices.n_cores_through(number, stage.intra_op_threads) for number, stage in numbered)
        if n_cores > len(cores()):
            raise BadInput(
                f"{self._folder} needs {n_cores} cores, this process may use {len(cores())}; search again here"
            )

    def _read_inputs(self) -> Mapping[str, Array] | None:
        path = self._folder / INPUTS
        if not path.exists():
            return None
        ports = _as_ports(self._file.inputs)
        axes = {port.name: port.batch_axis for port in self._file.inputs}
        return read_samples(str(path), self._file.model, ports, axes).batch(ports)

    def _open(self, stage: StageFile) -> int:
        """The descriptor of the file of a stage, which is open as long as this object lives."""
        if (self._folder / f"{stage.file}.data").exists():
            raise BadInput(f"a stage that is served must lie in one file, {stage.file} has its weights beside it")
        try:
            descriptor = os.open(self._folder / stage.file, os.O_RDONLY)
        except OSError as error:
            raise BadInput(
                f"{self._folder} must have all its files, {stage.file} is missing: {error.strerror}; export it again"
            ) from error
        finalize(self, os.close, descriptor)
        return descriptor


def _batch_tensors(ports: Sequence[ServedTensor]) -> list[BatchTensor]:
    return [BatchTensor(port.name, port.shape, port.dtype, port.batch_axis) for port in ports]


def _served(ports: Sequence[ModelPort], batch_size: int) -> tuple[ServedTensor, ...]:
    served = []
    for port in ports:
        served.append(ServedTensor(port.name, port.shape, port.dtype, port.batch_axis, batch_size, port.data_dependent))
    return tuple(served)


class _StageFiles:
    """The files of the stages as a `Source`, which cuts where they were cut."""

    def __init__(
        self, descriptors: Mapping[LayerRange, int], inputs: Sequence[ModelPort], stages: Sequence[StageFile]
    ) -> None:
        self._descriptors = descriptors
        self._stages = {LayerRange(*stage.layers): stage for stage in stages}
        self._messages = {0: _as_ports(inputs)}  # by the layer before which they pass
        ports = {port.name: port for port in self._messages[0]}
        for layers, stage in self._stages.items():
            ports |= {port.name: port for port in ports_of(stage.outputs)}
            self._messages[layers.stop] = tuple(ports[name] for name in stage.sends)

    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        stage = self._stages[layers]
        with open(f"/proc/self/fd/{self._descriptors[layers]}", "rb") as file:
            return SubModel(file.read(), ports_of(stage.inputs), ports_of(stage.outputs))

    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> tuple[Port, ...]:
        return self._messages[cut]


def _as_ports(ports: Sequence[ModelPort]) -> tuple[Port, ...]:
    return tuple(Port(port.name, port.shape, port.dtype, port.data_dependent) for port in ports)
