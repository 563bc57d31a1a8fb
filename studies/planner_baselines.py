"""`BASELINES`: the rules by which other planners cut a model, as plain code, to compare `optimal` with.

Every baseline assigns blocks (`Blocks`), so none separates layers that share a variable, and returns n_devices + 1
boundaries. It returns None when its rule leaves a device without layers. `greedy_fill` and `three_axes` respect memory
and return None when no partition of theirs fits; the others ignore memory, as the original planners do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from autoauto.plan.pipeline.blocks import Blocks, contract
from autoauto.plan.pipeline.fitting import Fitting
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.profile import PARAMETER
from autoauto.records.units import IntArray

Partition = tuple[int, ...]

NEVER = 2**62  # more cycles than any plan takes


def uniform_count(table: CostTable) -> Partition | None:
    """As many blocks on every device; the last devices take the remainder [optimum-graphcore].

    Seven layers on three devices: [0, 2, 4, 7].
    """
    blocks, n_stages = contract(table), table.n_devices
    each, n_left = divmod(len(blocks), n_stages)
    return _partition(blocks, [i * each + max(0, i - (n_stages - n_left)) for i in range(n_stages + 1)])


def uniform_parameters(table: CostTable) -> Partition | None:
    """As many parameter bytes on every device: each cut where their running sum is nearest to its equal share.

    The intention of `partition_method="parameters"` [deepspeed, issue 2974]. Layers with 4, 1, 1, 1, 1 MiB on two
    devices: [0, 1, 5].
    """
    blocks = contract(table)
    prefix = table.memory.exclusive(PARAMETER).stop_bytes
    return _partition(blocks, _nearest(prefix[blocks.cuts].tolist(), table.n_devices))


def greedy_fill(table: CostTable) -> Partition | None:
    """Fill one device after the other to half its limit, or more where necessary, and balance nothing [popliner].

    The rule (`greedy_rule` of `tests/vectors/memory_popliner_profiles.json`): with at least 3, else 2, else 1 layers a
    device, and 0.5, 0.6, ... 1.0 of the limit, take layers until the memory exceeds that; the first success wins.
    popliner may leave devices idle; a plan for exactly n_devices must not, so the minimum number of blocks is reserved
    for each of the following devices.
    """
    blocks = contract(table)
    for min_blocks in (3, 2, 1):
        for tenths in range(5, 11):
            cuts = _filled(blocks, [limit * tenths // 10 for limit in table.memory_limit_bytes.tolist()], min_blocks)
            if cuts[-1] == len(blocks):
                return _partition(blocks, cuts)
    return None


def _filled(blocks: Blocks, limits_bytes: Sequence[int], min_blocks: int) -> list[int]:
    """Cuts up to the first device that cannot hold `min_blocks` blocks."""
    cuts = [0]
    for device, (earliest, *_) in enumerate(Fitting.of_devices(blocks, limits_bytes)):
        n_reserved = min_blocks * (len(limits_bytes) - device - 1)
        stop = min(bisect_right(earliest, cuts[-1]) - 1, len(blocks) - n_reserved)
        if stop < cuts[-1] + min_blocks:
            break
        cuts.append(stop)
    return cuts


def block_partition(table: CostTable) -> Partition | None:
    """Even out compute until no two stages differ by more than the largest block costs [block-partitions].

    Start anywhere; while the longest and the shortest stage differ by more, the shortest takes the next block on the
    longest one's side. The variant of [torchgpipe] subtracts the smallest layer first and breaks ties differently.
    Layers of 4, 4, 4, 2, 3, 4, 4, 4, 1 cycles on three devices: from [0, 2, 6, 9] to [0, 3, 6, 9].
    """
    blocks = contract(table)
    if len(blocks) < table.n_devices:
        return None
    prefix = blocks.costs[0].compute_prefix_cycles
    largest_block = max(_sums(prefix, range(len(prefix))))
    cuts = _nearest(prefix, table.n_devices)
    while True:
        sums = _sums(prefix, cuts)
        longest = sums.index(max(sums))
        shortest = min(range(len(sums)), key=lambda i: (sums[i], cuts[i + 1] - cuts[i]))  # an empty stage first
        if sums[longest] - sums[shortest] <= largest_block:
            return _partition(blocks, cuts)
        if longest < shortest:
            cuts[shortest] -= 1
        else:
            cuts[shortest + 1] += 1


def binary_search(table: CostTable) -> Partition | None:
    """The smallest bottleneck of compute by bisection, every stage filled up to it [deepspeed].

    DeepSpeed's `partition_balanced` before its pull request 4312: prefix sums and one greedy pass a probe. Filling can
    use up the blocks before the last devices: five equal layers on four devices end as [0, 2, 4, 5, 5], which is no
    partition.
    """
    blocks = contract(table)
    prefix, offsets, n_stages = (
        blocks.costs[0].compute_prefix_cycles,
        blocks.costs[0].start_offset_cycles,
        table.n_devices,
    )

    def filled(bottleneck: int) -> list[int]:
        cuts = [0]
        for _ in range(n_stages):
            cuts.append(max(bisect_right(prefix, offsets[cuts[-1]] + bottleneck) - 1, cuts[-1]))
        return cuts

    bounds = range(prefix[-1] + 1)
    return _partition(blocks, filled(bisect_left(bounds, True, key=lambda bound: filled(bound)[-1] == len(blocks))))


def three_axes(table: CostTable) -> Partition | None:
    """The dynamic programme over devices, ends and transfer caps of [auto-pipeline]: exact, O(P n^2) for every cap.

    The section "Considering data transfer time" of its README: one clock, no overlap. It uses the planner's own
    earliest starts within memory, and NumPy computes all starts and caps of a stop at once, so it is faster than the
    original.
    """
    blocks = contract(table)
    earliest = [fitting.earliest for fitting in Fitting.of_devices(blocks, table.memory_limit_bytes.tolist())]
    caps = _transfer_caps(blocks)
    costs = deque(_partition_costs(blocks, earliest, caps), maxlen=1).pop()[-1]
    best = int(np.argmin(costs + caps))
    return None if costs[best] == NEVER else _partition(blocks, _trace(blocks, earliest, caps[best : best + 1]))


def _transfer_caps(blocks: Blocks) -> IntArray:
    """Every possible transfer time of a stage, in cycles, ascending."""
    rows = zip(blocks.receive_cycles, blocks.send_cycles, strict=True)
    sums = [np.add.outer(np.unique(receive[:-1]), np.unique(send[1:])).ravel() for receive, send in rows]
    return np.unique(np.concatenate(sums))


def _partition_costs(blocks: Blocks, earliest: list[list[int]], caps: IntArray) -> Iterator[IntArray]:
    """By number of devices: the minimum of max compute up to every stop within every cap, (B + 1, n_caps)."""
    prefix, offsets = np.array(blocks.costs[0].compute_prefix_cycles), np.array(blocks.costs[0].start_offset_cycles)
    costs = np.full((len(prefix), len(caps)), NEVER)
    costs[0] = 0
    yield costs
    for device, first in enumerate(earliest):
        receive, send = np.array(blocks.receive_cycles[device]), blocks.send_cycles[device]
        before, costs = costs, np.full_like(costs, NEVER)
        for stop in range(1, len(prefix)):
            starts = slice(first[stop], stop)
            within = receive[starts, None] + send[stop] <= caps
            longest = np.maximum(before[starts], (prefix[stop] - offsets[starts])[:, None])
            costs[stop] = np.where(within, longest, NEVER).min(axis=0, initial=NEVER)
        yield costs


def _trace(blocks: Blocks, earliest: list[list[int]], cap: IntArray) -> list[int]:
    """The cuts of a plan with minimal max compute within one cap."""
    prefix, offsets = blocks.costs[0].compute_prefix_cycles, blocks.costs[0].start_offset_cycles
    rows = [costs[:, 0] for costs in _partition_costs(blocks, earliest, cap)]
    cuts = [len(blocks)]
    for device in reversed(range(len(earliest))):
        stop = cuts[-1]
        receive, send = blocks.receive_cycles[device], blocks.send_cycles[device]
        cuts.append(
            next(
                start
                for start in range(earliest[device][stop], stop)
                if receive[start] + send[stop] <= cap[0]
                and max(rows[device][start], prefix[stop] - offsets[start]) == rows[device + 1][stop]
            )
        )
    return cuts[::-1]


def _nearest(prefix: Sequence[int], n_stages: int) -> list[int]:
    """Cuts where the running sum is nearest to equal shares, at least one block a stage where there are enough."""
    total, cuts = prefix[-1], [0]
    for i in range(1, n_stages):
        after = bisect_left(prefix, -(-total * i // n_stages))
        nearest = min(max(after - 1, 0), after, key=lambda cut: abs(n_stages * prefix[cut] - total * i))
        cuts.append(min(max(nearest, cuts[-1] + 1), len(prefix) - 1 - n_stages + i))
    return [*cuts, len(prefix) - 1]


def _sums(prefix: Sequence[int], cuts: Sequence[int]) -> list[int]:
    return [prefix[stop] - prefix[start] for start, stop in pairwise(cuts)]


def _partition(blocks: Blocks, cuts: Sequence[int]) -> Partition | None:
    """The layers at these block boundaries; None when a stage is empty."""
    if any(start >= stop for start, stop in pairwise(cuts)):
        return None
    return tuple(blocks.cuts[cut] for cut in cuts)


BASELINES: tuple[Callable[[CostTable], Partition | None], ...] = (
    three_axes, uniform_count, uniform_parameters, greedy_fill, block_partition, binary_search,
)  # fmt: skip
