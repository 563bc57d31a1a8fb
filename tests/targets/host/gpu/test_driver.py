"""The driver's calls: memory, copies, pinning, and its failures as one line."""

import ctypes
import mmap

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.units import MIB
from autoauto.targets.host.gpu import driver
from autoauto.targets.host.gpu.driver import CudaDriver, cuda_driver
from tests.targets.host.gpu.driver_on_processor import DriverOnProcessor


def test_an_array_comes_back_as_it_went() -> None:
    library = DriverOnProcessor(MIB)
    gpu = CudaDriver(library)
    array = np.arange(1000, dtype=np.float32).reshape(10, 100)
    address = gpu.allocate(array.nbytes)
    gpu.to_gpu(address, array)
    back = np.zeros_like(array)
    gpu.from_gpu(back, address)
    np.testing.assert_array_equal(back, array)
    assert gpu.memory() == (MIB - array.nbytes, MIB)
    gpu.free(address)
    assert gpu.memory() == (MIB, MIB)


def test_every_call_is_in_the_context_of_the_device() -> None:
    library = DriverOnProcessor(MIB)
    gpu = CudaDriver(library)
    gpu.allocate(0)
    assert library.calls[:3] == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]
    assert library.calls[-2:] == ["cuCtxSetCurrent", "cuMemAlloc_v2"]


def test_a_failure_is_the_drivers_own_message() -> None:
    gpu = CudaDriver(DriverOnProcessor(MIB))
    with pytest.raises(BadInput, match=r"must do cuMemAlloc_v2, it says: out of memory \(2\); check nvidia-smi"):
        gpu.allocate(2 * MIB)


def test_pages_of_a_shared_mapping_are_pinned_as_a_whole() -> None:
    library = DriverOnProcessor(MIB)
    memory = memoryview(mmap.mmap(-1, 8192))
    CudaDriver(library).pin(memory)
    assert library.pinned == [(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 8192)]
    with pytest.raises(BadInput, match=r"cuMemHostRegister_v2, it says: operation not supported \(801\)"):
        CudaDriver(DriverOnProcessor(MIB, pins=False)).pin(memory)


def test_a_machine_without_the_driver_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libcuda-of-nobody.so.1")
    with pytest.raises(BadInput, match=r"a GPU needs the driver of NVIDIA, libcuda-of-nobody\.so\.1 cannot be loaded"):
        cuda_driver.__wrapped__()
