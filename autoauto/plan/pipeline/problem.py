"""The planner's problem, `CutProblem`: divide blocks among stages, each on a device with its clock, memory and links.

From a partition to a `Plan` with its costs, `evaluate`; refuse one that does not fit its devices, `check_memory`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.blocks import BlockCosts, Blocks, contract
from autoauto.plan.pipeline.fitting import Fitting
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import RangeMemory
from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.hardware import Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.phased import Phase
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import format_bytes, reference_cycles


class Clock(NamedTuple):
    """Devices on which every range takes equally many cycles of the reference clock."""

    speed: Fraction
    costs: BlockCosts
    devices: list[int]

    def compute_cycles(self, cuts: list[int]) -> int:
        """The largest compute of a plan on one of these devices."""
        prefix, offsets = self.costs.compute_prefix_cycles, self.costs.start_offset_cycles
        return reference_cycles(max(prefix[cuts[i + 1]] - offsets[cuts[i]] for i in self.devices), self.speed)

    def next_compute(self, cycles: int) -> int | None:
        """The smallest compute of any stage that is `cycles` or more; None if there is none."""
        # The fewest of the device's own cycles that take more than `cycles - 1` of the reference clock.
        own_cycles = (cycles - 1) * self.speed.numerator // self.speed.denominator + 1
        prefix, offsets = self.costs.prefix, self.costs.offsets
        if own_cycles > prefix[-1]:
            return None
        # By start the first stop at which a stage takes so long: no other stop from there is nearer to `cycles`.
        stops = np.searchsorted(prefix, offsets + own_cycles)
        # A stage has a block or more, even if its entry overhead alone takes so long.
        stops = np.maximum(stops, np.arange(1, len(stops) + 1))
        stops = stops[: np.searchsorted(stops, len(prefix))]  # from later starts no stage takes so long
        return reference_cycles(int((prefix[stops] - offsets[: len(stops)]).min()), self.speed)


@dataclass(frozen=True, slots=True)
class CutProblem:
    """A `CostTable` prepared for probing: B blocks to divide among P stages.

    A plan is a list of P + 1 cuts, each the index of the block before which it lies: 0 first, B last.

    Attributes:
        fitting: by device, the ranges that memory allows.
        speeds: (P,) every device's clock relative to the reference clock.
        start_loads, stop_loads: (P,) lists by start and by stop, (B + 1,). Besides its compute, a stage is within a
            bound if its two loads add up to `load_scales` times the bound or less.
        load_scales: (P,) factors of the bound.
        cut_limits: (P + 1,) the first and the last position of each cut.
    """

    blocks: Blocks
    fitting: list[Fitting]
    speeds: tuple[Fraction, ...]
    clocks: list[Clock] = field(compare=False)
    period: Period  # what the devices do at the same time
    start_loads: list[list[int]]
    stop_loads: list[list[int]]
    load_scales: list[int]
    cut_limits: list[tuple[int, int]]

    @classmethod
    def of(cls, blocks: Blocks, fitting: list[Fitting], speeds: tuple[Fraction, ...], period: Period) -> CutProblem:
        """The problem whose cuts may lie anywhere."""
        loads = _loads(blocks, speeds, period)
        n_blocks, n_stages = len(blocks), len(speeds)
        # Before every cut and after it lies at least a block for each stage there.
        inner = [(i, n_blocks - n_stages + i) for i in range(1, n_stages)]
        cut_limits = [(0, 0), *inner, (n_blocks, n_blocks)]
        clocks: dict[tuple[Fraction, int], Clock] = {}
        for device, speed in enumerate(speeds):
            own = blocks.costs[device]
            clocks.setdefault((speed, id(own)), Clock(speed, own, [])).devices.append(device)
        return cls(blocks, fitting, speeds, list(clocks.values()), period, *loads, cut_limits)

    @property
    def n_stages(self) -> int:
        """Number of stages, one a device."""
        return len(self.fitting)

    def part(self, first: int, stop: int) -> CutProblem:
        """This problem on the devices `[first, stop)` only, as `CostTable.part`."""
        part = slice(first, stop)
        return CutProblem.of(self.blocks.part(first, stop), self.fitting[part], self.speeds[part], self.period)

    def own_cycles(self, cycles: int) -> list[int]:
        """For each device, `cycles` of the reference clock in cycles of its own clock, rounded down."""
        own_cycles = [0] * self.n_stages
        for speed, _, devices in self.clocks:
            for device in devices:
                own_cycles[device] = cycles * speed.numerator // speed.denominator
        return own_cycles

    def next_compute(self, cycles: int) -> int:
        """The smallest compute of any stage on any device that is `cycles` or more; `cycles` if there is none."""
        by_clock = [clock.next_compute(cycles) for clock in self.clocks]
        return min((longer for longer in by_clock if longer is not None), default=cycles)

    def compute_cycles(self, cuts: list[int]) -> int:
        """The largest compute of a plan."""
        return max(clock.compute_cycles(cuts) for clock in self.clocks)

    def transfer_cycles(self, cuts: list[int]) -> int:
        """The largest transfer of a plan."""
        receive, send = self.blocks.receive_cycles, self.blocks.send_cycles
        return max(receive[i][start] + send[i][stop] for i, (start, stop) in enumerate(pairwise(cuts)))

    def cost_cycles(self, cuts: list[int]) -> int:
        """The cost of a plan, but without the lower bound `Plan.host_cycles`, which is equal for all plans."""
        compute, receive, send = [], [], []
        for i, (start, stop) in enumerate(pairwise(cuts)):
            own = self.blocks.costs[i]
            own_cycles = own.compute_prefix_cycles[stop] - own.start_offset_cycles[start]
            compute.append(reference_cycles(own_cycles, self.speeds[i]))
            receive.append(self.blocks.receive_cycles[i][start])
            send.append(self.blocks.send_cycles[i][stop])
        return self.period.cycles(compute, receive, send)

    def bounds(self, cuts: list[int]) -> tuple[int, int]:
        """The smallest bounds of `probe` that a plan is within."""
        if self.period in (Period.BARRIER, Period.OVERLAP):
            return self.compute_cycles(cuts), self.transfer_cycles(cuts)
        cost = self.cost_cycles(cuts)
        return cost, cost

    def loads_within(self, cuts: list[int], bound: int) -> bool:
        """True if the loads of all stages of a plan are within a bound."""
        for i, (start, stop) in enumerate(pairwise(cuts)):
            if self.start_loads[i][start] + self.stop_loads[i][stop] > bound * self.load_scales[i]:
                return False
        return True

    def fits(self, cuts: list[int]) -> bool:
        """True if all stages of a plan are within the memory of their devices."""
        stages = zip(self.fitting, pairwise(cuts), strict=True)
        return all(stop <= fitting.latest[start] for fitting, (start, stop) in stages)

    def partition(self, cuts: list[int]) -> list[int]:
        """The cuts as layers instead of blocks, as `Plan.partition`."""
        return [self.blocks.cuts[cut] for cut in cuts]


def prepare(table: CostTable) -> CutProblem:
    """Contract the layers and find the ranges that memory allows, in O(n) for each different device if they are nested.

    Raises BadInput if any device reaches any other, so that a stage's transfers depend on both its ends.
    """
    if table.exchange is not None:
        raise BadInput("this query needs devices in a line, got topology all-to-all; try the best plan alone")
    blocks = contract(table)
    return CutProblem.of(blocks, _fitting(table, blocks), table.speeds, table.period)


def _fitting(table: CostTable, blocks: Blocks) -> list[Fitting]:
    """`CutProblem.fitting`; tables of the same ranges with other links or orders share what is computed."""
    cuts = table.cut_allowed.tobytes()
    fitting = []
    for device, limit_bytes in enumerate(table.memory_limit_bytes.tolist()):
        known = _known_fitting(table.on(device).memory, cuts)
        key = limit_bytes, blocks.stash_entries[device]
        if key not in known:
            known[key] = Fitting.of(blocks.costs[device], *key)
        fitting.append(known[key])
    return fitting


@lru_cache(maxsize=64)
def _known_fitting(memory: RangeMemory, cuts: bytes) -> dict[tuple[int, int], Fitting]:
    """A cache that `_fitting` fills, by limit and stash entries; `memory` is compared as an object."""
    return {}


def _loads(
    blocks: Blocks, speeds: tuple[Fraction, ...], period: Period
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """`CutProblem.start_loads`, `CutProblem.stop_loads` and `CutProblem.load_scales`; equal lists are one object.

    With a barrier or overlap, a stage loads its links with what it receives and sends. Where a device does one thing
    at a time, its compute is a load too. It is rounded up to cycles of the reference clock, so a bound b holds exactly
    if

        receive(start) + (prefix(stop) - offset(start)) d / n + send(stop) <= b        for a speed of n / d

    Where devices do all three at once, cuts beyond the bound are dropped beforehand (`cheap_cuts`): nothing is left.
    """
    ones = [1] * len(speeds)
    if period in (Period.BARRIER, Period.OVERLAP):
        return blocks.receive_cycles, blocks.send_cycles, ones
    if period is Period.DUPLEX:
        nothing = [[0] * (len(blocks) + 1)] * len(speeds)
        return nothing, nothing, ones
    known: dict[tuple[int, int, Fraction], list[int]] = {}

    def loads(transfers: list[int], compute: list[int], speed: Fraction, sign: int) -> list[int]:
        key = (id(transfers), id(compute), speed)
        if key not in known:
            pairs = zip(transfers, compute, strict=True)
            known[key] = [t * speed.numerator + sign * c * speed.denominator for t, c in pairs]
        return known[key]

    start_loads, stop_loads = [], []
    for own, receive, send, speed in zip(blocks.costs, blocks.receive_cycles, blocks.send_cycles, speeds, strict=True):
        start_loads.append(loads(receive, own.start_offset_cycles, speed, -1))
        stop_loads.append(loads(send, own.compute_prefix_cycles, speed, 1))
    return start_loads, stop_loads, [speed.numerator for speed in speeds]


def check_one_in_flight(table: CostTable, what: str) -> None:
    """Refuse a table with several micro-batches in flight; `what` cannot be planned with it.

    A table has fixed numbers of them, but they differ between device counts, and between chunks of a device. Raises
    BadInput if some device stashes activations for the backward pass.
    """
    if any(table.stash_entries):
        in_flight = [1 + entries for entries in table.stash_entries]
        raise BadInput(f"{what} can be planned with one micro-batch in flight only, got {in_flight}; plan one by one")


def largest_block(problem: CutProblem) -> int:
    """The cycles, by a device's own clock, of the block that computes longest as a stage where it takes least."""
    by_clock = [clock.costs.prefix[1:] - clock.costs.offsets[:-1] for clock in problem.clocks]
    return int(np.minimum.reduce(by_clock).max())


