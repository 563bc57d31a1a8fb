"""A sub-model in ONNX Runtime (`Session`), and its memory checked against a budget (`check_memory`).

The limit is RLIMIT_DATA of the worker: all its private writable memory. It is the budget plus the memory of the runtime
itself. It is set after the sub-model has been loaded, because loading holds the weights twice for a moment. Inputs and
outputs lie in the shared memory of links and do not count.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import prod
from mmap import mmap
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import numpy as np

from autoauto.records.arrays import Array
from autoauto.records.errors import OutOfMemory, missing_extra
from autoauto.records.layers import LayerRange, Port, SubModel
from autoauto.records.profile import PARAMETER, TEMPORARY
from autoauto.records.units import format_bytes
from autoauto.targets.host.memory_budget import data_bytes, status_bytes

RUNTIME = "runtime"
"""Category of the memory that the first session of a process takes, whatever it computes."""

BOOKKEEPING_BYTES = 1 << 20
"""Memory of the interpreter on top of the budget, which a worker needs to report its results."""


class SubModelFile:
    """A sub-model in a file without a name; it can be pickled as an argument of a new process."""

    def __init__(self, content: bytes = b"") -> None:
        self._fd = os.memfd_create("autoauto-model")
        self.write(content)

    def __getstate__(self) -> dict[str, Any]:
        return {"handle": DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd = state["handle"].detach()

    def write(self, content: bytes) -> None:
        """Replace the content, for every process that has the file."""
        with open(self.path, "wb") as file:
            file.write(content)

    @property
    def path(self) -> str:
        """The path by which this process opens the file."""
        return f"/proc/self/fd/{self._fd}"

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class Session:
    """A sub-model that runs in this process.

    With `arena` the runtime keeps freed memory for the next run. That saves fresh pages, and with them up to a quarter
    of the time. All such sessions of a process share one arena; a `tidy` run returns its free memory to the system.

    Attributes:
        parameter_bytes: private memory after loading: weights in the runtime's layout, and code.
    """

    def __init__(
        self,
        content: SubModelFile,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        n_threads: int,
        arena: bool = False,
    ) -> None:
        runtime = onnxruntime()
        self._content, self._n_threads = content, n_threads
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = n_threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = arena
        options.log_severity_level = 4
        self._tidy = runtime.RunOptions()
        if arena:
            _make_arena()
            options.add_session_config_entry("session.use_env_allocators", "1")
            self._tidy.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        before = data_bytes()
        self._session = runtime.InferenceSession(content.path, options, providers=["CPUExecutionProvider"])
        self._at_rest_bytes = data_bytes()
        self.parameter_bytes = max(self._at_rest_bytes - before, 0)

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], tidy: bool = False) -> None:
        """Compute `outputs` from `inputs` without copies; a `tidy` run returns the arena's free memory.

        Raises:
            Exception: of ONNX Runtime, which has no special class for a lack of memory.
        """
        binding = self._session.io_binding()
        for port in self._inputs:
            binding.bind_cpu_input(port.name, inputs[port.name])
        for port in self._outputs:
            array = outputs[port.name]
            binding.bind_output(port.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding, self._tidy if tidy else None)

    def example_arrays(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Made-up inputs, and arrays for the outputs."""
        inputs = {port.name: example(port) for port in self._inputs}
        return inputs, {port.name: shared_array(port) for port in self._outputs}

    def without_arena(self) -> Session:
        """The same sub-model loaded again."""
        return Session(self._content, self._inputs, self._outputs, self._n_threads)

    def peak_bytes(self) -> int:
        """Peak memory of a run with made-up inputs, without parameters, inputs and outputs.

        The first run is tidy: in it the runtime determines which tensors can share memory, and from then on it takes
        one block for all of them. The memory of the first run would stay allocated beside that block.
        """
        inputs, outputs = self.example_arrays()
        self.run(inputs, outputs, tidy=True)
        remaining = max(data_bytes() - self._at_rest_bytes, 0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM (man 5 proc)
        before = status_bytes("VmRSS")
        self.run(inputs, outputs)
        return remaining + max(status_bytes("VmHWM") - before, 0)


def check_memory(
    session: Session, runtime_bytes: int, budget_bytes: int, overhead_bytes: int, layers: LayerRange
) -> dict[str, int]:
    """Set the limit of this process, run the session under it, and return its memory by category.

    Args:
        session: a session that has just been loaded.
        runtime_bytes: memory of an idle session, loaded before it.
        budget_bytes: budget of both sessions.
        overhead_bytes: memory of the process before both sessions.
        layers: layers of the sub-model, for the message.

    Raises:
        OutOfMemory: the budget does not suffice. The missing bytes, a lower bound, come from a run that may use all of
            the machine's memory.
        Exception: the session fails in that run, too.
    """
    at_rest = {RUNTIME: runtime_bytes, PARAMETER: session.parameter_bytes}
    if sum(at_rest.values()) <= budget_bytes:
        _set_limit(overhead_bytes + budget_bytes + BOOKKEEPING_BYTES)
        with suppress(Exception):  # the run below, with more memory, succeeds or raises again
            return at_rest | {TEMPORARY: session.peak_bytes()}
    _set_limit(data_bytes() + machine_bytes())
    # Memory that a failed run has left in the arena would count twice.
    raise _out_of_memory(layers, at_rest | {TEMPORARY: _peak_lower_bound(session.without_arena())}, budget_bytes)


@contextmanager
def memory_errors(layers: LayerRange, memory_bytes: Mapping[str, int]) -> Iterator[None]:
    """Turn a failed allocation into `OutOfMemory` with the memory measured before; lifts the limit to report it.

    Raises:
        OutOfMemory: an allocation failed.
    """
    try:
        yield
    except Exception as error:
        _set_limit(data_bytes() + machine_bytes())
        if not is_memory_error(error):
            raise
        raise _out_of_memory(layers, memory_bytes, sum(memory_bytes.values())) from error


def _out_of_memory(layers: LayerRange, memory_bytes: Mapping[str, int], budget_bytes: int) -> OutOfMemory:
    """The message gives a lower bound: a runtime with an arena may take some more."""
    total = sum(memory_bytes.values())
    return OutOfMemory(
        f"layers {layers} do not fit a device that may use {format_bytes(budget_bytes)}: they need "
        f"{format_bytes(total)} or more; try a smaller batch size or more devices",
        max(total - budget_bytes, 1),
        layers,
        memory_bytes,
    )


def is_memory_error(error: Exception) -> bool:
    """Whether an exception of a session says that an allocation failed."""
    return isinstance(error, MemoryError) or "alloc" in str(
        error
    )  # in the words of ONNX Runtime and of the C++ library


def _peak_lower_bound(session: Session) -> int:
    """The peak of a run, or the machine's free memory when not even that suffices."""
    try:
        return session.peak_bytes()
    except Exception as error:
        if not is_memory_error(error):
            raise
        return machine_bytes()


def example(port: Port) -> Array:
    """A made-up input in shared memory: seeded noise for floats, zeros for integers (valid indices), true for masks.

    >>> example(Port("ids", (2, 3), "int64")).tolist(), example(Port("mask", (2,), "bool")).tolist()
    ([[0, 0, 0], [0, 0, 0]], [True, True])
    """
    array = shared_array(port)
    if array.dtype.kind != "f" or array.size == 0:
        array[...] = array.dtype.kind == "b"
        return array
    noise = np.random.default_rng(array.size)
    for row in array.reshape(
        len(array) if array.ndim else 1, -1
    ):  # row by row, so that no copy of the whole array is made
        row[:] = noise.standard_normal(len(row), np.float32)
    return array


def shared_array(port: Port) -> Array:
    """Zeros in shared memory, which does not count as private memory of this process."""
    memory = mmap(-1, max(port.n_bytes, 1))
    return np.frombuffer(memory, port.dtype, prod(port.shape)).reshape(port.shape)


def onnxruntime() -> Any:
    """Import the package with its telemetry switched off: that starts threads and writes files.

    Raises:
        MissingExtra: the package is not installed.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise missing_extra("running on the host", "host") from error
    return onnxruntime


def machine_bytes() -> int:
    """Memory that is free on this machine."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/meminfo has no entry MemAvailable")


@cache
def _make_arena() -> None:
    """Make the arena of this process. It grows by the bytes requested; the runtime's default arena doubles."""
    runtime = onnxruntime()
    memory = runtime.OrtMemoryInfo("Cpu", runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT)
    settings = {
        "arena_extend_strategy": 1,
        "max_mem": 0,
        "initial_chunk_size_bytes": -1,
        "max_dead_bytes_per_chunk": -1,
    }
    runtime.create_and_register_allocator(memory, runtime.OrtArenaCfg(settings))


def _set_limit(limit_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def idle_model() -> SubModel:
    """A model that copies one number."""
    from onnx import TensorProto, helper

    ports = [Port(name, (1,), "float32") for name in ("x", "y")]
    x, y = (helper.make_tensor_value_info(port.name, TensorProto.FLOAT, port.shape) for port in ports)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "idle", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return SubModel(model.SerializeToString(), (ports[0],), (ports[1],))
