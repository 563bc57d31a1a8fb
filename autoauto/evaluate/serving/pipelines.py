"""Pipelines of groups of GPUs at many batch sizes, with exact cuts: `EnginePipelines`; of given ones: `pipeline_rates`.

A pipeline is a row of positions, each a kind of GPUs at the beginning, inside or at the end. Of unlike GPUs there is a
row for every choice of kinds, in which those inside stand in the order of the cluster:

    row 0     h100 | h100   h100 | l40s          stages of like positions differ in their blocks alone, so the cuts
    row 1     l40s | h100   l40s | h100          of all rows and sizes are found together (`plan/block_cuts.py`)
    ...       first  inside        last
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from autoauto.engines.engine import Engine
from autoauto.engines.load_drivers import Arrivals
from autoauto.evaluate.serving.costs import (
    PositionCosts,
    ServingCosts,
    Sizes,
    StagePosition,
    blocks_of_kinds,
    session_of,
)
from autoauto.evaluate.serving.fitting import Need, where_it_fits
from autoauto.evaluate.serving.nodes import Nodes
from autoauto.evaluate.serving.rates import DEFAULT_ARRIVALS, Rates, StageSteps, rates_of
from autoauto.memo import Memo
from autoauto.plan.block_cuts import ChainStage, Cuts, cuts_of
from autoauto.records.costs.decoder import Workload
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Link, Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import FloatArray, IntArray, format_bytes
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.targets.gpu.systems import system_named

NO_LINK = Link(1e18, 0)
"""Behind the last stage."""


class PipelineRates(NamedTuple):
    """The rates of one pipeline, arrays over batch sizes."""

    rates: Rates
    slowest: IntArray  # the number of the stage that takes the longest
    kv_cache_bytes: FloatArray  # of the fullest GPU


def pipeline_rates(
    stages: Sequence[PositionCosts],
    n_blocks: IntArray,
    n_sequences: FloatArray,
    requests: Workload,
    engine: Engine,
    n_max_batched_tokens: int,
    arrivals: Arrivals = DEFAULT_ARRIVALS,
) -> PipelineRates:
    """What a pipeline gives, or one rank of its attention; `n_blocks` has shape (stages, kinds, batch sizes)."""
    steps = [stage.steps(n) for stage, n in zip(stages, n_blocks, strict=True)]
    decode, prompt = (np.array(column) for column in zip(*steps, strict=True))
    send = np.array([stage.send_s for stage in stages])
    rates = rates_of(StageSteps(decode, prompt, send), n_sequences, requests, engine, n_max_batched_tokens, arrivals)
    slowest = (decode + n_sequences / requests.n_steps * prompt).argmax(axis=0)
    held = [(n * stage.cache_bytes).sum(axis=0) for stage, n in zip(stages, n_blocks, strict=True)]
    cache = np.array(held).max(axis=0)
    return PipelineRates(rates, slowest, cache)


class PlacedStage(NamedTuple):
    """A stage of a pipeline, and its blocks of every kind, shape (kinds,)."""

    position: StagePosition
    costs: PositionCosts
    n_blocks: IntArray


class EnginePipelines:
    """All pipelines of one length, at many batch sizes.

    Attributes:
        rows: shape (rows, stages), the position of every stage.
        period_s: shape (rows, batch sizes), infinite where the model does not fit.
    """

    def __init__(
        self, costs: ServingCosts, knobs: Knobs, sizes: Sizes, positions: Sequence[StagePosition], rows: IntArray
    ) -> None:
        self._target, self._session, self._requests = costs.target, session_of(knobs), costs.requests(knobs)
        self._engine = costs.target.engine(self._session)
        self._order = costs.target.decoder.block_order
        # Batch sizes, and of them what the fullest rank of the attention has: sequences, and prompts of a mean step.
        self._b = np.array(sizes)
        self._b_of_rank = self._session.of_rank(sizes).astype(np.float64)
        self._n_prompts = self._b_of_rank / self._requests.n_steps
        self._kind_names, self._devices = costs.kind_names(knobs), costs.kinds(knobs)
        self.rows, self._positions = rows, positions
        self._kinds = np.array([position.kind for position in positions])
        self._costs = [costs.stage(knobs, position, sizes) for position in positions]
        self.kinds = [tuple(self._kind_names[kind] for kind in self._kinds[row]) for row in rows]
        chain: list[ChainStage] = []
        for each in self._costs:
            base_s, blocks_s = each.base_s(self._n_prompts), each.blocks_s(self._n_prompts)
            chain.append(ChainStage(base_s, blocks_s, each.usable_bytes, each.block_bytes))
        self._cuts = cuts_of(rows, chain, self._order)
        self.period_s = self._cuts.period
        self._rates = Memo[int, PipelineRates](len(rows))
        self._excess_bytes = np.full(self.period_s.shape, np.nan)  # of the batch sizes that were asked for

    def excess_bytes(self, columns: IntArray) -> FloatArray:
        """Bytes that the fullest GPU of every row lacks at best, at some batch sizes, shape (rows, columns)."""
        missing = columns[np.isnan(self._excess_bytes[0, columns])]
        if len(missing):
            self._excess_bytes[:, missing] = self._fullest(missing).period
        return self._excess_bytes[:, columns]

    def _fullest(self, columns: IntArray) -> Cuts:
        """The cuts with which the fullest GPU lacks least: those of the shortest period, in bytes."""
        chain: list[ChainStage] = []
        for each in self._costs:
            filled = each.block_bytes[:, columns]
            chain.append(ChainStage(-each.usable_bytes[columns], filled, np.full(len(columns), np.inf), filled))
        return cuts_of(self.rows, chain, self._order)

    def rates(self, row: int) -> PipelineRates:
        """The rates of a pipeline of a row at all batch sizes; `slowest` is a kind of GPUs."""
        return self._rates.of(row, lambda: self._made(row))

    def stages(self, row: int, index: int) -> list[PlacedStage]:
        """The stages of a pipeline of a row at one batch size."""
        of_kinds = blocks_of_kinds(self._order, self._cuts.n_blocks(row)[:, index])
        numbers = zip(self.rows[row], of_kinds, strict=True)
        return [PlacedStage(self._positions[number], self._costs[number], n) for number, n in numbers]

    def plan(self, row: int, index: int) -> Plan:
        """The stages of a pipeline of a row at one batch size."""
        return self._plan(row, self._cuts.n_blocks(row)[:, index], index)

    def why_unfit(self, row: int, index: int) -> Infeasible:
        """The error of a row in which the model does not fit at one batch size, with the cuts that lack least."""
        only = np.array([index])
        plan = self._plan(row, self._fullest(only).n_blocks(row)[:, 0], index)
        stage = max(plan.stages, key=lambda stage: stage.total_bytes - stage.limit_bytes)
        n_blocks = Generation().parts_text(stage.layers, plan.partition[-1])
        # What must fit, as if all GPUs of the row were of its kind with the most memory.
        session, used = self._session, [self._devices[kind] for kind in set(self._kinds[self.rows[row]].tolist())]
        device = max(used, key=lambda device: device.memory_bytes)
        system, n_bytes = system_named(device.name), int(device.memory_bytes / session.group_size)
        need = Need(
            self._target.decoder,
            self._target.serving(system, session),
            replace(system, memory_bytes=min(n_bytes, system.memory_bytes)),
            self._requests,
            int(self._b[index]),
            self.rows.shape[1],
            session.max_batched_tokens,
        )
        return Infeasible(
            f"every stage must fit its GPUs, but at best one exceeds them by {format_bytes(plan.excess_bytes)}: "
            f"{n_blocks} need {format_bytes(stage.total_bytes)} of {format_bytes(stage.limit_bytes)} a GPU; "
            f"{where_it_fits(need)}",
            excess_bytes=plan.excess_bytes,
            layers=stage.layers,
            memory_bytes=stage.memory_bytes,
        )

    def _made(self, row: int) -> PipelineRates:
        stages = [self._costs[position] for position in self.rows[row]]
        n_blocks = blocks_of_kinds(self._order, self._cuts.n_blocks(row))
        n_max_batched_tokens = self._session.max_batched_tokens
        made = pipeline_rates(stages, n_blocks, self._b_of_rank, self._requests, self._engine, n_max_batched_tokens)
        rates = made.rates.times(self._b / self._b_of_rank)
        return made._replace(rates=rates, slowest=self._kinds[self.rows[row]][made.slowest])

    def _plan(self, row: int, n_blocks: IntArray, index: int) -> Plan:
        """Embedding and blocks, then norm and head: layers of the graph of a decoder."""
        stages: list[Stage] = []
        start = 0
        of_kinds = blocks_of_kinds(self._order, n_blocks)
        for device, (position, n) in enumerate(zip(self.rows[row], of_kinds, strict=True)):
            costs = self._costs[position]
            stop = start + int(n.sum())
            if device == 0:
                stop += 1  # embedding
            if device == len(n_blocks) - 1:
                stop += 2  # norm and head
            stages.append(
                Stage(
                    LayerRange(start, stop),
                    device,
                    forward_cycles=costs.step_cycles(n, self._n_prompts[index], index),
                    backward_cycles=0,
                    receive_cycles=0,
                    send_cycles=int(costs.send_cycles[index]),
                    memory_bytes=costs.memory_bytes(n, index),
                    limit_bytes=costs.limit_bytes,
                    device_kind=self._kind_names[self._kinds[position]],
                )
            )
            start = stop
        return Plan(tuple(stages), Period.SERIAL)


def in_line(costs: ServingCosts, knobs: Knobs, sizes: Sizes, links: Sequence[Link]) -> EnginePipelines:
    """The pipeline of like GPUs with these links between its stages."""
    stages = [StagePosition(0, not i, i == len(links), link) for i, link in enumerate((*links, NO_LINK))]
    positions = list(dict.fromkeys(stages))
    return EnginePipelines(costs, knobs, sizes, positions, np.array([[positions.index(stage) for stage in stages]]))


def across_kinds(costs: ServingCosts, knobs: Knobs, sizes: Sizes, able: Sequence[int], nodes: Nodes) -> EnginePipelines:
    """All pipelines of GPUs of the kinds that can be a stage, with as many stages in each of their nodes.

    Raises:
        Infeasible: they are too few.
    """
    kinds = costs.setting.devices(knobs).kinds
    ends = ((True, False), (False, False), (False, True), (True, True))
    positions = [StagePosition(kind, *end, kinds[kind].device_link) for kind in able for end in ends]
    number = {position[:3]: index for index, position in enumerate(positions)}
    rows: dict[tuple[int, ...], None] = {}
    for n_nodes in nodes.splits(knobs.n_ipu):
        size = knobs.n_ipu // n_nodes
        limits = [nodes.n_able(kind.device.name, size) if i in able else 0 for i, kind in enumerate(kinds)]
        for in_nodes in _orders(limits, n_nodes):
            stages = [kind for kind in in_nodes for _ in range(size)]
            last = len(stages) - 1
            # A dict as a set in order: several numbers of nodes may give the same row.
            rows[tuple(number[kind, i == 0, i == last] for i, kind in enumerate(stages))] = None
    if not rows:
        raise Infeasible(nodes.why_no_room(knobs.n_ipu, 1), 0)
    return EnginePipelines(costs, knobs, sizes, positions, np.array(list(rows)))


def _orders(limits: Sequence[int], n_nodes: int) -> Iterator[list[int]]:
    """The kinds of the nodes of pipelines that have at most so many of each; those inside in the order of the kinds."""
    kinds = [kind for kind, limit in enumerate(limits) if limit]
    if n_nodes == 1:
        yield from ([kind] for kind in kinds)
        return
    for first, last in product(kinds, kinds):
        left = [limit - (kind == first) - (kind == last) for kind, limit in enumerate(limits)]
        if min(left) < 0:
            continue
        for inside in _parts(left, n_nodes - 2):
            order = [first]
            for kind, n in enumerate(inside):
                order += [kind] * n
            yield [*order, last]


def _parts(limits: Sequence[int], n: int) -> Iterator[tuple[int, ...]]:
    """All numbers of every kind, within their limits, that are `n` together.

    >>> list(_parts([2, 1], 2))
    [(1, 1), (2, 0)]
    """
    if len(limits) == 1:
        yield from [(n,)] if n <= limits[0] else []
        return
    for first in range(max(0, n - sum(limits[1:])), min(n, limits[0]) + 1):
        yield from ((first, *rest) for rest in _parts(limits[1:], n - first))