def compute_lower_bound(problem: CutProblem) -> int:
    """A lower bound of any plan's compute: the largest block on the fastest device, or an equal share of all blocks."""
    together = reference_cycles(fewest_cycles(problem), sum(problem.speeds, Fraction(0)))
    return max(reference_cycles(largest_block(problem), max(problem.speeds)), together)


def fewest_cycles(problem: CutProblem) -> int:
    """The cycles of all blocks, by a device's own clock, each where it takes least."""
    if len(problem.clocks) == 1:
        return problem.clocks[0].costs.compute_prefix_cycles[-1]
    return int(np.minimum.reduce([np.diff(clock.costs.prefix) for clock in problem.clocks]).sum())


def compute_upper_bound(problem: CutProblem) -> int:
    """The cycles of all blocks on the device that takes longest, which no stage of a plan exceeds."""
    return max(reference_cycles(clock.costs.compute_prefix_cycles[-1], clock.speed) for clock in problem.clocks)


def transfer_lower_bound(problem: CutProblem) -> int:
    """A lower bound of any plan's transfer: the smallest receive plus smallest send of a device, the largest sum.

    Where both happen at once, it is what the first device receives and the last one sends.
    """
    blocks = problem.blocks
    if problem.period is Period.DUPLEX:
        return max(blocks.receive_cycles[0][0], blocks.send_cycles[-1][-1])
    return max(map(sum, zip(blocks.min_receive_cycles, blocks.min_send_cycles, strict=True)))


