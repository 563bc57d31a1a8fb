"""Costs of ranges of layers: profiles, cost tables, tensors between stages, checkpoints and corrections."""
