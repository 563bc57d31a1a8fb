"""ONNX Runtime on the CPU: `OnnxRuntime`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from time import thread_time_ns
from typing import Any, BinaryIO

from typing_extensions import override

from autoauto.processes.folders import temporary_folder
from autoauto.records.costs.options import SessionOptions
from autoauto.records.costs.profile import NodeTime
from autoauto.records.layers import Port
from autoauto.records.units import Array, Precision
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.runtime import EffectiveOptions, LoadedModel, LoadSettings, Runtime
from autoauto.targets.host.runtimes.session import GraphOptimization
from autoauto.targets.host.transport.bounded import write

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it starts threads and writes files

import onnxruntime

_PROVIDER = "CPUExecutionProvider"
_RAN = "_kernel_time"  # behind the name of a node, in the event that it ran
_SPIN_KEY, _SPINNING = "session.intra_op.allow_spinning", {True: "1", False: "0"}
LEVELS = {
    GraphOptimization.ALL: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    GraphOptimization.EXTENDED: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    GraphOptimization.BASIC: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    GraphOptimization.OFF: onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
"""The levels of a graph's optimization by the names of the knob."""


class OnnxRuntime(Runtime):
    """ONNX Runtime with its provider for CPUs, which computes in the formats of the file."""

    title = "ONNX Runtime"

    @override
    def precisions(self) -> tuple[Precision, ...]:
        return (Precision.FP32,)

    @override
    def expected(self, options: SessionOptions) -> EffectiveOptions:
        chosen = OnnxRuntimeSession.of(options)
        words = in_words(LEVELS[chosen.graph_optimization], _SPINNING[chosen.spinning])
        return EffectiveOptions(_PROVIDER, str(options.precision), options.n_threads, words)

    @override
    def load(
        self, path: str, inputs: Sequence[Port], outputs: Sequence[Port], options: SessionOptions, wanted: LoadSettings
    ) -> LoadedModel:
        """With memory that is kept all sessions of a process share one arena, which saves up to a quarter of a run."""
        chosen = OnnxRuntimeSession.of(options)
        settings = session_settings(options.n_threads, chosen.graph_optimization)
        settings.add_session_config_entry(_SPIN_KEY, _SPINNING[chosen.spinning])
        settings.enable_cpu_mem_arena = wanted.keeps_freed
        tidy = onnxruntime.RunOptions()
        if wanted.keeps_freed:
            _make_arena()
            settings.add_session_config_entry("session.use_env_allocators", "1")
            tidy.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        if not wanted.times_nodes:
            session = onnxruntime.InferenceSession(path, settings, providers=[_PROVIDER])
            return _OnnxRuntimeModel(session, inputs, outputs, tidy)
        settings.enable_profiling = True
        with temporary_folder("autoauto-nodes-") as folder:
            settings.profile_file_prefix = f"{folder}/nodes"
            session = onnxruntime.InferenceSession(path, settings, providers=[_PROVIDER])
            # Opened here, the record outlives its folder, so that nothing is left behind.
            record = next((file.open("rb") for file in folder.iterdir()), None)
        return _OnnxRuntimeModel(session, inputs, outputs, tidy, record)


def session_settings(n_threads: int, optimization: GraphOptimization) -> Any:
    """The settings that sessions of ONNX Runtime have with every provider."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = n_threads
    settings.inter_op_num_threads = 1
    settings.graph_optimization_level = LEVELS[optimization]
    settings.log_severity_level = 4  # failures are raised, so nothing else is printed
    return settings


class _OnnxRuntimeModel(LoadedModel):
    def __init__(
        self,
        session: Any,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        tidy: Any,
        record: BinaryIO | None = None,
    ) -> None:
        self._session, self._tidy, self._record = session, tidy, record
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        self._has_bounds = any(port.data_dependent for port in outputs)

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], *, tidy: bool = False) -> None:
        binding = self._session.io_binding()
        for port in self._inputs:
            binding.bind_cpu_input(port.name, inputs[port.name])
        for port in self._outputs:
            array = outputs[port.name]
            if port.data_dependent:
                binding.bind_output(port.name, "cpu")  # the runtime allocates it
            else:
                binding.bind_output(port.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding, self._tidy if tidy else None)
        if self._has_bounds:
            for port, value in zip(self._outputs, binding.get_outputs(), strict=True):
                if port.data_dependent:
                    write(outputs[port.name], port, value.numpy())

    def cpu_time_ns(self) -> int:
        return thread_time_ns()

    def node_times(self) -> tuple[NodeTime, ...]:
        if self._record is None:
            return ()
        self._session.end_profiling()
        with self._record:
            return recorded_times(self._record.read())

    def effective_options(self) -> EffectiveOptions:
        provider, *_ = self._session.get_providers()
        settings = self._session.get_session_options()
        words = in_words(settings.graph_optimization_level, settings.get_session_config_entry(_SPIN_KEY))
        return EffectiveOptions(provider, str(Precision.FP32), settings.intra_op_num_threads, words)


def in_words(level: Any, spinning: str = "") -> str:
    """The options of a session as text, by the values that its settings have.

    >>> in_words(LEVELS[GraphOptimization.OFF], "1")
    'ORT_DISABLE_ALL, spinning 1'
    """
    return f"{level.name}, spinning {spinning}" if spinning else str(level.name)


def recorded_times(content: bytes) -> tuple[NodeTime, ...]:
    """The shortest run of every node, by the record of a session [onnxruntime-profiling].

    A disturbance makes some nodes longer, and none shorter. A broken record gives no times; the runtime breaks it where
    the name of a node has a character that JSON must escape.
    """
    try:
        events = json.loads(content)
    except ValueError:
        return ()
    runs_us: dict[str, list[float]] = {}
    for event in sorted(events, key=itemgetter("ts")):
        if event["cat"] == "Node" and event["name"].endswith(_RAN):
            runs_us.setdefault(event["name"].removesuffix(_RAN), []).append(event["dur"])
    return tuple(NodeTime((name,), min(each_us) / 1e6) for name, each_us in runs_us.items())


@cache
def _make_arena() -> None:
    """Make the arena of this process. It grows by the bytes requested; the runtime's default arena doubles."""
    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    settings = {
        "arena_extend_strategy": 1,
        "max_mem": 0,
        "initial_chunk_size_bytes": -1,
        "max_dead_bytes_per_chunk": -1,
    }
    onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(settings))


RUNTIME = OnnxRuntime
