"""Estimated against measured, stage by stage and category by category (the seed's compare_pipelined_model_profile)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from rich.table import Table

from autoauto.records.plan import Plan, Stage
from autoauto.report.style import ESTIMATED, MEASURED, format_difference, format_value, plain_table


class CompareRow(TypedDict):
    """One quantity; `stage` is None for the whole plan, a memory category is the quantity "memory_bytes.CATEGORY"."""

    stage: int | None
    quantity: str
    estimated: float
    measured: float
    difference_percent: float | None


def compare_rows(estimated: Plan, measured: Plan, samples_per_s: tuple[float, float]) -> list[CompareRow]:
    """One row a quantity, named by its field: first those of every stage, then those of the whole plan.

    `samples_per_s` are both plans' throughputs.
    """
    assert estimated.partition == measured.partition
    stages = enumerate(zip(estimated.stages, measured.stages, strict=True))
    rows = [_row(index, *values) for index, (left, right) in stages for values in _stage_values(left, right)]
    for quantity in ("compute_cycles", "transfer_cycles", "cost_cycles"):
        rows.append(_row(None, quantity, getattr(estimated, quantity), getattr(measured, quantity)))
    return [*rows, _row(None, "samples_per_s", *samples_per_s)]


def compare_table(estimated: Plan, measured: Plan, samples_per_s: tuple[float, float]) -> Table:
    """The rows of `compare_rows` for people, without what is 0 on both sides."""
    columns = ["stage", "quantity", ESTIMATED, MEASURED, "difference"]
    table = plain_table(f"{ESTIMATED.capitalize()} against {MEASURED}", columns, columns[2:])
    rows = [row for row in compare_rows(estimated, measured, samples_per_s) if row["estimated"] or row["measured"]]
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        table.add_row(
            "plan" if row["stage"] is None else str(row["stage"]),
            row["quantity"],
            format_value(row["quantity"], row["estimated"]),
            format_value(row["quantity"], row["measured"]),
            format_difference(row["difference_percent"]),
            end_section=following is not None and following["stage"] != row["stage"],
        )
    return table


def difference_percent(estimated: float, measured: float) -> float | None:
    """How far the estimate is from the measured value, in percent of the latter; None when only that is 0.

    >>> difference_percent(11, 10), difference_percent(0, 0), difference_percent(1, 0)
    (10.0, 0.0, None)
    """
    if measured:
        return 100.0 * (estimated - measured) / measured
    return None if estimated else 0.0


def _stage_values(estimated: Stage, measured: Stage) -> Iterator[tuple[str, int, int]]:
    for quantity in ("forward_cycles", "backward_cycles", "receive_cycles", "send_cycles"):
        yield quantity, getattr(estimated, quantity), getattr(measured, quantity)
    for category in dict.fromkeys((*estimated.memory_bytes, *measured.memory_bytes)):
        yield (
            f"memory_bytes.{category}",
            estimated.memory_bytes.get(category, 0),
            measured.memory_bytes.get(category, 0),
        )
    yield "total_bytes", estimated.total_bytes, measured.total_bytes


def _row(stage: int | None, quantity: str, estimated: float, measured: float) -> CompareRow:
    return {
        "stage": stage,
        "quantity": quantity,
        "estimated": estimated,
        "measured": measured,
        "difference_percent": difference_percent(estimated, measured),
    }
