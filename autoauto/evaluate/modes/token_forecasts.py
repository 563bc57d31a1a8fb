"""Forecasts of text generation at all batch sizes of a cell at once, without plans: `TokenForecasts`.

A pipeline is a row of positions, each a kind of GPUs at the beginning, inside or at the end. Of unlike GPUs there is a
row for every choice of kinds, in which those inside stand in the order of the cluster:

    row 0     h100 | h100   h100 | l40s          stages of like positions differ in their blocks alone, so the cuts
    row 1     l40s | h100   l40s | h100          of all rows and sizes are found together (`plan/equal_blocks.py`)
    ...       first  inside        last

Replicas of like GPUs stand as `placements` says. Of unlike GPUs each has an equal part, or one after the other takes
the fastest pipeline of what is left, as `evaluate/pipelines/kinds.py` plans them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, partial, reduce
from itertools import product
from typing import NamedTuple

import numpy as np

from autoauto.evaluate.costs.token_costs import TokenCosts, requests_of, session_of
from autoauto.evaluate.modes.mode import all_that_fit
from autoauto.evaluate.modes.token_rates import AT_BOUND, RatesAt, ReplicaRates, rates_at
from autoauto.memo import Memo
from autoauto.plan.equal_blocks import BlockStages, equal_blocks, without_surplus
from autoauto.plan.replicas import placements
from autoauto.records.errors import Infeasible, Unsupported
from autoauto.records.hardware import Link
from autoauto.records.units import BoolArray, FloatArray, IntArray
from autoauto.space.knobs import Knobs
from autoauto.targets.gpu.steps import Rates, StageSteps, rates_of
from autoauto.targets.gpu.systems import CLOCK_HZ
from autoauto.targets.gpu.target import system_of

_MAX_PIPELINES = 4096
_NO_LINK = Link(1e18, 0)
Sizes = tuple[int, ...]


class StagePosition(NamedTuple):
    """Where a stage stands.

    Attributes:
        kind: of its GPUs, counted in the cluster.
        is_first: whether it has the embedding.
        is_last: whether it has norm and head.
        link: to the next stage.
    """

    kind: int
    is_first: bool
    is_last: bool
    link: Link


class PositionCosts(NamedTuple):
    """What stages of a position cost, each an array over batch sizes: without blocks, and of a block.

    Attributes:
        own, block: seconds of a decode step, seconds of a prompt, and bytes that count against the limit.
        send_s: of a transfer to the next stage.
        cache_bytes: keys and values of a block.
        usable_bytes: the limit without what every stage holds.
    """

    own: tuple[FloatArray, FloatArray, FloatArray]
    block: tuple[FloatArray, FloatArray, FloatArray]
    send_s: FloatArray
    cache_bytes: FloatArray
    usable_bytes: float

    def stages(self, n_prompts: FloatArray) -> BlockStages:
        """Mean steps with so many prompts each, and how many blocks fit."""
        (decode, prompt, held), (block_decode, block_prompt, block_held) = self.own, self.block
        most = np.floor((self.usable_bytes - held) / block_held)
        base = decode + n_prompts * prompt + self.send_s
        return BlockStages(base, block_decode + n_prompts * block_prompt, most.astype(np.int64))

    def excess_bytes(self) -> FloatArray:
        """How much a stage of one block lacks."""
        return self.own[2] + self.block[2] - self.usable_bytes


class PipelineRows:
    """All pipelines of one length, at many batch sizes.

    Attributes:
        rows: shape (rows, stages), the position of every stage.
        n_of_kind: shape (rows, kinds), how many groups of GPUs a row takes.
        period_s: shape (rows, batch sizes), infinite where the model does not fit.
    """

    def __init__(
        self,
        costs: TokenCosts,
        knobs: Knobs,
        sizes: Sizes,
        positions: Sequence[StagePosition],
        rows: IntArray,
        n_kinds: int,
    ) -> None:
        self._costs, self._knobs, self.rows = costs, knobs, rows
        self._requests, self._engine = requests_of(knobs), costs.target.engine(session_of(knobs))
        self._b = np.array(sizes, dtype=np.float64)
        self._positions = [position_costs(costs, knobs, position, sizes) for position in positions]
        self._kinds = np.array([position.kind for position in positions])
        self.n_of_kind = np.array([np.bincount(self._kinds[row], minlength=n_kinds) for row in rows])
        every = [position.stages(self._b / self._requests.output_tokens) for position in self._positions]
        base, step, most = (np.array(column) for column in zip(*every, strict=True))
        self._stages = BlockStages(base, step, most)
        counts = np.array([np.bincount(row, minlength=len(positions)) for row in rows]).T[:, :, None]
        of_rows = BlockStages(base[:, None], step[:, None], most[:, None])
        self._cuts = equal_blocks(of_rows, counts, self._n_blocks)
        self.period_s = self._cuts.period
        self._rates = Memo[int, PipelineRates](len(rows))

    @property
    def _n_blocks(self) -> int:
        return self._costs.target.decoder.n_layers

    @cached_property
    def excess_bytes(self) -> FloatArray:
        """About what the fullest GPU lacks of the row that lacks least, over batch sizes; above 0."""
        lacking = np.array([position.excess_bytes() for position in self._positions])
        n_stages, block = self.rows.shape[1], np.array([position.block[2] for position in self._positions])
        total = lacking[self.rows].sum(axis=1) + (self._n_blocks - n_stages) * block[self.rows].mean(axis=1)
        most = np.maximum(lacking[self.rows].max(axis=1), total / n_stages)
        return np.asarray(np.maximum(most.min(axis=0), 1.0))

    def rates(self, row: int) -> PipelineRates:
        """What a pipeline of a row gives at all batch sizes."""
        return self._rates.of(row, lambda: self._made(self.rows[row], self._cuts.n_blocks[:, row]))

    def _made(self, row: IntArray, n_blocks: IntArray) -> PipelineRates:
        positions = [self._positions[position] for position in row]
        base, step, most = self._stages
        stages = BlockStages(base[row], step[row], most[row])
        blocks = without_surplus(stages, n_blocks[row], self._n_blocks)
        held = list(zip(positions, blocks, strict=True))
        decode, prompt = (np.array([position.own[i] + n * position.block[i] for position, n in held]) for i in (0, 1))
        send = np.array([position.send_s for position in positions])
        session = session_of(self._knobs)
        steps = StageSteps(decode, prompt, send)
        rates = rates_of(steps, self._b, self._requests, self._engine, session.max_batched_tokens)
        slowest = (decode + self._b / self._requests.output_tokens * prompt).argmax(axis=0)
        cache = np.array([n * position.cache_bytes for position, n in held]).max(axis=0)
        return PipelineRates(rates, self._kinds[row][slowest], cache)


def position_costs(costs: TokenCosts, knobs: Knobs, position: StagePosition, sizes: Sizes) -> PositionCosts:
    """The costs of stages of a position; see `TokenCosts.table_on`, which has those of all ranges.

    Raises:
        Unsupported: as `TokenCosts.at`.
    """
    device, decoder = costs.kinds_of(knobs)[position.kind], costs.target.decoder
    layers, b = costs.at(device, knobs, sizes), np.array(sizes, dtype=np.float64)
    limit_bytes, rule = costs.limit(device, knobs)
    n_cached = b * knobs.n_ipu * requests_of(knobs).max_length
    cache = np.round(layers.kv_bytes[1] * n_cached)
    ends = [0] * position.is_first + [-1] * position.is_last
    tables = layers.weight_bytes[ends[:1] if decoder.is_tied else ends].sum()
    send = position.link.idle_cycles / CLOCK_HZ + layers.send_bytes / position.link.bytes_per_s
    return PositionCosts(
        own=(layers.decode_s[ends].sum(axis=0), layers.prompt_s[ends].sum(axis=0), np.full(len(b), tables)),
        block=(
            layers.decode_s[1],
            layers.prompt_s[1],
            layers.weight_bytes[1] + cache + np.round((rule.kv_factor - 1) * cache),
        ),
        send_s=np.zeros(len(b)) if position.is_last else send,
        cache_bytes=cache,
        usable_bytes=limit_bytes - int(rule.fixed_bytes),
    )


class PipelineRates(NamedTuple):
    """What one pipeline gives, each an array over batch sizes.

    Attributes:
        rates: by the tables.
        slowest: the kind of the GPUs whose stage takes the longest.
        kv_cache_bytes: of the fullest GPU.
    """

    rates: Rates
    slowest: IntArray
    kv_cache_bytes: FloatArray


class CellRates(NamedTuple):
    """What a cell gives at all its batch sizes.

    Attributes:
        rates: of all replicas.
        at_bound: those that bounds must hold for.
        fits: where the model fits.
        excess_bytes: about what is missing where it does not.
    """

    rates: RatesAt
    at_bound: RatesAt
    fits: BoolArray
    excess_bytes: FloatArray

    def or_better(self, other: CellRates) -> CellRates:
        """At every batch size the one that fits and gives more."""
        own = np.where(self.fits, self.rates.tokens_per_s, -1.0) >= np.where(other.fits, other.rates.tokens_per_s, -1.0)
        rates, at_bound = (
            RatesAt(*(np.where(own, *both) for both in zip(*pair, strict=True)))
            for pair in ((self.rates, other.rates), (self.at_bound, other.at_bound))
        )
        return CellRates(rates, at_bound, self.fits | other.fits, np.minimum(self.excess_bytes, other.excess_bytes))


class TokenForecasts:
    """Forecasts of the cells of one flow."""

    def __init__(self, costs: TokenCosts, parts: Sequence[TokenForecasts] = ()) -> None:
        """Take the costs on all GPUs, and forecasts on those of every kind alone where there are several."""
        self.costs, self._parts = costs, parts
        self._pipelines: Memo[tuple[object, ...], PipelineRows] = Memo(_MAX_PIPELINES)

    def of(self, knobs: Knobs, sizes: Sizes) -> CellRates:
        """What a configuration gives at many batch sizes, instead of its own, by the way that gives most of each.

        Raises: as `ways`.
        """
        return reduce(CellRates.or_better, self.ways(knobs, sizes))

    def ways(self, knobs: Knobs, sizes: Sizes) -> list[CellRates]:
        """What every way to put the replicas on the GPUs gives at many batch sizes, one way or more.

        Raises:
            Infeasible: there are too few devices.
            Unsupported: no kind of GPUs can be a stage.
        """
        self.costs.setting.check_devices(knobs)
        on_all = self._across_kinds if self.costs.setting.cluster.kinds else self._in_line
        on_parts = (partial(part.ways, knobs, sizes) for part in self._parts)
        return all_that_fit((partial(on_all, knobs, sizes), *on_parts))

    def _in_line(self, knobs: Knobs, sizes: Sizes) -> Iterator[CellRates]:
        """Like GPUs: the ways to place the replicas."""
        cluster, n_stages = self.costs.setting.devices(knobs), knobs.n_ipu
        for starts in placements(cluster, n_stages, knobs.replicas):
            alike = Counter(tuple(cluster.send_links[start : start + n_stages - 1]) for start in starts)
            every = [(n, self._line(knobs, sizes, links)) for links, n in alike.items()]
            chosen = np.zeros(len(sizes), dtype=np.int64)
            yield self._together(knobs, [(n, pipelines, chosen) for n, pipelines in every])

    def _line(self, knobs: Knobs, sizes: Sizes, links: tuple[Link, ...]) -> PipelineRows:
        def made() -> PipelineRows:
            stages = [
                StagePosition(0, not number, number == len(links), link)
                for number, link in enumerate((*links, _NO_LINK))
            ]
            positions = list(dict.fromkeys(stages))
            rows = np.array([[positions.index(stage) for stage in stages]])
            return PipelineRows(self.costs, knobs, sizes, positions, rows, 1)

        return self._pipelines.of((knobs.session, knobs.mode, sizes, links), made)

    def _across_kinds(self, knobs: Knobs, sizes: Sizes) -> Iterator[CellRates]:
        """Unlike GPUs: equal parts for all replicas, or the fastest pipelines one after the other."""
        kinds, replicas = self.costs.setting.devices(knobs).kinds, knobs.replicas
        pipelines = self._of_kinds(knobs, sizes)
        every = np.array([kind.n_devices for kind in kinds])
        part = np.broadcast_to(every // replicas, (len(sizes), len(kinds)))
        yield self._together(knobs, [(replicas, pipelines, _fastest(pipelines, part))])
        if replicas > 1:
            free, chosen = np.broadcast_to(every, (len(sizes), len(kinds))), []
            for _ in range(replicas):
                chosen.append(_fastest(pipelines, free))
                free = free - pipelines.n_of_kind[chosen[-1]] * (chosen[-1] >= 0)[:, None]
            yield self._together(knobs, [(1, pipelines, each) for each in chosen])

    def _of_kinds(self, knobs: Knobs, sizes: Sizes) -> PipelineRows:
        def made() -> PipelineRows:
            kinds = self.costs.setting.devices(knobs).kinds
            able = self._able(knobs, sizes)
            limits = [kind.n_devices if number in able else 0 for number, kind in enumerate(kinds)]
            positions = [
                StagePosition(number, first, last, kind.device_link)
                for number, kind in enumerate(kinds)
                if number in able
                for first, last in ((True, False), (False, False), (False, True), (True, True))
            ]
            rows = np.array(list(_rows(positions, limits, knobs.n_ipu)))
            if not len(rows):
                raise Infeasible(f"{knobs.n_ipu} groups must run the model, got {sum(limits)}", 0)
            return PipelineRows(self.costs, knobs, sizes, positions, rows, len(kinds))

        return self._pipelines.of((knobs.session, knobs.mode, sizes, knobs.n_ipu), made)

    def _able(self, knobs: Knobs, sizes: Sizes) -> list[int]:
        """The kinds that can be a stage.

        Raises:
            Unsupported: none can.
        """
        able, reasons = [], []
        for number, device in enumerate(self.costs.kinds_of(knobs)):
            try:
                self.costs.at(device, knobs, sizes)
                able.append(number)
            except Unsupported as reason:
                reasons.append(reason)
        if not able:
            raise reasons[0]
        return able

    def _together(self, knobs: Knobs, parts: Sequence[tuple[int, PipelineRows, IntArray]]) -> CellRates:
        """So many replicas each, of the row that is chosen at every batch size; -1 where none fits."""
        target, session = self.costs.target, session_of(knobs)
        factors = [target.factors(system_of(device), session) for device in self.costs.kinds_of(knobs)]
        every = [(n, _gathered(pipelines, rows)) for n, pipelines, rows in parts]
        replicas = [ReplicaRates(n, made.rates, factors, made.slowest) for n, made in every]
        cache = np.max([made.kv_cache_bytes for _, made in every], axis=0)
        fits = np.all([_is_finite(pipelines, rows) for _, pipelines, rows in parts], axis=0)
        excess = np.max([pipelines.excess_bytes for _, pipelines, _ in parts], axis=0)
        return CellRates(rates_at(replicas, cache), rates_at(replicas, cache, AT_BOUND), fits, excess)


def _is_finite(pipelines: PipelineRows, rows: IntArray) -> BoolArray:
    return np.asarray((rows >= 0) & np.isfinite(pipelines.period_s[rows, np.arange(len(rows))]))


def _rows(positions: Sequence[StagePosition], limits: Sequence[int], n_stages: int) -> Iterator[list[int]]:
    """The positions of the stages of every pipeline that has at most so many GPUs of each kind."""
    number = {position[:3]: index for index, position in enumerate(positions)}
    kinds = [kind for kind, limit in enumerate(limits) if limit]
    if n_stages == 1:
        yield from ([number[kind, True, True]] for kind in kinds)
        return
    for first, last in product(kinds, kinds):
        left = [limit - (kind == first) - (kind == last) for kind, limit in enumerate(limits)]
        if min(left) < 0:
            continue
        for inside in _parts(left, n_stages - 2):
            between = [number[kind, False, False] for kind, n in enumerate(inside) for _ in range(n)]
            yield [number[first, True, False], *between, number[last, False, True]]


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


def _fastest(pipelines: PipelineRows, free: IntArray) -> IntArray:
    """The row of the shortest period at every batch size, of those that GPUs are left for; -1 where none fits."""
    is_there = (pipelines.n_of_kind[:, None, :] <= free[None]).all(axis=2)
    periods = np.where(is_there, pipelines.period_s, np.inf)
    best = periods.argmin(axis=0)
    return np.where(np.isfinite(periods[best, np.arange(len(free))]), best, -1)


def _gathered(pipelines: PipelineRows, rows: IntArray) -> PipelineRates:
    """The rates of the row that is chosen at every batch size."""
    used = [int(row) for row in np.unique(rows) if row >= 0] or [0]
    every = [pipelines.rates(row) for row in used]
    positions, columns = np.searchsorted(used, np.maximum(rows, used[0])), np.arange(len(rows))
    numbers = zip(*((*each.rates, each.slowest, each.kv_cache_bytes) for each in every), strict=True)
    *rates, slowest, cache = (np.stack(number)[positions, columns] for number in numbers)
    return PipelineRates(Rates(*rates), slowest, cache)
