"""What is known of a model on a cluster before it is measured: `Estimates`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from autoauto.estimate.calibration import entered
from autoauto.estimate.correction.correct import corrected, learned
from autoauto.estimate.correction.features import range_examples
from autoauto.estimate.memory import memory_limit_bytes
from autoauto.estimate.table import cost_table
from autoauto.graph.layers.kinds import quantise
from autoauto.profile.profiler import Progress, profile_model
from autoauto.profile.sample import is_sampled, sample, sample_batch_sizes, well_known
from autoauto.profile.store.cache import ProfileCache
from autoauto.profile.store.ranges import RangeStore, subject_of
from autoauto.records.correction import PLAIN_SUM, Correction, Estimator, WholeRange
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.installation import cache_dir
from autoauto.records.knobs import DEFAULT_PLANNING_PROPORTION, Knobs
from autoauto.records.layers import LayerGraph
from autoauto.records.phased import PhasedOptions
from autoauto.records.profile import Cache, CompileOptions, ModelProfile, Target
from autoauto.records.timeline import Runner
from autoauto.records.units import Precision
from autoauto.schedule.stash import in_flight
from autoauto.targets.clusters import check_fp8

_KEPT_PROFILES = 64  # in memory: configurations that differ in n_ipu alone share one


@dataclass(frozen=True, slots=True)
class Estimates:
    """profile -> estimate, for any configuration; what is measured later makes the next estimates better.

    Attributes:
        graph: the model.
        cluster: the devices there are; a configuration uses the first `n_ipu` of them.
        target: compiles ranges of layers.
        precision: format of weights and activations.
        planning_proportion: share of a device's memory that a planned stage may fill; None is all of it, held against
            the upper edge of what the stage may need, and the seed's 0.85 for plain sums, which have no edges.
        overlap: whether devices transfer while they compute, or all at once when the slowest has computed.
        cache: compiled layers and ranges kept from earlier.
        estimator: whether sums of layers are corrected by ranges compiled whole.
    """

    graph: LayerGraph
    cluster: Cluster
    target: Target
    precision: Precision = Precision.FP16
    planning_proportion: float | None = None
    overlap: bool = False
    cache: Cache = field(default_factory=lambda: ProfileCache(cache_dir() / "profiles.db"))
    estimator: Estimator = Estimator.REGRESSION
    _profiles: dict[CompileOptions, ModelProfile] = field(default_factory=dict, init=False, repr=False, compare=False)
    _sampled: dict[str, set[int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _learned: dict[str, Correction] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        memory_limit_bytes(self.cluster, self._proportion(PLAIN_SUM))  # refuse an impossible one before any work
        if self.precision is Precision.FP8:
            check_fp8(self.cluster)
            object.__setattr__(self, "graph", quantise(self.graph))
        tiles = {(device.n_tiles, device.tile_memory_bytes) for device in self.cluster.devices}
        if len(tiles) > 1:
            raise BadInput(
                f"the devices of a cluster may differ in clock and memory, not in tiles, since a model is profiled for "
                f"one of them; {self.cluster.name} has {sorted(tiles)}; plan each kind by itself"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every layer."""
        return tuple(layer.name for layer in self.graph.layers)

    @property
    def runner(self) -> Runner | None:
        """The target, where it can run plans; None where it is a cost model."""
        return self.target if isinstance(self.target, Runner) else None

    def options(self, knobs: Knobs) -> CompileOptions:
        """What of the knobs the target's compiler sees."""
        return CompileOptions(knobs.batch_size, knobs.memory_proportion, self.precision, knobs.training)

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """Every kind of layer compiled once, for the cluster's first device."""
        if options not in self._profiles:
            found = profile_model(self.graph, self.target, self.cluster.devices[0], options, self.cache, progress)
            if len(self._profiles) >= _KEPT_PROFILES:
                del self._profiles[next(iter(self._profiles))]
            self._profiles[options] = found
        return self._profiles[options]

    def correction(self, knobs: Knobs, progress: Progress | None = None) -> Correction:
        """What ranges compiled whole teach about sums of layers: a few at a near batch size, and all measured so far.

        Its bands tell how far measured cycles and bytes lie from predicted ones.
        """
        if self.estimator is Estimator.SUM:
            return PLAIN_SUM
        options = self.options(knobs)
        store = self._store(options)
        near = self._sampled.setdefault(store.subject, set())
        if not is_sampled(knobs.batch_size, near):
            if not is_sampled(knobs.batch_size, well_known(store.batch_sizes())):
                device = self.cluster.devices[0]
                for at, wholes in sample(self.graph, self.target, device, options, self.profile, progress):
                    self.learn(at, wholes)
            near.update(sample_batch_sizes(knobs.batch_size))
            self._learned.pop(store.subject, None)
        if store.subject not in self._learned:
            self._learned[store.subject] = learned(store) if self.runner is None else learned(store, refit=1.0)
        return self._learned[store.subject]

    def table(self, knobs: Knobs, progress: Progress | None = None) -> CostTable:
        """The estimated cost of every range of layers."""
        correction = self.correction(knobs, progress)
        profile = corrected(self.profile(self.options(knobs), progress), self.graph, correction)
        cluster = self._pipeline(knobs)
        training = (
            (in_flight(knobs.schedule, knobs.n_ipu, knobs.n_micro_batches), knobs.recompute) if knobs.training else ()
        )
        table = cost_table(profile, cluster, self._proportion(correction), self.overlap, *training)
        table = entered(table, profile, correction)
        host_cycles = self.cluster.host_cycles(profile.layers[0].input_bytes, profile.layers[-1].output_bytes)
        return replace(table, host_cycles=host_cycles)

    def phase_table(self, knobs: Knobs, options: PhasedOptions) -> CostTable:
        """The costs of one device that has one micro-batch in work."""
        training = ((1,), options.recompute) if knobs.training else ()
        correction = self.correction(knobs)
        profile = corrected(self.profile(self.options(knobs)), self.graph, correction)
        table = cost_table(profile, self.cluster.first(1), self._proportion(correction), False, *training)
        return entered(table, profile, correction)

    def learn(self, options: CompileOptions, measured: Iterable[WholeRange]) -> None:
        """Keep measured ranges as examples for the estimates that follow."""
        if self.estimator is not Estimator.SUM:
            examples = range_examples(
                self.graph, self.profile(options), self.cluster, measured, far=self.runner is not None
            )
            self._store(options).add(options, examples)
            self._learned.clear()

    def _pipeline(self, knobs: Knobs) -> Cluster:
        """The devices of one pipeline; real ones may use the part `memory_proportion` of their memory."""
        cluster = self.cluster.first(knobs.n_ipu)
        if self.runner is None:
            return cluster
        share = knobs.memory_proportion
        used = (replace(device, memory_bytes=device.memory_bytes * share) for device in cluster.devices)
        return replace(cluster, devices=tuple(used))

    def _store(self, options: CompileOptions) -> RangeStore:
        return RangeStore(self.cache, subject_of(self.graph, self.target, self.cluster.devices[0], options))

    def _proportion(self, correction: Correction) -> float:
        """The share of a device's memory that a stage may fill by its prediction."""
        if self.planning_proportion is not None:
            return self.planning_proportion
        return 1.0 / correction.memory_band.high if correction.n_examples else DEFAULT_PLANNING_PROPORTION
