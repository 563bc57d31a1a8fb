"""Phases, their buffers, and the options of phased execution."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerRange
from autoauto.records.plans.phased import (
    BufferLayout,
    BufferRow,
    IoMode,
    Phase,
    PhasedOptions,
    PhasedPlan,
    PhaseKind,
    check_loop,
)


def phase(start: int, stop: int, kind: PhaseKind = PhaseKind.FORWARD) -> Phase:
    return Phase(LayerRange(start, stop), 0, 0, 100, 1, 4, 1, {"parameter": 3, "temporary": 4}, 10, kind)


@given(st.integers(1, 20), st.integers(1, 20))
def test_every_entry_has_one_row_and_step(rows: int, steps: int) -> None:
    layout = BufferLayout("x", rows, steps, 8)
    entries = [layout.flat_index(row, step) for row in range(rows) for step in range(steps)]
    assert entries == list(range(layout.n_entries))
    assert layout.n_bytes == 8 * rows * steps


@pytest.mark.parametrize(("row", "step"), [(3, 0), (0, 4), (-1, 0), (0, -1)])
def test_an_entry_outside_is_refused(row: int, step: int) -> None:
    with pytest.raises(BadInput, match="buffer x has rows 0 to 2 and steps 0 to 3"):
        BufferLayout("x", 3, 4).flat_index(row, step)


def test_a_buffer_is_not_empty() -> None:
    with pytest.raises(BadInput, match="rows and steps of at least 1"):
        BufferLayout("x", 0, 4)


def test_a_phase_adds_up() -> None:
    single = phase(0, 1)
    assert (single.total_bytes, single.step_cycles) == (7, 6)
    assert [single.cycles(mode, 2) for mode in IoMode] == [112, 112, 110]
    assert single.cycles(IoMode.IO_OVERLAPPED, 1) == 106


def test_a_training_plan_knows_its_forward_phases() -> None:
    phases = (phase(0, 2), phase(2, 3, PhaseKind.BOTH), phase(0, 2, PhaseKind.BACKWARD))
    plan = PhasedPlan(phases, 4, IoMode.IO, (), (10, 20, 30), 300, n_replicas=2)
    assert plan.partition == (0, 2, 3)
    assert plan.cost_cycles == 60
    assert plan.samples_per_s(3, 120.0) == 3 * 4 * 2 * 120 / 60
    assert plan.samples_per_s(3, 120.0, naive=True) == 3 * 4 * 2 * 120 / 300


def test_forward_phases_follow_each_other() -> None:
    with pytest.raises(AssertionError):
        PhasedPlan((phase(0, 1), phase(1, 2), phase(3, 4)), 4, IoMode.IO, (), (1, 2, 3), 9)


def test_costs_of_phases_add_up_over_steps() -> None:
    """A phase computes 4 cycles a step, loads and stores 1 each, and moves 100 cycles of variables once."""
    first = Phase(LayerRange(0, 1), 0, 0, 100, 1, 4, 1, {"parameter": 3}, 10)
    second = Phase(LayerRange(1, 2), 0, 0, 10, 2, 5, 3, {"parameter": 8}, 6)
    plan = PhasedPlan((first, second), 4, IoMode.IO, (), (10, 20), 0, shared_cycles=7)
    assert (plan.compute_cycles, plan.transfer_cycles) == (4 * (4 + 5), 100 + 10 + 4 * (2 + 5))
    assert (plan.cost_cycles, plan.latency_cycles, plan.mean_cost_cycles) == (30, 30, 30)
    assert PhasedPlan((first, second), 4, IoMode.IO, (), (10, 20), 0, shared_cycles=8).cost_cycles == 32
    assert (plan.peak_memory_bytes, plan.excess_bytes) == (8, 2)
    again = plan.with_phases((first, second))  # naively variables move in every step
    assert again.naive_cycles == 4 * (100 + 6) + 4 * (10 + 10)
    assert again.phase_cycles == (100 + 4 * 6, 10 + 4 * 10)
    assert (plan.plans, plan.other_plans, plan.parts, plan.balance) == ((plan,), (), plan.phases, 1.0)


def test_a_row_prints_like_an_array() -> None:
    assert str(BufferRow("dx", 2)) == "dx[2]"


def test_options_have_their_effective_mode_and_a_warning() -> None:
    alone = PhasedOptions(1, IoMode.IO_OVERLAPPED)
    assert (alone.effective_mode, alone.n_io_tiles) == (IoMode.IO, 32)
    assert "got 1" in alone.warning
    assert PhasedOptions(4, IoMode.COMPUTE, io_tiles=0).n_io_tiles == 0


@pytest.mark.parametrize(
    ("given_options", "problem"),
    [
        ({"io_mode": "slow", "steps": 1, "io_tiles": 1}, "Unknown 'io_mode'"),
        ({"io_mode": "io", "steps": 1, "io_tiles": 1, "rows": 0}, "rows must be >0, got 0"),
        ({"io_mode": "io", "steps": 2**20 + 1, "io_tiles": 1}, "steps must be 1 to 1048576, got 1048577"),
        ({"io_mode": "io_overlapped", "steps": 2, "io_tiles": 0}, "io_mode io_overlapped must have IO tiles, got 0"),
    ],
)
def test_impossible_loops_are_refused(given_options: dict[str, int | str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        check_loop(**given_options)  # type: ignore[arg-type]


def test_there_is_at_least_one_replica() -> None:
    with pytest.raises(BadInput, match="replicas must be at least 1, got 0"):
        PhasedOptions(4, n_replicas=0)
