"""Any range of layers measured in a process of this machine: `HostTarget`."""

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
from autoauto.targets.host.measure.worker import Reading
from autoauto.targets.host.run.run import least_disturbed, run_plan

VERSION = "host-7"
SESSION = f"{RUNTIME}_session"
"""What a session holds whatever it computes: once on a device."""


class HostTarget(AbstractContextManager["HostTarget"]):
    """Devices that are processes of this machine with ONNX Runtime; the precision is that of the model's file.

    Attributes:
        readings: what has been measured since the beginning, with its spread.

    Args:
        source: where layers are cut from.
        cores_per_device: cores, hence threads, of one device.
    """

    def __init__(self, source: Source, cores_per_device: int = 1) -> None:
        self._source, self._cores_per_device = source, cores_per_device
        self._meter: Meter | None = None
        self.readings: list[Reading] = []

    @property
    def version(self) -> str:
        """Changes whenever equal input may take another time.

        Raises:
            MissingExtra: ONNX Runtime is not installed.
        """
        cores = f"{self._cores_per_device} cores per device"
        return f"{VERSION}, ONNX Runtime {onnxruntime().__version__}, {identity()}, {cores}"

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """Powers of two: what lies between is on the line."""
        high = 1 << (batch_size - 1).bit_length()
        return (high,) if high == batch_size else (high // 2, high)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """The batch size: memory limits and proportions are for the run alone."""
        return options.batch_size

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Measure `layers` of `graph` as a model of their own; 1 cycle is 1 ns.

        Temporary memory is what a run holds besides what stays. A layer alone counts with its inputs and outputs, which
        lie in the device's memory when it has neighbours; those of a range lie in its links.

        Raises:
            MissingExtra: ONNX Runtime is not installed.
            UnreadableModel: the model cannot be cut there.
            BadInput: ONNX Runtime does not run the layers.
            WorkerLost: they end every process that runs them.
        """
        onnxruntime()
        part = self._source.cut(graph, layers, options.batch_size)
        reading = self._open_meter().measure(part, layers)
        self.readings.append(reading)
        names = [layer.name for layer in graph.layers[slice(*layers)]]
        alive_bytes = sum(port.n_bytes for port in (*part.inputs, *part.outputs)) if len(names) == 1 else 0
        name = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        step = ProgramStep(name, round(reading.times.core_ns * CLOCK_HZ / 1e9), reading.peak_bytes + alive_bytes)
        parameter_bytes = max(reading.parameter_bytes, _weight_bytes(graph, layers, options))
        return CompiledRange((step,), 0, {SESSION: reading.session_bytes}, {PARAMETER: parameter_bytes})

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Run:
        """Run `plan` in `replicas` pipelines side by side, a process a stage, until all are steady.

        A run that other processes disturb is repeated, twice at most.

        Raises:
            MissingExtra: ONNX Runtime is not installed.
            OutOfMemory: a stage exceeds in its process the part `memory_proportion` of its device's memory.
            WorkerLost: a process was killed.
        """
        onnxruntime()
        self.close()  # the meter's memory and its core are for the stages now
        how = (options, self._cores_per_device, replicas)
        return least_disturbed(lambda: run_plan(self._source, graph, plan, cluster, *how))

    def run_undivided(self, graph: LayerGraph, cluster: Cluster, options: CompileOptions) -> Run:
        """Run the whole model in one session with the cores and the memory of all devices of `cluster`.

        Raises:
            MissingExtra: ONNX Runtime is not installed.
            OutOfMemory: it exceeds that memory.
            WorkerLost: its process was killed.
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
        """End the process that measures; the next measurement starts another."""
        if self._meter is not None:
            self._meter.__exit__()
            self._meter = None

    def __exit__(self, *_: object) -> None:
        self.close()


def _weight_bytes(graph: LayerGraph, layers: LayerRange, options: CompileOptions) -> int:
    """The least that parameters can take: small ones find room in pages that the process has already."""
    used = {index for layer in graph.layers[slice(*layers)] for index in layer.weights}
    return sum(graph.tensors[index].n_bytes(1, options.precision) for index in used)
