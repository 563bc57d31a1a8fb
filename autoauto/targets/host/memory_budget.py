"""A function in a separate process under a memory budget: `run_alone`.

The limit is RLIMIT_DATA, which on Linux counts every private writable page of the process: heap, anonymous mappings,
thread stacks. The worker first measures the memory of the runtime itself (interpreter, NumPy, the buffers of the BLAS
library); the limit is that memory plus the budget. malloc gets a fixed mmap threshold, so that freed arrays return to
the system.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from mmap import mmap
from typing import Generic, TypeVar

import numpy as np

from autoauto.processes.channel import Channel
from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.layers import Port
from autoauto.records.units import Array, format_bytes
from autoauto.targets.host.machine import kernel_bytes
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.transport.bounded import memory_of

Result = TypeVar("Result")

ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_ARENA_MAX": "1",
    "PYTHONMALLOC": "malloc",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMPY_MADVISE_HUGEPAGE": "0",
}
"""Environment variables of the worker. They make its memory and its times repeatable:

- Freed memory returns to the system, and there is one heap.
- malloc replaces Python's allocator, which takes 1 MiB at a time, at unpredictable moments.
- One thread multiplies matrices.
- No huge pages: which allocation gets one is chance, and loads of the same 4 MiB took from 0.3 to 1.0 ms with them.
"""

THREAD_STACK_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class LimitedResult(Generic[Result]):
    """The result of a function in a worker, and the limit under which it ran.

    Attributes:
        limit_bytes: limit of the process; 0 without a budget.
    """

    result: Result
    overhead_bytes: int  # private memory of the runtime before the function ran
    limit_bytes: int


def run_alone(function: Callable[..., Result], *args: object, budget_bytes: int | None = None) -> LimitedResult[Result]:
    """Run a function in one fresh process that may allocate at most `budget_bytes`, and wait for it.

    The function, its arguments and its result are pickled. An exception of the worker is raised here, with the worker's
    traceback as its cause. The worker dies with the process that started it.

    Raises:
        OutOfMemory: an allocation failed; `excess_bytes` is a lower bound of the missing bytes, 1 where unknown.
        BadInput: the budget is below one byte.
        WorkerLost: the worker was killed.
    """
    if budget_bytes is not None and budget_bytes < 1:
        raise BadInput(f"a memory budget needs at least 1 byte, got {budget_bytes}")
    with Workers(ENVIRONMENT) as workers:
        worker = workers.start("a process under a memory budget", _run_limited, function, args, budget_bytes)
        result: LimitedResult[Result] = workers.receive(worker)
    return result


def data_bytes() -> int:
    """Private writable memory of this process, as RLIMIT_DATA counts it."""
    return status_bytes("VmData")


def status_bytes(entry: str) -> int:
    """An entry of /proc/self/status: "VmData", "VmRSS" (physical memory now), "VmHWM" (its maximum so far)."""
    return kernel_bytes("/proc/self/status", entry)


def machine_bytes() -> int:
    """Memory that is free on this machine."""
    return kernel_bytes("/proc/meminfo", "MemAvailable")


def shared_array(port: Port) -> Array:
    """Zeros in shared memory, which does not count as private memory of this process: see `memory_of`."""
    port = memory_of(port)
    memory = mmap(-1, max(port.n_bytes, 1))
    return np.frombuffer(memory, port.dtype, prod(port.shape)).reshape(port.shape)


def _run_limited(
    channel: Channel, function: Callable[..., object], args: tuple[object, ...], budget_bytes: int | None
) -> None:
    """In the worker: measure the runtime, set the limit, run, and send a `LimitedResult`."""
    threading.stack_size(THREAD_STACK_BYTES)
    square = np.ones((512, 512), np.float32)
    square @ square  # the BLAS library allocates its buffers at the first product
    del square
    overhead_bytes, limit_bytes = data_bytes(), 0
    if budget_bytes is not None:
        limit_bytes = overhead_bytes + budget_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    try:
        channel.send(LimitedResult(function(*args), overhead_bytes, limit_bytes))
    except MemoryError as error:
        memory = "the machine's memory" if budget_bytes is None else f"a budget of {format_bytes(budget_bytes)}"
        message = f"{memory} does not suffice: {error}; try more, or smaller phases"
        raise OutOfMemory(message, _excess_bytes(error, limit_bytes)) from error


def _excess_bytes(error: MemoryError, limit_bytes: int) -> int:
    """A lower bound of the bytes missing for the failed array: the frames of the failure still hold their arrays."""
    # NumPy's MemoryError has these attributes.
    shape = getattr(error, "shape", None)
    dtype = getattr(error, "dtype", None)
    if shape is None or dtype is None or limit_bytes == 0:
        return 1
    requested_bytes: int = prod(shape) * dtype.itemsize
    return max(1, data_bytes() + requested_bytes - limit_bytes)
