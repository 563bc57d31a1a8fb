"""The cost of a whole model on one real device, by measurements at up to three batch sizes: `WholeModel`."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from autoauto.estimate.table import cost_table
from autoauto.evaluate.costs.layer_costs import EndBytes
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.plan.pipeline.problem import evaluate
from autoauto.profile.liveness import carried
from autoauto.profile.profiler import check_batch_size, interpolate
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import PROFILE_SCHEMA, LayerProfile, ModelProfile
from autoauto.records.errors import BadInput, DoesNotFit, OutOfMemory, WorkerLost
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
        """Whether a device could hold the weights, so that the whole model can be measured on one."""
        precision = self.setting.options(knobs).weight_precision
        device = self.setting.devices(knobs).devices[0]
        return self.setting.graph.n_weight_bytes(precision) <= int(device.memory_bytes)

    def leaves_memory(self, options: CompileOptions) -> bool:
        """Whether the whole model leaves half of a device's memory free."""
        knobs = Knobs(1, options.batch_size, session=options.session)
        if not self.may_fit(knobs):
            return False
        stage = self.as_stage(knobs, self.cost(options)).stages[0]
        return 2 * stage.total_bytes <= stage.limit_bytes

    def is_known(self, options: CompileOptions) -> bool:
        """Whether the whole model was measured with these options at the smallest batch size, or this one."""
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

        Raises:
            BadInput: the model cannot run at this batch size.
        """
        size, clock_hz = options.batch_size, self.setting.device(options).clock_hz
        check_batch_size(self.setting.graph, size)
        sizes = self.measured_sizes(options)
        if len(sizes) == 1:
            return self._measure(options)
        first, last = sizes
        low, high = self._measure(replace(options, batch_size=first)), self._measure(replace(options, batch_size=last))

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
        size, smallest = options.batch_size, options.session.n_parts  # a sample for every stream
        fewest = replace(options, batch_size=smallest)
        if size == smallest or (size == LARGE_BATCH and fewest not in self._measured):
            return (size,)
        large = self._large_batch(self._measure(fewest), smallest, self.setting.device(options).clock_hz)
        if size <= large:
            if self._can_measure(replace(options, batch_size=large)):
                return (smallest, large)
            return (size,)
        return self._larger_sizes.of(fewest, lambda: self._sizes_beyond(options, smallest, large))

    def _can_measure(self, options: CompileOptions) -> bool:
        try:
            self._measure(options)
        except OutOfMemory:
            return False
        return True

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
