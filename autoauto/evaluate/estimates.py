"""Estimated costs of a model on a cluster, for any configuration: `Estimates`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from autoauto.estimate.correct import corrected, range_examples
from autoauto.estimate.memory import memory_limit_bytes, with_optimizer_state, without_checkpoints
from autoauto.estimate.regression import fit
from autoauto.estimate.sums import prefix_sums
from autoauto.estimate.table import cost_table, on_devices, with_cuts_at, with_entry_overhead
from autoauto.graph.kinds import quantise
from autoauto.plan.pipeline.stage_table import StageTable, arranged
from autoauto.plan.replicas import shared_cycles
from autoauto.profile.cache import ProfileCache, RangeStore, local_cache, subject_of
from autoauto.profile.liveness import tensor_uses
from autoauto.profile.profiler import Progress, profile_model
from autoauto.profile.sample import SAMPLE_SHARE, is_sampled, sample, sample_batch_sizes, well_known
from autoauto.records.costs.correction import PLAIN_SUM, Correction, Estimator, WholeRange
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.exchange import TensorUse
from autoauto.records.costs.options import CompileOptions, Session
from autoauto.records.costs.profile import ModelProfile, WeightUpdate
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Period, Topology
from autoauto.records.layers import LayerGraph
from autoauto.records.plans.phased import PhasedOptions
from autoauto.records.plans.plan import CutAt, Plan
from autoauto.records.target import Profiled, Target, TargetTraits, UpdatesWeights, traits_of
from autoauto.records.units import IntArray, Precision, reference_cycles
from autoauto.schedule.orders.registry import devices_of
from autoauto.schedule.stash import in_flight, in_flight_by_stage
from autoauto.space.knobs import DEFAULT_PLANNING_PROPORTION, Knobs
from autoauto.space.modes import Recompute
from autoauto.targets.clusters import check_fp8

_MAX_PROFILES = 128  # profiles in memory; configurations that differ in n_ipu only have the same profile


@dataclass(frozen=True, slots=True)
class Estimates:
    """profile -> estimate, for any configuration; the base of `WholeModelEstimates`, and so of `Flow`.

    On real devices every measurement corrects later estimates.

    Attributes:
        graph: the model.
        cluster: all devices; a configuration uses the first `n_ipu` of them, or where they are of several kinds
            (`Cluster.kinds`), those that suit it.
        target: compiles ranges of layers.
        precision: format of weights and activations.
        planning_proportion: share of a device's memory that the predicted bytes of a stage may fill. None means
            1 / `Correction.memory_interval.high`: the upper end of the prediction interval may fill all memory. Plain
            sums have no interval; for them None means 0.85 [auto-pipeline].
        period: what the devices do at the same time; None is what the target says (`TargetTraits.period`).
        cache: profiles of compiled layers, and ranges compiled whole.
        estimator: whether sums of layers are corrected by ranges compiled whole.
        cut_at: where stages may begin.
    """

    graph: LayerGraph
    cluster: Cluster
    target: Target
    precision: Precision = Precision.FP16
    planning_proportion: float | None = None
    period: Period | None = None
    cache: ProfileCache = field(default_factory=local_cache)
    estimator: Estimator = Estimator.REGRESSION
    cut_at: CutAt = CutAt.LAYERS
    _profiles: dict[CompileOptions, ModelProfile] = field(default_factory=dict, init=False, repr=False, compare=False)
    _equal_sessions: dict[CompileOptions, Session] = field(default_factory=dict, init=False, repr=False, compare=False)
    _host_bytes: dict[int, tuple[int, int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _alike: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    # By the subject of a `RangeStore`, all options but batch size and memory proportion: the batch sizes of samples on
    # real devices, and by those to whose examples it was fitted too (none: to all), the correction.
    _sampled: dict[str, set[int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _corrections: dict[tuple[str, tuple[int, ...]], Correction] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _update_cycles: dict[tuple[CompileOptions, WeightUpdate], IntArray] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # By all that they depend on but the devices: the correction, the corrected profile and the costs of ranges.
    _range_costs: dict[tuple[CompileOptions, WeightUpdate, bool], tuple[Correction, ModelProfile, CostTable]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _kinds: tuple[Self, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        memory_limit_bytes(self.cluster, self._proportion(PLAIN_SUM))  # raises BadInput for an impossible proportion
        if self.cut_at is CutAt.BLOCKS and not self.graph.blocks:
            raise BadInput(
                "blocks are found by the names of repeated modules like layers.0, layers.1 in an ONNX file, "
                f"{self.graph.name} has none; try --cut-at layers"
            )
        if self.precision is Precision.FP8:
            check_fp8(self.cluster)
            object.__setattr__(self, "graph", quantise(self.graph))
        if self.cluster.kinds:
            kinds = tuple(replace(self, cluster=cluster) for cluster in self.cluster.by_kind)
            object.__setattr__(self, "_kinds", kinds)
            return
        tiles = {(device.n_tiles, device.tile_memory_bytes) for device in self.cluster.devices}
        if len(tiles) > 1:
            raise BadInput(
                f"the devices of a line may differ in clock and memory, not in tiles, since a model is profiled for "
                f"one of them; {self.cluster.name} has {sorted(tiles)}; write [[kinds]], which are profiled each"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every layer."""
        return tuple(layer.name for layer in self.graph.layers)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed of the model, and what one should know about the target's numbers, one sentence each."""
        notes: tuple[str, ...] = getattr(self.target, "notes", ())
        return (*self.graph.notes, *notes)

    @property
    def traits(self) -> TargetTraits:
        """How the target measures, and what a search on it begins with."""
        return traits_of(self.target)

    @property
    def period_of_devices(self) -> Period:
        """What the devices do at the same time."""
        return self.traits.period if self.period is None else self.period

    @property
    def kinds(self) -> tuple[Self, ...]:
        """The estimates of every kind of devices alone; these themselves where the order of the devices is given."""
        return self._kinds or (self,)

    def check_one_kind(self, what: str) -> None:
        """Refuse what needs devices of one kind.

        Raises:
            BadInput: the cluster has several kinds of devices, in any order.
        """
        if self.cluster.kinds:
            names = ", ".join(kind.device.name for kind in self.cluster.kinds)
            raise BadInput(
                f"{what} needs devices in a given order, {self.cluster.name} has {names} in any order; "
                "try a --cluster of one kind"
            )

    def check_phases_may_begin_anywhere(self) -> None:
        """Refuse phases where stages begin at blocks.

        Raises:
            BadInput: they do.
        """
        if self.cut_at is CutAt.BLOCKS:
            raise BadInput("phases begin at any layer, got --cut-at blocks; leave it out")

    def options(self, knobs: Knobs) -> CompileOptions:
        """The options with which the target compiles at these knobs."""
        return CompileOptions(knobs.batch_size, self.precision, knobs.training, knobs.session)

    def device(self, options: CompileOptions) -> Device:
        """The first device, for which all layers are compiled."""
        return self.cluster.grouped(options.cores_per_device).devices[0]

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """Every kind of layer compiled once, for the cluster's first device, or the profile that the target has."""
        if options not in self._profiles:
            device = self.device(options)
            if isinstance(self.target, Profiled):
                profile = self.target.profile(self.graph, device, options)
            else:
                profile = profile_model(self.graph, self.target, device, options, self.cache, progress)
            if len(self._profiles) >= _MAX_PROFILES:
                del self._profiles[next(iter(self._profiles))]
            self._profiles[options] = profile
        return self._profiles[options]

    def layer_costs(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """The profile that plans are made by: that of layers alone."""
        return self.profile(options, progress)

    def measures_alone(self, options: CompileOptions) -> bool:
        """Whether `layer_costs` are those of layers alone."""
        return True

    def with_equal_costs(self, knobs: Knobs, progress: Progress | None = None) -> Knobs:
        """The configuration with the first session that was asked for with which all layers cost as much.

        At small batches memory proportions often make no difference: no kernel needs more than the least. On real
        devices it is the session of `knobs`.
        """
        if self.traits.runs_plans or self.cluster.kinds:
            return knobs
        options = self.options(knobs)
        if options not in self._equal_sessions:
            layers = self.profile(options, progress).layers
            self._equal_sessions[options] = next(
                known.session
                for known, profile in self._profiles.items()
                if replace(known, session=options.session) == options and profile.layers == layers
            )
        return replace(knobs, session=self._equal_sessions[options])

    def correction(self, knobs: Knobs, progress: Progress | None = None) -> Correction:
        """The correction of sums of layers, fitted to ranges that were compiled whole.

        By a cost model these are samples at two batch sizes near that of `knobs` (`autoauto/profile/sample.py`), and
        nothing else, so that equal commands give equal answers, whatever was compiled before. On real devices, where a
        range takes long, they are all that ever ran, and samples only if none of those has a near batch size.
        """
        if self.estimator is Estimator.SUM:
            return PLAIN_SUM
        options = self.options(knobs)
        store, sizes = self._store(options, self.measures_alone(options)), sample_batch_sizes(knobs.batch_size)
        if self.traits.runs_plans:
            self._sample_once(options, progress)
            sizes = ()
        key = store.subject, sizes
        if key not in self._corrections:
            known, common = store.batch_sizes(), replace(options, session=options.session.common)
            for size in sizes:
                if size not in known:
                    self._sample(replace(common, batch_size=size), SAMPLE_SHARE, progress)
            self._corrections[key] = fit(store.examples(sizes))
        return self._corrections[key]

    def _sample_once(self, options: CompileOptions, progress: Progress | None) -> None:
        """Run samples on a real device if there are no examples near a batch size, and none were run before."""
        store, sizes = self._store(options), sample_batch_sizes(options.batch_size)
        sampled = self._sampled.setdefault(store.subject, set())
        if is_sampled(options.batch_size, sampled):
            return
        if not is_sampled(options.batch_size, well_known(store.batch_sizes())):
            for size in sizes:
                self._sample(replace(options, batch_size=size), 1 / len(sizes), progress)
        sampled.update(sizes)

    def _sample(self, options: CompileOptions, share: float, progress: Progress | None) -> None:
        profile = self.profile(options, progress)
        wholes = sample(self.graph, self.target, self.device(options), profile, share, progress)
        self._add_examples(options, wholes, profile, alone=True)

    def devices(self, knobs: Knobs) -> Cluster:
        """All devices, each with the cores of a device."""
        return self.cluster.grouped(knobs.session.cores_per_device)

    def device_bytes(self, knobs: Knobs) -> int:
        """The memory of one device."""
        return int(self.cluster.devices[0].memory_bytes) * knobs.session.cores_per_device

    def first_like(self, knobs: Knobs, start: int) -> int:
        """The first device of a pipeline that has the same devices and links as the one that begins with `start`."""
        alike = self._alike.setdefault((knobs.n_ipu, knobs.session.cores_per_device), {0: 0})
        if start not in alike:
            part = partial(self.devices(knobs).part, n_ipu=knobs.n_ipu)
            pipeline = part(start)
            alike[start] = next((first for first in set(alike.values()) if part(first) == pipeline), start)
        return alike[start]

    def corrections(self, knobs: Knobs, progress: Progress | None = None) -> tuple[Correction, ...]:
        """The correction of every kind of devices."""
        return tuple(kind.correction(knobs, progress) for kind in self.kinds)

    def table(self, knobs: Knobs, progress: Progress | None = None, start: int = 0) -> CostTable:
        """The estimated cost of every range of layers on a pipeline that begins with the device `start`.

        Raises:
            BadInput: the cluster has several kinds of devices, in any order (`autoauto/evaluate/kinds.py`).
        """
        self.check_one_kind("this query")
        return self.table_on(self._pipeline_cluster(knobs, start), knobs, progress)

    def stage_table(self, knobs: Knobs, progress: Progress | None = None, start: int = 0) -> StageTable:
        """The estimated cost of every range of layers as each stage of training on such a pipeline.

        Raises:
            BadInput: as `table`; or several stages a device, where devices transfer by themselves or are in no line.
        """
        table = self.table(knobs.with_values(recompute=knobs.mode.recompute is True), progress, start)
        recomputing = None
        if knobs.mode.recompute is Recompute.AUTO:
            recomputing = self.table(knobs.with_values(recompute=True), progress, start)
        if knobs.mode.stages_per_device == 1:
            return StageTable.of(table, recomputing)
        devices, moments = devices_of(knobs.step), in_flight_by_stage(*knobs.step)
        taken = [0] * knobs.n_ipu
        most = []
        for device in devices:
            most.append(int(moments[device][:, taken[device]].max()))
            taken[device] += 1
        rows = [None if each is None else arranged(each, devices, most) for each in (table, recomputing)]
        assert rows[0] is not None
        return StageTable(rows[0], devices, moments, rows[1])

    def table_on(self, cluster: Cluster, knobs: Knobs, progress: Progress | None = None) -> CostTable:
        """The estimated cost of every range of layers on each device of a line."""
        correction = self.correction(knobs, progress)
        profile, ranges = self.ranges(knobs, correction, progress)
        proportion, tensors = self._proportion(correction), self._tensors(knobs)
        table = on_devices(ranges, profile, cluster, proportion, self._in_flight(knobs), tensors)
        host_cycles = cluster.host_cycles(profile.layers[0].input_bytes, profile.layers[-1].output_bytes)
        return replace(table, host_cycles=host_cycles)

    def ranges(
        self, knobs: Knobs, correction: Correction, progress: Progress | None = None
    ) -> tuple[ModelProfile, CostTable]:
        """The corrected profile, and the costs of ranges on the first device; numbers of devices share them."""
        recompute = knobs.mode.recompute is True
        key = self.options(knobs), knobs.weight_update, recompute
        known = self._range_costs.get(key)
        if known is not None and known[0] == correction:
            return known[1:]
        profile = corrected(self.layer_costs(self.options(knobs), progress), self.graph, correction)
        if knobs.training:
            profile = with_optimizer_state(profile, knobs.weight_update, self.precision)
        in_flight = (1,) if knobs.training else None
        first, period = self.devices(knobs).first(1), self.period_of_devices
        table = cost_table(profile, first, self._proportion(correction), period, in_flight, recompute)
        table = with_entry_overhead(table, profile, correction)
        if self.cut_at is CutAt.BLOCKS:
            table = with_cuts_at(table, [block.layers.start for block in self.graph.blocks])
        if len(self._range_costs) >= _MAX_PROFILES:
            del self._range_costs[next(iter(self._range_costs))]
        self._range_costs[key] = correction, profile, table
        return profile, table

    def _in_flight(self, knobs: Knobs) -> tuple[int, ...] | None:
        """Micro-batches in flight on every device, if it has one stage."""
        if not knobs.training:
            return None
        if knobs.mode.stages_per_device > 1:
            return (1,) * knobs.n_ipu  # `stage_table` knows those of every stage
        return in_flight(*knobs.step[:3])

    def _tensors(self, knobs: Knobs) -> list[TensorUse] | None:
        """What layers exchange where any device reaches any other."""
        if self.cluster.topology is Topology.LINE:
            return None
        return tensor_uses(self.graph, knobs.batch_size, self.precision, training=knobs.training)

    def shared_cycles(self, knobs: Knobs, starts: Sequence[int]) -> int:
        """Cycles in which a machine's connection to the host moves a micro-batch of every pipeline.

        Args:
            knobs: the configuration.
            starts: the first device of every replica.
        """
        if self.cluster.machine is None:
            return 0
        if knobs.batch_size not in self._host_bytes:  # they depend on nothing else
            layers = self.profile(self.options(knobs)).layers
            self._host_bytes[knobs.batch_size] = layers[0].input_bytes, layers[-1].output_bytes
        devices = self.devices(knobs)
        return shared_cycles(devices, knobs.n_ipu, starts, *self._host_bytes[knobs.batch_size])

    def weight_update_cycles(self, knobs: Knobs, plan: Plan) -> tuple[int, ...]:
        """Cycles of the reference clock in which every device updates its weights; 0 where the target does not say."""
        if not isinstance(self.target, UpdatesWeights):
            return (0,) * plan.n_devices
        options = replace(self.options(knobs), batch_size=1)
        key = options, knobs.weight_update
        if key not in self._update_cycles:
            by_layer = self.target.weight_update_cycles(self.graph, self.device(options), *key)
            self._update_cycles[key] = prefix_sums(by_layer, "cycles of the weight update")
        prefix, speeds = self._update_cycles[key], self.cluster.speeds
        firsts = [self.cluster.index(each.placement[0][0]) if each.placement else 0 for each in plan.plans]
        own_cycles = [0] * plan.n_devices
        for stage in plan.stages:
            own_cycles[stage.device] += int(prefix[stage.layers.stop] - prefix[stage.layers.start])
        return tuple(
            max(reference_cycles(cycles, speeds[first + device]) for first in firsts)
            for device, cycles in enumerate(own_cycles)
        )

    def phase_table(self, knobs: Knobs, options: PhasedOptions) -> CostTable:
        """The estimated cost of every range of layers as a phase: on one device, with one micro-batch in flight.

        Raises:
            BadInput: the cluster has several kinds of devices, or stages are to begin at blocks.
        """
        self.check_one_kind("a plan of phases")
        self.check_phases_may_begin_anywhere()
        training = ((1,), options.recompute) if knobs.training else ()
        correction = self.correction(knobs)
        profile = without_checkpoints(corrected(self.profile(self.options(knobs)), self.graph, correction))
        table = cost_table(profile, self.cluster.first(1), self._proportion(correction), Period.BARRIER, *training)
        return with_entry_overhead(table, profile, correction)

    def add_examples(self, options: CompileOptions, measured: Iterable[WholeRange]) -> None:
        """Store ranges that were compiled whole, or ran, as examples to which later corrections are fitted."""
        if self.estimator is not Estimator.SUM:
            self._add_examples(options, measured, self.layer_costs(options), self.measures_alone(options))

    def _add_examples(
        self, options: CompileOptions, measured: Iterable[WholeRange], profile: ModelProfile, alone: bool
    ) -> None:
        store, far_memory = self._store(options, alone), self.traits.runs_plans
        store.add(options, range_examples(self.graph, profile, self.cluster, measured, far_memory, alone))
        self._corrections.pop((store.subject, ()), None)

    def _pipeline_cluster(self, knobs: Knobs, start: int) -> Cluster:
        """The cluster of one pipeline."""
        return self.devices(knobs).part(start, knobs.n_ipu)

    def _store(self, options: CompileOptions, alone: bool = True) -> RangeStore:
        """The examples of layers that were measured `alone`, or in their model."""
        return RangeStore(self.cache, subject_of(self.graph, self.target, self.device(options), options, alone=alone))

    def _proportion(self, correction: Correction) -> float:
        """The share of a device's memory that the predicted bytes of a stage may fill."""
        if self.planning_proportion is not None:
            return self.planning_proportion
        return 1.0 / correction.memory_interval.high if correction.n_examples else DEFAULT_PLANNING_PROPORTION
