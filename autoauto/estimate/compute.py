"""Cycles of a range: the sum over its layers."""

from __future__ import annotations

from operator import add

from autoauto.estimate.prefix import prefix_sums
from autoauto.records.cost import IntArray
from autoauto.records.profile import ModelProfile


def compute_prefix_cycles(profile: ModelProfile, recompute: bool = False) -> IntArray:
    """Running sum of forward and backward cycles, (n + 1,); the seed, which knows inference only, has no backward."""
    forward = [layer.forward_cycles for layer in profile.layers]
    return prefix_sums(list(map(add, forward, _backward_cycles(profile, recompute))), "cycles")


def backward_prefix_cycles(profile: ModelProfile, recompute: bool = False) -> IntArray:
    """Running sum of backward cycles, (n + 1,); with `recompute` the forward pass is done again before."""
    return prefix_sums(_backward_cycles(profile, recompute), "backward cycles")


def weight_prefix_cycles(profile: ModelProfile) -> IntArray:
    """Running sum of the cycles that make the gradients of weights, (n + 1,)."""
    return prefix_sums([layer.weight_cycles for layer in profile.layers], "weight cycles")


def _backward_cycles(profile: ModelProfile, recompute: bool) -> list[int]:
    return [layer.backward_cycles + recompute * layer.forward_cycles for layer in profile.layers]
