"""A network trained phase by phase in one process of limited memory, as in [popxl-mnist]."""
