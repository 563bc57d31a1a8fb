"""popxl-addons' batch serialisation: loops that load, compute and store every micro-batch."""
