"""Tables of plans, cuts, phases and buffers."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.records.errors import DoesNotFit, Infeasible
from autoauto.records.hardware import Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.phased import BufferLayout, BufferRow, IoMode, Phase, PhasedPlan, PhaseKind
from autoauto.records.plans.plan import CutMoves, Explanation, Move, Plan
from autoauto.records.target import Origin
from autoauto.report.tables.plans import buffers_table, explanation_table, phases_table, plans_table, stages_table

Text = Callable[..., str]
STAGES = """\
Stages, modelled
                                   compute  transfer  memory of
stage  layers  first, last layer    cycles    cycles  its limit
──────────────────────────────────────────────────────────────────────
0      [0, 2)  /block.0/conv/Conv    2,000       200  2.0 KiB, 50 %
               /block.1/relu/Relu  slowest            ━━━━━━━━
1      [2, 5)  /block.2/conv/Conv    1,000       300  3.0 KiB, 75 %
               softmax                       longest  ━━━━━━━━━━━━
period: 2,300 cycles, the slowest compute + the longest transfer"""
NAMES = ["/block.0/conv/Conv", "/block.1/relu/Relu", "/block.2/conv/Conv", "/block.3/relu/Relu", "softmax"]


def test_a_plan_is_drawn(measured: Plan, text: Text) -> None:
    drawn = text(stages_table(measured, NAMES, Origin.MODELLED))
    assert drawn == STAGES


def test_layers_without_names_have_no_column_for_them(measured: Plan, text: Text) -> None:
    drawn = text(stages_table(measured, None, Origin.MODELLED))
    assert "first, last" not in drawn
    assert "[2, 5)  " in drawn


def test_the_title_says_where_the_numbers_come_from(measured: Plan, text: Text) -> None:
    assert text(stages_table(measured, NAMES, Origin.ESTIMATED)).startswith("Stages, estimated\n")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_names_are_shortened_to_the_width(measured: Plan, text: Text, width: int) -> None:
    names = [f"/encoder/layer.{i}/attention/self/query/MatMul" for i in range(5)]
    lines = text(stages_table(measured, names, Origin.MODELLED), width).splitlines()
    assert sum("MatMul" in line for line in lines) == 4
    if width == 120:
        assert all(any(names[i] in line for line in lines) for i in (0, 1, 2, 4))


def test_a_name_with_brackets_is_no_markup(measured: Plan, text: Text) -> None:
    assert "split[bold]" in text(stages_table(measured, ["split[bold]"] * 5, Origin.MODELLED))


def test_overlap_is_named_in_the_caption(measured: Plan, text: Text) -> None:
    drawn = text(stages_table(replace(measured, period=Period.OVERLAP), NAMES, Origin.MODELLED), width=120)
    caption = drawn[drawn.index("period") :]
    assert " ".join(caption.split()) == (
        "period: 2,000 cycles, the larger of the slowest compute and the longest transfer"
    )


def test_the_busiest_device_of_those_that_do_one_thing_at_a_time_is_marked(measured: Plan, text: Text) -> None:
    drawn = text(stages_table(replace(measured, period=Period.SERIAL), NAMES, Origin.MODELLED), width=120)
    assert drawn.count("busiest") == 2
    assert "the longest compute and transfer of one device" in drawn


def test_devices_that_run_a_stage_in_turn_are_named(measured: Plan, text: Text) -> None:
    first, second = measured.stages
    shared = Plan((replace(first, n_replicas=2), replace(second, device=2)), Period.SERIAL)
    drawn = text(stages_table(shared, NAMES, Origin.ESTIMATED), width=120)
    assert "0 on 0 to 1" in drawn
    assert f"{first.compute_cycles // 2:,}" in drawn
    assert "1 on 2" in drawn
    period = max(first.compute_cycles // 2 + first.transfer_cycles // 2, second.compute_cycles + second.transfer_cycles)
    assert shared.cost_cycles == period
    assert re.search(rf"{first.transfer_cycles // 2} +2\.0 KiB", drawn)  # the parts of the period are what is shown
    assert shared.n_devices == 3


def test_the_kind_of_a_stages_device_is_named(measured: Plan, text: Text) -> None:
    first, second = measured.stages
    kinds = Plan((replace(first, device_kind="bow"), replace(second, device_kind="mk2")))
    lines = text(stages_table(kinds, NAMES, Origin.MODELLED)).splitlines()
    assert [line.split()[0] for line in lines[4:8]] == ["0", "bow", "1", "mk2"]
    without_names = text(stages_table(kinds, None, Origin.MODELLED)).splitlines()
    assert [line.split()[0] for line in without_names[4:8]] == ["0", "bow", "1", "mk2"]


def test_all_stages_of_the_device_that_binds_are_marked(measured: Plan, text: Text) -> None:
    """Device 0 computes 2000 + 1000 cycles in two stages, device 1 less."""
    first, second = measured.stages
    last = replace(second, layers=LayerRange(5, 6), device=0)
    drawn = text(stages_table(Plan((first, second, last)), [*NAMES, "end"], Origin.MODELLED))
    assert drawn.count("slowest") == 3  # two stages and the caption
    assert "period: 3,500 cycles" in drawn


def test_a_host_that_binds_is_named_in_the_caption(measured: Plan, text: Text) -> None:
    drawn = text(stages_table(replace(measured, host_cycles=5000), NAMES, Origin.MODELLED))
    assert "period: 5,000 cycles, the host's transfers behind the devices" in drawn
    assert "slowest" not in drawn
    assert "longest" not in drawn


def test_plans_and_failures_are_drawn(measured: Plan, text: Text) -> None:
    rows: list[tuple[str, Plan | DoesNotFit]] = [
        ("1", Infeasible("no", excess_bytes=2048)),
        ("2", measured),
        ("3", Infeasible("no", excess_bytes=0)),
    ]
    lines = text(plans_table("Plans", "n_ipu", rows), width=100).splitlines()
    assert lines[0] == "Plans"
    assert lines[2].split() == ["n_ipu", "cycles", "cycles", "cycles", "memory", "stages", "begin", "at", "layers"]
    assert lines[4].split() == ["1", "-", "-", "-", "-", "does", "not", "fit:", "2.0", "KiB", "missing"]
    assert lines[5].split() == ["2", "2,300", "2,000", "300", "3.0", "KiB", "0", "2"]
    assert lines[6].endswith("too few positions to cut")


def test_every_cut_is_a_row_with_the_cost_of_its_moves(measured: Plan, text: Callable[..., str]) -> None:
    cuts = (CutMoves(2, Move(1, 2450, 0), Move(3, 2100, 2048)), CutMoves(4, None, Move(5, 2300, 0)))
    lines = text(explanation_table(Explanation((0,), (1, 2), 1, 1024, cuts), measured), width=120).splitlines()
    assert lines[4].split() == ["2", "1", "+150", "3", "2.0", "KiB", "missing"]
    assert lines[5].split() == ["4", "-", "-", "5", "+0"]
    assert [line.strip() for line in lines[6:]] == [
        "compute binds: stage 0",
        "transfer binds: stage 1, 2",
        "least memory to spare: stage 1, 1.0 KiB",
    ]


def phase(
    layers: tuple[int, int], graph: int, kind: PhaseKind, loads: BufferRow | None, stores: BufferRow | None
) -> Phase:
    rows = [() if row is None else (row,) for row in (loads, stores)]
    return Phase(
        LayerRange(*layers),
        graph,
        0,
        1_000_000,
        10_000,
        200_000,
        30_000,
        MEMORY,
        4096,
        kind,
        loads=rows[0],
        stores=rows[1],
    )


X, DX = BufferRow("x", 0), BufferRow("dx", 0)
MEMORY = {"parameter": 1024, "load buffer": 1024}
PLAN = PhasedPlan(
    (
        phase((0, 2), 0, PhaseKind.FORWARD, None, X),
        phase((2, 5), 1, PhaseKind.BOTH, X, DX),
        phase((0, 2), 0, PhaseKind.BACKWARD, DX, None),
    ),
    4,
    IoMode.COMPUTE,
    (BufferLayout("x", 1, 4, 512), BufferLayout("dx", 1, 4, 512)),
    (1_960_000, 1_960_000, 1_960_000),
    14_880_000,
)
PHASES = """\
Phases, estimated
phase   layers      variables     load  compute    store  loads   memory of
passes  graph(row)  all steps  kcycles  kcycles  kcycles  stores  its limit
───────────────────────────────────────────────────────────────────────────
0       [0, 2)          1,000       10      200       30  host    2.0 KiB
F       0(0)            1,960                             x[0]    50 %
1       [2, 5)          1,000       10      200       30  x[0]    2.0 KiB
F B     1(0)            1,960                             dx[0]   50 %
2       [0, 2)          1,000       10      200       30  dx[0]   2.0 KiB
B       0(0)            1,960                             -       50 %
4 steps, compute: 5,880,000 cycles; naive loop 14,880,000 (2.53 times)"""
BUFFERS = """\
Buffers in streaming memory
                     bytes of
buffer  rows  steps  an entry      all
──────────────────────────────────────
x          1      4     512 B  2.0 KiB
dx         1      4     512 B  2.0 KiB"""


def test_phases_are_drawn(text: Text) -> None:
    assert text(phases_table(PLAN, Origin.ESTIMATED)) == PHASES


def test_buffers_are_drawn(text: Text) -> None:
    assert text(buffers_table(PLAN)) == BUFFERS


def test_inference_starts_and_ends_at_the_host(text: Text) -> None:
    only = PhasedPlan((phase((0, 5), 0, PhaseKind.FORWARD, None, None),), 1, IoMode.IO, (), (1240,), 1240)
    assert text(phases_table(only, Origin.ESTIMATED)).count("host") == 2
