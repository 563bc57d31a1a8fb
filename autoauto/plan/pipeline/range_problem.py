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

How many devices of every kind a line of stages uses so far: the states of a `RangeProblem`, and its steps.
"""

from __future__ import annotations

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
        whole = self.compute + gradient_cycles, self.receive, self.send
        compute, receive, send = (-(-part // n_replicas) for part in whole)
        return RangeCosts(compute, receive, send, self.fits)


class StageChoice(NamedTuple):
    """A way to run a stage: on so many devices of a kind, with the costs of each of them."""

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
        choices: the ways to run a stage.
        steps: the stages that may follow each other: (choice, states before, states after), so that all steps into a
            state come before those out of it. All states before a step use equally many devices, and so do those after.
        n_in_use: (S,) how many devices every state uses; state 0 uses none.
        last_states: those in which all blocks may be done, the preferred one first.
        period: what the devices do at the same time.
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
        choices: dict[tuple[int, int], tuple[int, ...]] = {}  # by the devices in use before and after a step
        for choice, before, after in self.steps:
            ends = int(self.n_in_use[before[0]]), int(self.n_in_use[after[0]])
            choices[ends] = (*choices.get(ends, ()), choice)
        object.__setattr__(self, "_choices_between", choices)

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return len(self.choices[0].costs.fits) - 1

    @np.errstate(invalid="ignore")  # BLAS may compute with what lies beside an array, too, and leaves it out
    def probe(self, compute_cycles: int, transfer_cycles: int, within: Windows | None = None) -> Route | None:
        """The stages of a plan within both bounds; None when there is none.

        Without a barrier both are one bound of the cost.

        Args:
            compute_cycles, transfer_cycles: the bounds.
            within: the `windows` of bounds that are no tighter, where the caller has them.
        """
        within = within or self._all_blocks
        stages = self._stages_within(compute_cycles, transfer_cycles, within)
        useful = self._useful_blocks(stages, within)
        if useful is None:
            return None
        reached = np.zeros((len(self.n_in_use), self.n_blocks + 1), dtype=np.bool_)
        reached[0, 0] = True
        for choice, before, after in self.steps:
            starts, stops = (useful[self.n_in_use[states[0]]] for states in (before, after))
            rows = reached[before, starts].astype(np.float32)
            reached[after, stops] |= rows @ stages((choice,), starts, stops) > 0
        ends = [state for state in self.last_states if reached[state, -1]]
        return self._trace(reached, compute_cycles, transfer_cycles, ends[0]) if ends else None

    @np.errstate(invalid="ignore")
    def windows(self, compute_cycles: int, transfer_cycles: int, within: Windows | None = None) -> Windows | None:
        """What `probe` looks at with these bounds, and with any tighter ones; None where there is no plan.

        Args:
            compute_cycles, transfer_cycles: the bounds.
            within: as in `probe`.
        """
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

        None when it cannot reach the end. All blocks from the first to the last of them, of which few are others.
        """
        unions = [
            (before, after, stages(choices, within[before], within[after]))
            for (before, after), choices in self._choices_between.items()
        ]
        forward, backward = np.zeros((2, int(self.n_in_use.max()) + 1, self.n_blocks + 1), dtype=np.bool_)
        forward[0, 0] = True
        for before, after, union in unions:
            forward[after, within[after]] |= forward[before, within[before]].astype(np.float32) @ union > 0
        backward[self.n_in_use[list(self.last_states)], -1] = True
        backward &= forward
        if not backward.any():
            return None
        for before, after, union in reversed(unions):
            backward[before, within[before]] |= union @ backward[after, within[after]].astype(np.float32) > 0
            backward[before] &= forward[before]
        useful = map(np.flatnonzero, backward)
        return [slice(int(blocks[0]), int(blocks[-1]) + 1) if len(blocks) else slice(0, 0) for blocks in useful]

    def _limits_of(self, costs: RangeCosts) -> tuple[IntArray, IntArray]:
        """By range, how large the two bounds of a probe must be; more than `UNBOUNDED` for what is no stage."""
        compute, receive, send = costs.compute, costs.receive, costs.send
        if self.period is Period.SERIAL:
            transfer = compute + receive + send
        elif self.period is Period.DUPLEX:
            transfer = np.maximum(receive, send)
        else:
            transfer = receive + send
        return compute, np.where(costs.fits, transfer, UNBOUNDED + 1)

    def _trace(self, reached: BoolArray, compute_cycles: int, transfer_cycles: int, state: int) -> Route:
        """Walk back from the last state: every block that is reached has a stage that leads to it."""
        stop, route = self.n_blocks, Route()
        while stop:
            ends = slice(None), stop
            allowed = [
                self._are_within(choice, ends, compute_cycles, transfer_cycles) for choice in range(len(self.choices))
            ]
            choice, state, start = next(
                (choice, int(state_before), int(starts[0]))
                for choice, before, after in self.steps
                if self.n_in_use[after[0]] == self.n_in_use[state]
                for state_before in before[after == state]
                if len(starts := np.flatnonzero(reached[state_before] & allowed[choice]))
            )
            route.append(RangeStage(choice, start, stop))
            stop = start
        return route[::-1]

    def cycles(self, route: Route) -> tuple[list[int], list[int], list[int]]:
        """Cycles in which every stage of a route computes, receives and sends."""
        costs = [(self.choices[choice].costs, start, stop) for choice, start, stop in route]
        return (
            [int(cost.compute[start, stop]) for cost, start, stop in costs],
            [int(cost.receive[start, stop]) for cost, start, stop in costs],
            [int(cost.send[start, stop]) for cost, start, stop in costs],
        )

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
        """The problem in which every device may be of any kind; its best plan costs no more."""
        steps = [
            (choice, np.array([before]), np.array([after]))
            for (before, after), choices in self._choices_between.items()
            for choice in choices
        ]
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
            highest = cost - lowest_transfer - 1
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
            low += 1
        return best

    def _lowest_transfer_cycles(self) -> int:
        """A lower bound of the largest transfer of any plan's stage: what its first and its last stage need.

        0 where no range fits that could be one of them.
        """
        first, last = (min(int(transfer[ends].min()) for _, transfer in self._limits) for ends in (0, (..., -1)))
        lowest = max(first, last)
        return 0 if lowest > UNBOUNDED else lowest


