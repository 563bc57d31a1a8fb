"""Measurements of configurations on engines: which is measured next, and what measured rows say of others."""
