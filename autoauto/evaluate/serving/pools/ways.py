"""The ways to put two pools on the GPUs of a cluster, at many batch sizes at once: `PoolWays`, `PooledWay`.

Replicas that decode stand first, prefill workers on the GPUs that are left, each pool on GPUs of one kind:

    node 0   |d d|d d|d d|d d|      d: a replica of two GPUs
    node 1   |d d|p p p p|. .|      p: a prefill worker of four
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from typing_extensions import override

from autoauto.evaluate.serving.costs import Sizes, requests_of, session_of
from autoauto.evaluate.serving.nodes import free_gpus, n_fitting
from autoauto.evaluate.serving.pools.rates import PrefillRates, queue_s, transfer_s
from autoauto.evaluate.serving.rates import End, RatesAt
from autoauto.evaluate.serving.ways import HasRates, ReplicaWays, Way
from autoauto.records.errors import BadInput, DoesNotFit, Infeasible
from autoauto.records.hardware import Cluster, Link
from autoauto.records.plans.plan import Plan
from autoauto.records.units import BoolArray, FloatArray
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.targets.gpu.nodes import groups_of
from autoauto.targets.gpu.session import PrefillPool
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving


def prefill_of(knobs: Knobs) -> PrefillPool:
    """The prefill workers of a configuration; raises BadInput if it has none."""
    pool = session_of(knobs).prefill
    if pool is None:
        raise BadInput("a configuration of two pools has prefill_workers, got none; give 1 or more")
    return pool


def prefill_knobs(knobs: Knobs) -> Knobs:
    """The prefill workers of two pools as a configuration of their own: replicas whose answers have one token."""
    pool = prefill_of(knobs)
    mode = Generation(requests_of(knobs).input_tokens, 1)
    return Knobs(1, pool.n_prompts, pool.workers, mode, session_of(knobs).of_prefill)


def decode_knobs(knobs: Knobs) -> Knobs:
    """The replicas of two pools as a configuration that does not depend on the prefill workers."""
    return replace(knobs, session=session_of(knobs).of_decode)


@dataclass(frozen=True)
class PooledWay(HasRates):
    """One way to put two pools on the GPUs.

    Attributes:
        decode: the replicas, with prompts that others computed.
        prefill: the workers, at one batch size.
        why_no_room: why workers do not stand beside replicas; empty where they do.
    """

    knobs: Knobs
    decode: Way
    prefill: Way
    transfer_s: float
    why_no_room: str = ""

    @cached_property
    def fits(self) -> BoolArray:
        """Whether both pools do, by batch size."""
        return np.asarray(self.decode.fits & (self.prefill.fits[0] and not self.why_no_room))

    @cached_property
    def excess_bytes(self) -> FloatArray:
        """Bytes that the fullest GPU lacks at best, by batch size; 0 where it fits, or memory is not the reason."""
        return np.asarray(np.maximum(self.decode.excess_bytes, self.prefill.excess_bytes[0]))

    @override
    def at(self, end: End) -> RatesAt:
        decode, n_tokens = self.decode.at(end), requests_of(self.knobs).output_tokens
        prefill = prefill_rates(self.prefill, prefill_of(self.knobs), end)
        per_s = np.minimum(decode.tokens_per_s / n_tokens, prefill.requests_per_s)
        busy = per_s / prefill.requests_per_s
        waits_s = queue_s(prefill.batch_s, prefill.n_workers, busy)
        most = np.maximum(decode.kv_cache_bytes, self.prefill.rates.kv_cache_bytes[0])
        return RatesAt(
            tokens_per_s=per_s * n_tokens,
            tpot_s=decode.tpot_s,
            ttft_s=prefill.prompt_s + waits_s + self.transfer_s + decode.tpot_s,
            kv_cache_bytes=most,
            prefill_busy_share=busy,
            kv_transfer_s=np.full(len(most), self.transfer_s),
        )

    def plan(self, index: int) -> Plan:
        """The stages of all replicas; workers have `free_groups`; raises Infeasible if a pool does not fit."""
        if self.why_no_room:
            raise Infeasible(self.why_no_room, 0)
        self.prefill.plan(0)
        return self.decode.plan(index)


def prefill_rates(way: Way, pool: PrefillPool, end: End) -> PrefillRates:
    """The rates of the workers of a way, whose answers have one token each."""
    rates = way.at(end)
    per_s = rates.tokens_per_s[0].item()
    return PrefillRates(pool.workers, per_s, rates.ttft_s[0].item(), pool.workers * pool.n_prompts / per_s)


class PoolWays:
    """The ways of configurations with prefill workers."""

    def __init__(self, ways: ReplicaWays) -> None:
        self._ways = ways

    def ways(self, knobs: Knobs, sizes: Sizes) -> Sequence[PooledWay]:
        """The ways of a configuration at many batch sizes of its replicas, one or more; the model may not fit.

        Raises:
            Infeasible: there are too few GPUs for one of the pools, or a replica has more stages than blocks.
            Unsupported: the GPUs cannot be a prefill worker, or a stage of a replica.
        """
        self._ways.costs.setting.check_devices(knobs)
        of_prefill = self._of_kind(prefill_of(knobs).kind)
        (prefill,) = of_prefill.ways(prefill_knobs(knobs), (prefill_of(knobs).n_prompts,))
        made: list[PooledWay] = []
        failures: list[DoesNotFit] = []
        for number, part in enumerate(self._ways.parts or (self._ways,), start=1):
            try:
                made += self._beside(knobs, sizes, prefill, part, number)
            except DoesNotFit as failure:
                failures.append(failure)
        if not made:
            raise failures[0]
        return made

    def _of_kind(self, number: int) -> ReplicaWays:
        return self._ways.parts[number - 1] if self._ways.parts else self._ways

    def _beside(self, knobs: Knobs, sizes: Sizes, prefill: Way, part: ReplicaWays, number: int) -> Iterator[PooledWay]:
        of_decode, pool = decode_knobs(knobs), prefill_of(knobs)
        is_same = number == pool.kind or not self._ways.parts
        why = ""
        if is_same and n_workers_beside(part, of_decode, pool.split.n_gpus) < pool.workers:
            why = (
                f"{pool.workers} prefill workers of {pool.split.n_gpus} GPUs must stand in nodes beside "
                f"{knobs.replicas} x {knobs.n_ipu} stages of {session_of(knobs).group_size}, there is no room; "
                "try fewer of them"
            )
        takes_s = transfer_s(
            part.costs.target.decoder,
            _serving(self._of_kind(pool.kind), prefill_knobs(knobs)),
            _serving(part, of_decode),
            knobs.n_ipu,
            requests_of(knobs).input_tokens,
            self.link(pool.kind, number, knobs.n_devices),
        )
        ways = self._ways.on_part(part, of_decode, sizes) if self._ways.parts else part.ways(of_decode, sizes)
        for way in ways:
            yield PooledWay(knobs, way, prefill, takes_s, why)

    def link(self, of_prefill: int, of_decode: int, n_gpus: int) -> Link:
        """Between a GPU of a worker and one of a replica, by the numbers of their kinds.

        Both are in one node where all of their GPUs have room there, else the network is between them; of two kinds
        the slower one's.
        """
        cluster = self._ways.costs.setting.cluster
        if not cluster.kinds:
            return link_between(cluster, n_gpus)
        if of_prefill == of_decode:
            return link_between(cluster.by_kind[of_prefill - 1], n_gpus)
        links = [cluster.kinds[number - 1].device_link for number in (of_prefill, of_decode)]
        return min(links, key=lambda link: link.bytes_per_s)


def _serving(ways: ReplicaWays, knobs: Knobs) -> Serving:
    target = ways.costs.target
    return target.serving(system_named(ways.costs.kinds(knobs)[0].name), session_of(knobs))


def link_between(cluster: Cluster, n_gpus: int) -> Link:
    """Between two GPUs of so many like ones: of a node where all of them are in one, else to the next node."""
    size = cluster.machine_size
    if n_gpus <= size or len(cluster) <= size:
        return cluster.send_links[0]
    return cluster.send_links[size - 1]


def n_workers_beside(ways: ReplicaWays, knobs: Knobs, n_each: int) -> int:
    """How many groups of `n_each` GPUs have room beside the replicas of a configuration, on GPUs of one kind."""
    cluster = ways.costs.setting.hardware(knobs.session)
    kinds = (cluster.devices[0].name,) * knobs.n_ipu
    placed = ways.nodes(knobs).all_placed(kinds, knobs.replicas)
    if placed is None:
        return 0
    groups = groups_of(cluster, session_of(knobs).group_size)
    taken = [groups[number] for numbers in placed for number in numbers]
    return n_fitting(free_gpus(cluster, taken), n_each, cluster.machine_size)
