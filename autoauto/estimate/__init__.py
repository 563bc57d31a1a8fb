"""Estimate what ranges of layers cost: ModelProfile + Cluster + planning proportion -> CostTable."""

from autoauto.estimate.memory import memory_limit_bytes
from autoauto.estimate.table import cost_table

__all__ = ["cost_table", "memory_limit_bytes"]
