"""OpenVINO on the CPU: `OpenVino`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from threading import get_native_id
from time import clock_gettime_ns
from typing import Any

import openvino
from typing_extensions import override

from autoauto.processes.signals import same_signal_stack
from autoauto.records.costs.options import SessionOptions
from autoauto.records.costs.profile import NodeTime
from autoauto.records.errors import BadInput
from autoauto.records.layers import Port
from autoauto.records.units import Array, Precision
from autoauto.targets.host.memory_budget import shared_array
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.runtimes.runtime import EffectiveOptions, LoadedModel, LoadSettings, Runtime
from autoauto.targets.host.transport.bounded import write

_DEVICE = "CPU"
STACK_BYTES = 1 << 20
"""Size of the stacks of the runtime's threads, most of which are idle."""
_HINTS = {
    Precision.FP32: openvino.Type.f32,
    Precision.BF16: openvino.Type.bf16,
    Precision.FP16: openvino.Type.f16,
}
_PRODUCTS = {"Convolution", "FullyConnected", "MatMul", "Deconvolution"}
"""Kinds of nodes in the runtime's graph that compute in the format that is in force."""
N_WARMING_UP = 3
"""The first runs, in which memory is taken: the times of nodes are without them."""


class OpenVino(Runtime):
    """OpenVINO's plugin for CPUs.

    By itself it computes in bf16 on a CPU with instructions for that, whatever the file says. So the format is
    always set, and read back from the compiled model and from the graph that it runs [openvino-precision].
    """

    title = "OpenVINO"

    def __init__(self) -> None:
        self._core = openvino.Core()

    @override
    def precisions(self) -> tuple[Precision, ...]:
        capabilities = {str(word).lower() for word in self._core.get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES")}
        return tuple(precision for precision in _HINTS if str(precision) in capabilities)

    @override
    def expected(self, options: SessionOptions) -> EffectiveOptions:
        hint = _HINTS[options.precision].get_type_name()
        return EffectiveOptions(_DEVICE, hint, options.n_threads, _streams(OpenVinoSession.of(options).streams))

    @override
    def load(
        self, path: str, inputs: Sequence[Port], outputs: Sequence[Port], options: SessionOptions, wanted: LoadSettings
    ) -> LoadedModel:
        """It always keeps the memory of a run for the next."""
        _make_stacks_small()
        model = self._core.read_model(Path(path).read_bytes())
        settings = {
            "INFERENCE_PRECISION_HINT": _HINTS[options.precision],
            "INFERENCE_NUM_THREADS": options.n_threads,
            "NUM_STREAMS": OpenVinoSession.of(options).streams,
            "ENABLE_CPU_PINNING": False,  # the process is pinned
            "PERF_COUNT": wanted.times_nodes,
        }
        own_bf16 = any(end.element_type == openvino.Type.bf16 for node in model.get_ops() for end in node.outputs())
        with same_signal_stack():
            compiled = self._core.compile_model(model, _DEVICE, settings)
        return _OpenVinoModel(compiled, inputs, outputs, wanted.times_nodes, own_bf16)


class _OpenVinoModel(LoadedModel):
    def __init__(
        self, compiled: Any, inputs: Sequence[Port], outputs: Sequence[Port], times_nodes: bool, own_bf16: bool
    ) -> None:
        self._compiled, self._times_nodes, self._own_bf16 = compiled, times_nodes, own_bf16
        self._n_runs = 0
        self._warming_up_us: dict[str, int] = {}
        self._inputs = _by_name(compiled.inputs, inputs)
        self._outputs = _by_name(compiled.outputs, outputs)
        own = dict(self._outputs)
        self._bounded = [(port, self._outputs.pop(port.name)) for port in outputs if port.data_dependent]
        # A model of a part of a micro-batch has a request for every part, and a stream each.
        n_parts = max((_n_parts(port, own[port.name]) for port in outputs), default=1)
        self._requests = [compiled.create_infer_request() for _ in range(n_parts)]
        # Until its first run the request holds inputs and outputs of its own.
        arrays = {port.name: shared_array(port) for port in (*inputs, *outputs)}
        before = _thread_times_ns()
        self.run(arrays, arrays, tidy=True)
        # The runtime computes in threads of its own, with no interface that names them.
        took = {thread: ns - before.get(thread, 0) for thread, ns in _thread_times_ns().items()}
        self._clock = _clock(max(took, key=lambda thread: took[thread]))

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], *, tidy: bool = False) -> None:
        with ExitStack() as started:  # all have ended before a failure of one is raised
            for number, request in enumerate(self._requests):
                for ports, tensors in ((self._inputs, inputs), (self._outputs, outputs)):
                    for name, port in ports.items():
                        part = _part(tensors[name], port, number)
                        request.set_tensor(port, openvino.Tensor(part, shared_memory=True))
                # `infer` would drop the exception of a failed allocation, and leave the outputs as they are.
                request.start_async()
                started.callback(request.wait)
        for port, own in self._bounded:  # of a model in one part; the runtime has allocated them
            write(outputs[port.name], port, self._requests[0].get_tensor(own).data)
        if tidy:
            self._compiled.release_memory()
        self._n_runs += 1
        if self._times_nodes and self._n_runs == N_WARMING_UP:
            self._warming_up_us = {name: n_us for name, _, n_us in self._ran()}

    def cpu_time_ns(self) -> int:
        return clock_gettime_ns(self._clock)

    def node_times(self) -> tuple[NodeTime, ...]:
        n_runs = self._n_runs
        if self._warming_up_us:
            n_runs -= N_WARMING_UP
        times = []
        for name, originals, n_us in self._ran():
            measured_us = max(n_us - self._warming_up_us.get(name, 0), 0)
            times.append(NodeTime((name, *originals), measured_us / (1e6 * max(n_runs, 1))))
        return tuple(times)

    def _ran(self) -> Iterator[tuple[str, list[str], int]]:
        """Every node that ran: its name, those of the nodes of the file in it, and its time in all runs so far."""
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            mean_us = _text(info, "execTimeMcs")  # in microseconds, or that it did not run [openvino-counters]
            if mean_us not in ("", "not_executed"):
                yield node.friendly_name, _text(info, "originalLayersNames").split(","), self._n_runs * int(mean_us)

    def effective_options(self) -> EffectiveOptions:
        formats = set()
        for node in self._compiled.get_runtime_model().get_ops():
            info = node.get_rt_info()
            formats.add((_text(info, "layerType"), _text(info, "runtimePrecision")))
        hint = self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        products = {precision for kind, precision in formats if kind in _PRODUCTS}
        if hint == "f32":  # beside products, what the file has in f16 stays so, and what it has in bf16 everywhere
            has_bf16 = "bf16" in {precision for _, precision in formats}
            is_wrong = "f16" in products or (has_bf16 and not self._own_bf16)
        else:
            is_wrong = bool(products) and hint not in products
        if is_wrong:
            raise BadInput(
                f"OpenVINO says that it computes in {hint}, its graph has {sorted(formats)}; try another precision"
            )
        devices = ",".join(self._compiled.get_property("EXECUTION_DEVICES"))
        n_threads, n_streams = map(self._compiled.get_property, ("INFERENCE_NUM_THREADS", "NUM_STREAMS"))
        return EffectiveOptions(devices, hint, n_threads, _streams(n_streams))


