"""Costs of real devices, which begin with the whole model on one of them: `WholeFirstCosts`.

A layer takes a real device as long to measure as the whole model does, and a model has dozens of kinds of layers. So
the model is measured whole, up to three times for each kind of session, and that prices all ways to use the machine:

    use                          time of a micro-batch                         layers timed
    one device, batch size b     T(b), linear between two or three sizes       none
    n replicas of it             T(b) each                                     none
    a pipeline of n devices      T(b) / n at best: equal parts, no transfers   where that may win
    a device of c cores          T(b) / c at best, until it is measured        none

Layers are timed in the model, by the runtime itself, in one more session at each of two sizes. Each alone they are
where the runtime does not time them, or where memory matters: that of a layer is known only where it is alone.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from autoauto.estimate.sums import cut_allowed
from autoauto.estimate.table import calibrated, cost_table
from autoauto.evaluate.costs.layer_costs import EndBytes, LayerwiseCosts
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.plan.pipeline.infeasible import excess_bytes, out_of_memory, too_few_cuts
from autoauto.plan.pipeline.problem import evaluate
from autoauto.profile.in_model import cycles_in_model, profile_in_model
from autoauto.profile.liveness import carried
from autoauto.profile.profiler import Progress, check_batch_size, interpolate
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.options import CompileOptions, Session
from autoauto.records.costs.profile import PROFILE_SCHEMA, LayerProfile, ModelProfile
from autoauto.records.errors import BadInput, DoesNotFit, OutOfMemory, WorkerLost
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.space.knobs import Knobs

LARGE_BATCH = 8
"""The batch size, beside 1, at which the whole model is measured; between them, and mostly beyond, costs are linear."""
BUSY_SHARE = 0.5
"""A device on which a sample of that batch takes a smaller share of the time of one alone has more units than the batch
keeps busy, as GPUs have. Costs beyond are then on the line through that batch and one `LARGE_BATCH` times as large."""
MAX_LARGE_S = 0.5
"""A run of that batch takes no longer by what a sample took, or the batch is a smaller power of two, at least 2."""
MAX_WHOLE_S, MAX_DOUBT = 1.0, 0.1
"""A run that takes longer is no faster a sample than a shorter one, where the line through the two measured sizes says
that it is by no more than the second: so much it errs there when two times, of 1 and 2 samples, err by 5 % each."""
_MAX_WHOLES = 4096  # in memory: sessions times their batch sizes


class WholeModel:
    """The cost of all layers as that of one, for each kind of session.

    batch size    1 ------------- 8 --------------------- 64
    measured      x               x                       x  where 8 samples do not keep the device busy
    between       on the line     on the line through 8 and 64, or on that through 1 and 8
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._measured: Memo[CompileOptions, LayerProfile] = Memo(_MAX_WHOLES)
        # By options at the smallest size: the two sizes between which larger batches are on a line.
        self._larger_sizes: Memo[CompileOptions, tuple[int, int]] = Memo(_MAX_WHOLES)
        self._ends: Memo[int, EndBytes] = Memo(_MAX_WHOLES)

    def ends(self, batch_size: int) -> EndBytes:
        """The bytes of the model's inputs, and of its outputs, which need no profile."""

        def of_graph() -> EndBytes:
            alive = carried(self.setting.graph, batch_size, self.setting.precision)
            return EndBytes(int(alive.input_bytes[0]), int(alive.output_bytes[-1]))

        return self._ends.of(batch_size, of_graph)

    def may_fit(self, knobs: Knobs) -> bool:
        """True if a device could hold the weights, so that the whole model can be measured on one."""
        precision = self.setting.options(knobs).weight_precision
        device = self.setting.devices(knobs).devices[0]
        return self.setting.graph.n_weight_bytes(precision) <= int(device.memory_bytes)

    def leaves_memory(self, options: CompileOptions) -> bool:
        """True if the whole model leaves half of a device's memory free."""
        knobs = Knobs(1, options.batch_size, session=options.session)
        if not self.may_fit(knobs):
            return False
        stage = self.as_stage(knobs, self.cost(options)).stages[0]
        return 2 * stage.total_bytes <= stage.limit_bytes

    def is_known(self, options: CompileOptions) -> bool:
        """True if the whole model was measured with these options at the smallest batch size, or this one."""
        sizes = (options.session.n_parts, options.batch_size)
        return any(replace(options, batch_size=size) in self._measured for size in sizes)

    def as_stage(self, knobs: Knobs, whole: LayerProfile) -> Plan:
        """The whole model on one device, whatever memory it needs."""
        setting = self.setting
        options = replace(setting.options(knobs), training=False)
        profile = ModelProfile(
            setting.graph.name, setting.compiler.version, options, ("all",), ("all",), (None,), (whole,)
        )
        cluster = setting.line(replace(knobs, n_ipu=1))
        table = cost_table(profile, cluster, setting.planning_proportion or 1.0, setting.period_of_devices)
        host_cycles = cluster.host_cycles(whole.input_bytes, whole.output_bytes)
        plan = evaluate(replace(table, host_cycles=host_cycles), (0, 1))
        stage: Stage = replace(plan.stages[0], layers=LayerRange(0, len(setting.graph)))
        return replace(plan, stages=(stage,))

    def cost(self, options: CompileOptions) -> LayerProfile:
        """The cost of the whole model as one layer, on one device of the options.

        Raises BadInput if the model cannot run at this batch size.
        """
        size, clock_hz = options.batch_size, self.setting.device(options).clock_hz
        check_batch_size(self.setting.graph, size)
        sizes = self.measured_sizes(options)
        if len(sizes) == 1:
            return self._measure(options)
        first, last = sizes
        low = self._measure(replace(options, batch_size=first))
        high = self._measure(replace(options, batch_size=last))

        def on_line(n_samples: int) -> LayerProfile:
            return interpolate(low, high, Fraction(n_samples - first, last - first))

        # A long run is assumed to take as long a sample as one of at most `MAX_WHOLE_S`, if the line hardly differs.
        whole, shorter = on_line(size), size
        while shorter >= 2 * last and on_line(shorter).forward_cycles > MAX_WHOLE_S * clock_hz:
            shorter //= 2
        cycles = on_line(shorter).forward_cycles * size // shorter
        if whole.forward_cycles < cycles <= whole.forward_cycles * (1.0 + MAX_DOUBT):
            whole = replace(whole, forward_cycles=cycles)
        return replace(whole, **self.ends(size)._asdict())

    def measured_sizes(self, options: CompileOptions) -> tuple[int] | tuple[int, int]:
        """The batch sizes at which the whole model is measured for one: itself, or two with a line through them."""
        size = options.batch_size
        smallest = options.session.n_parts  # a sample for every stream
        fewest = replace(options, batch_size=smallest)
        if size == smallest or (size == LARGE_BATCH and fewest not in self._measured):
            return (size,)
        large = self._large_batch(self._measure(fewest), smallest, self.setting.device(options).clock_hz)
        if size <= large:
            try:
                self._measure(replace(options, batch_size=large))
            except OutOfMemory:
                return (size,)
            return (smallest, large)
        return self._larger_sizes.of(fewest, lambda: self._sizes_beyond(options, smallest, large))

    def _sizes_beyond(self, options: CompileOptions, smallest: int, large: int) -> tuple[int, int]:
        """The two batch sizes between which those beyond `large` are on a line: see `BUSY_SHARE`."""
        low = self._measure(replace(options, batch_size=smallest))
        high = self._measure(replace(options, batch_size=large))
        is_busy = high.forward_cycles * smallest >= BUSY_SHARE * low.forward_cycles * large
        if is_busy or LARGE_BATCH * high.forward_cycles > MAX_LARGE_S * self.setting.device(options).clock_hz:
            return smallest, large
        with suppress(DoesNotFit, WorkerLost, BadInput):  # nobody asked for so many samples
            self._measure(replace(options, batch_size=LARGE_BATCH * large))
            return large, LARGE_BATCH * large
        return smallest, large

    def _large_batch(self, low: LayerProfile, smallest: int, clock_hz: float) -> int:
        """A batch size to measure beside `smallest`, a multiple of it, whose cost is `low`."""
        n = max(LARGE_BATCH // smallest, 2)
        while n > 2 and n * low.forward_cycles > MAX_LARGE_S * clock_hz:
            n //= 2
        return n * smallest

    def _measure(self, options: CompileOptions) -> LayerProfile:
        def cached() -> LayerProfile:
            setting, device = self.setting, self.setting.device(options)
            depends_on = setting.compiler.depends_on(device, options)
            content = (PROFILE_SCHEMA, "whole", setting.graph.content, setting.compiler.version, depends_on)
            digest = hashlib.sha256(repr(content).encode()).hexdigest()
            layer = setting.cache.read([digest]).get(digest)
            if layer is None:
                layer = self._run(options)
                setting.cache.write({digest: layer})
            return layer

        return self._measured.of(options, cached)

    def _run(self, options: CompileOptions) -> LayerProfile:
        setting, ends = self.setting, self.ends(options.batch_size)
        layers = LayerRange(0, len(setting.graph))
        compiled = setting.compiler.compile(setting.graph, layers, setting.device(options), options)
        return LayerProfile(
            compiled.forward_cycles,
            0,
            dict(compiled.shared),
            dict(compiled.exclusive),
            compiled.temporary_bytes,
            carried_bytes=0,
            input_bytes=ends.input_bytes,
            output_bytes=ends.output_bytes,
            activation_bytes=0,
        )


MAX_SPEED_UP = 1.1
"""Largest speed-up of several cores over one, relative to their number: together they have more cache for a model."""


class _Working(NamedTuple):
    """Devices that work at the same time."""

    cores: tuple[int, int]  # of a device, and the number of devices
    session: Session
    batch_size: int

    def likeness(self, other: _Working) -> int:
        """2 if the other devices run the same session at the same batch size, 1 if only the session agrees, else 0."""
        return (self.session == other.session) * (1 + (self.batch_size == other.batch_size))


class WholeFirstCosts(LayerwiseCosts):
    """The costs of a model that is measured whole on one device before any of its layers.

    Times of layers are those in their model where memory does not matter and the runtime knows them; else alone.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._whole = WholeModel(setting)
        # Of every layer, (n,), of which only the ratios count; None where layers are measured alone.
        self._cycles_in_model: Memo[CompileOptions, tuple[float, ...] | None] = Memo(4096)
        # Of devices that ran at the same time: the period relative to the estimate.
        self._slow_downs: Memo[_Working, float] = Memo(4096)

    @override
    def layers(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        cycles, setting = self._cycles(options), self.setting
        if cycles is None:
            return self.profile(options, progress)
        device, whole = setting.device(options), self._whole.cost(options)
        return profile_in_model(setting.graph, setting.compiler, device, options, whole, cycles)

    @override
    def are_alone(self, options: CompileOptions) -> bool:
        return self._cycles(options) is None

    @override
    def need_samples(self, options: CompileOptions) -> bool:
        """Not where the whole model leaves half of a device's memory free.

        They would teach how much memory ranges need, and by how much times of layers add up to more than the whole.
        """
        return not self._whole.leaves_memory(options)

    def _cycles(self, options: CompileOptions) -> tuple[float, ...] | None:
        """The cycles of every layer in its model; None where layers are measured alone."""

        def in_model() -> tuple[float, ...] | None:
            return self._interpolated(options) if self._whole.leaves_memory(options) else None

        return self._cycles_in_model.of(options, in_model)

    def _interpolated(self, options: CompileOptions) -> tuple[float, ...] | None:
        """Cycles that are linear between the batch sizes at which the whole model is measured, and beyond as there."""
        setting, sizes = self.setting, self._whole.measured_sizes(options)
        ends: list[tuple[float, ...]] = []
        for size in sizes:
            at_size = replace(options, batch_size=size)
            device = setting.device(at_size)
            cycles = cycles_in_model(setting.graph, setting.compiler, device, at_size, setting.cache)
            if cycles is None:
                return None
            ends.append(cycles)
        share = min((options.batch_size - sizes[0]) / max(sizes[-1] - sizes[0], 1), 1.0)
        return tuple(low + share * (high - low) for low, high in zip(ends[0], ends[-1], strict=True))

    @override
    def ends(self, options: CompileOptions) -> EndBytes:
        return self._whole.ends(options.batch_size)

    @override
    def table_on(self, cluster: Cluster, knobs: Knobs, progress: Progress | None = None) -> CostTable:
        """All layers together cost what the whole model was measured to take."""
        table = super().table_on(cluster, knobs, progress)
        if not self._whole.may_fit(knobs):
            return table
        cost = self._whole.cost(self.setting.options(knobs))
        whole = self._whole.as_stage(replace(knobs, n_ipu=1), cost).stages[0]
        return calibrated(table, [replace(whole, layers=LayerRange(0, table.n_layers))])

    @override
    def whole_plan(self, knobs: Knobs) -> Plan | None:
        if knobs.n_ipu > 1:
            return None
        plan = self._whole.as_stage(knobs, self._whole.cost(self.setting.options(knobs)))
        if excess_bytes(plan) > 0:
            raise out_of_memory(plan)
        return plan

    @override
    def bound_plan(self, knobs: Knobs) -> Plan | None:
        """The whole model in equal parts; none where a plan needs no further measurement either.

        Its stages are equal parts and exchange tensors in no time. Where as many replicas as it has devices were
        measured, they take as much longer than one alone as those did: they share memory and caches in the same way.
        On devices of several kinds there is none: each may have layers of which it makes more than the others.
        """
        if self.setting.cluster.kinds or not self._whole.may_fit(knobs):
            return None
        single = replace(knobs, n_ipu=1, replicas=1)
        whole = self._scaled_whole(single)
        if knobs.n_ipu == 1 and whole is None:
            return None
        # Refuse more stages than may be parted.
        tied = [layer.tied for layer in self.setting.graph.layers]
        n_stages = 1 if knobs.mode.stage_replicas else knobs.n_ipu
        failure = too_few_cuts(np.flatnonzero(cut_allowed(tied)).tolist(), n_stages)
        if failure is not None:
            raise failure
        plan = self._whole.as_stage(single, whole or self._whole.cost(self.setting.options(single)))
        parts = plan if knobs.n_ipu == 1 else self._equal_parts(plan, knobs)
        if excess_bytes(parts) > 0:
            raise out_of_memory(parts)
        return parts

    @override
    def learn_speed(self, knobs: Knobs, estimated_per_s: float, measured_per_s: float) -> None:
        if knobs.n_ipu == 1:
            self._slow_downs[_working(knobs)] = estimated_per_s / measured_per_s

    def _equal_parts(self, plan: Plan, knobs: Knobs) -> Plan:
        """The one stage of a plan as equal parts on all devices of a pipeline."""
        (stage,), n = plan.stages, knobs.n_ipu
        cycles = int((stage.compute_cycles + stage.transfer_cycles) * self._slow_down(knobs) / n)
        memory_bytes = {name: n_bytes // n for name, n_bytes in stage.memory_bytes.items()}
        part = replace(
            stage, forward_cycles=cycles, backward_cycles=0, receive_cycles=0, send_cycles=0, memory_bytes=memory_bytes
        )
        cuts = np.linspace(0, len(self.setting.graph), n + 1).astype(int).tolist()
        stages = [replace(part, layers=LayerRange(*ends), device=index) for index, ends in enumerate(pairwise(cuts))]
        return replace(plan, stages=tuple(stages))

    def _slow_down(self, knobs: Knobs) -> float:
        """How much longer devices take when as many work at the same time, by the replicas that ran: 1 without any.

        Those that have most in common with the configuration count, of several the least slowed down.
        """
        asked = _working(knobs)
        known = [(key, slow_down) for key, slow_down in self._slow_downs.items() if key.cores == asked.cores]
        alike = max((key.likeness(asked) for key, _ in known), default=0)
        return min((slow_down for key, slow_down in known if key.likeness(asked) == alike), default=1.0)

    def _scaled_whole(self, knobs: Knobs) -> LayerProfile | None:
        """The cost on several cores at best, by that on one; None where it is known, or not known on one core."""
        options, n = self.setting.options(knobs), knobs.session.group_size
        on_one = replace(options, session=options.session.on_one_core)
        if n == 1 or self._whole.is_known(options) or not self._whole.is_known(on_one):
            return None
        whole = self._whole.cost(on_one)
        return replace(whole, forward_cycles=int(whole.forward_cycles / (n * MAX_SPEED_UP)))


def _working(knobs: Knobs) -> _Working:
    cores = knobs.session.group_size, knobs.n_ipu * knobs.replicas
    return _Working(cores, knobs.session, knobs.batch_size)
