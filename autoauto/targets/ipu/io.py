"""Host transfers that io tiles make while the other tiles compute: `overlap_io`."""

from __future__ import annotations

from dataclasses import replace

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.targets.ipu.kernels import EXCHANGE_BYTES_PER_CYCLE, SHORTEST_EXCHANGE_CYCLES, SYNC_CYCLES

IO_TILES = 32  # PopRT's examples: num_io_tiles


def overlap_io(cluster: Cluster, n_io_tiles: int = IO_TILES) -> Cluster:
    """`cluster` with `n_io_tiles` of every device given to the host's transfers.

    The tiles left compute while io tiles load the next micro-batch and store the last; then one exchange within the
    device hands them over, at the rate of the io tiles. A period lasts as long as the host takes at least.

    Raises:
        BadInput: no tile is left to compute, or the host's links are not there to overlap.
    """
    first, last = cluster.devices[0], cluster.devices[-1]
    if not 0 < n_io_tiles < min(device.n_tiles for device in cluster.devices):
        raise BadInput(f"io tiles must be some of {first.n_tiles}, got {n_io_tiles}; try {IO_TILES}")
    return replace(
        cluster,
        devices=tuple(_without(device, n_io_tiles) for device in cluster.devices),
        receive_links=(_hand_over(first, n_io_tiles), *cluster.receive_links[1:]),
        send_links=(*cluster.send_links[:-1], _hand_over(last, n_io_tiles)),
        overlapped_host_links=(cluster.receive_links[0], cluster.send_links[-1]),
    )


def _without(device: Device, n_tiles: int) -> Device:
    memory_bytes = device.memory_bytes * (1 - n_tiles / device.n_tiles)
    return replace(device, n_tiles=device.n_tiles - n_tiles, memory_bytes=memory_bytes)


def _hand_over(device: Device, n_tiles: int) -> Link:
    rate = n_tiles * EXCHANGE_BYTES_PER_CYCLE * device.clock_hz
    return Link(bytes_per_s=rate, idle_cycles=SYNC_CYCLES + SHORTEST_EXCHANGE_CYCLES)
