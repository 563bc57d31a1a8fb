"""Estimate what ranges of layers cost: ModelProfile + Cluster + planning proportion -> CostTable."""

from autoauto.estimate.anchor import anchored
from autoauto.estimate.correct import corrected
from autoauto.estimate.entry import entered
from autoauto.estimate.features import range_examples
from autoauto.estimate.learned import learned
from autoauto.estimate.memory import memory_limit_bytes
from autoauto.estimate.table import cost_table

__all__ = ["anchored", "corrected", "cost_table", "entered", "learned", "memory_limit_bytes", "range_examples"]
