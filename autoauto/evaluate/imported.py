"""Profiles of other programs: the best plan for one, `ImportedPlanner`, and its files as a model, `profiled_model`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import NamedTuple

from autoauto.estimate.table import cost_table
from autoauto.graph.load import find_model, load_graph
from autoauto.plan.pipeline.range_plans import anywhere, best_in_any_order, no_cycles
from autoauto.profile.importers.imported import ImportedGraph, ImportedProfile, like_devices, linear_orders, order_by
from autoauto.profile.importers.importer import FileNode, Importer, ProfiledFile
from autoauto.profile.importers.recorded import Layers, ProfileTarget, RecordedProfile, line_graph
from autoauto.profile.importers.registry import IMPORTERS
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster, Link, Period
from autoauto.records.layers import AS_IN_FILE, LayerGraph, ModelInputs
from autoauto.records.plans.plan import BoundedPlan
from autoauto.records.units import GIB, Precision
from autoauto.space.problem import ProfileFiles, named_file
from autoauto.targets.clusters import PROFILED

N_REORDERINGS = 40
"""Orders of layers that are tried after the first ones."""


class PlannedProfile(NamedTuple):
    """A profile with its layers in an order, and the best plan of its ranges."""

    order: Sequence[int]
    profile: ImportedProfile
    bounded: BoundedPlan

    @property
    def cost_cycles(self) -> int:
        """The cost of the plan."""
        return self.bounded.plan.cost_cycles


_cost_cycles = attrgetter("cost_cycles")
_BY_DEVICE = ("devices", "receive_links", "send_links")


class ImportedPlanner(NamedTuple):
    """What a profile of another program is planned for.

    Attributes:
        period: what the devices do at the same time; None is that of the program that the profile is of.
        planning_proportion: share of a device's memory that a stage may fill.
        stage_replicas: whether several devices may run one stage in turn. In training they exchange the gradients of
            its weights.
    """

    period: Period | None = None
    planning_proportion: float = 1.0
    stage_replicas: bool = False

    def best(self, graph: ImportedGraph) -> PlannedProfile:
        """The cheapest plan that was found on at most all devices, of whichever kinds in whichever order.

        Stages are ranges of an order of the layers, and for an order the plan is exact. Orders are tried by a few rules
        (`linear_orders`), then shuffled: layers stay in their stage, or change between two neighbouring stages, and the
        next order is a random one that keeps to that. The last plan is one of it, so the cost never rises.

        Raises:
            Infeasible: nothing fits in any order; of all the errors, the one with the fewest missing bytes.
            BadInput: `planning_proportion` is not in (0, 1], or numbers are too large to be added exactly.
        """
        planned, failures = [], []
        for order in linear_orders(graph.n_layers, graph.edges):
            try:
                planned.append(self.plan(graph, order))
            except Infeasible as failure:
                failures.append(failure)
        if not planned:
            raise min(failures, key=lambda failure: failure.excess_bytes)
        best, random = min(planned, key=_cost_cycles), Random(0)
        for _ in range(N_REORDERINGS if len(planned) > 1 else 0):
            best = min(self.plan(graph, _shuffled(graph, best, random)), best, key=_cost_cycles)
        return best

    def plan(self, graph: ImportedGraph, order: Sequence[int]) -> PlannedProfile:
        """The best plan for the layers in one order.

        Raises:
            Infeasible: nothing fits.
        """
        profile = graph.in_order(order)
        tables = [self._table(profile, kind) for kind in range(len(profile.kinds))]
        cluster = profile.kinds[0].cluster
        move = partial(cluster.send_links[0].load_cycles, clock_hz=cluster.clock_hz)
        n_devices = [len(kind.cluster) for kind in profile.kinds]
        max_replicas = max(n_devices) if self.stage_replicas else 1
        bounded = best_in_any_order(tables, n_devices, max_replicas, move if profile.training else no_cycles)
        return PlannedProfile(order, profile, bounded)

    def _table(self, profile: ImportedProfile, kind: int) -> CostTable:
        """The costs of one device of a kind, which has neighbours although it may be the only one of its kind."""
        layers, cluster = profile.kinds[kind]
        cluster = replace(cluster, **{name: getattr(cluster, name)[:1] * 3 for name in _BY_DEVICE})
        in_flight = (1,) * len(cluster) if profile.training else None
        period, proportion = self.period or profile.period, self.planning_proportion
        return anywhere(cost_table(layers, cluster, proportion, period, in_flight, tensors=profile.tensors))


def _shuffled(graph: ImportedGraph, planned: PlannedProfile, random: Random) -> list[int]:
    """A random order that keeps every layer in its stage, but for those of two neighbouring stages, which may mix."""
    partition = planned.bounded.plan.partition
    joined = random.randrange(1, len(partition))
    stage_of = {}
    for stage, (start, stop) in enumerate(pairwise(partition)):
        for layer in planned.order[start:stop]:
            stage_of[layer] = stage - (stage == joined)
    ranks = [random.random() for _ in range(graph.n_layers)]
    return order_by(graph.n_layers, graph.edges, lambda layer, _: (stage_of[layer], ranks[layer]))


class ProfiledModel(NamedTuple):
    """A model, the target that has its profile, and its devices."""

    graph: LayerGraph
    target: ProfileTarget


def profiled_model(
    files: ProfileFiles, model: str | None, precision: Precision, given: ModelInputs = AS_IN_FILE
) -> ProfiledModel:
    """Read the files of a profile.

    Args:
        files: of the profile.
        model: the ONNX file that was profiled, or a built-in name; None is the profile alone.
        precision: of the file.
        given: what is said of its inputs.

    Raises:
        BadInput: a file cannot be read, or is of another model.
    """
    importer = IMPORTERS.named(files.profile_format, "the format of a profile")
    if model is not None:
        return _joined(files, importer, model, precision, given)
    target = _target((kind, importer.read(file, details, size)) for kind, file, details, size in _each(files))
    return ProfiledModel(line_graph(target.recorded), target)


def profiled_devices(files: ProfileFiles) -> Cluster | None:
    """The devices of --devices; None where a cluster is named."""
    if files.devices is None or files.device_memory_gib is None or files.link_gb_per_s is None:
        return None
    memory_bytes = int(min(files.device_memory_gib * GIB, 2.0**62))
    devices = like_devices("device", files.devices, memory_bytes, Link(files.link_gb_per_s * 1e9, 0))
    return replace(devices, name=f"{files.devices}x{files.device_memory_gib:g}gib", target=PROFILED)


def _joined(
    files: ProfileFiles, importer: Importer, model: str, precision: Precision, given: ModelInputs
) -> ProfiledModel:
    """The layers of a model with the times of the profile.

    Raises:
        BadInput: the format has layers of its own.
    """
    from autoauto.graph.onnx_file import read_model

    join = importer.join
    if join is None:
        raise BadInput(f"a profile of {importer.name} has no MODEL, got {model}; leave it out")
    graph, proto = load_graph(model, given), read_model(find_model(model))
    nodes = [FileNode(node.name, node.op_type, tuple(node.output)) for node in proto.graph.node]
    file = ProfiledFile(graph, nodes, precision)
    target = _target((kind, join(path, memory, size, file)) for kind, path, memory, size in _each(files))
    return ProfiledModel(graph, target)


def _each(files: ProfileFiles) -> Iterator[tuple[str | None, Path, Path | None, int | None]]:
    """The kind of devices of every file where it is given, the file, its second file, and its batch size."""
    details = {(each.kind, each.batch_size): each.path for each in map(named_file, files.profile_details)}
    profiles = list(map(named_file, files.profile))
    known = {(each.kind, each.batch_size) for each in profiles}
    if details.keys() - known or len(details) < len(files.profile_details):
        raise BadInput(
            "every --profile-details is of one --profile, by the same kind and batch size; write B=FILE or "
            "KIND:B=FILE in both"
        )
    if len({each.kind is None for each in profiles}) > 1:
        without = next(each.path for each in profiles if each.kind is None)
        raise BadInput(f"either every --profile names its kind of devices or none, {without} has none; add KIND:")
    return ((kind, path, details.get((kind, size)), size) for kind, size, path in profiles)


def _target(read: Iterable[tuple[str | None, RecordedProfile]]) -> ProfileTarget:
    """The target of files, each with its kind of devices: one profile of all files of a kind."""
    files: dict[str | None, list[RecordedProfile]] = {}
    for kind, profile in read:
        files.setdefault(kind, []).append(profile)
    profiles = {kind: _joined_sizes(kind, each) for kind, each in files.items()}
    first, of_kinds = next(iter(profiles.values())), {kind: each for kind, each in profiles.items() if kind is not None}
    return ProfileTarget(first, of_kinds)


def _joined_sizes(kind: str | None, profiles: Sequence[RecordedProfile]) -> RecordedProfile:
    """One profile of the batch sizes of several files."""
    layers: dict[int, Layers] = {}
    for profile in profiles:
        for size, each in profile.layers_at.items():
            if size in layers:
                of, prefix = ("", "") if kind is None else (f" of {kind}", f"{kind}:")
                raise BadInput(
                    f"every batch size has one profile, got several of {size}{of}; write their batch sizes: --profile "
                    f"{prefix}8=FILE"
                )
            layers[size] = each
    return RecordedProfile(profiles[0].name, layers, _notes(profile.notes for profile in profiles))


def _notes(notes: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for each in notes for note in each))
