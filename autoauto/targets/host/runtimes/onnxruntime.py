"""ONNX Runtime on the processor: `OnnxRuntime`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from time import thread_time_ns
from typing import Any

from autoauto.records.arrays import Array
from autoauto.records.layers import Port
from autoauto.records.profile import HostPrecision, SessionOptions
from autoauto.targets.host.runtimes.protocol import InForce, LoadedModel, ModelMemory, Runtime

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it starts threads and writes files

import onnxruntime

_PROVIDER = "CPUExecutionProvider"


class OnnxRuntime(Runtime):
    """ONNX Runtime with its provider for processors, which computes in the formats of the file."""

    title = "ONNX Runtime"

    def precisions(self) -> tuple[HostPrecision, ...]:
        """See `Runtime`."""
        return (HostPrecision.FP32,)

    def expected(self, options: SessionOptions) -> InForce:
        """See `Runtime`."""
        return InForce(_PROVIDER, str(options.precision), options.n_threads)

    def load(
        self, path: str, inputs: Sequence[Port], outputs: Sequence[Port], options: SessionOptions, memory: ModelMemory
    ) -> LoadedModel:
        """See `Runtime`.

        With memory that is kept all sessions of a process share one arena, which saves up to a quarter of a run.
        """
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.n_threads
        settings.inter_op_num_threads = 1
        settings.enable_cpu_mem_arena = memory.keeps_freed
        settings.log_severity_level = 4
        tidy = onnxruntime.RunOptions()
        if memory.keeps_freed:
            _make_arena()
            settings.add_session_config_entry("session.use_env_allocators", "1")
            tidy.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        session = onnxruntime.InferenceSession(path, settings, providers=[_PROVIDER])
        return _OnnxRuntimeModel(session, inputs, outputs, tidy)


class _OnnxRuntimeModel(LoadedModel):
    def __init__(self, session: Any, inputs: Sequence[Port], outputs: Sequence[Port], tidy: Any) -> None:
        self._session, self._tidy = session, tidy
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], *, tidy: bool = False) -> None:
        binding = self._session.io_binding()
        for port in self._inputs:
            binding.bind_cpu_input(port.name, inputs[port.name])
        for port in self._outputs:
            array = outputs[port.name]
            binding.bind_output(port.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding, self._tidy if tidy else None)

    def cpu_time_ns(self) -> int:
        return thread_time_ns()

    def in_force(self) -> InForce:
        provider, *_ = self._session.get_providers()
        n_threads = self._session.get_session_options().intra_op_num_threads
        return InForce(provider, str(HostPrecision.FP32), n_threads)


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
