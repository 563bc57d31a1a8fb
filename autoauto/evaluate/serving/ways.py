"""The ways to put all replicas of a configuration on the GPUs, at many batch sizes at once: `ReplicaWays`, `Way`.

Replicas stand in nodes as `Nodes` says, where the engine takes them. Of unlike GPUs all have the same pipeline, or one
after the other takes the fastest of what is left. And one kind alone may have all replicas: its nodes link them better.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from typing_extensions import override

from autoauto.engines.rules import GroupSplit
from autoauto.evaluate.serving.costs import ServingCosts, Sizes, session_of
from autoauto.evaluate.serving.nodes import Free, Nodes
from autoauto.evaluate.serving.pipelines import EnginePipelines, PipelineRates, across_kinds, in_line
from autoauto.evaluate.serving.rates import AT_BOUND, MIDDLE, End, Rates, RatesAt
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.records.errors import DoesNotFit, Infeasible, Unsupported
from autoauto.records.hardware import Cluster, Link, MachineDevice
from autoauto.records.plans.plan import Plan, replicated
from autoauto.records.units import BoolArray, FloatArray, IntArray
from autoauto.space.knobs import Knobs
from autoauto.targets.gpu.calibration import Factors
from autoauto.targets.gpu.nodes import groups_of

_MAX_PIPELINES = 4096


@dataclass(frozen=True)
class LikeReplicas:
    """Like replicas of one way."""

    n: int
    pipelines: EnginePipelines
    is_free: BoolArray  # shape (rows, batch sizes): whether there is room for a pipeline
    why_no_room: str = ""  # the line that says why there is none; else empty
    groups: tuple[tuple[int, ...], ...] = ()  # of every replica, where the pipelines are of one row

    @cached_property
    def rows(self) -> IntArray:
        """The row of the shortest period, by batch size; -1 where none fits."""
        periods = np.where(self.is_free, self.pipelines.period_s, np.inf)
        best = periods.argmin(axis=0)
        return np.where(np.isfinite(periods[best, np.arange(len(best))]), best, -1)

    @cached_property
    def excess_bytes(self) -> FloatArray:
        """Bytes that the fullest GPU lacks at best, by batch size; 0 where it fits, or memory is not the reason."""
        excess, unfit = np.zeros(len(self.rows)), np.flatnonzero(self.rows < 0)
        if len(unfit):
            lacking = np.where(self.is_free[:, unfit], self.pipelines.excess_bytes(unfit), np.inf).min(axis=0)
            excess[unfit] = np.where(np.isfinite(lacking), np.maximum(lacking, 1.0), 0.0)
        return excess

    def why_unfit(self, index: int) -> Infeasible:
        """The error of a batch size at which the model does not fit."""
        if not self.is_free[:, index].any():
            return Infeasible(self.why_no_room, 0)
        excess_bytes = self.pipelines.excess_bytes(np.array([index]))[:, 0]
        lacking = np.where(self.is_free[:, index], excess_bytes, np.inf)
        return self.pipelines.why_unfit(int(lacking.argmin()), index)

    @cached_property
    def rates(self) -> PipelineRates:
        """The rates of one replica, by batch size."""
        used = [int(row) for row in np.unique(self.rows) if row >= 0] or [0]
        every = [self.pipelines.rates(row) for row in used]
        # Of each batch size the numbers of its row; where none fits, those of any row, which nobody reads.
        positions = np.searchsorted(used, np.maximum(self.rows, used[0]))
        columns = np.arange(len(self.rows))

        of_rows = zip(*(each.rates for each in every), strict=True)
        rates = Rates(*(np.stack(column)[positions, columns] for column in of_rows))
        slowest = np.stack([each.slowest for each in every])[positions, columns]
        cache = np.stack([each.kv_cache_bytes for each in every])[positions, columns]
        return PipelineRates(rates, slowest, cache)


class HasRates(ABC):
    """Servers whose rates are known at any end of the intervals."""

    @abstractmethod
    def at(self, end: End) -> RatesAt:
        """The rates of all servers together, by batch size, at an end of the intervals."""

    @cached_property
    def rates(self) -> RatesAt:
        """`at` the middle of the intervals."""
        return self.at(MIDDLE)

    @cached_property
    def held_rates(self) -> RatesAt:
        """`at` the end at which bounds must hold."""
        return self.at(AT_BOUND)


@dataclass(frozen=True)
class Way(HasRates):
    """One way to put all replicas on the GPUs."""

    replicas: Sequence[LikeReplicas]  # like ones together
    factors: Sequence[Factors]  # by what times of every kind of GPUs are multiplied
    cluster: Cluster
    nodes: Nodes
    offset: int = 0  # the number in the cluster of group 0 of this way

    @cached_property
    def fits(self) -> BoolArray:
        """Whether the model does, by batch size."""
        return np.asarray(np.all([like.rows >= 0 for like in self.replicas], axis=0))

    @cached_property
    def excess_bytes(self) -> FloatArray:
        """Bytes that the fullest GPU lacks at best, by batch size; 0 where it fits, or memory is not the reason."""
        return np.asarray(np.max([like.excess_bytes for like in self.replicas], axis=0))

    @override
    def at(self, end: End) -> RatesAt:
        tpot_factors = np.array([end(factors.tpot) for factors in self.factors])
        ttft_factors = np.array([end(factors.ttft) for factors in self.factors])
        every: list[tuple[FloatArray, ...]] = []
        for like in self.replicas:
            rates, slowest, cache = like.rates
            # The factors of a pipeline are those of the kind of GPUs whose stage takes the longest.
            tokens_per_s = like.n * rates.tokens_per_s / tpot_factors[slowest]
            times_s = rates.tpot_s * tpot_factors[slowest], rates.ttft_s * ttft_factors[slowest]
            every.append((tokens_per_s, *times_s, cache))
        tokens, *others = zip(*every, strict=True)
        return RatesAt(np.sum(tokens, axis=0), *(np.max(column, axis=0) for column in others))

    def plan(self, index: int) -> Plan:
        """The stages of all replicas, each on groups of GPUs of the cluster; raises Infeasible if they do not fit."""
        if unfit := [like.why_unfit(index) for like in self.replicas if like.rows[index] < 0]:
            raise max(unfit, key=lambda failure: failure.excess_bytes)
        free = self.nodes.full
        pipelines: list[tuple[Plan, tuple[MachineDevice, ...]]] = []
        for like in self.replicas:
            plan = like.pipelines.plan(int(like.rows[index]), index)
            kinds = tuple(stage.device_kind for stage in plan.stages)
            for number in range(like.n):
                if like.groups:
                    groups = like.groups[number]
                else:
                    chosen = self.nodes.groups_for(free, kinds)
                    assert chosen is not None
                    groups, free = chosen, self.nodes.without(free, chosen)
                devices = (self.cluster.machine_device(self.offset + group) for group in groups)
                pipelines.append((plan, tuple(devices)))
        return replicated(pipelines)


class ReplicaWays:
    """The ways of the configurations of a setting; pipelines are made once.

    The `costs` are on all GPUs; `parts` are the ways on the GPUs of every kind alone, none where all are alike.
    """

    def __init__(self, costs: ServingCosts, parts: Sequence[ReplicaWays] = ()) -> None:
        self.costs, self.parts = costs, parts
        self._pipelines: Memo[tuple[object, ...], EnginePipelines] = Memo(_MAX_PIPELINES)
        self._by_engine: Memo[tuple[str, GroupSplit], Nodes] = Memo(_MAX_PIPELINES)
        self._by_links: Memo[tuple[object, ...], dict[tuple[Link, ...], tuple[tuple[int, ...], ...]]] = Memo(
            _MAX_PIPELINES
        )

    @staticmethod
    def of(setting: Setting) -> ReplicaWays:
        """The ways on the GPUs of a setting; raises BadInput if its target serves no decoder."""
        parts = [ReplicaWays(ServingCosts(each, is_part=True)) for each in setting.by_kind]
        return ReplicaWays(ServingCosts(setting), parts)

    def ways(self, knobs: Knobs, sizes: Sizes) -> list[Way]:
        """The ways of a configuration at many batch sizes instead of its own, one or more; the model may not fit.

        Raises:
            Infeasible: there are too few devices, or more stages than blocks.
            Unsupported: no kind of GPUs can be a stage.
        """
        self.costs.setting.check_devices(knobs)
        if knobs.n_ipu > (n_blocks := len(self.costs.target.decoder.block_order)):
            raise Infeasible(f"every stage needs a block, got {knobs.n_ipu} stages of {n_blocks} blocks", 0)
        on_all = self._on_kinds if self.costs.setting.cluster.kinds else self._on_line
        attempts: list[Callable[[], Iterable[Way]]] = [partial(on_all, knobs, sizes)]
        attempts += [partial(self.on_part, part, knobs, sizes) for part in self.parts]
        ways: list[Way] = []
        failures: list[DoesNotFit] = []
        for attempt in attempts:
            try:
                ways += attempt()
            except DoesNotFit as failure:
                failures.append(failure)
        if not ways:
            raise failures[0]
        return ways

    def on_part(self, part: ReplicaWays, knobs: Knobs, sizes: Sizes) -> list[Way]:
        """The GPUs of one kind, which stand together in the cluster."""
        ways, cluster = part.ways(knobs, sizes), self.costs.setting.devices(knobs)
        (kind,) = part.costs.kinds(knobs)
        offset = next(number for number, device in enumerate(cluster.devices) if device.name == kind.name)
        return [replace(way, cluster=cluster, offset=offset) for way in ways]

    def nodes(self, knobs: Knobs) -> Nodes:
        """The nodes of all GPUs, as the engine of a configuration takes them."""
        session = session_of(knobs)
        key = (session.engine, session.split)
        cluster, engine = self.costs.setting.hardware(session), self.costs.target.engine(session)
        return self._by_engine.of(key, lambda: Nodes(groups_of(cluster, session.group_size), engine, session.split))

    def _on_line(self, knobs: Knobs, sizes: Sizes) -> Iterator[Way]:
        """Like GPUs; pipelines with the same links are alike."""
        session = session_of(knobs)
        key = (session.engine, session.split, knobs.n_ipu, knobs.replicas)
        by_links = self._by_links.of(key, lambda: self._alike(knobs))
        is_free = np.ones((1, len(sizes)), dtype=np.bool_)
        replicas = [
            LikeReplicas(len(like), self._in_line(knobs, sizes, links), is_free, groups=like)
            for links, like in by_links.items()
        ]
        yield Way(replicas, self.costs.factors(knobs), self.costs.setting.devices(knobs), self.nodes(knobs))

    def _alike(self, knobs: Knobs) -> dict[tuple[Link, ...], tuple[tuple[int, ...], ...]]:
        nodes, cluster = self.nodes(knobs), self.costs.setting.devices(knobs)
        every = nodes.all_placed((cluster.devices[0].name,) * knobs.n_ipu, knobs.replicas)
        if every is None:
            raise Infeasible(nodes.why_no_room(knobs.n_ipu, knobs.replicas), 0)
        by_links: dict[tuple[Link, ...], list[tuple[int, ...]]] = defaultdict(list)
        for groups in every:
            by_links[tuple(_send_link(cluster, *pair) for pair in pairwise(groups))].append(groups)
        return {links: tuple(like) for links, like in by_links.items()}

    def _in_line(self, knobs: Knobs, sizes: Sizes, links: tuple[Link, ...]) -> EnginePipelines:
        key = (knobs.session, knobs.mode, sizes, links)
        return self._pipelines.of(key, lambda: in_line(self.costs, knobs, sizes, links))

    def _on_kinds(self, knobs: Knobs, sizes: Sizes) -> Iterator[Way]:
        """Unlike GPUs: one pipeline for all replicas, or the fastest pipelines one after the other."""
        cluster, replicas, factors = self.costs.setting.devices(knobs), knobs.replicas, self.costs.factors(knobs)
        nodes, able = self.nodes(knobs), self._able(knobs, sizes)
        key = (knobs.session, knobs.mode, sizes, knobs.n_ipu)
        pipelines = self._pipelines.of(key, lambda: across_kinds(self.costs, knobs, sizes, able, nodes))
        kinds, why = pipelines.kinds, nodes.why_no_room(knobs.n_ipu, replicas)
        has_room = np.array([nodes.all_placed(row, replicas) is not None for row in kinds])
        is_free = np.broadcast_to(has_room[:, None], (len(kinds), len(sizes)))
        yield Way([LikeReplicas(replicas, pipelines, is_free, why)], factors, cluster, nodes)
        if replicas == 1:
            return
        # One replica after the other takes the row that is fastest on what is left, at every batch size by itself.
        free = [nodes.full] * len(sizes)
        one_by_one: list[LikeReplicas] = []
        for _ in range(replicas):
            room = {each: [nodes.groups_for(each, row) is not None for row in kinds] for each in set(free)}
            one_by_one.append(LikeReplicas(1, pipelines, np.array([room[each] for each in free]).T, why))
            left: dict[tuple[Free, int], Free] = {}  # batch sizes have few unlike rows
            for index, row in enumerate(one_by_one[-1].rows.tolist()):
                taken = free[index], row
                if taken not in left:
                    groups = nodes.groups_for(free[index], kinds[row]) if row >= 0 else None
                    left[taken] = free[index] if groups is None else nodes.without(free[index], groups)
                free[index] = left[taken]
        yield Way(one_by_one, factors, cluster, nodes)

    def _able(self, knobs: Knobs, sizes: Sizes) -> list[int]:
        """The kinds that can be a stage."""
        able, reasons = [], []
        for number, device in enumerate(self.costs.kinds(knobs)):
            try:
                self.costs.layers(device, knobs, sizes)
                able.append(number)
            except Unsupported as reason:
                reasons.append(reason)
        if not able:
            raise reasons[0]
        return able


def _send_link(cluster: Cluster, group: int, following: int) -> Link:
    """From a group of GPUs to that of the next stage: of its node to another, where this is not its neighbour."""
    if following == group + 1:
        return cluster.send_links[group]
    last = (group // cluster.machine_size + 1) * cluster.machine_size - 1
    return cluster.send_links[min(last, len(cluster) - 1)]