def evaluate(table: CostTable, partition: Sequence[int]) -> Plan:
    """The plan that cuts at `partition`, the n_devices + 1 boundaries from 0 to n_layers; no limit is checked.

    Raises BadInput if the partition is not the boundaries of non-empty stages, one a device.
    """
    n_devices, n_layers = table.n_devices, table.n_layers
    ascending = all(start < stop for start, stop in pairwise(partition))
    if len(partition) != n_devices + 1 or not ascending or (partition[0], partition[-1]) != (0, n_layers):
        raise BadInput(
            f"a partition for {n_devices} devices needs {n_devices + 1} ascending boundaries from 0 to {n_layers}, "
            f"got {list(partition)}"
        )
    stages = [stage_of(table, device, start, stop) for device, (start, stop) in enumerate(pairwise(partition))]
    return Plan(tuple(stages), table.period, table.host_cycles)


def stage_of(table: CostTable, device: int, start: int, stop: int) -> Stage:
    """A range of layers as a stage on a device."""
    backward_cycles = table.backward_cycles(start, stop, device)
    return Stage(
        layers=LayerRange(start, stop),
        device=device,
        forward_cycles=table.compute_cycles(start, stop, device) - backward_cycles,
        backward_cycles=backward_cycles,
        receive_cycles=table.stage_receive_cycles(device, start, stop),
        send_cycles=table.stage_send_cycles(device, start, stop),
        memory_bytes=table.memory_bytes(start, stop, device),
        limit_bytes=int(table.memory_limit_bytes[device]),
        weight_cycles=table.weight_cycles(start, stop, device),
        recomputes=table.memory.recompute,
    )


