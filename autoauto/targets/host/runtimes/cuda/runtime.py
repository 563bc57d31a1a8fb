"""ONNX Runtime on a GPU of NVIDIA: `CudaRuntime` [onnxruntime-cuda]."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from time import perf_counter_ns
from typing import Any
from weakref import finalize

import numpy as np
from typing_extensions import override

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it starts threads and writes files

import onnxruntime

from autoauto.records.costs.options import SessionOptions
from autoauto.records.errors import BadInput
from autoauto.records.installation import cache_dir
from autoauto.records.layers import Port
from autoauto.records.units import Array, Precision
from autoauto.targets.host.gpu.driver import CudaDriver, cuda_driver
from autoauto.targets.host.gpu.gpus import gpus, used_bytes
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.onnxruntime.runtime import LEVELS, in_words, session_settings
from autoauto.targets.host.runtimes.runtime import EffectiveOptions, LoadedModel, LoadSettings, Runtime
from autoauto.targets.host.transport.bounded import write

_PROVIDER, _KIND = "CUDAExecutionProvider", "cuda"
_GRAPH, _CHANNELS_LAST = "enable_cuda_graph", "prefer_nhwc"
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_OUT_OF_MEMORY = re.compile(
    r"Failed to allocate memory for requested buffer"  # the device has no more (onnxruntime#9939, #20038)
    r"|Available memory of \d+ is smaller than requested bytes"  # the arena has reached its limit (onnxruntime#23121)
    r"|CUDA failure 2: out of memory"  # cudaErrorMemoryAllocation
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    r"|out of memory \(2\)"  # CUDA_ERROR_OUT_OF_MEMORY, of the driver
)
"""Messages of the runtime and of the libraries under it for a failed allocation; they have no class for that."""
_NOT_RECORDABLE = re.compile(
    r"cannot use the graph capture feature"  # of loops and conditions (onnxruntime#15005)
    r"|CUDA failure 90\d: "  # cudaErrorStreamCapture...: a kernel waits for the CPU
)
"""Messages of the runtime for a model that it cannot record as a CUDA graph."""


class CudaRuntime(Runtime):
    """ONNX Runtime with its provider for CUDA, which computes in the formats of the file, in tf32 or in fp16.

    Every process sees one GPU only. Nothing falls back to the CPU: a node that the provider has no kernel for
    makes loading fail (`session.disable_cpu_ep_fallback`), and the provider and its options are read back. tf32, which
    the provider uses by itself, is off in fp32. For fp16 the graph is converted before it is loaded. Weights, tensors
    and workspaces come from one arena, whose limit is the budget; it grows by what is requested, and keeps what it has,
    so what is held after a run is the peak of the run.
    """

    title = "ONNX Runtime with CUDA"
    limits_process = False

    def __init__(self) -> None:
        self._gpu, self._others_bytes = "", 0

    @override
    def precisions(self) -> tuple[Precision, ...]:
        here = gpus()
        if not here:
            return ()
        known = [Precision.FP32]
        if all(gpu.has_tf32 for gpu in here):
            known.append(Precision.TF32)
        if all(gpu.has_fp16 for gpu in here):
            known.append(Precision.FP16)
        return tuple(known)

    @override
    def expected(self, options: SessionOptions) -> EffectiveOptions:
        chosen = CudaSession.of(options)
        words = _in_words(LEVELS[chosen.graph_optimization], _provider_options(options, None))
        return EffectiveOptions(_PROVIDER, str(options.precision), options.n_threads, words)

    @override
    def load(
        self, path: str, inputs: Sequence[Port], outputs: Sequence[Port], options: SessionOptions, wanted: LoadSettings
    ) -> LoadedModel:
        """It always keeps the memory of a run for the next; raises BadInput without CUDA."""
        onnxruntime.set_default_logger_severity(4)  # what fails is raised
        if _PROVIDER not in onnxruntime.get_available_providers():
            raise BadInput(
                "the installed onnxruntime has no provider for CUDA, perhaps because onnxruntime was installed over "
                "onnxruntime-gpu; uninstall both, and install onnxruntime-gpu"
            )
        driver = self._driver_of(options.gpu)
        with redirect_stdout(StringIO()):  # it prints which libraries it does not find
            onnxruntime.preload_dlls()  # CUDA and cuDNN from their packages
        providers = [(_PROVIDER, _provider_options(options, wanted.limit_bytes))]
        model: str | bytes = path
        of_weights = Precision.FP32
        if options.precision is Precision.FP16:
            model, of_weights = converted_to_fp16(path)
        with recordable():
            session = onnxruntime.InferenceSession(model, _settings(options), providers=providers)
        return CudaModel(session, inputs, outputs, driver, _KIND, of_weights)

    @override
    def is_memory_error(self, error: Exception) -> bool:
        return is_out_of_memory(error)

    @contextmanager
    @override
    def exclusively(self, options: SessionOptions) -> Iterator[None]:
        """A lock on a file, since a GPU does not tell in a container which process holds what; raises BadInput."""
        path = cache_dir() / f"{options.gpu}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w", encoding="ascii")
        except OSError as error:
            raise BadInput(
                f"processes on GPUs lock a file, {path}: {error.strerror}; try AUTOAUTO_CACHE_DIR"
            ) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @override
    def held_bytes(self) -> int:
        """Memory of the GPU that all processes hold, less what they held before this process used it."""
        if not self._gpu:
            return 0
        free_bytes, total_bytes = cuda_driver().memory()
        return max(total_bytes - free_bytes - self._others_bytes, 0)

    @override
    def rise_bytes(self, run: Callable[[], None]) -> int:
        """The arena keeps what a run has taken."""
        before = self.held_bytes()
        run()
        return max(self.held_bytes() - before, 0)

    @override
    def pin(self, memories: Iterable[memoryview]) -> None:
        """Pin memory if the system allows it; otherwise copies are slower, as measured for the links."""
        with suppress(BadInput):
            for memory in memories:
                cuda_driver().pin(memory)

    def _driver_of(self, gpu: str) -> CudaDriver:
        """The driver; this process sees the GPU only, as number 0. Nothing here may have used CUDA before."""
        if not gpu:
            raise BadInput(f"{self.title} computes on a GPU, got none; name one with --device cuda:0")
        if self._gpu not in ("", gpu):
            raise BadInput(f"a process has one GPU, this one has {self._gpu}, got {gpu}; use another process")
        if not self._gpu:
            self._others_bytes = used_bytes(gpu)
            os.environ["CUDA_VISIBLE_DEVICES"] = self._gpu = gpu
        return cuda_driver()


def is_out_of_memory(error: Exception) -> bool:
    """True if an exception means that an allocation on a GPU failed."""
    return isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)) is not None


@contextmanager
def recordable() -> Iterator[None]:
    """Say what to try where the runtime cannot record a model as a CUDA graph; raises BadInput."""
    try:
        yield
    except Exception as error:
        if not _NOT_RECORDABLE.search(str(error)):
            raise
        raise BadInput(
            "no CUDA graph holds some operators of the model, such as loops; try GPUs alone, with --cuda-graph off"
        ) from error


def converted_to_fp16(path: str) -> tuple[bytes, Precision]:
    """Convert a model to fp16, but for its inputs and outputs; with it comes the format of the weights of its products.

    ONNX Runtime's own converter [onnxruntime-float16] leaves operators in fp32 that have no other format.
    """
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    converted = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    others = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16)
    weights = {weight.name for weight in converted.graph.initializer if weight.data_type in others}
    is_left = any(weights.intersection(node.input) for node in converted.graph.node if node.op_type in _PRODUCTS)
    return converted.SerializeToString(), Precision.FP32 if is_left else Precision.FP16


def _settings(options: SessionOptions) -> Any:
    settings = session_settings(options.n_threads, CudaSession.of(options).graph_optimization)
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return settings


def _provider_options(options: SessionOptions, limit_bytes: int | None) -> dict[str, str]:
    chosen = CudaSession.of(options)
    provider_options = {
        "device_id": "0",
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "do_copy_in_default_stream": "1",
        "use_tf32": str(int(options.precision is Precision.TF32)),
        _GRAPH: str(int(chosen.cuda_graph)),
        _CHANNELS_LAST: str(int(chosen.channels_last)),
    }
    if limit_bytes is not None:
        provider_options["gpu_mem_limit"] = str(max(limit_bytes, 1))
    return provider_options


def _in_words(level: Any, provider_options: Mapping[str, str]) -> str:
    chosen = [f"{name} {provider_options.get(name)}" for name in (_GRAPH, _CHANNELS_LAST)]
    return ", ".join([in_words(level), *chosen])


class CudaModel(LoadedModel):
    """A session whose inputs and outputs lie on a device, with copies to and from arrays of this process.

    Their memory is allocated by the first run, with the other memory of a run.

    Args:
        kind: of the device, in ONNX Runtime's word.
        of_weights: the format of the weights of its products, or fp32 where it is that of the file.
    """

    def __init__(
        self,
        session: Any,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        memory: CudaDriver,
        kind: str,
        of_weights: Precision = Precision.FP32,
    ) -> None:
        self._session, self._memory, self._kind, self._of_weights = session, memory, kind, of_weights
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        self._addresses: dict[str, int] = {}
        self._binding = session.io_binding()
        self._compute_ns = self._moved_ns = 0

    @override
    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], *, tidy: bool = False) -> None:
        """A run returns when its outputs are there."""
        self._allocate()
        start = perf_counter_ns()
        self._receive(inputs)
        received = perf_counter_ns()
        self._compute()
        computed = perf_counter_ns()
        for port, value in zip(self._outputs, self._binding.get_outputs(), strict=True):
            if port.data_dependent:
                write(outputs[port.name], port, value.numpy())
            else:
                self._memory.from_gpu(outputs[port.name], self._addresses[port.name])
        self._moved_ns += received - start + perf_counter_ns() - computed

    @override
    def resident(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        self._allocate()
        self._receive(inputs)
        return self._compute

    @override
    def cpu_time_ns(self) -> int:
        """The time of computations on the clock."""
        return self._compute_ns

    @override
    def moved_ns(self) -> int:
        return self._moved_ns

    @override
    def effective_options(self) -> EffectiveOptions:
        provider, *_ = self._session.get_providers()
        options = self._session.get_provider_options().get(provider, {})
        precision = Precision.TF32 if options.get("use_tf32") == "1" else self._of_weights
        settings = self._session.get_session_options()
        words = _in_words(settings.graph_optimization_level, options)
        return EffectiveOptions(provider, str(precision), settings.intra_op_num_threads, words)

    def _allocate(self) -> None:
        if self._addresses:
            return
        for ports, bind in ((self._inputs, self._binding.bind_input), (self._outputs, self._binding.bind_output)):
            for port in ports:
                if port.data_dependent:  # of the outputs
                    bind(port.name, "cpu")  # the runtime allocates it, in this process
                    continue
                address = self._memory.allocate(port.n_bytes)
                finalize(self, self._memory.free, address)
                self._addresses[port.name] = address
                bind(port.name, self._kind, 0, np.dtype(port.dtype).type, list(port.shape), address)

    def _receive(self, inputs: Mapping[str, Array]) -> None:
        for port in self._inputs:
            self._memory.to_gpu(self._addresses[port.name], inputs[port.name])

    def _compute(self) -> None:
        start = perf_counter_ns()
        with recordable():
            self._session.run_with_iobinding(self._binding)
        self._compute_ns += perf_counter_ns() - start


RUNTIME = CudaRuntime
