from itertools import pairwise

import pytest

from autoauto.records.pipeline import OpKind, PipelineOp
from autoauto.schedule.stage_merge import merge_stages, stage_devices


@pytest.mark.parametrize(
    ("devices", "merged"),
    [
        ((0, 1, 2, 1, 0), (0, 1, 2, 3, 4)),
        ((0, 0, 1, 0, 0), (0, 0, 1, 2, 2)),
        ((0, 0, 1), (0, 0, 1)),
        ((1, 0, 0, 0), (0, 1, 1, 1)),
        ((0,), (0,)),
    ],
)
def test_neighbours_on_one_device_become_one_stage(devices: tuple[int, ...], merged: tuple[int, ...]) -> None:
    ops = [PipelineOp(f"L{stage}", OpKind.MAIN, stage, device, (), ()) for stage, device in enumerate(devices)]
    after = merge_stages(ops)
    assert tuple(op.stage for op in after) == merged
    assert tuple(op.device for op in after) == devices
    neighbours = stage_devices(after)
    assert all(a != b for a, b in pairwise(neighbours))
