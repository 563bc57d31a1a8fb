"""Estimates of real devices, which begin with the whole model on one of them: `WholeModelEstimates`.

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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autoauto.estimate.regression import PRIOR
from autoauto.estimate.sums import cut_allowed
from autoauto.estimate.table import calibrated, cost_table
from autoauto.evaluate.estimates import Estimates
from autoauto.plan.pipeline.infeasible import excess_bytes, out_of_memory, too_few_cuts
from autoauto.plan.pipeline.problem import evaluate
from autoauto.profile.in_model import cycles_in_model, profile_in_model
from autoauto.profile.liveness import carried
from autoauto.profile.profiler import Progress, check_batch_size, interpolate
from autoauto.records.costs.correction import Correction, Estimator, RangeFeature
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
MAX_SPEED_UP = 1.1
"""Of several cores over one, relative to their number: together they hold more of a model in their caches."""


class _Working(NamedTuple):
    """Devices that work at the same time.

    Attributes:
        cores: of a device, and the number of devices.
        session: what runs on them.
        batch_size: of their micro-batches.
    """

    cores: tuple[int, int]
    session: Session
    batch_size: int

    def likeness(self, other: _Working) -> int:
        """2 if the other devices run the same session at the same batch size, 1 if only the session agrees, else 0."""
        return (self.session == other.session) * (1 + (self.batch_size == other.batch_size))


@dataclass(frozen=True, slots=True)
class WholeModelEstimates(Estimates):
    """The `Estimates`, where the target says so (`TargetTraits.whole_first`) those above; plain sums have none."""

    # By options of a whole model: its cost as that of one layer.
    _wholes: dict[CompileOptions, LayerProfile] = field(default_factory=dict, init=False, repr=False, compare=False)
    # By options: the cycles of layers in their model; None where they are measured alone.
    _in_model: dict[CompileOptions, tuple[float, ...] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # By options: the two sizes between which larger batches are on a line.
    _larger_sizes: dict[CompileOptions, tuple[int, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # Of replicas of one device that ran: the period relative to the estimate.
    _slow_downs: dict[_Working, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def begins_whole(self) -> bool:
        """Whether estimates begin with the whole model."""
        return self.traits.whole_first and self.estimator is not Estimator.SUM

    def runs_whole(self, knobs: Knobs) -> bool:
        """Whether one device is planned to run the whole model, which then needs no layers."""
        return self.begins_whole and knobs.n_ipu == 1 and not knobs.is_phased

    def whole_plan(self, knobs: Knobs) -> Plan:
        """One device that runs the whole model, by measurements of it.

        Raises:
            Infeasible: it needs more memory than the device has.
        """
        plan = self._one_stage(knobs, self._whole(self.options(knobs)))
        if excess_bytes(plan) > 0:
            raise out_of_memory(plan)
        return plan

    def bound_plan(self, knobs: Knobs) -> Plan | None:
        """A plan of one pipeline that is no slower than any; None where `predict` needs no further measurement.

        Its stages are equal parts and exchange tensors in no time. Where as many replicas as it has devices were
        measured, they take as much longer than one alone as those did: they share memory and caches in the same way.
        On devices of several kinds there is none: each may have layers of which it makes more than the others.

        Raises:
            Infeasible: too few layers may be parted, or not even equal parts fit.
        """
        if not self.begins_whole or self.cluster.kinds or knobs.is_phased:
            return None
        if not self._may_hold_whole(knobs):
            return None
        single = replace(knobs, n_ipu=1, replicas=1)
        whole = self._scaled_whole(single)
        if knobs.n_ipu == 1 and whole is None:
            return None
        self._check_cuts(knobs)
        plan = self._one_stage(single, whole or self._whole(self.options(single)))
        parts = plan if knobs.n_ipu == 1 else self._equal_parts(plan, knobs)
        if excess_bytes(parts) > 0:
            raise out_of_memory(parts)
        return parts

    def record_run(self, knobs: Knobs, estimated_per_s: float, measured_per_s: float) -> None:
        """Take note how much longer than estimated replicas of one device took."""
        if self.runs_whole(knobs):
            self._slow_downs[_working(knobs)] = estimated_per_s / measured_per_s

    def table_on(self, cluster: Cluster, knobs: Knobs, progress: Progress | None = None) -> CostTable:
        """See `Estimates`; all layers together cost what the whole model was measured to take."""
        table = Estimates.table_on(self, cluster, knobs, progress)
        if not self.begins_whole or not self._may_hold_whole(knobs):
            return table
        whole = self._one_stage(replace(knobs, n_ipu=1), self._whole(self.options(knobs))).stages[0]
        return calibrated(table, [replace(whole, layers=LayerRange(0, table.n_layers))])

    def layer_costs(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """See `Estimates`; those of layers in their model where memory does not matter and the runtime knows them."""
        cycles = self._cycles_in_model(options)
        if cycles is None:
            return Estimates.layer_costs(self, options, progress)
        return profile_in_model(self.graph, self.target, self.device(options), options, self._whole(options), cycles)

    def correction(self, knobs: Knobs, progress: Progress | None = None) -> Correction:
        """See `Estimates`; beside layers timed in their model the entry overhead has its prior, until it is fitted."""
        fitted = Estimates.correction(self, knobs, progress)
        if self.measures_alone(self.options(knobs)):
            return fitted
        return replace(fitted, features={RangeFeature.ENTRY: PRIOR[RangeFeature.ENTRY], **fitted.features})

    def measures_alone(self, options: CompileOptions) -> bool:
        """See `Estimates`."""
        return self._cycles_in_model(options) is None

    def _cycles_in_model(self, options: CompileOptions) -> tuple[float, ...] | None:
        """Of every layer, (n,), of which only the ratios count; None where layers are measured alone."""
        if not self.begins_whole:
            return None
        if options not in self._in_model:
            leaves_memory = self._whole_leaves_memory(options)
            self._in_model[options] = self._interpolated_in_model(options) if leaves_memory else None
        return self._in_model[options]

    def _interpolated_in_model(self, options: CompileOptions) -> tuple[float, ...] | None:
        """Linear between the batch sizes at which the whole model is measured, beyond them those there."""
        ends = []
        for size in (sizes := self._measured_sizes(options)):
            at_size = replace(options, batch_size=size)
            cycles = cycles_in_model(self.graph, self.target, self.device(at_size), at_size, self.cache)
            if cycles is None:
                return None
            ends.append(cycles)
        share = min((options.batch_size - sizes[0]) / max(sizes[-1] - sizes[0], 1), 1.0)
        return tuple(low + share * (high - low) for low, high in zip(ends[0], ends[-1], strict=True))

    def shared_cycles(self, knobs: Knobs, starts: Sequence[int]) -> int:
        """See `Estimates`; the bytes of inputs and outputs need no profile."""
        if self.begins_whole:
            self._host_bytes.setdefault(knobs.batch_size, self._ends(knobs.batch_size))
        return Estimates.shared_cycles(self, knobs, starts)

    def _sample_once(self, options: CompileOptions, progress: Progress | None) -> None:
        """See `Estimates`; without samples where the whole model leaves half of a device's memory free.

        They would teach how much memory ranges need, and by how much times of layers add up to more than the whole.
        """
        if self.begins_whole and self._whole_leaves_memory(options):
            return
        Estimates._sample_once(self, options, progress)

    def _whole_leaves_memory(self, options: CompileOptions) -> bool:
        knobs = Knobs(1, options.batch_size, session=options.session)
        if not self._may_hold_whole(knobs):
            return False
        stage = self._one_stage(knobs, self._whole(options)).stages[0]
        return 2 * stage.total_bytes <= stage.limit_bytes

    def _may_hold_whole(self, knobs: Knobs) -> bool:
        """Whether a device could hold the weights, so that the whole model can be measured on one."""
        precision = self.options(knobs).weight_precision
        return self.graph.n_weight_bytes(precision) <= int(self.devices(knobs).devices[0].memory_bytes)

    def _check_cuts(self, knobs: Knobs) -> None:
        """Refuse more stages than may be parted.

        Raises:
            Infeasible: there are more.
        """
        tied = [layer.tied for layer in self.graph.layers]
        failure = too_few_cuts(
            np.flatnonzero(cut_allowed(tied)).tolist(), 1 if knobs.mode.stage_replicas else knobs.n_ipu
        )
        if failure is not None:
            raise failure

    def _equal_parts(self, plan: Plan, knobs: Knobs) -> Plan:
        """The one stage of a plan as equal parts on all devices of a pipeline."""
        (stage,), n = plan.stages, knobs.n_ipu
        cycles = int((stage.compute_cycles + stage.transfer_cycles) * self._slow_down(knobs) / n)
        memory_bytes = {name: n_bytes // n for name, n_bytes in stage.memory_bytes.items()}
        part = replace(
            stage, forward_cycles=cycles, backward_cycles=0, receive_cycles=0, send_cycles=0, memory_bytes=memory_bytes
        )
        bounds = np.linspace(0, len(self.graph), n + 1).astype(int).tolist()
        ranges = (LayerRange(*ends) for ends in pairwise(bounds))
        return replace(plan, stages=tuple(replace(part, layers=r, device=device) for device, r in enumerate(ranges)))

    def _slow_down(self, knobs: Knobs) -> float:
        """How much longer devices take when as many work at the same time, by the replicas that ran: 1 without any.

        Those that have most in common with the configuration count, of several the least slowed down.
        """
        asked = _working(knobs)
        known = [(key, slow_down) for key, slow_down in self._slow_downs.items() if key.cores == asked.cores]
        alike = max((key.likeness(asked) for key, _ in known), default=0)
        return min((slow_down for key, slow_down in known if key.likeness(asked) == alike), default=1.0)

    def _one_stage(self, knobs: Knobs, whole: LayerProfile) -> Plan:
        """The whole model on one device, whatever memory it needs."""
        options = replace(self.options(knobs), training=False)
        profile = ModelProfile(self.graph.name, self.target.version, options, ("all",), ("all",), (None,), (whole,))
        cluster = self._pipeline_cluster(replace(knobs, n_ipu=1), 0)
        table = cost_table(profile, cluster, self.planning_proportion or 1.0, self.period_of_devices)
        host_cycles = cluster.host_cycles(whole.input_bytes, whole.output_bytes)
        plan = evaluate(replace(table, host_cycles=host_cycles), (0, 1))
        stage: Stage = replace(plan.stages[0], layers=LayerRange(0, len(self.graph)))
        return replace(plan, stages=(stage,))

    def _scaled_whole(self, knobs: Knobs) -> LayerProfile | None:
        """The cost on several cores at best, by that on one; None where it is known, or not known on one core."""
        options, n = self.options(knobs), knobs.session.cores_per_device
        on_one = replace(options, session=options.session.on_one_core)
        if n == 1 or self._is_known(options) or not self._is_known(on_one):
            return None
        whole = self._whole(on_one)
        return replace(whole, forward_cycles=int(whole.forward_cycles / (n * MAX_SPEED_UP)))

    def _is_known(self, options: CompileOptions) -> bool:
        """Whether the whole model was measured with these options at the smallest batch size, or this one."""
        sizes = (options.session.n_parts, options.batch_size)
        return any(replace(options, batch_size=size) in self._wholes for size in sizes)

    def _whole(self, options: CompileOptions) -> LayerProfile:
        """The cost of the whole model as one layer, on one device of the options.

        Raises:
            BadInput: the model cannot run at this batch size.
        """
        size, clock_hz = options.batch_size, self.device(options).clock_hz
        check_batch_size(self.graph, size)
        sizes = self._measured_sizes(options)
        if len(sizes) == 1:
            return self._measured_whole(options)
        first, last = sizes
        low, high = (self._measured_whole(replace(options, batch_size=n)) for n in sizes)

        def on_line(n_samples: int) -> LayerProfile:
            return interpolate(low, high, Fraction(n_samples - first, last - first))

        whole, shorter = on_line(size), size
        while shorter >= 2 * last and on_line(shorter).forward_cycles > MAX_WHOLE_S * clock_hz:
            shorter //= 2
        cycles = on_line(shorter).forward_cycles * size // shorter
        if whole.forward_cycles < cycles <= whole.forward_cycles * (1.0 + MAX_DOUBT):
            whole = replace(whole, forward_cycles=cycles)
        input_bytes, output_bytes = self._ends(size)
        return replace(whole, input_bytes=input_bytes, output_bytes=output_bytes)

    def _measured_sizes(self, options: CompileOptions) -> tuple[int] | tuple[int, int]:
        """The batch sizes at which the whole model is measured for one: itself, or two with a line through them."""
        size, smallest = options.batch_size, options.session.n_parts  # a sample for every stream
        fewest = replace(options, batch_size=smallest)
        if size == smallest or (size == LARGE_BATCH and fewest not in self._wholes):
            return (size,)
        large = self._large_batch(self._measured_whole(fewest), smallest, self.device(options).clock_hz)
        if size <= large:
            return (smallest, large) if self._can_measure(replace(options, batch_size=large)) else (size,)
        key = fewest
        if key not in self._larger_sizes:
            self._larger_sizes[key] = self._sizes_beyond(options, smallest, large)
        return self._larger_sizes[key]

    def _can_measure(self, options: CompileOptions) -> bool:
        """Whether the memory of all devices suffices to measure the whole model."""
        try:
            self._measured_whole(options)
        except OutOfMemory:
            return False
        return True

    def _sizes_beyond(self, options: CompileOptions, smallest: int, large: int) -> tuple[int, int]:
        """The two batch sizes between which those beyond `large` are on a line: see `BUSY_SHARE`."""
        low, high = (self._measured_whole(replace(options, batch_size=n)) for n in (smallest, large))
        is_busy = high.forward_cycles * smallest >= BUSY_SHARE * low.forward_cycles * large
        if is_busy or LARGE_BATCH * high.forward_cycles > MAX_LARGE_S * self.device(options).clock_hz:
            return smallest, large
        with suppress(DoesNotFit, WorkerLost, BadInput):  # nobody asked for so many samples
            self._measured_whole(replace(options, batch_size=LARGE_BATCH * large))
            return large, LARGE_BATCH * large
        return smallest, large

    def _large_batch(self, low: LayerProfile, smallest: int, clock_hz: float) -> int:
        """A batch size to measure beside `smallest`, a multiple of it, whose cost is `low`."""
        n = max(LARGE_BATCH // smallest, 2)
        while n > 2 and n * low.forward_cycles > MAX_LARGE_S * clock_hz:
            n //= 2
        return n * smallest

    def _measured_whole(self, options: CompileOptions) -> LayerProfile:
        if options not in self._wholes:
            device = self.device(options)
            depends_on = self.target.depends_on(device, options)
            content = (PROFILE_SCHEMA, "whole", self.graph.content, self.target.version, depends_on)
            digest = hashlib.sha256(repr(content).encode()).hexdigest()
            layer = self.cache.read([digest]).get(digest)
            if layer is None:
                compiled = self.target.compile(self.graph, LayerRange(0, len(self.graph)), device, options)
                input_bytes, output_bytes = self._ends(options.batch_size)
                layer = LayerProfile(
                    compiled.forward_cycles,
                    0,
                    dict(compiled.shared),
                    dict(compiled.exclusive),
                    compiled.temporary_bytes,
                    carried_bytes=0,
                    input_bytes=input_bytes,
                    output_bytes=output_bytes,
                    activation_bytes=0,
                )
                self.cache.write({digest: layer})
            self._wholes[options] = layer
        return self._wholes[options]

    def _ends(self, batch_size: int) -> tuple[int, int]:
        """The bytes of the model's inputs, and of its outputs."""
        alive = carried(self.graph, batch_size, self.precision)
        return int(alive.input_bytes[0]), int(alive.output_bytes[-1])


def _working(knobs: Knobs) -> _Working:
    cores = knobs.session.cores_per_device, knobs.n_ipu * knobs.replicas
    return _Working(cores, knobs.session, knobs.batch_size)
