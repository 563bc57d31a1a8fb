"""CostTable -> Plan: where to cut the layers, exactly, or why it cannot be done."""

from autoauto.plan.evaluate import evaluate
from autoauto.plan.exhaustive import exhaustive
from autoauto.plan.optimal import anytime, optimal

__all__ = ["anytime", "evaluate", "exhaustive", "optimal"]
