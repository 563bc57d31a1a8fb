"""Every operator at every shape within the limits of its class, and the script that prints the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from autoauto.records.errors import UnreadableModel
from autoauto.records.hardware import Device
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.operator_cost import OperatorContext, OperatorCost
from autoauto.targets.ipu.operators import registry
from studies import contrib_cases
from studies.operator_bounds import CLASSES
from studies.operator_cases import CASES, UNREADABLE, VIEWS, Case
from studies.operator_table import EXPLAINED, Row, main, rows_of_case

TOO_CHEAP = 0.5  # times the bound: nothing is faster than its bytes and its arithmetic


@pytest.fixture(scope="module")
def device() -> Device:
    return load_cluster("c600").devices[0]


@pytest.fixture(scope="module", params=[Precision.FP16, Precision.FP32])
def rows(request: Any, device: Device) -> list[Row]:
    """One row a case, which is a model of one layer."""
    priced = [(case, rows_of_case(case, device, request.param)) for case in (*CASES, *contrib_cases.CASES)]
    assert [case for case, rows in priced if len(rows) != 1] == []
    return [row for _, (row,) in priced]


def test_every_operator_of_onnx_and_every_rule_has_a_case() -> None:
    standard = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    with_case = {case.op for case in (*CASES, *contrib_cases.CASES)}
    without = VIEWS | UNREADABLE | contrib_cases.VIEWS | contrib_cases.UNREADABLE
    assert with_case | without == standard | registry.COST_RULES.keys()
    assert not with_case & without


def test_no_operator_is_above_the_limit_of_its_class(rows: list[Row]) -> None:
    assert [row for row in rows if row.cycles > row.allowed] == []


def test_no_operator_is_faster_than_its_bound(rows: list[Row]) -> None:
    assert [row for row in rows if row.ratio < TOO_CHEAP] == []


def test_a_ratio_above_thirty_has_a_reason(rows: list[Row]) -> None:
    unexplained = {row.class_name for row in rows if row.why == "class"}
    assert all(CLASSES[name].reason for name in unexplained)
    assert all(limit.reason for limit in CLASSES.values() if limit.ratio > EXPLAINED)


def test_an_absurd_price_is_above_its_class(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = registry.COST_RULES["GatherElements"]

    def absurd(context: OperatorContext) -> OperatorCost:
        cost = rule(context)
        return cost._replace(compute_cycles=400 * cost.compute_cycles)  # as it was

    case = next(case for case in CASES if case.op == "GatherElements")
    (sound,) = rows_of_case(case, device, Precision.FP16)
    monkeypatch.setitem(registry.COST_RULES, "GatherElements", absurd)
    (row,) = rows_of_case(case, device, Precision.FP16)
    assert sound.cycles < sound.allowed < row.cycles


def test_unreadable_operators_are_refused_in_one_line(device: Device) -> None:
    with pytest.raises(UnreadableModel, match="every shape must be known") as refused:
        rows_of_case(Case("ImageDecoder", "u1000"), device, Precision.FP16)
    assert "\n" not in str(refused.value)


def test_the_shares_of_a_model_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resnet50"]) == 0
    head, columns, first, *_ = capsys.readouterr().out.splitlines()
    assert head.startswith("resnet50: 121 layers")
    assert columns.split() == ["operator", "layers", "cycles", "ratio", "of", "limit"]
    assert first.split()[0] == "Conv"


def test_a_model_says_what_has_no_rule(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    onnx.save(Case("QOrderedGelu", "8x4x4", domain="com.microsoft").model(), tmp_path / "gelu.onnx")
    assert main([str(tmp_path / "gelu.onnx")]) == 0
    assert "priced as elementwise: QOrderedGelu" in capsys.readouterr().out


@pytest.mark.slow
def test_the_whole_table_is_printed(run_script: Callable[..., list[str]]) -> None:
    lines = run_script("operator_table", "--above", "30")
    assert lines[0].split()[:2] == ["operator", "operands"]
    assert all(line.endswith(("steps", "class")) for line in lines[1 : lines.index("")])
