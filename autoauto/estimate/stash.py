"""What devices keep of the micro-batches that wait for their backward pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.estimate.allowed import cut_allowed
from autoauto.records.cost import IntArray
from autoauto.records.errors import BadInput
from autoauto.records.profile import ModelProfile


def is_training(profile: ModelProfile, in_flight: Sequence[int] | None, recompute: bool = False) -> bool:
    """Whether there is a backward pass; a profile taken elsewhere does not say, so there `in_flight` tells.

    Raises:
        BadInput: the profile is for inference, and recomputation or several micro-batches in flight are asked for.
    """
    training = in_flight is not None if profile.options is None else profile.options.training
    if not training and (recompute or max(in_flight or (1,)) > 1):
        raise BadInput(
            f"recompute and in_flight above 1 need a profile for training, got one of {profile.model} for inference; "
            "profile the model for training"
        )
    return training


def stash_entries(n_devices: int, in_flight: Sequence[int] | None) -> tuple[int, ...]:
    """Micro-batches that each device keeps besides the one in work.

    Raises:
        BadInput: `in_flight` is not a count from 1 for every device.

    >>> stash_entries(4, (4, 3, 2, 1)), stash_entries(2, None)
    ((3, 2, 1, 0), (0, 0))
    """
    counts = (1,) * n_devices if in_flight is None else tuple(in_flight)
    if len(counts) != n_devices or min(counts) < 1:
        raise BadInput(f"in_flight needs a count from 1 for each of {n_devices} devices, got {list(counts)}")
    return tuple(count - 1 for count in counts)


def kept_input_bytes(profile: ModelProfile) -> IntArray:
    """Of what a stage that starts at layer i receives, what it keeps though an earlier layer does too, (n,)."""
    return np.array([layer.kept_input_bytes for layer in profile.layers], dtype=np.int64)


def recompute_bytes(profile: ModelProfile, recompute: bool) -> IntArray:
    """What a stage that starts at layer i receives, (n,), 0 where none may start, if it keeps that alone; else (0,)."""
    if not recompute:
        return np.zeros(0, dtype=np.int64)
    n_bytes = np.array([layer.input_bytes for layer in profile.layers], dtype=np.int64)
    return n_bytes * cut_allowed(profile.tied)[:-1]
