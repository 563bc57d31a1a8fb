"""This machine as a target, `HostTarget`: measures layers and runs plans, in processes with ONNX Runtime."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from autoauto.records.hardware import Cluster, Device
from autoauto.records.layers import LayerGraph, LayerRange, Source
from autoauto.records.plan import Plan, Stage
from autoauto.records.profile import PARAMETER, CompiledRange, CompileOptions, ProgramStep
from autoauto.records.timeline import Run
from autoauto.targets.host.machine.machine import CLOCK_HZ, cores_of, identity
from autoauto.targets.host.measure.client import Meter
from autoauto.targets.host.measure.session import RUNTIME, onnxruntime
from autoauto.targets.host.measure.worker import Measurement
from autoauto.targets.host.run.run import repeat_until_undisturbed, run_plan

VERSION = "host-7"
SESSION = f"{RUNTIME}_session"
"""The name of the memory that the first session of a process takes for any model: counted once a device."""


class HostTarget(AbstractContextManager["HostTarget"]):
    """Devices that are processes of this machine with ONNX Runtime; the precision is that of the model's file.

    Attributes:
        measurements: all measurements so far, in order.

    Args:
        source: cuts sub-models out of the model.
        cores_per_device: cores of one device, and threads of its session.
    """

    def __init__(self, source: Source, cores_per_device: int = 1) -> None:
        self._source, self._cores_per_device = source, cores_per_device
        self._meter: Meter | None = None
        self.measurements: list[Measurement] = []

    @property
    def version(self) -> str:
        """Names all that measured times depend on besides the model; profiles are cached under it.

        Raises:
            MissingExtra: ONNX Runtime is not installed.
        """
        cores = f"{self._cores_per_device} cores per device"
        return f"{VERSION}, ONNX Runtime {onnxruntime().__version__}, {identity()}, {cores}"

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """Powers of two around `batch_size`; times and memory in between are interpolated."""
        high = 1 << (batch_size - 1).bit_length()
        return (high,) if high == batch_size else (high // 2, high)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """The batch size only: memory limits and proportions matter when a plan runs, not when layers are measured."""
        return options.batch_size

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Measure `layers` of `graph` as a separate model; 1 cycle is 1 ns.

        Temporary memory is the peak of a run beyond parameters. For a single layer its inputs and outputs are added,
        because they lie in the device's memory when the layer has neighbours there. Inputs and outputs of a longer
        range lie in the rings between devices and do not count.

        Raises:
            MissingExtra: ONNX Runtime is not installed.
            UnreadableModel: the model cannot be cut there.
            BadInput: ONNX Runtime cannot run the layers.
            WorkerLost: the layers crash the process that runs them.
        """
        onnxruntime()
        sub_model = self._source.cut(graph, layers, options.batch_size)
        measurement = self._open_meter().measure(sub_model, layers)
        self.measurements.append(measurement)
        names = [layer.name for layer in graph.layers[slice(*layers)]]
        alive_bytes = sum(port.n_bytes for port in (*sub_model.inputs, *sub_model.outputs)) if len(names) == 1 else 0
        name = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        step = ProgramStep(
            name, round(measurement.times.core_ns * CLOCK_HZ / 1e9), measurement.peak_bytes + alive_bytes
        )
        parameter_bytes = max(measurement.parameter_bytes, _weight_bytes(graph, layers, options))
        return CompiledRange((step,), 0, {SESSION: measurement.session_bytes}, {PARAMETER: parameter_bytes})

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Run:
        """Run `plan` in `replicas` pipelines side by side, one process a stage, until their pace is steady.

        A run that other processes disturbed is repeated, twice at most.

        Raises:
            MissingExtra: ONNX Runtime is not installed.
            OutOfMemory: a stage needs more than `memory_proportion` of its device's memory.
            WorkerLost: a process was killed.
        """
        onnxruntime()
        self.close()  # the stages need the memory and the core of the process that measures
        settings = (options, self._cores_per_device, replicas)
        return repeat_until_undisturbed(lambda: run_plan(self._source, graph, plan, cluster, *settings))

    def run_undivided(self, graph: LayerGraph, cluster: Cluster, options: CompileOptions) -> Run:
        """Run the whole model in one session with the cores and the memory of all devices of `cluster`.

        Raises:
            MissingExtra: ONNX Runtime is not installed.
            OutOfMemory: the model needs more than that memory.
            WorkerLost: the process was killed.
        """
        device = replace(cluster.devices[0], memory_bytes=sum(device.memory_bytes for device in cluster.devices))
        whole = Plan((Stage(LayerRange(0, len(graph)), 0, 0, 0, 0, 0, {}, int(device.memory_bytes)),))
        alone = HostTarget(self._source, self._cores_per_device * len(cluster))
        return alone.run(graph, whole, replace(cluster.first(1), devices=(device,)), options, 1)

    def _open_meter(self) -> Meter:
        if self._meter is None:
            self._meter = Meter(cores_of(0, self._cores_per_device), self._cores_per_device)
        return self._meter

    def close(self) -> None:
        """End the process that measures; the next measurement starts a new one."""
        if self._meter is not None:
            self._meter.__exit__()
            self._meter = None

    def __exit__(self, *_: object) -> None:
        self.close()


def _weight_bytes(graph: LayerGraph, layers: LayerRange, options: CompileOptions) -> int:
    """Size of the weights as stored, a lower bound: small ones fit into pages that the process already has."""
    weights = {index for layer in graph.layers[slice(*layers)] for index in layer.weights}
    return sum(graph.tensors[index].n_bytes(1, options.precision) for index in weights)
