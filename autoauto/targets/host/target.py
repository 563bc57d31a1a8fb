"""This machine as a target, `HostTarget`: it measures layers and runs plans, in processes with a runtime each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from math import gcd

from autoauto.records.costs.options import CompileOptions, DeviceSession, SessionOptions
from autoauto.records.costs.profile import PARAMETER, CompiledRange, NodeTime, ProgramStep
from autoauto.records.errors import BadInput, DoesNotFit, OutOfMemory, Unsupported, WorkerLost
from autoauto.records.hardware import Cluster, Device, Period
from autoauto.records.interval import RunEnds
from autoauto.records.layers import LayerGraph, LayerRange, Port, Source, SubModel
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Run
from autoauto.records.target import RUNS_PLANS, TargetTraits
from autoauto.records.units import Array, Precision, relative_error
from autoauto.targets.host.devices import ALIKE, HostDevices, like_gpus
from autoauto.targets.host.machine import CLOCK_HZ, excess_load, identity
from autoauto.targets.host.measure.client import Meter
from autoauto.targets.host.measure.session import RUNTIME
from autoauto.targets.host.measure.worker import Measurement
from autoauto.targets.host.remote.cluster import DaskMachines
from autoauto.targets.host.run.pipelines import cut_in_parts
from autoauto.targets.host.run.run import (
    N_ATTEMPTS,
    OpenPlan,
    OpenPlans,
    Outputs,
    copy_of,
    reference_outputs,
    repeat_until_undisturbed,
)
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.registry import (
    SESSIONS,
    check_installed,
    installed_for,
    installed_versions,
    runtime_named,
)
from autoauto.targets.host.runtimes.session import PRECISIONS, HostSession
from autoauto.targets.host.samples import InputSamples

VERSION = "host-12"
SPACE_OF_GPUS = {"channels_last": (False, True), "batch_size": tuple(1 << i for i in range(9))}
SESSION = f"{RUNTIME}_session"
"""The name of the memory that the first session of a process takes for any model: counted once a device."""


class HostTarget(AbstractContextManager["HostTarget"]):
    """Devices that are processes of this machine; `CompileOptions` say with which runtime, and in which format.

    Attributes:
        load: load of this machine when the target was opened; None where the cores sufficed for it.
        samples: inputs on which everything is measured; None where they are made up.

    Args:
        measuring_bytes: memory of a process that measures layers alone; None without a limit.
    """

    def __init__(
        self,
        source: Source,
        machines: DaskMachines | None = None,
        devices: HostDevices = ALIKE,
        samples: InputSamples | None = None,
        measuring_bytes: int | None = None,
    ) -> None:
        self._source, self._machines, self._devices = source, machines, devices
        self._measuring_bytes = measuring_bytes
        self.samples = samples
        self.load = excess_load() if machines is None else None
        self.measures_here = machines is None
        self._meter: Meter | None = None
        self._meter_key: tuple[int, SessionOptions] | None = None
        self._open = OpenPlans()
        self._references: dict[int, Outputs] = {}
        self._is_busy = self.load is not None
        self._refused: dict[object, DoesNotFit] = {}
        self.measurements: list[Measurement] = []

    @property
    def traits(self) -> TargetTraits:
        """Its devices share the caches and the memory of a machine. A search tries all runtimes that are installed.

        GPUs have one runtime. Cores are joined where all devices are cores, and alike.
        """
        space = dict(RUNS_PLANS.space)
        if self._devices.has_cores:
            runtimes = installed_for(gpus=False) or (OnnxRuntimeSession.runtime,)
        else:
            runtimes = installed_for(gpus=True) or (CudaSession.runtime,)
            space |= SPACE_OF_GPUS
        space |= {"runtime": runtimes, "precision": (Precision.FP32,)}
        return replace(
            RUNS_PLANS,
            one_at_a_time=True,
            period=Period.SERIAL,
            groups=("cores_per_device",) if self._devices == ALIKE else (),
            stage_replicas=self._machines is None,  # plans with replicas are for a line of like links
            sessions=tuple(SESSIONS[name] for name in runtimes),
            whole_first=True,
            in_seconds=True,
            space=space,
        )

    @property
    def version(self) -> str:
        """Names all that measured times depend on besides the model; profiles are cached under it.

        Raises MissingExtra without a runtime.
        """
        where = identity() if self._machines is None else self._machines.identity
        inputs = f", inputs {self.samples.digest}" if self.samples else ""
        return f"{VERSION}, {installed_versions()}, {where}{inputs}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the Dask workers of the machines, the inputs that are measured, and GPUs that are idle."""
        notes = []
        if self._machines is not None:
            notes.append(self._machines.note)
        if self.samples is not None:
            notes.append(self.samples.note)
        if self._devices == ALIKE and self._machines is None and (gpus := like_gpus()):
            notes.append(f"this machine has GPUs, which are not used; try --device {gpus}")
        if self.load is not None:
            notes.append(f"the machine had {self.load} at the start")
        return tuple(notes)

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """Powers of two around `batch_size`; times and memory in between are interpolated."""
        high = 1 << (batch_size - 1).bit_length()
        if high == batch_size:
            return (high,)
        return (high // 2, high)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """Batch size, session and kind of device: limits and proportions of memory matter only when a plan runs."""
        session = self._session(device, options)
        parts = [options.batch_size, str(session.n_threads), session.runtime, str(session.precision)]
        if self._devices != ALIKE:
            parts.append(device.name)
        if session.session != HostSession.of(session).plain:
            parts.append(repr(session.session))
        return tuple(parts)

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Measure `layers` of `graph` as a separate model; 1 cycle is 1 ns.

        Temporary memory is the peak of a run beyond parameters. For a single layer its inputs and outputs are added,
        because they lie in the device's memory when the layer has neighbours there. Inputs and outputs of a longer
        range lie in the rings between devices and do not count.

        Raises:
            MissingExtra: the runtime is not installed.
            UnreadableModel: the model cannot be cut there.
            Unsupported: the runtime does not read or run the layers, or they crash its process.
            BadInput: it does not run on such devices.
            OutOfMemory: the machine, or its GPU, has not enough memory for the layers.
            WorkerLost: another machine is lost, or its process ends.
        """
        with self._refusals(graph, layers, device, options) as what:
            sub_model, meter, given = self._meter_of(graph, layers, device, options)
            measurement = meter.measure(sub_model, layers, given, what)
        self.measurements.append(measurement)
        names = [layer.name for layer in graph.layers[slice(*layers)]]
        name = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        temporary_bytes = measurement.peak_bytes
        if len(names) == 1 and not self._session(device, options).gpu:  # the memory of a GPU includes them already
            temporary_bytes += sum(port.n_bytes for port in (*sub_model.inputs, *sub_model.outputs))
        step = ProgramStep(name, round(measurement.times.core_ns * CLOCK_HZ / 1e9), temporary_bytes)
        # Small weights fit into pages that the process already has, so their size is a lower bound.
        weights = {index for layer in graph.layers[slice(*layers)] for index in layer.weights}
        weight_bytes = sum(graph.tensors[index].n_bytes(1, options.weight_precision) for index in weights)
        parameter_bytes = max(measurement.parameter_bytes, weight_bytes)
        return CompiledRange((step,), 0, {SESSION: measurement.session_bytes}, {PARAMETER: parameter_bytes})

    def node_times(self, graph: LayerGraph, device: Device, options: CompileOptions) -> tuple[NodeTime, ...]:
        """Implements `TimesNodes`; none on GPUs: the CUDA provider computes after the calls that a session times.

        Raises as `compile`.
        """
        if self._session(device, options).gpu:
            return ()
        layers = LayerRange(0, len(graph))
        with self._refusals(graph, layers, device, options) as what:
            sub_model, meter, given = self._meter_of(graph, layers, device, options)
            return meter.node_times(sub_model, layers, given, what)

    @contextmanager
    def _refusals(
        self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions
    ) -> Iterator[str]:
        """Within the context layers are measured; the refusal of a runtime, on any number of threads, is remembered.

        Gives the name of the layers for errors.
        """
        self._check(options)
        inside, session = graph.layers[slice(*layers)], self._session(device, options)
        names = tuple(layer.name for layer in inside)
        key = names, options.batch_size, session._replace(n_threads=1, session=session.session.on_one_core)
        if key in self._refused:
            raise copy(self._refused[key])
        if len(names) == 1:
            title = f"layer {names[0]!r} ({inside[0].op})"
        elif layers == (0, len(graph)):
            title = "this model"
        else:
            title = f"layers {layers}"
        try:
            yield title
        except OutOfMemory as error:
            # Within a limit of its own no other process takes the missing memory, so it would be missing again.
            if self._measuring_bytes is not None and not session.gpu:
                self._refused[key] = error
            raise
        except (Unsupported, WorkerLost) as error:
            message = str(error)
            if isinstance(error, WorkerLost):
                if self._machines is not None:
                    raise  # it may be the machine, or the network
                message = f"{runtime_named(session.runtime).title}: {error}"
            self._refused[key] = Unsupported(message, layers)
            raise copy(self._refused[key]) from error

    def _meter_of(
        self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions
    ) -> tuple[SubModel, Meter, Mapping[str, Array]]:
        """A sub-model, the process that measures it on a device, and the inputs of the sub-model that a user gave."""
        n_parts = gcd(options.session.n_parts, options.batch_size)  # the batch of a plan is a multiple of its streams
        sub_model = cut_in_parts(self._source, graph, layers, options.batch_size, n_parts)
        given: Mapping[str, Array] = {}
        if self.samples is not None:
            arrays = self.samples.arrays
            given = self.samples.batch([port for port in sub_model.inputs if port.name in arrays])
        return sub_model, self._open_meter(self._devices.number(device), self._session(device, options)), given

    def _session(self, device: Device, options: CompileOptions) -> SessionOptions:
        _check_session(options)
        return self._devices.session(self._devices.number(device), options)

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Run:
        """Implements `Runner`: a race without a plan to compare with."""
        return self.race(graph, plan, cluster, options, replicas, None)

    def race(
        self,
        graph: LayerGraph,
        plan: Plan,
        cluster: Cluster,
        options: CompileOptions,
        replicas: int,
        best: RunEnds | None,
    ) -> Run:
        """Run `plan` in `replicas` pipelines side by side, one process a device, until their pace is steady.

        As in `Races` a slower run ends early. A run that other processes disturbed is repeated, unless the last such
        repeat was disturbed as well: then the machine is busy, until a run is undisturbed. The processes of the last
        few plans stay, loaded, for another run of the same plan. In another format than fp32 the outputs are compared
        with the outputs in fp32, which are computed once for every batch size.

        Raises:
            Unsupported: the runtime does not read or run a stage.
            WorkerLost: a process was killed, or a machine is lost.
        """
        self._check(options)
        self._close_meter()  # the stages need the memory and the core of the process that measures
        outputs: dict[str, Array] = {}
        stages = tuple((stage.layers, stage.n_replicas) for stage in plan.stages)
        key = graph.content, stages, plan.placement, cluster, options, replicas

        make = partial(
            OpenPlan, self._source, graph, plan, cluster, options, replicas, self._machines, self._devices, self.samples
        )

        def keep(batch: Outputs) -> None:
            outputs.update(copy_of(batch))

        def attempt(worth_per_s: float) -> Run:
            if self._machines is None:
                opened = self._open.get(key, make, may_lack_memory=self._devices.has_gpus)
                return opened.measure(plan, keep, worth_per_s)
            with make() as opened:  # a plan between machines has one stream only, so it cannot stay open
                return opened.measure(plan, keep, worth_per_s)

        try:
            run = repeat_until_undisturbed(attempt, 1 if self._is_busy else N_ATTEMPTS, best, options.batch_size)
        except BaseException:
            self._open.drop(key)  # messages of a broken stream are still in its rings, and would start the next one
            raise
        self._is_busy = not (run.undisturbed or run.ended_early)
        if options.session.computes_in is Precision.FP32:
            return run
        if options.batch_size not in self._references:
            self._references[options.batch_size] = reference_outputs(
                self._source, graph, plan, options.batch_size, self.samples
            )
        expected = self._references[options.batch_size]
        errors = [relative_error(outputs[name], array) for name, array in expected.items()]
        return replace(run, output_error=max(errors, default=0.0))

    @property
    def given_inputs(self) -> Callable[[Sequence[Port]], Mapping[str, Array]] | None:
        """Implements `FileRunner`."""
        return self.samples.batch if self.samples else None

    def precisions(self) -> tuple[Precision, ...]:
        """The formats in which its devices compute with the installed runtimes; none for several machines."""
        if self._machines is not None:
            return ()
        if self._devices.has_cores and self._devices.has_gpus:
            return (Precision.FP32,)
        runtimes = map(runtime_named, installed_for(self._devices.has_gpus))
        known = {precision for runtime in runtimes for precision in runtime.precisions()}
        return tuple(precision for precision in PRECISIONS if precision in known)

    def device_sessions(self, options: CompileOptions) -> tuple[DeviceSession, ...]:
        """Implements `FileRunner`."""
        names = enumerate(self._devices.names)
        return tuple(DeviceSession(name, self._devices.session(number, options)) for number, name in names)

    def _check(self, options: CompileOptions) -> None:
        check_installed(_check_session(options).runtime)
        self._devices.check(options)

    def _open_meter(self, number: int, session: SessionOptions) -> Meter:
        if self._meter is not None and self._meter_key == (number, session):
            return self._meter
        self._close_meter()
        if self._devices.has_gpus:
            self._open.close()  # the memory of a GPU that open plans hold would be missing
        if self._machines is None:
            cores = self._devices.cores(number, session.n_threads)
            self._meter = Meter(cores, session, limit_bytes=self._measuring_bytes)
        else:
            cores = self._devices.cores(number, session.n_threads, self._machines.machines[0].facts.cores)
            self._meter = Meter(cores, session, self._machines.open_first, self._measuring_bytes)
        self._meter_key = number, session
        return self._meter

    def close(self) -> None:
        """End all processes; the next measurement starts new ones."""
        self._open.close()
        self._close_meter()

    def _close_meter(self) -> None:
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    def __reduce__(self) -> tuple[type[HostTarget], tuple[object, ...]]:
        """The target without its processes, for another process that measures."""
        return HostTarget, (self._source, self._machines, self._devices, self.samples, self._measuring_bytes)

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_session(options: CompileOptions) -> HostSession:
    """The session of options."""
    if not isinstance(options.session, HostSession):
        raise BadInput(f"the host runs a model by {', '.join(SESSIONS)}, got {options.session}; give a --runtime")
    return options.session