def _streams(n: int) -> str:
    return "1 stream" if n == 1 else f"{n} streams"


def _text(info: Any, entry: str) -> str:
    """An entry of the information on a node of the graph that runs; empty where it has none."""
    return str(info[entry].astype(str)) if entry in info else ""


def _n_parts(port: Port, own: Any) -> int:
    """The number of parts of a tensor that each have the shape of OpenVINO's own port; 1 if it knows no shape."""
    if own.partial_shape.is_dynamic:
        return 1
    shape = tuple(own.shape)
    if not port.shape or port.shape == shape:
        return 1
    n_parts: int = port.shape[0] // shape[0]
    return n_parts


def _part(array: Array, own: Any, number: int) -> Array:
    """A part of a tensor, or all of it where every part has the same, or where OpenVINO knows no shape."""
    if own.partial_shape.is_dynamic or array.shape == tuple(own.shape):
        return array
    length: int = own.shape[0]
    return array[number * length : (number + 1) * length]


def _by_name(own: Sequence[Any], ports: Sequence[Port]) -> dict[str, Any]:
    """OpenVINO's inputs, or outputs, of ports; where it has dropped a node, its tensors have lost a name."""
    named = {name: port for port in own for name in port.get_names()}
    return {port.name: named.get(port.name, other) for port, other in zip(ports, own, strict=False)}


def _thread_times_ns() -> dict[int, int]:
    """The CPU time of every other thread of this process."""
    times_ns = {}
    for path in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            times_ns[int(path.name)] = clock_gettime_ns(_clock(int(path.name)))
    del times_ns[get_native_id()]
    return times_ns


def _clock(thread: int) -> int:
    """The clock of a thread's CPU time, as the kernel numbers it (linux/posix-timers.h)."""
    return (~thread << 3) | 6


@cache
def _make_stacks_small() -> None:
    """Let threads that start from now on have small stacks.

    Every session has two idle threads, and the memory of a process counts their stacks, by default 8 MiB each.
    """
    library = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(256)  # pthread_attr_t has 56 bytes
    library.pthread_getattr_default_np(attributes)
    library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(STACK_BYTES))
    library.pthread_setattr_default_np(attributes)


RUNTIME = OpenVino
