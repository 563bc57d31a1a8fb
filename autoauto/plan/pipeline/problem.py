"""The planner's problem, `Problem`: divide blocks among stages, each on a device with its clock, memory and links."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from autoauto.plan.pipeline.blocks import Blocks, contract, earliest_starts_by_device
from autoauto.records.arrays import IntArray
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput
from autoauto.records.units import reference_cycles


@dataclass(frozen=True, slots=True)
class Problem:
    """A `CostTable` prepared for probing: B blocks to divide among P stages.

    A plan is a list of P + 1 cuts, each the index of the block before which it lies: 0 first, B last.

    Attributes:
        blocks: the blocks and their costs.
        earliest: (P, B + 1) by device and stop: the first start that memory allows, non-decreasing.
        speeds: (P,) every device's clock relative to the reference clock.
        clocks: by speed, the devices whose clock has it.
        overlap: whether a plan costs the larger of compute and transfer, not their sum.
        cut_limits: (P + 1,) the first and the last position of each cut.
        prefix, offsets: (B + 1,) `Blocks.compute_prefix_cycles` and `Blocks.start_offset_cycles` as arrays.
    """

    blocks: Blocks
    earliest: list[list[int]]
    speeds: tuple[Fraction, ...]
    clocks: dict[Fraction, list[int]]
    overlap: bool
    cut_limits: list[tuple[int, int]]
    prefix: IntArray
    offsets: IntArray

    @property
    def n_stages(self) -> int:
        """How many stages there must be."""
        return len(self.earliest)

    def part(self, first: int, stop: int) -> Problem:
        """The same blocks on the devices `[first, stop)` alone, as `CostTable.part`."""
        blocks, speeds = self.blocks.part(first, stop), self.speeds[first:stop]
        cut_limits = _all_positions(len(blocks), stop - first)
        earliest, sums = self.earliest[first:stop], (self.prefix, self.offsets)
        return Problem(blocks, earliest, speeds, _clocks(speeds), self.overlap, cut_limits, *sums)

    def own_cycles(self, cycles: int) -> list[int]:
        """By device: how many cycles its own clock counts in `cycles` of the reference clock, rounded down."""
        own_cycles = [0] * self.n_stages
        for speed, devices in self.clocks.items():
            for device in devices:
                own_cycles[device] = cycles * speed.numerator // speed.denominator
        return own_cycles

    def next_compute(self, cycles: int) -> int:
        """The smallest compute of any stage on any device that is `cycles` or more; `cycles` if there is none."""
        by_clock = [self._next_compute(cycles, speed) for speed in self.clocks]
        return min((longer for longer in by_clock if longer is not None), default=cycles)

    def _next_compute(self, cycles: int, speed: Fraction) -> int | None:
        own_cycles = (cycles - 1) * speed.numerator // speed.denominator + 1
        if own_cycles > self.prefix[-1]:
            return None
        stops = np.searchsorted(self.prefix, self.offsets + own_cycles)
        # A stage has a block or more, even if its entry overhead alone takes so long.
        stops = np.maximum(stops, np.arange(1, len(stops) + 1))
        stops = stops[: np.searchsorted(stops, len(self.prefix))]  # from later starts no stage takes so long
        return reference_cycles(int((self.prefix[stops] - self.offsets[: len(stops)]).min()), speed)

    def compute_cycles(self, cuts: list[int]) -> int:
        """The largest compute of a plan."""
        prefix, offsets = self.blocks.compute_prefix_cycles, self.blocks.start_offset_cycles
        own_cycles = [prefix[stop] - offsets[start] for start, stop in pairwise(cuts)]
        return max(
            reference_cycles(max(own_cycles[i] for i in devices), speed) for speed, devices in self.clocks.items()
        )

    def transfer_cycles(self, cuts: list[int]) -> int:
        """The largest transfer of a plan."""
        receive, send = self.blocks.receive_cycles, self.blocks.send_cycles
        return max(receive[i][start] + send[i][stop] for i, (start, stop) in enumerate(pairwise(cuts)))

    def cost_cycles(self, cuts: list[int]) -> int:
        """The cost of a plan, but without the lower bound `Plan.host_cycles`, which is equal for all plans."""
        parts = (self.compute_cycles(cuts), self.transfer_cycles(cuts))
        return max(parts) if self.overlap else sum(parts)

    def partition(self, cuts: list[int]) -> list[int]:
        """The cuts as layers instead of blocks, as `Plan.partition`."""
        return [self.blocks.cuts[cut] for cut in cuts]


def prepare(table: CostTable) -> Problem:
    """Contract the layers and find the earliest starts that memory allows, in O(n) for each different device."""
    blocks = contract(table)
    earliest = earliest_starts_by_device(blocks, table.memory_limit_bytes.tolist())
    cut_limits, clocks = _all_positions(len(blocks), table.n_devices), _clocks(table.speeds)
    sums = np.array(blocks.compute_prefix_cycles), np.array(blocks.start_offset_cycles)
    return Problem(blocks, earliest, table.speeds, clocks, table.overlap, cut_limits, *sums)


def _clocks(speeds: tuple[Fraction, ...]) -> dict[Fraction, list[int]]:
    """By speed, the devices whose clock has it."""
    clocks: dict[Fraction, list[int]] = {}
    for device, speed in enumerate(speeds):
        clocks.setdefault(speed, []).append(device)
    return clocks


def _all_positions(n_blocks: int, n_stages: int) -> list[tuple[int, int]]:
    """The first and last position of every cut: before it and after it lies at least a block for each stage there."""
    return [(0, 0), *((i, n_blocks - n_stages + i) for i in range(1, n_stages)), (n_blocks, n_blocks)]


def check_one_in_flight(table: CostTable, what: str) -> None:
    """Refuse a table with several micro-batches in flight; `what` cannot be planned with it.

    A table has fixed numbers of them, but they differ between device counts, and between chunks of a device.

    Raises:
        BadInput: some device stashes activations for the backward pass.
    """
    if any(table.stash_entries):
        in_flight = [1 + entries for entries in table.stash_entries]
        raise BadInput(f"{what} can be planned with one micro-batch in flight only, got {in_flight}; plan one by one")


def largest_block(problem: Problem) -> int:
    """The cycles, by a device's own clock, of the block that computes longest as a stage."""
    blocks = problem.blocks
    return max(
        stop - start for start, stop in zip(blocks.start_offset_cycles, blocks.compute_prefix_cycles[1:], strict=False)
    )


def compute_lower_bound(problem: Problem) -> int:
    """A lower bound of any plan's compute: the largest block on the fastest device, or an equal share of all blocks."""
    total = problem.blocks.compute_prefix_cycles[-1]
    together = reference_cycles(total, sum(problem.speeds, Fraction(0)))
    return max(reference_cycles(largest_block(problem), max(problem.speeds)), together)


def transfer_lower_bound(problem: Problem) -> int:
    """A lower bound of any plan's transfer: the smallest receive plus smallest send of a device, the largest sum."""
    blocks = problem.blocks
    return max(map(sum, zip(blocks.min_receive_cycles, blocks.min_send_cycles, strict=True)))
