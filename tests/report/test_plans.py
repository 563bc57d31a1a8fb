"""The table of several plans, drawn."""

from collections.abc import Callable

from autoauto.records.errors import DoesNotFit, Infeasible
from autoauto.records.plan import Plan
from autoauto.report.plans import plans_table

Text = Callable[..., str]


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
    assert lines[6].endswith("too few places to cut")
