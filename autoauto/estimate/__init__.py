"""ModelProfile + Cluster -> CostTable: what any range of layers costs, from the profiles of single layers."""

from autoauto.estimate.table import cost_table

__all__ = ["cost_table"]