MAX_STATES = 100_000
"""With more ways to use devices of several kinds, only those are tried that use all kinds about evenly, and the plan
has a lower bound: that of a line in which every device is of any kind. Four kinds of 16 devices have 83,521."""


def even_spread(n_devices: Sequence[int], n_total: int) -> int:
    """By how many devices of a kind a state may differ from an even use of all kinds, for up to `MAX_STATES` states.

    Raises:
        BadInput: there are far more states where it is 1.
    """
    spread = max(n_devices)
    while spread > 1 and _n_usages(n_devices, n_total, spread) > MAX_STATES:
        spread //= 2
    if _n_usages(n_devices, n_total, spread) > 10 * MAX_STATES:
        raise BadInput(f"devices of {len(n_devices)} kinds are used in too many ways to be planned; try fewer kinds")
    return spread


def _even_use(n_devices: Sequence[int], total: int, spread: int) -> list[range]:
    """How many devices of every kind are in use where `total` of all are, by no more than `spread` from even."""
    even = [Fraction(n * total, sum(n_devices)) for n in n_devices]
    return [
        range(max(0, ceil(share - spread)), min(n, total, floor(share + spread)) + 1)
        for n, share in zip(n_devices, even, strict=True)
    ]


def usages(n_devices: Sequence[int], n_total: int, spread: int) -> Iterator[tuple[int, ...]]:
    """How many devices of every kind may be in use, at most `n_total` together, the fewest first.

    >>> list(usages((1, 2), 2, 2)), list(usages((2, 2), 4, 1))
    ([(0, 0), (0, 1), (1, 0), (0, 2), (1, 1)], [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0), (1, 2), (2, 1), (2, 2)])
    """
    for total in range(n_total + 1):
        *others, last = _even_use(n_devices, total, spread)
        for used in product(*others):
            if total - sum(used) in last:
                yield (*used, total - sum(used))


def _n_usages(n_devices: Sequence[int], n_total: int, spread: int) -> int:
    """The number of `usages`: for every total a coefficient of a product of polynomials, one a kind."""
    n_usages = 0
    for total in range(n_total + 1):
        ways = [1]  # by the devices of the kinds so far
        for used in _even_use(n_devices, total, spread):
            ways = [sum(ways[n - m] for m in used if 0 <= n - m < len(ways)) for n in range(total + 1)]
        n_usages += ways[total]
    return n_usages


def steps_between(
    usage: Sequence[tuple[int, ...]], ways: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, IntArray, IntArray]]:
    """`RangeProblem.steps`: every way from every state to another, by how many devices are in use."""
    state_of = {used: state for state, used in enumerate(usage)}
    by_total: dict[int, list[tuple[int, ...]]] = {}
    for used in usage:
        by_total.setdefault(sum(used), []).append(used)
    for total, (way, (kind, m)) in product(range(max(by_total)), enumerate(ways)):
        next_of = ((used, (*used[:kind], used[kind] + m, *used[kind + 1 :])) for used in by_total[total])
        pairs = [(state_of[used], state_of[after]) for used, after in next_of if after in state_of]
        if pairs:
            before, after = zip(*pairs, strict=True)
            yield way, np.array(before), np.array(after)
