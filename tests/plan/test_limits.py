import pytest

from autoauto.plan.limits import check_memory
from autoauto.records.errors import OutOfMemory
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Stage


def stage(device: int, n_bytes: int) -> Stage:
    return Stage(LayerRange(device, device + 1), device, 1, 0, 0, 0, {"parameter": n_bytes}, 100)


def test_the_tightest_stage_is_told() -> None:
    check_memory([stage(0, 100), stage(1, 7)])
    with pytest.raises(OutOfMemory, match=r"layers \[1, 2\) need .* on device 1") as failure:
        check_memory([stage(0, 101), stage(1, 130), stage(2, 99)])
    assert (failure.value.excess_bytes, failure.value.memory_bytes) == (30, {"parameter": 130})
