"""Cycles of a range: the sum over its layers."""

from __future__ import annotations

from autoauto.estimate.prefix import prefix_sums
from autoauto.records.cost import IntArray
from autoauto.records.profile import ModelProfile


def compute_prefix_cycles(profile: ModelProfile) -> IntArray:
    """Running sum of forward and backward cycles, (n + 1,); the seed, which knows inference only, has no backward."""
    return prefix_sums([layer.forward_cycles + layer.backward_cycles for layer in profile.layers], "cycles")


def backward_prefix_cycles(profile: ModelProfile) -> IntArray:
    """Running sum of backward cycles, (n + 1,)."""
    return prefix_sums([layer.backward_cycles for layer in profile.layers], "backward cycles")
