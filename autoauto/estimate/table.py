"""From a model's profile and a cluster to the costs of every range of layers: `cost_table`.

A finished table changes by `with_entry_overhead`, by `with_cuts_at`, which allows fewer cuts, and by `calibrated`,
which scales compute to measured stages.

Transfers of a stage, `receive_cycles` and `send_cycles`, as in the function `transfer_cycle` of [auto-pipeline].

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

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from autoauto.estimate.distinct import distinct_layers, prefix_cycles
from autoauto.estimate.memory import is_training, memory_limit_bytes, range_memory, stash_entries
from autoauto.estimate.sums import cut_allowed
from autoauto.records.costs.correction import MOVED_BYTES_PER_CYCLE, Correction, RangeFeature
from autoauto.records.costs.cost import CostTable, Exchange, TensorUse
from autoauto.records.costs.profile import ModelProfile
from autoauto.records.hardware import Cluster, Link, Period
from autoauto.records.plans.plan import Stage
from autoauto.records.units import IntArray


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
    return _transfer_cycles(n_bytes, cluster.receive_links, cluster, 0, period, 0 if host_only else 1 + training)


def send_cycles(
    profile: ModelProfile,
    cluster: Cluster,
    period: Period = Period.BARRIER,
    training: bool = False,
    host_only: bool = False,
) -> IntArray:
    """Cycles in which device d sends when its stage stops before layer i, (P, n + 1), the host's constant included.

    With `host_only` they are nothing but this constant.
    """
    n_bytes = [0, *(layer.output_bytes for layer in profile.layers)]
    return _transfer_cycles(n_bytes, cluster.send_links, cluster, -1, period, 0 if host_only else 1 + training)


def _transfer_cycles(
    n_bytes: Sequence[int], links: Sequence[Link], cluster: Cluster, end: int, period: Period, n_transfers: int
) -> IntArray:
    """Cycles of `n_transfers` of every number of bytes on every device's link, (P, len(n_bytes)), and of the host's.

    The device `end`, 0 or -1, has the host's link. With the periods `barrier` and `overlap` all devices wait for it.
    """
    column, clock_hz = np.array(n_bytes), cluster.clock_hz
    rows = {link: link.cycles(column, clock_hz) for link in dict.fromkeys(links)}  # equal links are computed once
    times = np.stack([rows[link] for link in links])
    host = int(times[end, end])
    times[end] = 0  # its link leads to the host, not to another device
    times *= n_transfers
    if period in (Period.BARRIER, Period.OVERLAP):
        times += host
    else:
        times[end] += host
    return times


def cost_table(
    profile: ModelProfile,
    cluster: Cluster,
    planning_proportion: float,
    period: Period = Period.BARRIER,
    in_flight: Sequence[int] | None = None,
    recompute: bool = False,
    tensors: Sequence[TensorUse] | None = None,
) -> CostTable:
    """Estimate every range of layers on every device of `cluster` by sums over layers [auto-pipeline, README].

    A stage may fill the share `planning_proportion` of its device's memory. `period` is what the devices do at the same
    time. A profile counts cycles of each device's own clock, the table those of the first device's clock.

    For training, `in_flight` has the largest number of micro-batches in flight on each device, one when it is None.
    With `recompute` a device stashes only a stage's inputs and runs the forward pass again before the backward pass.
    An imported profile without options is for training when `in_flight` is given.

    With `tensors`, any device reaches any other over its own links, and stages exchange these tensors; those of the
    model's inputs and outputs excepted, which the first and the last layer have.

    Raises:
        BadInput: `planning_proportion` is not in (0, 1], numbers are too large to be added exactly, `in_flight` is not
            a count from 1 for every device, or training is asked of a profile for inference.
    """
    is_training(profile, in_flight, recompute)
    first, cycles = cluster.first(1), prefix_cycles(distinct_layers(profile), recompute)
    table = CostTable(
        compute_prefix_cycles=cycles.compute,
        backward_prefix_cycles=cycles.backward,
        weight_prefix_cycles=cycles.weight,
        entry_cycles=np.zeros(len(profile), dtype=np.int64),
        memory=range_memory(profile, recompute),
        stash_entries=(0,),
        memory_limit_bytes=memory_limit_bytes(first, planning_proportion),
        receive_cycles=np.zeros((1, len(profile)), dtype=np.int64),
        send_cycles=np.zeros((1, len(profile) + 1), dtype=np.int64),
        cut_allowed=cut_allowed(profile.tied),
        speeds=first.speeds,
        period=period,
    )
    return on_devices(table, profile, cluster, planning_proportion, in_flight, tensors)


def on_devices(
    table: CostTable,
    profile: ModelProfile,
    cluster: Cluster,
    planning_proportion: float,
    in_flight: Sequence[int] | None = None,
    tensors: Sequence[TensorUse] | None = None,
) -> CostTable:
    """A cost table of the ranges of `table` on the devices of `cluster`; other arguments as in `cost_table`.

    The memory of ranges is the same object, so that what is known of it can be used again.
    """
    exchange: Exchange | None = None
    if tensors is not None:
        exchange = Exchange(tuple(tensors), cluster.receive_links, cluster.send_links, cluster.clock_hz)
    training, host_only = is_training(profile, in_flight), exchange is not None
    return replace(
        table,
        stash_entries=stash_entries(len(cluster), in_flight),
        memory_limit_bytes=memory_limit_bytes(cluster, planning_proportion),
        receive_cycles=receive_cycles(profile, cluster, table.period, training, host_only),
        send_cycles=send_cycles(profile, cluster, table.period, training, host_only),
        speeds=cluster.speeds,
        exchange=exchange,
    )


def with_entry_overhead(table: CostTable, profile: ModelProfile, correction: Correction) -> CostTable:
    """`table` plus the entry overhead of ranges: cycles to read their inputs, by the factor of `RangeFeature.ENTRY`.

    `table` is that of the corrected profile. A range from layer 0 has no entry overhead, since no cut is before it.
    """
    if RangeFeature.ENTRY not in correction.features:
        return table
    assert profile.options is not None
    factor = correction.features[RangeFeature.ENTRY] * correction.at_batch_size(profile.options.batch_size)
    n_bytes = np.array([0, *(layer.input_bytes for layer in profile.layers[1:])])
    entry_cycles = np.rint(n_bytes * factor / MOVED_BYTES_PER_CYCLE).astype(np.int64)
    return replace(table, entry_cycles=monotone_entry_cycles(entry_cycles, table.compute_prefix_cycles))


def monotone_entry_cycles(entry_cycles: IntArray, prefix_cycles: IntArray) -> IntArray:
    """Lower entry cycles (n,) until a range costs no less than one that starts later inside it, as planning requires.

    With the running sum of cycles `prefix`, (n + 1,), the cost of `[i, stop)` is `prefix[stop] - prefix[i] + entry[i]`.
    It does not rise with i exactly when `entry - prefix` does not, so the result is the running minimum of that.

    >>> monotone_entry_cycles(np.array([0, 7, 9]), np.array([0, 4, 5, 8])).tolist()
    [0, 4, 5]
    """
    prefix = prefix_cycles[:-1]
    lowered: IntArray = prefix + np.minimum.accumulate(entry_cycles - prefix)
    return lowered


def with_cuts_at(table: CostTable, cuts: Sequence[int]) -> CostTable:
    """`table` with those of its legal cuts that lie before the layers `cuts`, and both ends."""
    chosen = np.isin(np.arange(table.n_layers + 1), [0, *cuts, table.n_layers])
    return replace(table, cut_allowed=table.cut_allowed & chosen)


def calibrated(table: CostTable, stages: Iterable[Stage]) -> CostTable:
    """`table` scaled so that the compute of every measured stage is what was measured; for inference only.

    All layers of a stage, and their entry overhead, are scaled by measured over estimated cycles. Plans whose cuts lie
    near those of the measured plan are then predicted better than by a `Correction`, which has the same factors for
    the whole model. Memory and transfers do not change.
    """
    factors = np.ones(table.n_layers)
    for stage in stages:
        estimated_cycles = max(table.compute_cycles(*stage.layers, stage.device), 1)
        factors[slice(*stage.layers)] *= stage.compute_cycles / estimated_cycles

    def scaled(ranges: CostTable) -> CostTable:
        cycles = np.diff(ranges.compute_prefix_cycles) * factors
        prefix = np.concatenate(([0], np.rint(np.cumsum(cycles)))).astype(np.int64)
        entry_cycles = np.rint(ranges.entry_cycles * factors).astype(np.int64)
        return replace(ranges, compute_prefix_cycles=prefix, entry_cycles=monotone_entry_cycles(entry_cycles, prefix))

    return table.changed(scaled)
