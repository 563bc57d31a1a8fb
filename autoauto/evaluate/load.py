"""Open a model and a cluster, given by name, by file or as values: `load_flow`, `read_cluster`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from onnx import ModelProto

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.cut import onnx_source
from autoauto.graph.load import load_graph
from autoauto.profile.cache import ProfileCache, local_cache
from autoauto.records.costs.correction import Estimator
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Period
from autoauto.records.layers import AS_IN_FILE, LayerGraph
from autoauto.records.model_inputs import model_inputs
from autoauto.records.plans.plan import CutAt
from autoauto.records.target import Target
from autoauto.records.units import Precision
from autoauto.space.constraint import Constraint
from autoauto.targets.clusters import load_cluster
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS, target_named
from autoauto.targets.target import NamedTarget, OptionValues, Request

Word = TypeVar("Word", bound=StrEnum)


def load_flow(
    model: str | Path | ModelProto | LayerGraph,
    cluster: str | Path | Mapping[str, object] | Cluster | None = None,
    target: str | Target = DEFAULT_TARGET,
    precision: str | None = None,
    planning_proportion: float | None = None,
    period: str | None = None,
    estimator: str = Estimator.REGRESSION,
    storage: str | None = None,
    constraints: tuple[Constraint, ...] = (),
    options: Mapping[str, object] | None = None,
    headroom: float = 0.0,
    cut_at: str = CutAt.LAYERS,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    batch_axes: Mapping[str, int | None] | None = None,
    states: Mapping[str, str] | None = None,
) -> Flow:
    """A model on a cluster, ready to be planned, measured or searched.

    Args:
        model: a built-in name, the path of an ONNX file, an ONNX model or a graph of layers.
        cluster: a built-in name, the path of a TOML file or of a JSON file, an IPUClusterInfo [auto-pipeline], or
            the cluster itself; by default "bow-2000", and this machine for the target "host".
        target: "ipu" for the cost model, "host" for processes of this machine, or a `Target` of your own.
        precision: "fp16", "fp32" or "fp8"; by default fp16, and fp32 on a host, which runs files in their own formats.
        planning_proportion, estimator, constraints: as in `Flow`.
        period: "barrier", "overlap", "serial" or "duplex" (`Period`); by default what the target's devices do.
        storage: the URL of a PostgreSQL server that caches compiled layers; by default a file of this machine does.
        options: those that only the target of this name has, for example `{"partials": "fp32"}` (`NamedTarget`).
        headroom: share of every device's memory that is left free.
        cut_at: "layers" or "blocks", where stages may begin (`CutAt`).
        shapes: lengths of axes that the file leaves open, by the name of an axis, `{"height": 320}`, or of an input,
            `{"images": (3, 320, 320)}`, then all but its batch axis.
        batch_axes: the axis of an input along which samples lie, None where it has none; by default it is looked for.
        states: inputs that an output feeds in the next call, with that output; by default those that names show.

    Raises:
        BadInput: no such model, cluster or target, one that cannot be read, a cluster or an option of another target,
            or a model without blocks where stages are to begin at them.
    """
    entry, options = _entry(target), options or {}
    chosen_period = None if period is None else _word("period", Period, period)
    values = {} if entry is None else entry.read_options(options)
    if entry is not None and chosen_period is not None and chosen_period not in entry.periods:
        raise BadInput(f"the period of --target {entry.name} is {', '.join(entry.periods)}, got {period}; leave it out")
    if entry is None and options:
        raise BadInput(f"options are for a target by name, got {', '.join(options)}; give them to your target")
    devices = _devices(cluster, entry, values).with_headroom(headroom)
    _check_no_speeds(devices)
    owner = TARGETS.get(devices.target)
    default = Precision.FP16 if owner is None else owner.default_precision
    known = Precision if entry is None else entry.precisions
    chosen = _word("precision", Precision, precision or default, known)
    given = model_inputs(shapes, batch_axes, states)
    if isinstance(model, LayerGraph) and given != AS_IN_FILE:
        raise BadInput("shapes, batch axes and states are for a model file, got a graph; give them to load_graph")
    graph = model if isinstance(model, LayerGraph) else load_graph(model, given)
    if entry is not None:
        source = onnx_source(str(model), given) if isinstance(model, str | Path) else None
        target, devices = entry.open(Request(graph, source, devices, chosen, values))
    assert not isinstance(target, str)
    return Flow(
        Setting(
            graph=graph,
            cluster=devices,
            target=target,
            precision=chosen,
            planning_proportion=planning_proportion,
            period=chosen_period,
            cache=_cache(storage),
            estimator=_word("estimator", Estimator, estimator),
            cut_at=_word("cut_at", CutAt, cut_at),
            constraints=constraints,
        )
    )


def read_cluster(name: str | Path, known_targets: Collection[str] = ()) -> Cluster:
    """A built-in cluster, "host" for this machine, a TOML file, or an IPUClusterInfo in a .json file [auto-pipeline].

    Where `known_targets` are given, a TOML file is for one of them, or for a profile.

    Raises:
        BadInput: no such cluster, or one that cannot be read.
    """
    for entry in TARGETS.values():
        if name == entry.default_cluster:
            return entry.devices(None, entry.read_options({}))
    if Path(name).suffix == ".json":
        from autoauto.profile.importers.auto_pipeline import cluster_from_auto_pipeline
        from autoauto.records.files.json import read_json

        return cluster_from_auto_pipeline(read_json(Path(name)), str(name))
    return load_cluster(str(name), known_targets)


def _check_no_speeds(cluster: Cluster) -> None:
    """Refuse speeds of kinds where each kind is compiled or measured by itself.

    Raises:
        BadInput: a kind has a speed.
    """
    if given := [kind.device.name for kind in cluster.kinds if kind.speed is not None]:
        raise BadInput(
            f"a speed is for --profile FILE, whose times it divides, {cluster.name} has one of {', '.join(given)} and "
            f"layers that --target {cluster.target} times on each kind; leave it out"
        )


def _word(name: str, kind: type[Word], given: str, known: Iterable[Word] | None = None) -> Word:
    words = list(kind if known is None else known)
    if given not in words:
        raise BadInput(f"{name} is one of {', '.join(words)}, got {given!r}")
    return kind(given)


def _entry(target: str | Target) -> NamedTarget | None:
    """The entry of a target by name; None for an object."""
    if not isinstance(target, str) and hasattr(target, "compile"):
        return None
    return target_named(target)


def _devices(
    cluster: str | Path | Mapping[str, object] | Cluster | None, entry: NamedTarget | None, options: OptionValues
) -> Cluster:
    """The cluster that was given, or the default of the target.

    Raises:
        BadInput: no such cluster, one that cannot be read, or one of another target.
    """
    if entry is None and cluster is None:
        raise BadInput("a target of your own needs a cluster of its devices, got none; give `cluster`")
    if entry is not None and cluster in (None, entry.default_cluster):
        return entry.devices(None, options)
    if isinstance(cluster, Mapping):
        from autoauto.profile.importers.auto_pipeline import cluster_from_auto_pipeline

        cluster = cluster_from_auto_pipeline(cluster)
    if not isinstance(cluster, str | Path | Cluster):
        raise BadInput(f"a cluster is a name, a file, an IPUClusterInfo or a Cluster, got {cluster!r:.60}")
    devices = cluster if isinstance(cluster, Cluster) else read_cluster(cluster, TARGETS if entry else ())
    if entry is None:
        return devices
    if devices.target != entry.name:
        instead = f"--target {devices.target}" if devices.target in TARGETS else "--profile FILE"
        raise BadInput(
            f"the cluster must be for --target {entry.name}, {devices.name} is for {devices.target!r}; try {instead}"
        )
    return entry.devices(devices, options)


def _cache(storage: str | None) -> ProfileCache:
    """The cache of compiled layers: on the server of the trials where there is one, else a file."""
    on_server = storage is not None and str(storage).startswith("postgresql")
    return ProfileCache(str(storage)) if on_server else local_cache()
