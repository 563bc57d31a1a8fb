"""Which devices replicas of a pipeline run on, `placements`, and what their machines move for them, `shared_cycles`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from autoauto.records.hardware import Cluster, Link


def placements(cluster: Cluster, n_devices: int, replicas: int) -> list[tuple[int, ...]]:
    """One or two ways to spread replicas over a cluster: of each the first device of every replica, ascending.

    Pipelines take neighbouring devices. The first way keeps each within as few machines as hold it, and gives all
    machines equally many; the second packs them, and is the only one where there are too many for the first.

        machine        |   0   |   1   |   2   |   3   |      4 replicas of 3 devices, 4 devices a machine
        in machines    |a a a  |b b b  |c c c  |d d d  |
        packed         |a a a b|b b c c|c d d d|       |

    Args:
        cluster: the devices.
        n_devices: of one pipeline.
        replicas: how many there are; the cluster has devices for all of them.
    """
    packed = tuple(range(0, replicas * n_devices, n_devices))
    by_rank = [start for _, start in sorted(_in_machines(cluster, n_devices))]
    inside = tuple(sorted(by_rank[:replicas]))
    return [inside, packed] if len(inside) == replicas and inside != packed else [packed]


def _in_machines(cluster: Cluster, n_devices: int) -> Iterator[tuple[int, int]]:
    """Where a pipeline within as few machines as hold it may start, and how many start on the same machines before."""
    span = -(-n_devices // cluster.machine_size) * cluster.machine_size
    for first in range(0, len(cluster), span):
        stop = min(first + span, len(cluster))
        yield from enumerate(range(first, stop - n_devices + 1, n_devices))


def shared_cycles(cluster: Cluster, n_devices: int, starts: Sequence[int], in_bytes: int, out_bytes: int) -> int:
    """Cycles of the reference clock in which machines move a micro-batch in and another out for every replica.

    Both directions transfer at once, and the slowest machine counts:

        machine   |   0   |   1   |      3 replicas of 2 devices, packed, 4 devices a machine:
        device    |0 1 2 3|4 5 6 7|      two replicas enter and leave machine 0, one machine 1
        replica   |a a b b|c c    |

    Args:
        cluster: the devices.
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
