"""Costs of ranges from those of their layers: `LayerwiseCosts`, and where each layer is alone `LayerCosts`."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from typing_extensions import override

from autoauto.estimate.correct import corrected, range_examples
from autoauto.estimate.memory import with_optimizer_state
from autoauto.estimate.regression import PRIOR, fit
from autoauto.estimate.table import cost_table, on_devices, with_cuts_at, with_entry_overhead
from autoauto.evaluate.costs.forecasts import StoredForecasts, forecasts_of
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.plan import replicas
from autoauto.profile.cache import RangeStore, subject_of
from autoauto.profile.liveness import tensor_uses
from autoauto.profile.profiler import Profiler, Progress
from autoauto.profile.sample import SAMPLE_SHARE, is_sampled, sample, sample_batch_sizes, well_known
from autoauto.records.costs.correction import PLAIN_SUM, Correction, Estimator, RangeFeature, WholeRange
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.options import CompileOptions, Session
from autoauto.records.costs.profile import LayerProfile, ModelProfile, WeightUpdate
from autoauto.records.files.json import to_json
from autoauto.records.hardware import Cluster, Device, Topology
from autoauto.records.plans.plan import CutAt, Plan
from autoauto.records.target import Profiled
from autoauto.schedule.orders.registry import has_one_stage_each
from autoauto.schedule.stash import in_flight
from autoauto.space.knobs import Knobs

_MAX_DEVICES = 16  # with so many numbers of cores
_MAX_SUMMARIES = 4096
_MAX_PROFILES = 128  # in memory; configurations that differ in n_ipu only have the same profile


class EndBytes(NamedTuple):
    """The bytes of a model's inputs, and of its outputs, for one micro-batch."""

    input_bytes: int
    output_bytes: int


class LayersSummary(NamedTuple):
    """Sums over all layers that need no profile."""

    digest: str  # of what all layers cost
    ends: EndBytes  # the bytes of the model's inputs and outputs

    @classmethod
    def of(cls, layers: Sequence[LayerProfile]) -> LayersSummary:
        """The summary of a profile; equal layers are often one object, whose text is made once."""
        digests: dict[int, bytes] = {}
        for layer in layers:
            if id(layer) not in digests:
                digests[id(layer)] = hashlib.sha256(to_json(layer)).digest()
        digest = hashlib.sha256(b"".join(digests[id(layer)] for layer in layers)).hexdigest()
        return cls(digest, EndBytes(layers[0].input_bytes, layers[-1].output_bytes))


