"""The sum of gradients over replicas, once a step of training: `all_reduce_cycles`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.hardware import Cluster, Link, Topology


def all_reduce_cycles(cluster: Cluster, rings: Sequence[Sequence[int]], n_bytes: Sequence[int]) -> tuple[int, ...]:
    """Cycles of the reference clock in which every stage's gradients are summed over the replicas, all stages at once.

    The devices of a stage, one a replica, are a ring [ring-all-reduce]: in each of 2 (r - 1) rounds every device passes
    1/r of the bytes on to the next, so that each link of the ring moves 2 (r - 1) / r of them. Half the rounds are a
    reduce-scatter and half an all-gather, so optimizer states that are sharded over replicas move as many bytes.

    On a line a ring goes from its first device to its last, and back the other way of the same cables:

        device    0   1   2   3   4   5      2 replicas of 3 stages
        stage 0   o-----------o              the cable between 2 and 3 is in all three rings,
        stage 1       o-----------o          that between 0 and 1 in one
        stage 2           o-----------o

    Rings that share a cable share its rate evenly: until a ring has moved its bytes, each of the others has moved as
    many, or all of its own. Where any device reaches any other, no rings share a link.

    Args:
        cluster: the devices.
        rings: for every stage its device in each replica, ascending.
        n_bytes: of every stage's gradients.
    """
    n_rounds = 2 * (len(rings[0]) - 1)
    if not n_rounds:
        return (0,) * len(rings)
    moved_bytes = np.array(n_bytes) * n_rounds / len(rings[0])
    links = [_cable(cluster, index) for index in range(len(cluster))]
    rates = np.array([link.bytes_per_s for link in links])
    idle_cycles = np.array([link.idle_cycles for link in links])
    uses = np.array([_uses(cluster, ring) for ring in rings])
    # (stages, stages): what another ring has moved when a ring is done; (stages, cables): what all have on a cable.
    cable_bytes = np.minimum.outer(moved_bytes, moved_bytes) @ uses
    seconds = (uses * cable_bytes / rates).max(axis=1)
    waits = n_rounds * (uses * idle_cycles).max(axis=1)
    return tuple(map(int, np.ceil(seconds * cluster.clock_hz) + waits))


def _cable(cluster: Cluster, device: int) -> Link:
    """The slower end of what joins a device to the one before it; for the first device, to the one after it."""
    ends = max(device, 1)
    return min(cluster.send_links[ends - 1], cluster.receive_links[ends], key=lambda link: link.bytes_per_s)


def _uses(cluster: Cluster, ring: Sequence[int]) -> IntArray:
    """(n_devices,) 1 for the cables that a ring uses."""
    uses = np.zeros(len(cluster), dtype=np.int64)
    if cluster.topology is Topology.LINE:
        uses[ring[0] + 1 : ring[-1] + 1] = 1
    else:
        uses[list(ring)] = 1
    return uses
