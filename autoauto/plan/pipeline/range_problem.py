"""The best plan by the costs of all ranges, `RangeProblem`, where a line of unlike devices cannot say what they are.

Three things make a stage cost more than its place in the line and its two ends say:

- any device reaches any other, so what a stage sends depends on where it starts, too (`Exchange`);
- devices of several kinds may stand in any order;
- several like devices may run one stage, each every so many micro-batches.

**Probe.** A state is how many devices of every kind are in use. Which blocks can stages within two bounds reach that
use so many? A stage leads from a state to one with more devices, and from a start to a stop:

    fast, slow devices in use    (0, 0) ----> (1, 0) ----> (1, 1)         a stage on a fast one, then on a slow one
    blocks reached                  0       2, 3, 4        7, 8

    reached(state) = the union over the last stage's kind of    reached(state before) x stages within the bounds

The stages within the bounds are a matrix by start and stop, so all states with equally many devices are one product of
matrices. Before that, a line is searched in which every device may be of any kind. Its states are how many devices are
in use, so there are few, and what it cannot reach from the start, or from where it cannot reach the end, no state of
equally many devices needs. Near the optimum few blocks remain. A search looks for them with the loosest of its bounds
first (`windows`); its probes compare no other ranges with theirs.

`usages` lists the states of devices of several kinds, and `steps_between` the steps between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from itertools import product
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.probe import UNBOUNDED, search_smallest_bound
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.units import BoolArray, Float32Array, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class RangeCosts:
    """The cycles of every range of B blocks as a stage on one device; arrays (B + 1, B + 1) by start and stop.

    Attributes:
        compute, receive, send: cycles of the reference clock.
        fits: whether the range is a stage at all, and within the memory of the device.
    """

    compute: IntArray
    receive: IntArray
    send: IntArray
    fits: BoolArray

    def in_turn(self, n_replicas: int, gradient_cycles: IntArray) -> RangeCosts:
        """The cycles of one of several devices a micro-batch, if they take micro-batches in turn; rounded up."""
        return RangeCosts(
            -(-(self.compute + gradient_cycles) // n_replicas),
            -(-self.receive // n_replicas),
            -(-self.send // n_replicas),
            self.fits,
        )


class StageChoice(NamedTuple):
    """A way to run a stage: on `n_replicas` devices of a kind in turn, with the costs of one of these devices."""

    kind: int
    n_replicas: int
    costs: RangeCosts


class RangeStage(NamedTuple):
    """A stage of a plan: which choice it is, and its first and last block."""

    choice: int
    start: int
    stop: int


Route = list[RangeStage]

Windows = list[slice]
"""By the number of devices in use, the blocks that a line of stages may reach with so many."""

StagesWithin = Callable[[tuple[int, ...], slice, slice], Float32Array]
"""By start and stop, 1 for ranges within two bounds as one of the choices, 0 for others: floats multiply quickly."""


@dataclass(frozen=True, slots=True, eq=False)
class RangeProblem:
    """Blocks to divide among devices whose costs are given for every range.

    Attributes:
        steps: the stages that may follow each other: (choice, states before, states after), so that all steps into a
            state come before those out of it. All states before a step use equally many devices, and so do those after.
        n_in_use: (S,) how many devices every state uses; state 0 uses none.
        last_states: those in which all blocks may be done, the preferred one first.
        bound_cycles: a lower bound of any plan's compute.
    """

    choices: tuple[StageChoice, ...]
    steps: tuple[tuple[int, IntArray, IntArray], ...]
    n_in_use: IntArray
    last_states: tuple[int, ...]
    period: Period
    bound_cycles: int
    _limits: tuple[tuple[IntArray, IntArray], ...] = field(init=False)
    _choices_between: dict[tuple[int, int], tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_limits", tuple(self._limits_of(choice.costs) for choice in self.choices))
        choices: dict[tuple[int, int], list[int]] = defaultdict(list)  # by the devices in use before and after a step
        for choice, before, after in self.steps:
            choices[int(self.n_in_use[before[0]]), int(self.n_in_use[after[0]])].append(choice)
        object.__setattr__(self, "_choices_between", {ends: tuple(own) for ends, own in choices.items()})

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return len(self.choices[0].costs.fits) - 1

    @np.errstate(invalid="ignore")  # BLAS may compute with what lies beside an array, too, and leaves it out
    def probe(self, compute_cycles: int, transfer_cycles: int, within: Windows | None = None) -> Route | None:
        """The stages of a plan within both bounds; None when there is none.

        Without a barrier both are one bound of the cost. `within` are the `windows` of bounds that are no tighter.
        """
        within = within or self._all_blocks
        stages = self._stages_within(compute_cycles, transfer_cycles, within)
        useful = self._useful_blocks(stages, within)
        if useful is None:
            return None
        reached = np.zeros((len(self.n_in_use), self.n_blocks + 1), dtype=np.bool_)
        reached[0, 0] = True
        for choice, before, after in self.steps:
            starts = useful[self.n_in_use[before[0]]]
            stops = useful[self.n_in_use[after[0]]]
            # One product for all states of a step: a positive entry counts the starts that lead to the stop.
            rows = reached[before, starts].astype(np.float32)
            reached[after, stops] |= rows @ stages((choice,), starts, stops) > 0
        for state in self.last_states:
            if reached[state, -1]:
                return self._trace(reached, compute_cycles, transfer_cycles, state)
        return None

    @np.errstate(invalid="ignore")
    def windows(self, compute_cycles: int, transfer_cycles: int, within: Windows | None = None) -> Windows | None:
        """The blocks that `probe` needs with these bounds, and with any tighter ones; None where there is no plan."""
        within = within or self._all_blocks
        return self._useful_blocks(self._stages_within(compute_cycles, transfer_cycles, within), within)

    @property
    def _all_blocks(self) -> Windows:
        return [slice(0, 1)] + [slice(0, self.n_blocks + 1)] * int(self.n_in_use.max())

    def _stages_within(self, compute_cycles: int, transfer_cycles: int, windows: Windows) -> StagesWithin:
        """The ranges of some starts and stops within both bounds; all are compared at once where that is less."""

        def stages(choices: tuple[int, ...], starts: slice, stops: slice) -> Float32Array:
            ends = starts, stops
            parts = [self._are_within(choice, ends, compute_cycles, transfer_cycles) for choice in choices]
            within: Float32Array = np.logical_or.reduce(parts).astype(np.float32)
            return within

        # Overlapping windows compare a range many times. Once for all blocks is then less work.
        lengths = [blocks.stop - blocks.start for blocks in windows]
        if sum(lengths[before] * lengths[after] for before, after in self._choices_between) < self.n_blocks**2:
            return stages
        of_all = cache(partial(stages, starts=slice(None), stops=slice(None)))
        return lambda choices, starts, stops: of_all(choices)[starts, stops]

    def _are_within(
        self, choice: int, ends: tuple[slice, slice | int], compute_cycles: int, transfer_cycles: int
    ) -> BoolArray:
        """Which ranges, by their starts and stops, are a stage within both bounds as one of the choices."""
        compute, transfer = self._limits[choice]
        within: BoolArray = (compute[ends] <= compute_cycles) & (transfer[ends] <= transfer_cycles)
        return within

    def _useful_blocks(self, stages: StagesWithin, within: Windows) -> Windows | None:
        """By the devices in use the blocks that a line of devices of any kinds reaches, and can reach the end from.

        They are given as the window from the first to the last of them. None when the line cannot reach the end.
        """
        unions = []
        for (before, after), choices in self._choices_between.items():
            unions.append((before, after, stages(choices, within[before], within[after])))
        forward, backward = np.zeros((2, int(self.n_in_use.max()) + 1, self.n_blocks + 1), dtype=np.bool_)
        forward[0, 0] = True
        for before, after, union in unions:
            forward[after, within[after]] |= forward[before, within[before]].astype(np.float32) @ union > 0
        backward[self.n_in_use[list(self.last_states)], -1] = True
        backward &= forward
        if not backward.any():
            return None
        # The same steps from the end back, through blocks that can be reached at all.
        for before, after, union in reversed(unions):
            backward[before, within[before]] |= union @ backward[after, within[after]].astype(np.float32) > 0
            backward[before] &= forward[before]
        windows = []
        for row in backward:
            blocks = np.flatnonzero(row)
            windows.append(slice(int(blocks[0]), int(blocks[-1]) + 1) if len(blocks) else slice(0, 0))
        return windows

    def _limits_of(self, costs: RangeCosts) -> tuple[IntArray, IntArray]:
        """By range, how large the two bounds of a probe must be; more than `UNBOUNDED` for what is no stage."""
        if self.period is Period.SERIAL:
            transfer = costs.compute + costs.receive + costs.send
        elif self.period is Period.DUPLEX:
            transfer = np.maximum(costs.receive, costs.send)
        else:
            transfer = costs.receive + costs.send
        return costs.compute, np.where(costs.fits, transfer, UNBOUNDED + 1)

    def _trace(self, reached: BoolArray, compute_cycles: int, transfer_cycles: int, state: int) -> Route:
        """Walk back from the last state: every block that is reached has a stage that leads to it."""
        stop = self.n_blocks
        route = Route()
        while stop:
            allowed = []
            for choice in range(len(self.choices)):
                allowed.append(self._are_within(choice, (slice(None), stop), compute_cycles, transfer_cycles))
            stage, state = self._stage_to(state, stop, reached, allowed)
            route.append(stage)
            stop = stage.start
        return route[::-1]

    def _stage_to(
        self, state: int, stop: int, reached: BoolArray, allowed: Sequence[BoolArray]
    ) -> tuple[RangeStage, int]:
        """A stage that leads to a state and stops at a block, and the state before it.

        `allowed` says by choice and start whether the stage up to `stop` is within the bounds.
        """
        for choice, before, after in self.steps:
            if self.n_in_use[after[0]] != self.n_in_use[state]:
                continue
            for state_before in before[after == state].tolist():
                starts = np.flatnonzero(reached[state_before] & allowed[choice])
                if len(starts):
                    return RangeStage(choice, int(starts[0]), stop), state_before
        raise AssertionError("a block that is reached has a stage that leads to it")

    def cycles(self, route: Route) -> tuple[list[int], list[int], list[int]]:
        """Cycles in which every stage of a route computes, receives and sends."""
        compute, receive, send = [], [], []
        for choice, start, stop in route:
            costs = self.choices[choice].costs
            compute.append(int(costs.compute[start, stop]))
            receive.append(int(costs.receive[start, stop]))
            send.append(int(costs.send[start, stop]))
        return compute, receive, send

    def compute_cycles(self, route: Route) -> int:
        """The largest compute of a stage."""
        return max(self.cycles(route)[0])

    def transfer_cycles(self, route: Route) -> int:
        """The largest transfer of a stage."""
        _, receive, send = self.cycles(route)
        return max(map(sum, zip(receive, send, strict=True)))

    def cost_cycles(self, route: Route) -> int:
        """The cost of a plan."""
        return self.period.cycles(*self.cycles(route))

    def of_any_kinds(self) -> RangeProblem:
        """The problem in which every device may be of any kind; its best plan costs no more.

        A state is then only how many devices are in use.
        """
        steps = []
        for (before, after), choices in self._choices_between.items():
            steps += [(choice, np.array([before]), np.array([after])) for choice in choices]
        last_states = tuple(sorted({int(self.n_in_use[state]) for state in self.last_states}))
        n_in_use = np.arange(int(self.n_in_use.max()) + 1)
        return replace(self, steps=tuple(steps), n_in_use=n_in_use, last_states=last_states)

    def best(self, below_cycles: int = UNBOUNDED) -> Route | None:
        """The cheapest plan of less than so many cycles; None when none fits."""
        low = self.bound_cycles
        if self.period is Period.BARRIER:
            return self._best_with_barrier(low, below_cycles)
        windows = self.windows(below_cycles - 1, below_cycles - 1)
        if windows is None:
            return None
        return search_smallest_bound(
            lambda cost: self.probe(cost, cost, windows), self.cost_cycles, low, below_cycles - 1, low + low // 8
        )

    def _best_with_barrier(self, low: int, cost: int) -> Route | None:
        """Walk over compute from the smallest upwards, each with the smallest transfer (`optimal.py` draws it).

        No plan with less compute than `low` costs less than the best so far, or than `cost`, so a better one has less
        transfer than the rest of it.
        """
        best, lowest_transfer, windows = None, self._lowest_transfer_cycles(), self._all_blocks
        while low + lowest_transfer < cost:
            # A cheaper plan transfers in `lowest_transfer` or more, so it has less compute than the rest of the cost.
            highest = cost - lowest_transfer - 1
            # `low` rises and `cost` falls, so all later bounds are tighter and need no block outside these windows.
            useful = self.windows(highest, cost - low - 1, windows)
            if useful is None:
                break
            windows = useful
            attempt = partial(self.probe, transfer_cycles=cost - low - 1, within=windows)
            route = search_smallest_bound(attempt, self.compute_cycles, low, highest, low + low // 8)
            if route is None:
                break
            low = self.compute_cycles(route)
            transfer = partial(self.probe, low, within=windows)
            high = min(self.transfer_cycles(route), cost - low - 1)
            nearest = search_smallest_bound(transfer, self.transfer_cycles, lowest_transfer, high, high)
            if nearest is not None:
                best, cost = nearest, self.cost_cycles(nearest)
            low += 1  # of this compute the smallest transfer is known
        return best

    def _lowest_transfer_cycles(self) -> int:
        """A lower bound of the largest transfer of any plan's stage: what its first and its last stage need.

        0 where no range fits that could be one of them.
        """
        first = min(int(transfer[0].min()) for _, transfer in self._limits)
        last = min(int(transfer[:, -1].min()) for _, transfer in self._limits)
        lowest = max(first, last)
        return 0 if lowest > UNBOUNDED else lowest


MAX_STATES = 100_000
"""With more ways to use devices of several kinds, only those are tried that use all kinds about evenly, and the plan
has a lower bound: that of a line in which every device is of any kind. Four kinds of 16 devices have 83,521."""


def even_spread(n_devices: Sequence[int], n_total: int) -> int:
    """By how many devices of a kind a state may differ from an even use of all kinds, for up to `MAX_STATES` states.

    Raises BadInput if there are far more states where it is 1.
    """
    spread = max(n_devices)
    while spread > 1 and _n_usages(n_devices, n_total, spread) > MAX_STATES:
        spread //= 2
    if _n_usages(n_devices, n_total, spread) > 10 * MAX_STATES:
        raise BadInput(f"devices of {len(n_devices)} kinds are used in too many ways to be planned; try fewer kinds")
    return spread


def _even_use(n_devices: Sequence[int], total: int, spread: int) -> list[range]:
    """For every kind the numbers of devices in use, within `spread` of its even share of `total` devices."""
    ranges = []
    for n in n_devices:
        even = Fraction(n * total, sum(n_devices))
        ranges.append(range(max(0, ceil(even - spread)), min(n, total, floor(even + spread)) + 1))
    return ranges


def usages(n_devices: Sequence[int], n_total: int, spread: int) -> Iterator[tuple[int, ...]]:
    """All numbers of devices of every kind that may be in use, at most `n_total` together, the fewest first."""
    for total in range(n_total + 1):
        # The numbers of all kinds but the last say how many of the last are in use.
        *others, last = _even_use(n_devices, total, spread)
        for used in product(*others):
            rest = total - sum(used)
            if rest in last:
                yield (*used, rest)


def _n_usages(n_devices: Sequence[int], n_total: int, spread: int) -> int:
    """The number of `usages`: for every total a coefficient of a product of polynomials, one a kind."""
    n_usages = 0
    for total in range(n_total + 1):
        ways = [1] + [0] * total  # by the devices in use of the kinds so far
        for used in _even_use(n_devices, total, spread):
            ways = [sum(ways[n - m] for m in used if m <= n) for n in range(total + 1)]
        n_usages += ways[total]
    return n_usages


def steps_between(
    usage: Sequence[tuple[int, ...]], ways: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, IntArray, IntArray]]:
    """`RangeProblem.steps`: every way from every state to another, by how many devices are in use."""
    state_of = {used: state for state, used in enumerate(usage)}
    by_total = defaultdict[int, list[tuple[int, ...]]](list)
    for used in usage:
        by_total[sum(used)].append(used)
    # In order of the devices in use before a step, so that all steps into a state come before those out of it.
    for total, (way, (kind, m)) in product(range(max(by_total)), enumerate(ways)):
        before, after = [], []
        for used in by_total[total]:
            longer = (*used[:kind], used[kind] + m, *used[kind + 1 :])
            if longer in state_of:
                before.append(state_of[used])
                after.append(state_of[longer])
        if before:
            yield way, np.array(before), np.array(after)
