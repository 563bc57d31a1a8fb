"""Estimated against measured."""

import json
from collections.abc import Callable

import pytest

from autoauto.records.plan import Plan
from autoauto.report.compare import compare_rows, compare_table, difference_percent

Text = Callable[..., str]

DRAWN = """\
Estimated against measured (cost model)
stage  quantity                 estimated  measured (cost model)  difference
────────────────────────────────────────────────────────────────────────────
0      forward_cycles               2,200                  2,000     +10.0 %
0      receive_cycles                  50                     50      +0.0 %
0      send_cycles                    150                    150      +0.0 %
0      memory_bytes.vertexCode    1.0 KiB                1.0 KiB      +0.0 %
0      memory_bytes.parameter       512 B                    0 B           -
0      memory_bytes.temporary         0 B                1.0 KiB    -100.0 %
0      total_bytes                1.5 KiB                2.0 KiB     -25.0 %

1      forward_cycles               1,000                  1,000      +0.0 %
1      receive_cycles                 200                    200      +0.0 %
1      send_cycles                    100                    100      +0.0 %
1      memory_bytes.vertexCode    1.5 KiB                3.0 KiB     -50.0 %
1      total_bytes                1.5 KiB                3.0 KiB     -50.0 %

plan   compute_cycles               2,200                  2,000     +10.0 %
plan   transfer_cycles                300                    300      +0.0 %
plan   cost_cycles                  2,500                  2,300      +8.7 %
plan   samples_per_s                920.0                1,000.0      -8.0 %"""


def test_two_plans_are_drawn(measured: Plan, estimated: Plan, text: Text) -> None:
    assert text(compare_table(estimated, measured, (920.0, 1000.0))) == DRAWN


def test_rows_are_plain_values_named_by_fields(measured: Plan, estimated: Plan) -> None:
    rows = compare_rows(estimated, measured, (920.0, 1000.0))
    assert json.loads(json.dumps(rows)) == rows
    assert rows[0] == {
        "stage": 0,
        "quantity": "forward_cycles",
        "estimated": 2200,
        "measured": 2000,
        "difference_percent": 10.0,
    }
    assert [row["quantity"] for row in rows if row["stage"] is None] == [
        "compute_cycles",
        "transfer_cycles",
        "cost_cycles",
        "samples_per_s",
    ]


def test_categories_add_up_to_the_total(measured: Plan, estimated: Plan) -> None:
    rows = compare_rows(estimated, measured, (920.0, 1000.0))
    for stage in (0, 1):
        sizes = {row["quantity"]: row for row in rows if row["stage"] == stage}
        parts = [row for quantity, row in sizes.items() if quantity.startswith("memory_bytes.")]
        assert sum(row["estimated"] for row in parts) == sizes["total_bytes"]["estimated"]
        assert sum(row["measured"] for row in parts) == sizes["total_bytes"]["measured"]


def test_a_plan_equals_itself(measured: Plan) -> None:
    rows = compare_rows(measured, measured, (4.0, 4.0))
    assert {row["difference_percent"] for row in rows} == {0.0}


@pytest.mark.parametrize(
    ("estimated", "measured", "percent"), [(11, 10, 10.0), (9, 10, -10.0), (0, 10, -100.0), (0, 0, 0.0), (1, 0, None)]
)
def test_differences_are_relative_to_the_measured_value(estimated: int, measured: int, percent: float | None) -> None:
    assert difference_percent(estimated, measured) == percent
