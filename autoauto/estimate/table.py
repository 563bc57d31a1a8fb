"""From a model's profile and a cluster to the costs of every range of layers: `cost_table`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.estimate.memory import is_training, memory_limit_bytes, range_memory, stash_entries
from autoauto.estimate.sums import backward_prefix_cycles, compute_prefix_cycles, cut_allowed, weight_prefix_cycles
from autoauto.estimate.transfer import receive_cycles, send_cycles
from autoauto.records.cost import CostTable
from autoauto.records.hardware import Cluster
from autoauto.records.profile import ModelProfile


def cost_table(
    profile: ModelProfile,
    cluster: Cluster,
    planning_proportion: float,
    overlap: bool = False,
    in_flight: Sequence[int] | None = None,
    recompute: bool = False,
) -> CostTable:
    """Estimate every range of layers on every device of `cluster` by sums over layers [auto-pipeline, README].

    A stage may fill the share `planning_proportion` of its device's memory. With `overlap` a device transfers while it
    computes. A profile counts cycles of each device's own clock, the table those of the first device's clock.

    For training, `in_flight` has the largest number of micro-batches in flight on each device, one when it is None.
    With `recompute` a device stashes only a stage's inputs and runs the forward pass again before the backward pass.
    An imported profile without options is for training when `in_flight` is given.

    Raises:
        BadInput: `planning_proportion` is not in (0, 1], numbers are too large to be added exactly, `in_flight` is not
            a count from 1 for every device, or training is asked of a profile for inference.
    """
    training = is_training(profile, in_flight, recompute)
    return CostTable(
        compute_prefix_cycles=compute_prefix_cycles(profile, recompute),
        backward_prefix_cycles=backward_prefix_cycles(profile, recompute),
        weight_prefix_cycles=weight_prefix_cycles(profile),
        entry_cycles=np.zeros(len(profile), dtype=np.int64),
        memory=range_memory(profile, recompute),
        stash_entries=stash_entries(len(cluster), in_flight),
        memory_limit_bytes=memory_limit_bytes(cluster, planning_proportion),
        receive_cycles=receive_cycles(profile, cluster, training),
        send_cycles=send_cycles(profile, cluster, training),
        cut_allowed=cut_allowed(profile.tied),
        speeds=cluster.speeds,
        overlap=overlap,
    )
