"""popxl-addons' batch serialisation [popxl-phased]: loops that load, compute and store every micro-batch."""
