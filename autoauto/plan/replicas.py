"""Replicas of a pipeline: on which devices they run, `placements`, and what they move.

Their machines move samples, `shared_cycles`, and in training the sum of the gradients, `all_reduce_cycles`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from autoauto.records.hardware import Cluster, Link, Topology
from autoauto.records.units import IntArray


def placements(cluster: Cluster, n_devices: int, replicas: int) -> list[tuple[int, ...]]:
    """One or two ways to spread replicas over a cluster: of each the first device of every replica, ascending.

    Pipelines take neighbouring devices. The first way keeps each within as few machines as hold it, and gives all
    machines equally many; the second packs them, and is the only one where there are too many for the first.

        machine        |   0   |   1   |   2   |   3   |      4 replicas of 3 devices, 4 devices a machine
        in machines    |a a a  |b b b  |c c c  |d d d  |
        packed         |a a a b|b b c c|c d d d|       |
    """
    packed = tuple(range(0, replicas * n_devices, n_devices))
    # First the first pipelines of all machines, then the second ones, and so on: machines get equally many.
    ranked: list[tuple[int, int]] = []  # (rank, first device); a pipeline lies in as few machines as hold one
    span = -(-n_devices // cluster.machine_size) * cluster.machine_size
    for first in range(0, len(cluster), span):
        stop = min(first + span, len(cluster))
        ranked += enumerate(range(first, stop - n_devices + 1, n_devices))
    inside = tuple(sorted(start for _, start in sorted(ranked)[:replicas]))
    if len(inside) < replicas or inside == packed:
        return [packed]
    return [inside, packed]


def shared_cycles(cluster: Cluster, n_devices: int, starts: Sequence[int], in_bytes: int, out_bytes: int) -> int:
    """Cycles of the reference clock in which machines move a micro-batch in and another out for every replica.

    Both directions transfer at once, and the slowest machine counts:

        machine   |   0   |   1   |      3 replicas of 2 devices, packed, 4 devices a machine:
        device    |0 1 2 3|4 5 6 7|      two replicas enter and leave machine 0, one machine 1
        replica   |a a b b|c c    |

    Args:
        n_devices: of one pipeline.
        starts: the first device of every replica.
        in_bytes, out_bytes: of a micro-batch.
    """
    if cluster.machine is None:
        return 0
    starting = Counter(cluster.machine_device(start).machine for start in starts)
    ending = Counter(cluster.machine_device(start + n_devices - 1).machine for start in starts)
    moved_bytes = max(max(starting.values()) * in_bytes, max(ending.values()) * out_bytes)
    return int(Link(cluster.machine.host_bytes_per_s, 0).cycles(moved_bytes, cluster.clock_hz))


def all_reduce_cycles(
    cluster: Cluster,
    rings: Sequence[Sequence[int]],
    n_bytes: Sequence[int],
    n_messages: Sequence[int] = (),
    round_cycles: int = 0,
) -> tuple[int, ...]:
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
        rings: for every stage its device in each replica, ascending.
        n_messages: in how many parts every stage sums them, one after the other; by default in one.
        round_cycles: a wait of every round for each message, besides the idle cycles of the links.
    """
    n_rounds = 2 * (len(rings[0]) - 1)
    if not n_rounds:
        return (0,) * len(rings)
    moved_bytes = np.array(n_bytes) * n_rounds / len(rings[0])
    links = []  # of each device the slower end of the cable to the one before it; of the first, to the one after it
    for ends in (max(device, 1) for device in range(len(cluster))):
        pair = cluster.send_links[ends - 1], cluster.receive_links[ends]
        links.append(min(pair, key=lambda link: link.bytes_per_s))
    rates = np.array([link.bytes_per_s for link in links])
    idle_cycles = np.array([link.idle_cycles for link in links])
    uses = np.array([_uses(cluster, ring) for ring in rings])
    # (stages, stages): what another ring has moved when a ring is done; (stages, cables): what all have on a cable.
    cable_bytes = np.minimum.outer(moved_bytes, moved_bytes) @ uses
    seconds = (uses * cable_bytes / rates).max(axis=1)
    waits = n_rounds * ((uses * idle_cycles).max(axis=1) + round_cycles) * np.array(n_messages or [1] * len(rings))
    return tuple(map(int, np.ceil(seconds * cluster.clock_hz) + waits))


def _uses(cluster: Cluster, ring: Sequence[int]) -> IntArray:
    """(n_devices,) 1 for the cables that a ring uses."""
    uses = np.zeros(len(cluster), dtype=np.int64)
    if cluster.topology is Topology.LINE:
        uses[ring[0] + 1 : ring[-1] + 1] = 1
    else:
        uses[list(ring)] = 1
    return uses
