"""The numbers of the cost model are those that were recorded; `frozen.py` writes them anew."""

from __future__ import annotations

import json

import pytest

from tests.targets.ipu.frozen import (
    ALL_CONFIGURATIONS,
    CONFIGURATIONS,
    OPERATORS,
    Configuration,
    configuration_line,
    operator_lines,
)

ANEW = "if that is meant, run `python -m tests.targets.ipu.frozen`"


def test_every_operator_costs_what_was_recorded() -> None:
    recorded = json.loads(OPERATORS.read_text(encoding="utf-8"))
    costs = json.loads(json.dumps(dict(operator_lines())))
    assert costs.keys() == recorded.keys(), ANEW
    changed = {name: (costs[name], recorded[name]) for name in costs if costs[name] != recorded[name]}
    assert not changed, ANEW


@pytest.mark.parametrize(
    "configuration",
    [pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.is_slow else []) for each in ALL_CONFIGURATIONS],
)
def test_configurations_are_forecast_and_compiled_as_recorded(configuration: Configuration) -> None:
    recorded = json.loads(CONFIGURATIONS.read_text(encoding="utf-8"))
    assert recorded.keys() == {each.name for each in ALL_CONFIGURATIONS}, ANEW
    assert configuration_line(configuration) == recorded[configuration.name], ANEW
