"""CostTable -> Plan: where to cut the layers, exactly, or why no plan fits."""
