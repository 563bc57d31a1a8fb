"""Arrays in shared memory: read in another process, aligned, read-only, and closed."""

from __future__ import annotations

from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np
import pytest

from autoauto.programs.sharded_engine.channel import SharedArrays
from autoauto.records.errors import BadInput
from autoauto.targets.host.transport.shared_memory import ALIGNMENT
from tests.running import n_descriptors

ARRAYS = {
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bias": np.array(0.5),
    "none": np.empty((0, 4)),
    "flags": np.array([True, False, True]),
    "transposed": np.arange(6).reshape(2, 3).T,
}


def read(shared: SharedArrays, connection: Connection) -> None:
    connection.send(shared.arrays())


def test_arrays_are_read_in_another_process() -> None:
    shared = SharedArrays.create(ARRAYS)
    parent_end, child_end = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=read, args=(shared, child_end), daemon=True)
    process.start()
    child_end.close()
    received = parent_end.recv()
    process.join()
    shared.close()
    assert list(received) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert received[name].dtype == array.dtype
        np.testing.assert_array_equal(received[name], array, strict=True)


def test_arrays_are_aligned_and_read_only_and_outlive_the_descriptor() -> None:
    shared = SharedArrays.create(ARRAYS)
    arrays = shared.arrays()
    shared.close()
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in arrays.values())
    with pytest.raises(ValueError, match="read-only"):
        arrays["weights"][0, 0] = 1
    assert arrays["weights"][1, 2] == 5


def test_closing_leaves_no_descriptor() -> None:
    before = n_descriptors()
    for arrays in (ARRAYS, {}):
        shared = SharedArrays.create(arrays)
        assert len(shared.arrays()) == len(arrays)
        shared.close()
    assert n_descriptors() == before


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(BadInput, match="w must be an array of plain data, got type object"):
        SharedArrays.create({"w": np.array([{}])})
