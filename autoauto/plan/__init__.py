"""CostTable -> Plan: where to cut the layers, exactly, or why it cannot be done."""

from autoauto.plan.evaluate import evaluate
from autoauto.plan.every_n import every_n
from autoauto.plan.exhaustive import exhaustive
from autoauto.plan.explain import explain
from autoauto.plan.interleaved import interleaved
from autoauto.plan.k_best import k_best
from autoauto.plan.limits import check_memory
from autoauto.plan.optimal import anytime, optimal
from autoauto.plan.phased import phased
from autoauto.plan.replicas import replicas
from autoauto.plan.staircase import staircase

__all__ = [
    "anytime",
    "check_memory",
    "evaluate",
    "every_n",
    "exhaustive",
    "explain",
    "interleaved",
    "k_best",
    "optimal",
    "phased",
    "replicas",
    "staircase",
]
