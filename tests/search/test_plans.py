"""Plans as values of a trial, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from autoauto.records.layers import LayerRange
from autoauto.records.phased import BufferLayout, BufferRow, IoMode, Phase, PhasedPlan, PhaseKind
from autoauto.records.plan import Plan, Stage
from autoauto.search.plans import describe_plan, describe_stages, plan_of

if TYPE_CHECKING:
    from collections.abc import Mapping

STAGE = Stage(LayerRange(0, 3), 0, 90, 180, 4, 6, {"parameter": 70}, 100, 80)
MEMORY = {"parameter": 70, "load buffer": 8}
FIRST = Phase(LayerRange(0, 2), 0, 0, 50, 2, 9, 3, MEMORY, 100, variable_bytes=70, stores=(BufferRow("x", 0),))
LAST = Phase(LayerRange(2, 5), 1, 0, 40, 3, 9, 2, MEMORY, 100, PhaseKind.BOTH, 60, 8, 8, (BufferRow("x", 0),))
BUFFERS = (BufferLayout("x", 1, 4, 8), BufferLayout("variables0", 1, 1, 70))
PHASED = PhasedPlan((FIRST, LAST), 4, IoMode.IO, BUFFERS, (0, 0), 0, 2).with_phases((FIRST, LAST))


def back(plan: Plan | PhasedPlan) -> Plan | PhasedPlan:
    """Through JSON, as through the database."""
    attributes: Mapping[str, object] = json.loads(json.dumps(describe_plan(plan)))
    return plan_of(attributes, json.loads(json.dumps(describe_stages(plan))))


def test_a_plan_comes_back() -> None:
    assert back(Plan((STAGE,))) == Plan((STAGE,))
    assert describe_plan(Plan((STAGE,))) == {"partition": [0, 3]}
    assert back(Plan((STAGE,), overlap=True, host_cycles=500)) == Plan((STAGE,), True, 500)


def test_phases_come_back() -> None:
    assert PHASED.cost_cycles == 50 + 40 + 4 * (2 + 9 + 3) + 4 * (3 + 9 + 2)
    assert back(PHASED) == PHASED
    assert describe_stages(PHASED)[1]["total_bytes"] == 78
