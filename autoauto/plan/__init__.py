"""CostTable -> Plan: where to cut the layers, exactly, or why it cannot be done."""
