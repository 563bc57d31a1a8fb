"""ModelProfile + Cluster -> CostTable: what every range of layers costs."""
