"""The stages table, drawn."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan
from autoauto.report.stages import stages_table
from autoauto.report.style import ESTIMATED, MEASURED

Text = Callable[..., str]

DRAWN = """\
Stages, measured (cost model)
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
    drawn = text(stages_table(measured, NAMES, MEASURED))
    assert drawn == DRAWN


def test_layers_without_names_have_no_column_for_them(measured: Plan, text: Text) -> None:
    drawn = text(stages_table(measured, None, MEASURED))
    assert "first, last" not in drawn
    assert "[2, 5)  " in drawn


def test_the_title_says_where_the_numbers_come_from(measured: Plan, text: Text) -> None:
    assert text(stages_table(measured, NAMES, ESTIMATED)).startswith("Stages, estimated\n")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_names_are_shortened_to_the_width(measured: Plan, text: Text, width: int) -> None:
    names = [f"/encoder/layer.{i}/attention/self/query/MatMul" for i in range(5)]
    lines = text(stages_table(measured, names, MEASURED), width).splitlines()
    assert sum("MatMul" in line for line in lines) == 4
    if width == 120:
        assert all(any(names[i] in line for line in lines) for i in (0, 1, 2, 4))


def test_a_name_with_brackets_is_no_markup(measured: Plan, text: Text) -> None:
    assert "split[bold]" in text(stages_table(measured, ["split[bold]"] * 5, MEASURED))


def test_overlap_is_told(measured: Plan, text: Text) -> None:
    told = text(stages_table(replace(measured, overlap=True), NAMES, MEASURED), width=120)
    caption = told[told.index("period") :]
    assert " ".join(caption.split()) == (
        "period: 2,000 cycles, the larger of the slowest compute and the longest transfer"
    )


def test_all_stages_of_the_device_that_binds_are_marked(measured: Plan, text: Text) -> None:
    """Device 0 computes 2000 + 1000 cycles in two stages, device 1 less."""
    first, second = measured.stages
    last = replace(second, layers=LayerRange(5, 6), device=0)
    told = text(stages_table(Plan((first, second, last)), [*NAMES, "end"], MEASURED))
    assert told.count("slowest") == 3  # two stages and the caption
    assert "period: 3,500 cycles" in told


def test_a_host_that_binds_is_told(measured: Plan, text: Text) -> None:
    told = text(stages_table(replace(measured, host_cycles=5000), NAMES, MEASURED))
    assert "period: 5,000 cycles, the host's transfers behind the devices" in told
    assert "slowest" not in told
    assert "longest" not in told
