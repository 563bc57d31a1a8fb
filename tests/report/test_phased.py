"""The tables of phases and buffers, drawn."""

from collections.abc import Callable

from autoauto.records.layers import LayerRange
from autoauto.records.phased import BufferLayout, BufferRow, IoMode, Phase, PhasedPlan, PhaseKind
from autoauto.report.phased import buffers_table, phases_table
from autoauto.report.style import ESTIMATED

Text = Callable[..., str]
X, DX = BufferRow("x", 0), BufferRow("dx", 0)
MEMORY = {"parameter": 1024, "load buffer": 1024}


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
    assert text(phases_table(PLAN, ESTIMATED)) == PHASES


def test_buffers_are_drawn(text: Text) -> None:
    assert text(buffers_table(PLAN)) == BUFFERS


def test_inference_ends_at_the_host(text: Text) -> None:
    only = PhasedPlan((phase((0, 5), 0, PhaseKind.FORWARD, None, None),), 1, IoMode.IO, (), (1240,), 1240)
    assert text(phases_table(only, ESTIMATED)).count("host") == 2