def check_memory(*plans: Sequence[Stage | Phase]) -> None:
    """Refuse plans of stages or phases if a phase exceeds its device, or the stages of a device do together.

    Raises OutOfMemory if one does; the message names the one that exceeds it most, and its largest stage.
    """
    # Stages of a device are in its memory together. A phase has the device for itself: it is a group of its own.
    groups: dict[tuple[int, int], list[Stage | Phase]] = defaultdict(list)
    for number, parts in enumerate(plans):
        for index, part in enumerate(parts):
            groups[number, part.device if isinstance(part, Stage) else index].append(part)
    tightest = max(groups.values(), key=_excess_bytes)
    excess = _excess_bytes(tightest)
    if excess <= 0:
        return
    largest = max(tightest, key=lambda part: part.total_bytes)
    device = f" {largest.device}" if isinstance(largest, Stage) else ""
    ranges = " and ".join(str(part.layers) for part in tightest)
    n_bytes = sum(part.total_bytes for part in tightest)
    raise OutOfMemory(
        f"layers {ranges} need {format_bytes(n_bytes)} on device{device}, which has "
        f"{format_bytes(largest.limit_bytes)}: {format_bytes(excess)} too much; try a smaller batch size or more "
        "devices",
        excess,
        largest.layers,
        largest.memory_bytes,
    )


def _excess_bytes(parts: Sequence[Stage | Phase]) -> int:
    return sum(part.total_bytes for part in parts) - parts[0].limit_bytes
