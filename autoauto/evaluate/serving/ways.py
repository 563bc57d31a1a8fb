"""The ways to put all replicas of a configuration on the GPUs, at many batch sizes at once: `ReplicaWays`, `Way`.

Replicas of like GPUs stand as `placements` says. Of unlike GPUs each has an equal part, or one after the other takes
the fastest pipeline of what is left. And one kind alone may have all replicas: its nodes link them better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from autoauto.evaluate.serving.costs import ServingCosts, Sizes
from autoauto.evaluate.serving.pipelines import EnginePipelines, PipelineRates, across_kinds, in_line
from autoauto.evaluate.serving.rates import AT_BOUND, MIDDLE, End, Rates, RatesAt, ReplicaRates, rates_at
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.plan.replicas import placements
from autoauto.records.errors import DoesNotFit, Infeasible, Unsupported
from autoauto.records.hardware import Cluster, Link, MachineDevice
from autoauto.records.plans.plan import Plan, replicated
from autoauto.records.units import BoolArray, FloatArray, IntArray
from autoauto.space.knobs import Knobs
from autoauto.targets.gpu.calibration import Factors

_MAX_PIPELINES = 4096


@dataclass(frozen=True)
class LikeReplicas:
    """Like replicas of one way.

    Attributes:
        n: how many there are.
        pipelines: of which each is one.
        free: groups of every kind of GPUs that each may take, shape (batch sizes, kinds).
        firsts: the first group of every replica, where GPUs stand in a line.
    """

    n: int
    pipelines: EnginePipelines
    free: IntArray
    firsts: tuple[int, ...] = ()

    @cached_property
    def _is_free(self) -> BoolArray:
        """Shape (rows, batch sizes)."""
        return np.asarray((self.pipelines.n_of_kind[:, None, :] <= self.free[None]).all(axis=2))

    @cached_property
    def rows(self) -> IntArray:
        """The row of the shortest period, by batch size; -1 where none fits."""
        periods = np.where(self._is_free, self.pipelines.period_s, np.inf)
        best = periods.argmin(axis=0)
        return np.where(np.isfinite(periods[best, np.arange(len(best))]), best, -1)

    @cached_property
    def excess_bytes(self) -> FloatArray:
        """What the fullest GPU lacks at best, by batch size; 0 where the model fits or memory is not the reason."""
        excess, unfit = np.zeros(len(self.rows)), np.flatnonzero(self.rows < 0)
        if len(unfit):
            lacking = np.where(self._is_free[:, unfit], self.pipelines.excess_bytes(unfit), np.inf).min(axis=0)
            excess[unfit] = np.where(np.isfinite(lacking), np.maximum(lacking, 1.0), 0.0)
        return excess

    def why_unfit(self, index: int) -> Infeasible:
        """The error of a batch size at which the model does not fit."""
        if not self._is_free[:, index].any():
            groups = " and ".join(map(str, self.free[index].tolist()))
            n_stages = self.pipelines.rows.shape[1]
            return Infeasible(
                f"a replica of {n_stages} stages needs as many groups of GPUs, got {groups} of each kind; try fewer", 0
            )
        excess_bytes = self.pipelines.excess_bytes(np.array([index]))[:, 0]
        lacking = np.where(self._is_free[:, index], excess_bytes, np.inf)
        return self.pipelines.why_unfit(int(lacking.argmin()), index)

    @cached_property
    def rates(self) -> PipelineRates:
        """Of one of them, by batch size."""
        used = [int(row) for row in np.unique(self.rows) if row >= 0] or [0]
        every = [self.pipelines.rates(row) for row in used]
        positions, columns = np.searchsorted(used, np.maximum(self.rows, used[0])), np.arange(len(self.rows))
        numbers = zip(*((*each.rates, each.slowest, each.kv_cache_bytes) for each in every), strict=True)
        *rates, slowest, cache = (np.stack(number)[positions, columns] for number in numbers)
        return PipelineRates(Rates(*rates), slowest, cache)


@dataclass(frozen=True)
class Way:
    """One way to put all replicas on the GPUs.

    Attributes:
        replicas: like ones together.
        factors: by what times of every kind of GPUs are multiplied.
        cluster: all groups of GPUs.
        offset: the number of group 0 of this way in the cluster.
    """

    replicas: Sequence[LikeReplicas]
    factors: Sequence[Factors]
    cluster: Cluster
    offset: int = 0

    @cached_property
    def fits(self) -> BoolArray:
        """Whether the model does, by batch size."""
        return np.asarray(np.all([like.rows >= 0 for like in self.replicas], axis=0))

    @cached_property
    def excess_bytes(self) -> FloatArray:
        """What the fullest GPU lacks at best, by batch size; 0 where the model fits or memory is not the reason."""
        return np.asarray(np.max([like.excess_bytes for like in self.replicas], axis=0))

    @cached_property
    def rates(self) -> RatesAt:
        """What all replicas give together, by batch size."""
        return self.at(MIDDLE)

    @cached_property
    def held_rates(self) -> RatesAt:
        """The same at the end at which bounds must hold."""
        return self.at(AT_BOUND)

    def at(self, end: End) -> RatesAt:
        """The same at any end of the intervals."""
        made = [(like.n, like.rates) for like in self.replicas]
        rates = [ReplicaRates(n, each.rates, self.factors, each.slowest) for n, each in made]
        return rates_at(rates, np.max([each.kv_cache_bytes for _, each in made], axis=0), end)

    def plan(self, index: int) -> Plan:
        """The stages of all replicas at one batch size, each on groups of GPUs of the cluster.

        Raises:
            Infeasible: they do not fit.
        """
        unfit = [like.why_unfit(index) for like in self.replicas if like.rows[index] < 0]
        if unfit:
            raise max(unfit, key=lambda failure: failure.excess_bytes)
        free = {name: iter(numbers) for name, numbers in self._groups_by_kind().items()}
        pipelines: list[tuple[Plan, tuple[MachineDevice, ...]]] = []
        for like in self.replicas:
            plan = like.pipelines.plan(int(like.rows[index]), index)
            for number in range(like.n):
                if like.firsts:
                    first = self.offset + like.firsts[number]
                    groups = list(range(first, first + len(plan.stages)))
                else:
                    groups = [next(free[stage.device_kind]) for stage in plan.stages]
                pipelines.append((plan, tuple(map(self.cluster.machine_device, groups))))
        return replicated(pipelines)

    def _groups_by_kind(self) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for number, device in enumerate(self.cluster.devices):
            groups.setdefault(device.name, []).append(number)
        return groups


class ReplicaWays:
    """The ways of the configurations of a setting; pipelines that were made are kept."""

    def __init__(self, costs: ServingCosts, parts: Sequence[ReplicaWays] = ()) -> None:
        """Take the costs on all GPUs, and the ways on those of every kind alone where there are several."""
        self.costs, self._parts = costs, parts
        self._pipelines: Memo[tuple[object, ...], EnginePipelines] = Memo(_MAX_PIPELINES)

    @staticmethod
    def of(setting: Setting) -> ReplicaWays:
        """The ways on the GPUs of a setting.

        Raises:
            BadInput: its target serves no decoder.
        """
        parts = [ReplicaWays(ServingCosts(each, is_part=True)) for each in setting.by_kind]
        return ReplicaWays(ServingCosts(setting), parts)

    def ways(self, knobs: Knobs, sizes: Sizes) -> list[Way]:
        """The ways of a configuration at many batch sizes instead of its own, one or more; the model may not fit.

        Raises:
            Infeasible: there are too few devices.
            Unsupported: no kind of GPUs can be a stage.
        """
        self.costs.setting.check_devices(knobs)
        on_all = self._on_kinds if self.costs.setting.cluster.kinds else self._on_line
        attempts: list[Callable[[], Iterable[Way]]] = [partial(on_all, knobs, sizes)]
        attempts += [partial(self._on_part, part, knobs, sizes) for part in self._parts]
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

    def _on_part(self, part: ReplicaWays, knobs: Knobs, sizes: Sizes) -> list[Way]:
        """The GPUs of one kind, which stand together in the cluster."""
        ways, cluster = part.ways(knobs, sizes), self.costs.setting.devices(knobs)
        (kind,) = part.costs.kinds(knobs)
        offset = next(number for number, device in enumerate(cluster.devices) if device.name == kind.name)
        return [replace(way, cluster=cluster, offset=offset) for way in ways]

    def _on_line(self, knobs: Knobs, sizes: Sizes) -> Iterator[Way]:
        """Like GPUs; pipelines with the same links are alike."""
        cluster, factors = self.costs.setting.devices(knobs), self.costs.factors(knobs)
        free = np.full((len(sizes), 1), knobs.n_ipu)
        for firsts in placements(cluster, knobs.n_ipu, knobs.replicas):
            by_links: dict[tuple[Link, ...], list[int]] = defaultdict(list)
            for first in firsts:
                by_links[tuple(cluster.send_links[first : first + knobs.n_ipu - 1])].append(first)
            replicas = [
                LikeReplicas(len(like), self._in_line(knobs, sizes, links), free, tuple(like))
                for links, like in by_links.items()
            ]
            yield Way(replicas, factors, cluster)

    def _in_line(self, knobs: Knobs, sizes: Sizes, links: tuple[Link, ...]) -> EnginePipelines:
        key = (knobs.session, knobs.mode, sizes, links)
        return self._pipelines.of(key, lambda: in_line(self.costs, knobs, sizes, links))

    def _on_kinds(self, knobs: Knobs, sizes: Sizes) -> Iterator[Way]:
        """Unlike GPUs: equal parts for all replicas, or the fastest pipelines one after the other."""
        cluster, replicas, factors = self.costs.setting.devices(knobs), knobs.replicas, self.costs.factors(knobs)
        key = (knobs.session, knobs.mode, sizes, knobs.n_ipu)
        pipelines = self._pipelines.of(key, lambda: across_kinds(self.costs, knobs, sizes, self._able(knobs, sizes)))
        every = np.array([kind.n_devices for kind in cluster.kinds])
        part = np.broadcast_to(every // replicas, (len(sizes), len(every)))
        yield Way([LikeReplicas(replicas, pipelines, part)], factors, cluster)
        if replicas == 1:
            return
        free, one_by_one = np.broadcast_to(every, (len(sizes), len(every))), []
        for _ in range(replicas):
            one_by_one.append(LikeReplicas(1, pipelines, free))
            rows = one_by_one[-1].rows
            free = free - pipelines.n_of_kind[rows] * (rows >= 0)[:, None]
        yield Way(one_by_one, factors, cluster)

    def _able(self, knobs: Knobs, sizes: Sizes) -> list[int]:
        """The kinds that can be a stage.

        Raises:
            Unsupported: none can.
        """
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