class LayerProfiles:
    """The profiles of layers, each kind of which is compiled alone, or which the target has."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self._compiler, self.forecasts = setting, setting.compiler, forecasts_of(setting)
        self._profilers: Memo[Device, Profiler] = Memo(_MAX_DEVICES)
        self._profiles: Memo[CompileOptions, ModelProfile] = Memo(_MAX_PROFILES)
        self._summaries: Memo[CompileOptions, LayersSummary] = Memo(_MAX_SUMMARIES)
        # By options with the common session, and the digest of all layers.
        self._first_sessions: Memo[tuple[CompileOptions, str], Session] = Memo(_MAX_SUMMARIES)

    def layers(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """Every kind of layer compiled once, or the profile that the target has."""

        def profile() -> ModelProfile:
            setting = self.setting
            graph, target, device = setting.graph, self._compiler, setting.device(options)
            if isinstance(target, Profiled):
                return target.profile(graph, device, options)
            profiler = self._profilers.of(device, lambda: Profiler(graph, target, device, setting.cache))
            return profiler.profile(options, progress)

        return self._profiles.of(options, profile)

    def first_equal_session(self, options: CompileOptions, progress: Progress | None = None) -> Session:
        """The first session that was asked for with which all layers cost as much, on the same devices and links."""
        common = replace(options, session=options.session.common)
        return self._first_sessions.of((common, self.summary(options, progress).digest), lambda: options.session)

    def summary(self, options: CompileOptions, progress: Progress | None = None) -> LayersSummary:
        """The summary of a profile, by which forecasts are stored; it is stored, too."""

        def summary() -> LayersSummary:
            return LayersSummary.of(self.layers(options, progress).layers)

        return self._summaries.of(options, lambda: self.forecasts.of("layers", options, LayersSummary, summary))


class LayerwiseCosts(ABC):
    """Estimated costs of the ranges of a model's layers on a cluster, for any configuration.

    `LayerCosts` know layers alone. Where measuring takes a device's time, `WholeFirstCosts` begin with the whole model.
    What a decoder costs that engines serve is in `evaluate/serving/costs.py`.

    By a cost model, sums of layers are corrected by samples at two batch sizes near that of a configuration
    (`autoauto/profile/sample.py`), and by nothing else, so that equal commands give equal answers, whatever was
    compiled before. On real devices, where a range takes long, all that ever ran corrects them, and samples only if
    none of that has a near batch size.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting, self._profiles = setting, LayerProfiles(setting)
        # By the subject of a `RangeStore`, all options but batch size and memory proportion: the batch sizes of samples
        # on real devices, and by those to whose examples it was fitted too (none: to all), the correction.
        self._sampled: dict[str, set[int]] = {}
        self._stores: Memo[tuple[CompileOptions, bool], RangeStore] = Memo(4096)
        self._corrections: Memo[tuple[str, tuple[int, ...]], Correction] = Memo(4096)
        # By all that they depend on but the devices: the correction, the corrected profile and the costs of ranges.
        self._ranges: Memo[tuple[CompileOptions, WeightUpdate, bool], tuple[Correction, ModelProfile, CostTable]]
        self._ranges = Memo(_MAX_PROFILES)

    @property
    def forecasts(self) -> StoredForecasts:
        """The store of forecasts that were made before."""
        return self._profiles.forecasts

    def cost_key(self, knobs: Knobs) -> object:
        """The key under which forecasts of a configuration are stored; equal keys mean equal costs.

        Sessions count by what layers cost with them.
        """
        session, setting = knobs.session, self.setting
        if setting.traits.runs_plans or setting.cluster.kinds:
            return knobs
        devices = range(knobs.n_ipu if session.differs_by_device else 1)
        layers = [self._profiles.summary(setting.options(knobs, device)).digest for device in devices]
        return replace(knobs, session=session.common), layers

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """Every kind of layer compiled once, for the cluster's first device, or the profile that the target has."""
        return self._profiles.layers(options, progress)

    @abstractmethod
    def layers(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """The profile that plans are made by: that of layers alone, or of layers in their model."""

    @abstractmethod
    def are_alone(self, options: CompileOptions) -> bool:
        """True if each layer of `layers` was compiled, or ran, by itself."""

    @abstractmethod
    def need_samples(self, options: CompileOptions) -> bool:
        """True if ranges must be compiled whole to know how times and memory of layers add up."""

    @abstractmethod
    def ends(self, options: CompileOptions) -> EndBytes:
        """The bytes of the model's inputs and outputs."""

    def whole_plan(self, knobs: Knobs) -> Plan | None:
        """The plan of the whole model on one device, if no layer need be measured for it; else None.

        Raises Infeasible if it needs more memory than the device has.
        """
        return None

    def bound_plan(self, knobs: Knobs) -> Plan | None:
        """A plan of one pipeline that is no slower than any, by the whole model alone; None where there is none.

        Raises Infeasible if too few layers may be parted, or not even equal parts fit.
        """
        return None

    def learn_speed(self, knobs: Knobs, estimated_per_s: float, measured_per_s: float) -> None:  # noqa: B027
        """Take note how much longer than estimated a configuration took, where that tells of others."""

    def with_equal_costs(self, knobs: Knobs, progress: Progress | None = None) -> Knobs:
        """The configuration with the first session that was asked for with which all layers cost as much.

        At small batches memory proportions often make no difference: no kernel needs more than the least. On real
        devices it is the session of `knobs`.
        """
        if self.setting.traits.runs_plans or self.setting.cluster.kinds:
            return knobs
        session, setting = knobs.session, self.setting
        devices = range(knobs.n_ipu if session.differs_by_device else 1)
        equal = [self._profiles.first_equal_session(setting.options(knobs, device), progress) for device in devices]
        return replace(knobs, session=session.of_devices(equal))

    def correction(self, knobs: Knobs, progress: Progress | None = None) -> Correction:
        """The correction of sums of layers, fitted to ranges that were compiled whole.

        Until a fit, the entry overhead of layers timed in their model has its prior.
        """
        if self.setting.estimator is Estimator.SUM:
            return PLAIN_SUM
        options = self.setting.options(knobs)
        alone = self.are_alone(options)
        store, sizes = self._store(options, alone), sample_batch_sizes(knobs.batch_size)
        if self.setting.traits.runs_plans:
            self._sample_once(options, progress)
            sizes = ()
        key = store.subject, sizes
        if key not in self._corrections:
            # By a cost model all sessions share the samples of the common one.
            common = replace(options, session=options.session.common)
            known = store.batch_sizes()
            for size in sizes:
                if size not in known:
                    self._sample(replace(common, batch_size=size), SAMPLE_SHARE, progress)
            self._corrections[key] = fit(store.examples(sizes))
        fitted = self._corrections[key]
        if alone:
            return fitted
        return replace(fitted, features={RangeFeature.ENTRY: PRIOR[RangeFeature.ENTRY], **fitted.features})

    def _sample_once(self, options: CompileOptions, progress: Progress | None) -> None:
        """Run samples on a real device if there are no examples near a batch size, and none were run before."""
        if not self.need_samples(options):
            return
        store, sizes = self._store(options), sample_batch_sizes(options.batch_size)
        sampled = self._sampled.setdefault(store.subject, set())
        if is_sampled(options.batch_size, sampled):
            return
        if not is_sampled(options.batch_size, well_known(store.batch_sizes())):
            for size in sizes:
                self._sample(replace(options, batch_size=size), 1 / len(sizes), progress)
        sampled.update(sizes)

    def _sample(self, options: CompileOptions, share: float, progress: Progress | None) -> None:
        setting, profile = self.setting, self.profile(options, progress)
        wholes = sample(setting.graph, setting.compiler, setting.device(options), profile, share, progress)
        self._add_examples(options, wholes, profile, alone=True)

    def learn_ranges(self, options: CompileOptions, measured: Iterable[WholeRange]) -> None:
        """Store ranges that were compiled whole, or ran, as examples to which later corrections are fitted."""
        if self.setting.estimator is not Estimator.SUM:
            self._add_examples(options, measured, self.layers(options), self.are_alone(options))

    def _add_examples(
        self, options: CompileOptions, measured: Iterable[WholeRange], profile: ModelProfile, alone: bool
    ) -> None:
        setting, store = self.setting, self._store(options, alone)
        cluster = setting.hardware(options.session)
        far_memory = setting.traits.runs_plans
        store.add(options, range_examples(setting.graph, profile, cluster, measured, far_memory, alone))
        self._corrections.forget((store.subject, ()))  # the fit to all examples, which are now more

    def _store(self, options: CompileOptions, alone: bool = True) -> RangeStore:
        """The examples of layers that were measured `alone`, or in their model."""
        setting = self.setting

        def store() -> RangeStore:
            subject = subject_of(setting.graph, setting.compiler, setting.device(options), options, alone=alone)
            return RangeStore(setting.cache, subject)

        return self._stores.of((options, alone), store)

    def table_on(self, cluster: Cluster, knobs: Knobs, progress: Progress | None = None) -> CostTable:
        """The estimated cost of every range of layers on each device of a line."""
        correction = self.correction(knobs, progress)
        profile, ranges = self.ranges(knobs, correction, progress)
        setting, tensors = self.setting, None
        if setting.cluster.topology is not Topology.LINE:  # where any device reaches any other
            tensors = tensor_uses(setting.graph, knobs.batch_size, setting.precision, training=knobs.training)
        table = on_devices(ranges, profile, cluster, setting.proportion(correction), _in_flight(knobs), tensors)
        host_cycles = cluster.host_cycles(profile.layers[0].input_bytes, profile.layers[-1].output_bytes)
        devices = range(len(cluster) if knobs.session.differs_by_device else 0)
        of_devices = tuple(self.ranges(knobs, correction, progress, device)[1] for device in devices)
        return replace(table, host_cycles=host_cycles, of_devices=of_devices)

    def ranges(
        self, knobs: Knobs, correction: Correction, progress: Progress | None = None, device: int = 0
    ) -> tuple[ModelProfile, CostTable]:
        """The corrected profile, and the costs of ranges, with the session of a device of the pipeline.

        They are those of the cluster's first device; numbers of devices share them.
        """
        setting, recompute = self.setting, knobs.mode.recomputes_all
        options = setting.options(knobs, device)
        key = options, knobs.weight_update, recompute
        known = self._ranges.get(key)
        if known is not None and known[0] == correction:  # on real devices later measurements change it
            return known[1:]
        profile = corrected(self.layers(options, progress), setting.graph, correction)
        if knobs.training:
            profile = with_optimizer_state(profile, knobs.weight_update, setting.precision)
        in_flight = (1,) if knobs.training else None
        first, period = setting.devices(knobs).first(1), setting.period_of_devices
        table = cost_table(profile, first, setting.proportion(correction), period, in_flight, recompute)
        table = with_entry_overhead(table, profile, correction)
        if setting.cut_at is CutAt.BLOCKS:
            table = with_cuts_at(table, [block.layers.start for block in setting.graph.blocks])
        self._ranges[key] = correction, profile, table
        return profile, table

    def pipeline_table(self, knobs: Knobs, progress: Progress | None = None, start: int = 0) -> CostTable:
        """The estimated cost of every range of layers on a pipeline that begins with the device `start`.

        Raises:
            BadInput: the cluster has several kinds of devices, in any order (`autoauto/evaluate/pipelines/kinds.py`).
        """
        self.setting.check_one_kind("this query")
        return self.table_on(self.setting.line(knobs, start), knobs, progress)

    def shared_cycles(self, knobs: Knobs, starts: Sequence[int]) -> int:
        """Cycles in which a machine's connection to the host moves a micro-batch of every pipeline.

        `starts` has the first device of every replica.
        """
        if self.setting.cluster.machine is None:
            return 0
        ends = self.ends(self.setting.options(knobs))
        return replicas.shared_cycles(self.setting.devices(knobs), knobs.n_ipu, starts, *ends)


class LayerCosts(LayerwiseCosts):
    """Costs by layers that are all compiled alone."""

    @override
    def layers(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        return self.profile(options, progress)

    @override
    def are_alone(self, options: CompileOptions) -> bool:
        return True

    @override
    def need_samples(self, options: CompileOptions) -> bool:
        return True

    @override
    def ends(self, options: CompileOptions) -> EndBytes:
        return self._profiles.summary(options).ends


def _in_flight(knobs: Knobs) -> tuple[int, ...] | None:
    """Micro-batches in flight on every device, if it has one stage; None where none are stashed."""
    if not knobs.training:
        return None
    if not has_one_stage_each(knobs.step):
        return (1,) * knobs.n_ipu  # `stage_table` knows those of every stage
    return in_flight(*knobs.step[:3])
