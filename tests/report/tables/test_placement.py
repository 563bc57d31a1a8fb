"""Which device of which machine holds what."""

from __future__ import annotations

from dataclasses import replace

from autoauto.records.hardware import MachineDevice
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.report.tables.plans import placement_table

STAGES = tuple(Stage(LayerRange(i, i + 1), i, 1, 0, 1, 1, {}, 1) for i in range(2))


def replica(machine: int, *devices: int) -> tuple[MachineDevice, ...]:
    return tuple(MachineDevice(machine, device) for device in devices)


def test_one_pipeline_or_single_devices_in_one_machine_need_no_table() -> None:
    assert placement_table(Plan(STAGES)) is None
    assert placement_table(Plan(STAGES[:1], placement=(replica(0, 0), replica(0, 1)))) is None
    assert placement_table(Plan(STAGES, placement=(replica(0, 0, 1),))) is None


def test_machines_are_rows_and_replicas_are_counted_by_their_devices() -> None:
    crossing = (replica(0, 2) + replica(1, 0),)
    inside = Plan(STAGES, placement=(replica(0, 0, 1), replica(1, 1, 2)))
    table = placement_table(Plan(STAGES, placement=crossing, other_plans=(inside,)))
    assert table is not None
    assert [column.head for column in table.columns] == ["machine", "device 0", "device 1", "device 2"]
    assert table.rows == (("0", "0: 0", "0: 1", "1: 0"), ("1", "1: 1", "2: 0", "2: 1"))


def test_a_pipeline_over_machines_and_single_devices_have_their_table() -> None:
    over = placement_table(Plan(STAGES, placement=(replica(0, 1) + replica(1, 0),)))
    assert over is not None
    assert over.rows == (("0", "-", "0: 0"), ("1", "0: 1", "-"))
    single = placement_table(Plan(STAGES[:1], placement=(replica(0, 0), replica(1, 0))))
    assert single is not None
    assert single.rows == (("0", "0"), ("1", "1"))


def test_a_machine_of_many_devices_has_several_rows() -> None:
    table = placement_table(Plan(STAGES[:1], placement=tuple(replica(1, device) for device in range(10))))
    assert table is not None
    assert [row[:3] for row in table.rows] == [("1, from device 0", "0", "1"), ("1, from device 8", "8", "9")]


def test_all_devices_of_a_replicated_stage_hold_it() -> None:
    stages = (replace(STAGES[0], n_replicas=2), replace(STAGES[1], device=2))
    table = placement_table(Plan(stages, placement=(replica(0, 0, 1, 2), replica(1, 0, 1, 2))))
    assert table is not None
    assert table.rows[1] == ("1", "1: 0", "1: 0", "1: 1")


def test_a_device_that_runs_several_stages_holds_them_in_their_order() -> None:
    """Two devices run four stages in turn, 0 and 2 on the first."""
    stages = tuple(replace(STAGES[0], layers=LayerRange(i, i + 1), device=i % 2) for i in range(4))
    table = placement_table(Plan(stages, placement=(replica(0, 0, 1), replica(1, 0, 1))))
    assert table is not None
    assert table.rows == (("0", "0: 0, 2", "0: 1, 3"), ("1", "1: 0, 2", "1: 1, 3"))
