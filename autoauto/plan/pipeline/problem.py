"""What the planner divides: blocks among stages, each on a device with a clock, a memory and links of its own."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from autoauto.plan.pipeline.blocks import Blocks, contract, earliest_starts_by_device
from autoauto.records.cost import CostTable, IntArray
from autoauto.records.errors import BadInput
from autoauto.records.units import reference_cycles


@dataclass(frozen=True, slots=True)
class Problem:
    """A `CostTable` prepared for probing: B blocks to divide among P stages. A plan is its P + 1 cuts, as blocks.

    Attributes:
        blocks: the blocks and their costs.
        earliest: (P, B + 1) by device and stop: the first start that memory allows, non-decreasing.
        speeds: (P,) every device's clock relative to the reference clock.
        clocks: the devices at every different speed.
        overlap: whether a plan costs the larger of compute and transfer, not their sum.
        within: (P + 1,) the first and the last block at which each cut may lie.
        prefix, begun: (B + 1,) the running sum of cycles, and what it is counted from by start, as arrays.
    """

    blocks: Blocks
    earliest: list[list[int]]
    speeds: tuple[Fraction, ...]
    clocks: dict[Fraction, list[int]]
    overlap: bool
    within: list[tuple[int, int]]
    prefix: IntArray
    begun: IntArray

    @property
    def n_stages(self) -> int:
        """How many stages there must be."""
        return len(self.earliest)

    def part(self, first: int, stop: int) -> Problem:
        """The same blocks on the devices `[first, stop)` alone, as `CostTable.part`."""
        blocks, speeds = self.blocks.part(first, stop), self.speeds[first:stop]
        within = _anywhere(len(blocks), stop - first)
        earliest, sums = self.earliest[first:stop], (self.prefix, self.begun)
        return Problem(blocks, earliest, speeds, _clocks(speeds), self.overlap, within, *sums)

    def own_cycles(self, cycles: int) -> list[int]:
        """How many cycles every device counts, by its own clock, in `cycles` of the reference clock."""
        own_cycles = [0] * self.n_stages
        for speed, devices in self.clocks.items():
            for device in devices:
                own_cycles[device] = cycles * speed.numerator // speed.denominator
        return own_cycles

    def next_compute(self, cycles: int) -> int:
        """The least that a range of blocks computes in on some device, of all that are not below `cycles`.

        `cycles` itself when none computes so long.
        """
        longer = [self._next_compute(cycles, speed) for speed in self.clocks]
        return min((found for found in longer if found is not None), default=cycles)

    def _next_compute(self, cycles: int, speed: Fraction) -> int | None:
        own_cycles = (cycles - 1) * speed.numerator // speed.denominator + 1
        if own_cycles > self.prefix[-1]:
            return None
        stops = np.searchsorted(self.prefix, self.begun + own_cycles)
        stops = np.maximum(stops, np.arange(1, len(stops) + 1))  # a block at least, however much it takes to enter it
        stops = stops[: np.searchsorted(stops, len(self.prefix))]  # from later starts no range takes so long
        return reference_cycles(int((self.prefix[stops] - self.begun[: len(stops)]).min()), speed)

    def compute_cycles(self, cuts: list[int]) -> int:
        """The largest compute of a plan."""
        prefix, begun = self.blocks.compute_prefix_cycles, self.blocks.start_cycles
        own = [prefix[stop] - begun[start] for start, stop in pairwise(cuts)]
        return max(reference_cycles(max(own[i] for i in devices), speed) for speed, devices in self.clocks.items())

    def transfer_cycles(self, cuts: list[int]) -> int:
        """The largest transfer of a plan."""
        receive, send = self.blocks.receive_cycles, self.blocks.send_cycles
        return max(receive[i][start] + send[i][stop] for i, (start, stop) in enumerate(pairwise(cuts)))

    def cost_cycles(self, cuts: list[int]) -> int:
        """What a plan is judged by, as `Plan.cost_cycles`."""
        parts = (self.compute_cycles(cuts), self.transfer_cycles(cuts))
        return max(parts) if self.overlap else sum(parts)

    def partition(self, cuts: list[int]) -> list[int]:
        """The layers after the cuts."""
        return [self.blocks.cuts[cut] for cut in cuts]


def prepare(table: CostTable) -> Problem:
    """Contract the layers and find how far memory reaches, in O(n) for each different device."""
    blocks = contract(table)
    earliest = earliest_starts_by_device(blocks, table.memory_limit_bytes.tolist())
    speeds = table.speeds or (Fraction(1),) * table.n_devices
    within, clocks = _anywhere(len(blocks), table.n_devices), _clocks(speeds)
    sums = np.array(blocks.compute_prefix_cycles), np.array(blocks.start_cycles)
    return Problem(blocks, earliest, speeds, clocks, table.overlap, within, *sums)


def _clocks(speeds: tuple[Fraction, ...]) -> dict[Fraction, list[int]]:
    """The devices at every different speed."""
    clocks: dict[Fraction, list[int]] = {}
    for device, speed in enumerate(speeds):
        clocks.setdefault(speed, []).append(device)
    return clocks


def _anywhere(n_blocks: int, n_stages: int) -> list[tuple[int, int]]:
    """Every stage takes a block at least, so this many lie before and after each cut."""
    return [(0, 0), *((i, n_blocks - n_stages + i) for i in range(1, n_stages)), (n_blocks, n_blocks)]


def check_one_in_flight(table: CostTable, what: str) -> None:
    """Refuse a table in which activations wait for the backward pass: how many would do so differs from plan to plan.

    Raises:
        BadInput: some device keeps activations of several micro-batches.
    """
    if any(table.stash_entries):
        in_flight = [1 + entries for entries in table.stash_entries]
        raise BadInput(f"{what} can be planned with one micro-batch in flight only, got {in_flight}; plan one by one")


def largest_block(problem: Problem) -> int:
    """The cycles of the block that computes longest."""
    blocks = problem.blocks
    return max(stop - start for start, stop in zip(blocks.start_cycles, blocks.compute_prefix_cycles[1:], strict=False))


def least_compute(problem: Problem) -> int:
    """No plan computes in less: the largest block on the fastest device, and all blocks over all devices together."""
    total = problem.blocks.compute_prefix_cycles[-1]
    together = reference_cycles(total, sum(problem.speeds, Fraction(0)))
    return max(reference_cycles(largest_block(problem), max(problem.speeds)), together)


def least_transfer(problem: Problem) -> int:
    """No plan transfers in less: some device receives and sends at least this."""
    blocks = problem.blocks
    return max(map(sum, zip(blocks.least_receive_cycles, blocks.least_send_cycles, strict=True)))
