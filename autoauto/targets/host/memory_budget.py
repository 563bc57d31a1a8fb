"""A process of its own under a memory budget: `run_alone`.

The limit is RLIMIT_DATA, which on Linux counts every private writable page of the process: heap, anonymous mappings,
thread stacks. What the runtime itself holds (interpreter, NumPy, the BLAS library's buffers) is measured in the worker
first, and the limit is that plus the budget. malloc gets a fixed mmap threshold, so that freed arrays return to the
system.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import prod
from multiprocessing import get_context
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from autoauto.processes import die_with_parent, out_of_hearing
from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.units import format_bytes
from autoauto.targets.host.processes import environment

Result = TypeVar("Result")

MECHANISM = "RLIMIT_DATA of the worker, the runtime's own memory measured first and added"
ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_ARENA_MAX": "1",
    "PYTHONMALLOC": "malloc",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMPY_MADVISE_HUGEPAGE": "0",
}
"""Of the worker: freed memory goes back, there is one heap, one thread multiplies matrices, all pages are small.

Python's own allocator takes 1 MiB at a time, at a moment that nobody can foresee. Which allocation gets a huge page is
luck: with them loads of the same 4 MiB took from 0.3 to 1.0 ms.
"""

THREAD_STACK_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Limited(Generic[Result]):
    """What a worker returned, and the limit it ran under.

    Attributes:
        result: of the function.
        overhead_bytes: what the runtime held before the function ran.
        limit_bytes: of the process; 0 without a budget.
    """

    result: Result
    overhead_bytes: int
    limit_bytes: int


def run_alone(function: Callable[..., Result], *args: object, budget_bytes: int | None = None) -> Limited[Result]:
    """Run a function in one fresh process that may allocate at most `budget_bytes`, and wait for it.

    The function and what it takes and returns travel by pickle. An exception of the worker is raised here, with the
    worker's traceback as its cause. The worker dies with the process that started it.

    Raises:
        OutOfMemory: an allocation failed; `excess_bytes` is the least that was missing then, 1 where unknown.
        BadInput: the budget is below one byte.
        concurrent.futures.process.BrokenProcessPool: the worker was killed.
    """
    if budget_bytes is not None and budget_bytes < 1:
        raise BadInput(f"a memory budget needs at least 1 byte, got {budget_bytes}")
    with ProcessPoolExecutor(1, get_context("spawn"), die_with_parent, (os.getpid(),)) as pool:
        with environment(ENVIRONMENT), out_of_hearing():
            running = pool.submit(_limited, function, args, budget_bytes)
        return running.result()


def data_bytes() -> int:
    """Private writable memory of this process, as RLIMIT_DATA counts it."""
    return status_bytes("VmData")


def status_bytes(entry: str) -> int:
    """An entry of /proc/self/status: "VmData", "VmRSS" (physical memory now), "VmHWM" (the most of it so far)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{entry}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"the kernel tells no {entry}")


def _limited(function: Callable[..., Result], args: tuple[object, ...], budget_bytes: int | None) -> Limited[Result]:
    """In the worker: measure the runtime, set the limit, run; a Ctrl-C ends it, since the pool waits for it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.stack_size(THREAD_STACK_BYTES)
    square = np.ones((512, 512), np.float32)
    square @ square  # the BLAS library allocates its buffers at the first product
    del square
    overhead_bytes, limit_bytes = data_bytes(), 0
    if budget_bytes is not None:
        limit_bytes = overhead_bytes + budget_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    try:
        return Limited(function(*args), overhead_bytes, limit_bytes)
    except MemoryError as error:
        memory = "the machine's memory" if budget_bytes is None else f"a budget of {format_bytes(budget_bytes)}"
        message = f"{memory} does not suffice: {error}; try more, or smaller phases"
        raise OutOfMemory(message, _excess_bytes(error, limit_bytes)) from error


def _excess_bytes(error: MemoryError, limit_bytes: int) -> int:
    """What the failed array missed at least: the frames of the failure still hold all but their temporaries."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)  # as NumPy tells them
    if shape is None or dtype is None or limit_bytes == 0:
        return 1
    requested_bytes: int = prod(shape) * dtype.itemsize
    return max(1, data_bytes() + requested_bytes - limit_bytes)
