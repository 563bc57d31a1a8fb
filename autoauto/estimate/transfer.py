"""Transfers of a stage, `receive_cycles` and `send_cycles`, as in the function `transfer_cycle` of [auto-pipeline].

Where all devices exchange at the same time, every device waits while the first receives from the host and the last
sends to it. Two constants are therefore part of every entry: `host_in`, the first layer's inputs over the first link,
in `receive_cycles`; `host_out`, the last layer's outputs over the last link, in `send_cycles`. [auto-pipeline] has them
with overlap, too. With `receive(start)` and `send(stop)` for the transfers between devices, the three devices of a
pipeline transfer for a stage `[start, stop)`:

    device 0:  host_in                    + host_out + send(stop)
    device 1:  host_in + receive(start)   + host_out + send(stop)
    device 2:  host_in + receive(start)   + host_out

With the periods `serial` and `duplex` every device counts its own transfers only: the constants are in the first row
of `receive_cycles` and in the last row of `send_cycles`.

For training, transfers between devices count twice: activations one way, and as many bytes of gradients back over the
same cable.

Each term is rounded down to whole cycles. Cycles are those of the first device's clock on every device, since the time
on a link does not depend on the clock of the device at its end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.hardware import Cluster, Link, Period
from autoauto.records.profile import ModelProfile


def receive_cycles(
    profile: ModelProfile,
    cluster: Cluster,
    period: Period = Period.BARRIER,
    training: bool = False,
    host_only: bool = False,
) -> IntArray:
    """Cycles in which device d receives when its stage starts at layer i, (P, n), the host's constant included.

    With `host_only` nothing but this constant: where any device reaches any other, the rest is an `Exchange`.
    """
    n_bytes = [layer.input_bytes for layer in profile.layers]
    times = _link_cycles(n_bytes, cluster.receive_links, cluster)
    return _with_host(times, 0, period, 0 if host_only else 1 + training)


def send_cycles(
    profile: ModelProfile,
    cluster: Cluster,
    period: Period = Period.BARRIER,
    training: bool = False,
    host_only: bool = False,
) -> IntArray:
    """Cycles in which device d sends when its stage stops before layer i, (P, n + 1), the host's constant included.

    With `host_only` nothing but this constant.
    """
    n_bytes = [0, *(layer.output_bytes for layer in profile.layers)]
    times = _link_cycles(n_bytes, cluster.send_links, cluster)
    return _with_host(times, -1, period, 0 if host_only else 1 + training)


def _with_host(times: IntArray, end: int, period: Period, n_transfers: int) -> IntArray:
    """The cycles between devices so many times, and the host's constant of the first (0) or last (-1) device.

    With the periods `barrier` and `overlap` all devices wait for it.
    """
    host = int(times[end, end])
    times[end] = 0
    times *= n_transfers
    times[slice(None) if period in (Period.BARRIER, Period.OVERLAP) else end] += host
    return times


def _link_cycles(n_bytes: Sequence[int], links: Sequence[Link], cluster: Cluster) -> IntArray:
    """Cycles of every number of bytes on every device's link, (P, len(n_bytes)); equal links are computed once."""
    column, clock_hz = np.array(n_bytes), cluster.clock_hz
    rows = {link: link.cycles(column, clock_hz) for link in dict.fromkeys(links)}
    return np.stack([rows[link] for link in links])
