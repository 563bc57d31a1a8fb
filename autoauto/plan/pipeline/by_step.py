"""The plan whose step of training is shortest, `best_by_step`, with a lower bound of every plan's step.

A step is no sum and no maximum over stages: it is the longest path through an order (`StepBound`). But its slopes at
any plan bound it from below, for all plans at once, and so do weighted means of such slopes:

    step(plan) >= sum over stages of  slopes of the stage . costs of the stage

The right side is a sum over stages, so a shortest path over cuts minimises it exactly:

    cut 0     cut 1     cut 2     cut 3        a stage is an edge from its start to its stop
      0 ------- 3 ------- 7 ------- 9          edges exist where memory allows
        \\------- 4 ------- 8 -----/

1. *Bounds.* A game of two players finds good weights: one answers with the plan that is cheapest for the weights so
   far, the other with the slopes at the mean of all these plans (fictitious play). All of these plans are candidates.
2. *Edges.* The cheapest plan through an edge, for any weights, bounds all plans with this stage. Edges are removed
   whose bound is no lower than the best plan's step; the largest bound of its edges bounds a plan.
   There is a game for every stage too, in which this stage is twice as slow: the slopes then count its work in full.
3. *Enumeration.* The plans that are left are built stage by stage, and those dropped whose bound is no lower than the
   best plan's step. If more than `MAX_PARTIAL` are left after a stage, the ones with the largest bounds are dropped
   too, and the smallest of their bounds is the lower bound of all plans. If none was, the plan is optimal. Else
   moves of its cuts, near and far, lead to a better one where there is one.

Every method is a count of operations and never a time, so equal tables give equal plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np

from autoauto.plan.pipeline.probe import cut_ranges
from autoauto.plan.pipeline.problem import CutProblem, compute_lower_bound, fewest_cycles
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.units import BoolArray, FloatArray, IntArray

ROUNDS, FEW_ROUNDS = 8, 4
MAX_MOVED = 8
NEAR = (1, -1, 2, -2, 4, -4)  # blocks by which cuts are moved
FAR = (*NEAR, 8, -8, 16, -16)
MAX_PARTIAL = 1_000
MAX_EDGES = 1_000_000
MAX_LENGTHS = 200_000  # of edges in games that are answered together: fewer take longer, more remove fewer edges
MAX_WEIGHTS = 8
MAX_RESOLVED = 64
NOT_FOUND = 2.0**60
"""More cycles than any step: there is no plan yet."""


class StepBound(Protocol):
    """The step of plans, or a lower bound of it: a maximum of linear functions of their stages' costs.

    The costs of a stage are its forward, backward, weight, receive and send cycles. It never falls when a cost grows.
    """

    def cycles(self, costs: FloatArray) -> FloatArray:
        """(K,) values of K plans, from (K, S, 5) costs of their stages."""

    def slopes(self, costs: FloatArray) -> FloatArray:
        """(K, S, 5) slopes of the linear function that is largest at each of K plans."""


def best_by_step(costs: StageCosts, step: StepBound, starts: Sequence[Sequence[int]]) -> BoundedPlan:
    """The plan within memory limits that has the least step, and a lower bound of every such plan's step.

    It is no worse than the plans that cut at one of `starts`; the search begins with the best of them. Every stage of
    these must fit by itself, and at least one plan as a whole.

    Where stages choose whether they recompute, one that has a device of its own does if it does not fit otherwise: a
    second forward pass makes no step shorter. Several on a device may have a choice, and not all of them are tried; the
    lower bound holds for all.
    """
    search = _StepSearch(costs, step, starts)
    search.bound_edges()
    search.enumerate()
    if search.lower_bound() < search.best_cycles:
        search.descend(FAR)
    assert search.best_cycles < NOT_FOUND
    return BoundedPlan(costs.evaluate(search.best, search.recomputes), search.lower_bound(), search.best_cycles)


def best_nearby(costs: StageCosts, step: StepBound, start: Sequence[int]) -> tuple[float, Plan]:
    """The plan to which moves of cuts lead from those at `start`, for as long as its step gets shorter; and its step.

    The plan with these cuts must fit.
    """
    search = _StepSearch(costs, step, [start])
    return search.best_cycles, costs.evaluate(search.best, search.recomputes)


def no_step_below(costs: StageCosts, step: StepBound, cycles: float) -> bool:
    """True if it is certain that no plan within the memory limits has a step below `cycles`.

    The search for the best plan says so long before its end. It begins with a plan whose step is taken to be `cycles`.
    """
    cycles = ceil(2 * cycles) / 2  # steps are whole or halves
    search = _StepSearch(costs, step, [costs.problem.partition(_even(costs.problem))], cycles)
    is_best = search.bound_edges(FEW_ROUNDS)
    return is_best and min(search.best_cycles, search.outside) >= cycles


def _even(problem: CutProblem) -> list[int]:
    """Cuts that give all stages about equal compute; they need not fit."""
    n_blocks, n_stages, prefix = len(problem.blocks), problem.n_stages, problem.blocks.costs[0].prefix
    cuts = np.searchsorted(prefix, np.arange(n_stages + 1) * (prefix[-1] / n_stages))
    cuts[0], cuts[-1] = 0, n_blocks
    for i in range(1, n_stages):  # every stage has a block or more
        cuts[i] = min(max(cuts[i], cuts[i - 1] + 1), n_blocks - n_stages + i)
    return [int(cut) for cut in cuts]


class _Ends(NamedTuple):
    """The different cuts at one end of edges that are sorted by that end.

    Attributes:
        cuts: the cuts that an edge has, ascending.
        first: the first edge of each.
    """

    cuts: IntArray
    first: IntArray

    @classmethod
    def of(cls, in_order: IntArray) -> _Ends:
        first = np.flatnonzero(np.diff(in_order, prepend=-1))
        return cls(in_order[first], first)

    def minimum(self, values: FloatArray, n_cuts: int) -> FloatArray:
        """(G, cuts) the least of (G, E) values at every cut, infinite where there is none."""
        minimum = np.full((len(values), n_cuts), np.inf)
        if len(self.first):
            minimum[:, self.cuts] = np.minimum.reduceat(values, self.first, axis=1)
        return minimum


class _Edges(NamedTuple):
    """The ranges that may be one of the stages in better plans.

    Attributes:
        starts, stops: (E,) their cuts, in order of starts.
        costs: (E, 5) their costs.
        bounds: (E,) lower bounds of all plans with such a stage.
        by_stop: (E,) their order by stops.
        from_starts, to_stops: the edges from every cut, and to every cut in their order by stops.
    """

    starts: IntArray
    stops: IntArray
    costs: FloatArray
    bounds: FloatArray
    by_stop: IntArray
    from_starts: _Ends
    to_stops: _Ends

    @classmethod
    def of(cls, starts: IntArray, stops: IntArray, costs: FloatArray, bounds: FloatArray) -> _Edges:
        """Make edges from columns that are sorted by starts."""
        short = stops.astype(np.min_scalar_type(stops.max(initial=0)))  # NumPy sorts 16 bits in linear time
        by_stop = np.argsort(short, kind="stable")
        return cls(starts, stops, costs, bounds, by_stop, _Ends.of(starts), _Ends.of(stops[by_stop]))

    def below(self, limit: float) -> _Edges:
        remaining = self.bounds <= limit
        if remaining.all():
            return self
        return _Edges.of(self.starts[remaining], self.stops[remaining], self.costs[remaining], self.bounds[remaining])


class _StepSearch:
    """The state of a search: the best plan so far, and the edges of every stage of plans that may be better."""

    def __init__(
        self, costs: StageCosts, step: StepBound, starts: Sequence[Sequence[int]], best_cycles: float = NOT_FOUND
    ) -> None:
        self.costs, self.step = costs, step
        self.dropped = np.inf  # the smallest bound of plans that were dropped
        plans = np.searchsorted(costs.problem.blocks.cuts, np.array(starts))
        self.best, self.best_cycles = plans[0], best_cycles
        self.recomputes: tuple[bool, ...] = ()
        self.outside = np.inf  # a bound of the plans that have other edges
        self.weights: list[tuple[float, FloatArray]] = []
        self.n_cuts = len(costs.problem.blocks) + 1
        self.edges: list[_Edges] = []
        if best_cycles == NOT_FOUND:
            self.try_all(plans)
            self.descend()

    @property
    def limit(self) -> float:
        """A plan with this bound is no better than the best so far: steps are whole, but for rounding errors."""
        return self.best_cycles - 0.5 + max(0.01, 1e-12 * self.best_cycles)

    def lower_bound(self) -> float:
        # A plan is bounded by the largest bound of its edges; the smallest such bound over all plans bounds all.
        largest = np.zeros((1, self.n_cuts))
        for edges in self.edges:
            bounds = np.maximum(largest[:, edges.starts], edges.bounds).take(edges.by_stop, axis=1)
            largest = edges.to_stops.minimum(bounds, self.n_cuts)
        of_all = max(float(largest[0, -1]), max((shortest for shortest, _ in self.weights), default=np.inf))
        inside = self.best_cycles  # nothing was dropped that may be better: the search was exhaustive
        if self.dropped <= self.limit:
            inside = max(self.dropped, of_all)
        return min(inside, self.outside, self.best_cycles)

    def descend(self, steps: Sequence[int] = NEAR) -> None:
        """Move neighbouring cuts together, one or more of them, for as long as that makes the step shorter."""
        n_stages = len(self.best) - 1
        # A row for every run of up to `MAX_MOVED` neighbouring inner cuts, with a 1 for each cut of the run.
        first, last = np.triu_indices(n_stages - 1)
        some = last - first < MAX_MOVED
        inner = np.arange(1, n_stages)
        moved = ((first[some, None] < inner) & (inner <= last[some, None] + 1)).astype(np.int64)
        moves = np.concatenate([moved * step for step in steps])
        before = np.inf
        while self.best_cycles < before:
            before = self.best_cycles
            plans = np.repeat(self.best[None], len(moves), axis=0)
            plans[:, 1:-1] += moves
            plans = plans[self._allowed(plans)]
            # The slopes at the best plan bound the step of all plans, which is much quicker than the step itself.
            slopes = self.step.slopes(self.costs.plans(self.best[None]))[0]
            self.try_all(plans[(self.costs.plans(plans) * slopes).sum(axis=(1, 2)) <= self.limit])

    def try_all(self, plans: IntArray) -> float:
        """Keep the best of some plans, (K, S + 1) cuts, if it is better.

        Returns the bound of those that are left out, because many were tried in vain; infinite if none is.
        """
        if not len(plans):
            return np.inf
        cycles = self.step.cycles(self.costs.plans(plans))
        in_order = np.argsort(cycles, kind="stable").tolist()
        for n_tried, index in enumerate(in_order):
            bound = float(cycles[index])
            if bound >= self.best_cycles:
                break
            if n_tried >= MAX_RESOLVED:
                return bound
            self._consider(plans[index], bound)
        return np.inf

    def _consider(self, plan: IntArray, bound: float) -> None:
        """Keep a plan if it fits and is better; `bound` is its step if every stage had a device of its own."""
        choice = self.costs.resolve(plan)
        if choice is None:
            return
        cycles = bound
        if not choice.is_certain:
            # Another choice of stages that recompute may have a step down to the bound, and is not tried.
            self.dropped = min(self.dropped, bound)
            cycles = float(self.step.cycles(self.costs.chosen(plan, choice.recomputes))[0])
        if cycles < self.best_cycles:
            self.best, self.best_cycles, self.recomputes = plan, cycles, choice.recomputes

    def bound_edges(self, n_rounds: int = ROUNDS) -> bool:
        """Play the games of all stages and of none, turn by turn; every answer bounds the edges.

        Returns whether it is certain that no plan of these edges is better than the best so far.
        """
        self.edges = [self._edges(s, *ends) for s, ends in enumerate(pairwise(self._thinned(self._positions())))]
        if not self.edges:
            return True
        start = self.costs.plans(self.best[None])[0]
        n_games = len(start) + 1
        means = np.repeat(start[None], n_games, axis=0)  # of the costs of all plans that a game had so far
        weights = np.zeros_like(means)  # the mean of all slopes that it had so far
        for turn in range(n_rounds):
            weights += (self.step.slopes(self._stressed(means)) - weights) / (turn + 1)
            plans, n_answered = [], 0
            while n_answered < n_games:
                # Every answer removes edges, so the next ones are shorter and more of them are made together.
                n_edges = sum(len(edges.starts) for edges in self.edges)
                together = weights[n_answered : n_answered + max(1, MAX_LENGTHS // max(1, n_edges))]
                answers = self.answers(together)
                if answers is None:
                    return True
                plans.append(answers)
                n_answered += len(together)
            answered = np.concatenate(plans)
            means += (self.costs.plans(answered) - means) / (turn + 2)
            self.try_all(answered)
        return False

    def answers(self, weights: FloatArray) -> IntArray | None:
        """(G, S + 1) the cheapest plans for G weights, which bound all edges; None if no better plan is left."""
        lengths, to_end = self._distances(weights)
        shortest = to_end[0][:, 0]
        if shortest.max() > self.limit:
            return None
        self.weights.extend(zip(shortest.tolist(), weights.copy(), strict=True))  # the games go on with theirs
        to_start = np.where(np.arange(self.n_cuts) == 0, 0.0, np.inf)[None]
        plans = [np.zeros(len(weights), dtype=np.int64)]
        for edges, length, rest in zip(self.edges, lengths, to_end[1:], strict=True):
            before = to_start.take(edges.starts, axis=1)
            onwards = length + rest.take(edges.stops, axis=1)
            # The cheapest plan goes on by the shortest way from where it has come to.
            of_plan = np.where(edges.starts == plans[-1][:, None], onwards, np.inf).argmin(axis=1)
            plans.append(edges.stops[of_plan])
            # Every plan with an edge takes the shortest way to it, itself, and the shortest way from it, or longer.
            np.maximum(edges.bounds, (before + onwards).max(axis=0), out=edges.bounds)
            to_start = edges.to_stops.minimum((before + length).take(edges.by_stop, axis=1), self.n_cuts)
        return np.stack(plans, axis=1)

    def enumerate(self) -> None:
        self.weights.sort(key=lambda pair: -pair[0])
        if not self.weights:
            return
        # The weights with the largest bounds of all plans also bound partial plans well.
        lengths, to_end = self._distances(np.stack([weights for _, weights in self.weights[:MAX_WEIGHTS]]))
        plans = np.zeros((1, 1), dtype=np.int64)
        bounds, sums = np.zeros(1), np.zeros((len(to_end[0]), 1))
        for edges, length, rest in zip(self.edges, lengths, to_end[1:], strict=True):
            # Edges are in order of starts: those by which a plan goes on are `[first, after)`.
            first = np.searchsorted(edges.starts, plans[:, -1], "left")
            after = np.searchsorted(edges.starts, plans[:, -1], "right")
            n_longer = after - first
            parents = np.repeat(np.arange(len(plans)), n_longer)
            # These ranges, one behind the other: the position, less the edges of earlier plans, plus `first`.
            longer = np.arange(len(parents)) + np.repeat(after - n_longer.cumsum(), n_longer)
            sums = sums.take(parents, axis=1) + length.take(longer, axis=1)
            through = (sums + rest.take(edges.stops[longer], axis=1)).max(axis=0)
            bounds = np.maximum(np.maximum(through, edges.bounds[longer]), bounds[parents])
            remaining = np.flatnonzero(bounds <= self.limit)
            if len(remaining) > MAX_PARTIAL:
                remaining = remaining[np.argsort(bounds[remaining], kind="stable")]
                self.dropped = min(self.dropped, float(bounds[remaining[MAX_PARTIAL]]))
                remaining = remaining[:MAX_PARTIAL]
            plans = np.concatenate((plans[parents[remaining]], edges.stops[longer[remaining], None]), axis=1)
            bounds, sums = bounds[remaining], sums.take(remaining, axis=1)
        for best_first in np.array_split(plans[np.argsort(bounds, kind="stable")], len(plans) // 64 + 1):
            self.dropped = min(self.dropped, self.try_all(best_first))

    def _distances(self, weights: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
        """For (G, S, 5) weights the lengths of every stage's edges (G, E), and from every cut to the end (G, cuts).

        Edges that no better plan has are removed before.
        """
        limit = self.limit
        self.edges = [edges.below(limit) for edges in self.edges]
        at_end = np.where(np.arange(self.n_cuts) == self.n_cuts - 1, 0.0, np.inf)
        lengths, to_end = [], [np.repeat(at_end[None], len(weights), axis=0)]
        for s in reversed(range(len(self.edges))):
            edges = self.edges[s]
            lengths.append(weights[:, s] @ edges.costs.T)
            onwards = lengths[-1] + to_end[-1].take(edges.stops, axis=1)
            to_end.append(edges.from_starts.minimum(onwards, self.n_cuts))
        return lengths[::-1], to_end[::-1]

    def _edges(self, stage: int, starts: IntArray, stops: IntArray) -> _Edges:
        first, last = np.nonzero(self.costs.fits(stage, starts[:, None], stops))
        starts, stops = starts[first], stops[last]
        return _Edges.of(starts, stops, self.costs.stage(stage, starts, stops), np.zeros(len(starts)))

    def _positions(self) -> list[IntArray]:
        """The positions of every cut in better plans, by the compute that their stages may have.

        If the longest path at some plan has every stage `others` times or more, and stage s `alone` times, a plan with
        the same `total` compute has a step of `others total + (alone - others) compute of s` or more.
        """
        problem = self.costs.problem
        n_stages = problem.n_stages
        plans = np.repeat(self.costs.plans(self.best[None]), n_stages, axis=0)
        own_total, longest = fewest_cycles(problem), max(clock.costs.prefix[-1] for clock in problem.clocks)
        own_cycles = [int(longest)] * n_stages
        for factor in (1.0, 1.1, 2.0):
            slopes = self.step.slopes(self._stressed(plans, factor))
            # A cycle of compute is one of forward, of backward, or of backward and of the weight gradient in it.
            counts = np.minimum(slopes[..., :2].min(axis=2), slopes[..., 1:3].sum(axis=2))
            for s, (alone, others) in enumerate(zip(counts.diagonal(), counts.min(axis=1), strict=True)):
                if alone > others >= 0:
                    spare_cycles = self.best_cycles - others * own_total / float(max(problem.speeds))
                    own_cycles[s] = min(own_cycles[s], int(spare_cycles / (alone - others) * problem.speeds[s]) + 1)
        anywhere = [list(range(first, last + 1)) for first, last in problem.cut_limits]
        positions = cut_ranges(problem, own_cycles, anywhere) or []  # none: no plan is better
        return [np.array(position) for position in positions]

    def _thinned(self, cuts: list[IntArray]) -> list[IntArray]:
        """The positions of every cut, if there are too many only those nearest to the best plan's cut.

        Plans with a cut that is left out are then bounded by the sum of all compute alone.
        """
        if sum(len(starts) * len(stops) for starts, stops in pairwise(cuts)) <= MAX_EDGES:
            return cuts
        n_stages = len(cuts) - 1
        alone = np.eye(n_stages)[:, :, None] * np.array([1.0, 0, 0, 0, 0])
        self.outside = float(self.step.cycles(alone).min()) * compute_lower_bound(self.costs.problem)
        n_near = max(1, int((MAX_EDGES / n_stages) ** 0.5) // 2)
        middles = [np.clip(cut, near[0], near[-1]) for near, cut in zip(cuts, self.best, strict=True)]
        return [near[abs(near - middle) <= n_near // 2] for near, middle in zip(cuts, middles, strict=True)]

    def _stressed(self, costs: FloatArray, factor: float = 2.0) -> FloatArray:
        """(S + 1, S, 5) costs of S + 1 plans: in plan s stage s is `factor` times as slow; the last is unchanged."""
        stages, stressed = np.arange(costs.shape[1]), costs.copy()
        stressed[stages, stages] *= factor
        return stressed

    def _allowed(self, plans: IntArray) -> BoolArray:
        """(K,) whether the stages of plans are not empty and fit."""
        inside = (plans > 0).sum(axis=1) + (plans < plans[0, -1]).sum(axis=1) == 2 * (plans.shape[1] - 1)
        allowed: BoolArray = inside & (np.diff(plans) > 0).all(axis=1)
        for s in range(plans.shape[1] - 1):
            allowed[allowed] &= self.costs.fits(s, plans[allowed, s], plans[allowed, s + 1])
        return allowed
