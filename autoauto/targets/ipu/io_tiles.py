"""A cluster some tiles of whose devices exchange with the host while the others compute: `with_io_tiles`."""

from __future__ import annotations

from dataclasses import replace
from math import isinf

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.targets.ipu.kernels import EXCHANGE_BYTES_PER_CYCLE, SHORTEST_EXCHANGE_CYCLES, SYNC_CYCLES


def with_io_tiles(cluster: Cluster, n_io_tiles: int) -> Cluster:
    """`cluster` with `n_io_tiles` of every device given to the host's transfers.

    The other tiles compute while io tiles load the next micro-batch and store the last; then one exchange within the
    device hands them over, at the rate of the io tiles. A period lasts at least as long as the host takes.

    Raises:
        BadInput: no tile is left to compute, there are no transfers with the host, or the devices are of several kinds:
            then only a plan says which of them exchange with the host.
    """
    if cluster.kinds:
        raise BadInput(
            f"io_tiles {n_io_tiles} needs devices in a given order, {cluster.name} has kinds of them; try --io-tiles 0"
        )
    first, last = cluster.devices[0], cluster.devices[-1]
    fewest = min(cluster.devices, key=lambda device: device.n_tiles)
    if n_io_tiles >= fewest.n_tiles:
        raise BadInput(f"io_tiles must be below {fewest.n_tiles}, the tiles of a {fewest.name}, got {n_io_tiles}")
    host_links = cluster.receive_links[0], cluster.send_links[-1]
    if all(isinf(link.bytes_per_s) for link in host_links):
        raise BadInput(f"io_tiles {n_io_tiles} exchange with the host, got synthetic data; leave one of them out")
    return replace(
        cluster,
        devices=tuple(_without(device, n_io_tiles) for device in cluster.devices),
        receive_links=(_hand_over(first, n_io_tiles), *cluster.receive_links[1:]),
        send_links=(*cluster.send_links[:-1], _hand_over(last, n_io_tiles)),
        overlapped_host_links=host_links,
    )


def _without(device: Device, n_tiles: int) -> Device:
    memory_bytes = device.memory_bytes * (1 - n_tiles / device.n_tiles)
    return replace(device, n_tiles=device.n_tiles - n_tiles, memory_bytes=memory_bytes)


def _hand_over(device: Device, n_tiles: int) -> Link:
    rate = n_tiles * EXCHANGE_BYTES_PER_CYCLE * device.clock_hz
    return Link(bytes_per_s=rate, idle_cycles=SYNC_CYCLES + SHORTEST_EXCHANGE_CYCLES)
