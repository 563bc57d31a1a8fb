from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from autoauto.exporters.schedule_csv import schedule_to_csv, write_schedule_csv
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, Schedule, Transfers
from autoauto.schedule.csv_checks import schedule_from_csv
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.inference import inference
from autoauto.schedule.orders.interleaved import interleaved
from autoauto.schedule.orders.one_f_one_b import one_f_one_b, with_bubble_checks
from autoauto.schedule.orders.poplar import poplar
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times
from tests.exporters.schedule_csv.conftest import CASES, Case, times_of


def programs(schedule: Schedule) -> list[list[str]]:
    return [list(map(str, schedule.actions(device))) for device in range(schedule.n_devices)]


def test_a_row_is_a_rank_and_a_cell_an_action() -> None:
    assert schedule_to_csv(gpipe(2, 2)) == "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n"
    assert schedule_to_csv(interleaved(2, 2, 2)).splitlines()[1] == "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1"
    assert schedule_to_csv(inference(2, 3)) == "0F0,0F1,0F2\n1F0,1F1,1F2\n"


def test_a_split_backward_is_i_and_w_and_a_full_one_is_b() -> None:
    text = "0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1I1,1W1\n"
    assert schedule_to_csv(schedule_from_csv(text, "mixed.csv")) == text


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_order_comes_back(case: Case, made: Callable[[Case], Schedule]) -> None:
    schedule = made(case)
    again = schedule_from_csv(schedule_to_csv(schedule), "order.csv")
    assert programs(again) == programs(schedule)
    assert (again.devices, again.n_micro_batches) == (schedule.devices, schedule.n_micro_batches)
    assert again.order is None
    times = times_of(case)
    for transfers in Transfers:
        if schedule.slots is None or transfers is Transfers.OVERLAP:  # a file has no cycles of lockstep
            ticks = [simulate(each, times, transfers).stop_tick for each in (schedule, again)]
            assert ticks[0] == ticks[1]


def test_what_pytorch_cannot_express_is_refused() -> None:
    plain = one_f_one_b(2, 4)
    ones, zeros = [Fraction(1)] * 2, [Fraction(0)] * 2
    times = stage_times(plain.devices, ones, ones, zeros, zeros, split_backward=False)
    with pytest.raises(BadInput, match="PyTorch has no bubble checks"):
        schedule_to_csv(with_bubble_checks(plain, times)[0])
    with pytest.raises(BadInput, match="stage 1 on devices 1 and 0"):
        schedule_to_csv(poplar(Order.GROUPED, [0, 1, 0, 1], 4, training=True))
    with pytest.raises(BadInput, match="stage 1 on devices 1 and 2"):
        schedule_to_csv(Schedule.of_inference((1, 2), 4))
    assert schedule_to_csv(replace(plain, order=None)) == schedule_to_csv(plain)


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="can be written"):
        write_schedule_csv(gpipe(2, 2), tmp_path)
    write_schedule_csv(gpipe(2, 2), tmp_path / "gpipe.csv")
    assert (tmp_path / "gpipe.csv").read_bytes() == schedule_to_csv(gpipe(2, 2)).encode()
