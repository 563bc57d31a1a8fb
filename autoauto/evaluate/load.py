"""Open a model and a cluster, given by name, by file or as values: `load_flow`, `read_cluster`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from autoauto.evaluate.flow import Flow
from autoauto.graph.cut.source import onnx_source
from autoauto.graph.load import load_graph
from autoauto.profile.store.cache import ProfileCache
from autoauto.records.constraint import Constraint
from autoauto.records.correction import Estimator
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.installation import cache_dir
from autoauto.records.layers import LayerGraph
from autoauto.records.profile import Cache, Target
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster

if TYPE_CHECKING:
    from onnx import ModelProto

Word = TypeVar("Word", bound=StrEnum)

DEFAULT_CLUSTERS = {"ipu": "bow-2000", "host": "host"}
"""The default cluster of every target that has a name."""


def load_flow(
    model: str | Path | ModelProto | LayerGraph,
    cluster: str | Path | Mapping[str, object] | Cluster | None = None,
    target: str | Target = "ipu",
    precision: str | None = None,
    planning_proportion: float | None = None,
    overlap: bool = False,
    estimator: str = Estimator.REGRESSION,
    storage: str | None = None,
    constraints: tuple[Constraint, ...] = (),
) -> Flow:
    """A model on a cluster, ready to be planned, measured or searched.

    Args:
        model: a built-in name, the path of an ONNX file, an ONNX model or a graph of layers.
        cluster: a built-in name, the path of a TOML file or of a JSON file, an IPUClusterInfo [auto-pipeline], or
            the cluster itself; by default "bow-2000", and this machine for the target "host".
        target: "ipu" for the cost model, "host" for processes of this machine, or a `Target` of your own.
        precision: "fp16", "fp32" or "fp8"; by default fp16, and fp32 on a host, whose files have formats of their own.
        planning_proportion, overlap, estimator, constraints: as in `Flow`.
        storage: the URL of a PostgreSQL server that caches compiled layers; by default a file of this machine does.

    Raises:
        BadInput: no such model, cluster or target, one that cannot be read, or a cluster of another target.
    """
    known = target in DEFAULT_CLUSTERS if isinstance(target, str) else hasattr(target, "compile")
    if not known:
        raise BadInput(f"a target is {', '.join(DEFAULT_CLUSTERS)} or an object that compiles layers, got {target!r}")
    opened = _cluster(cluster, target)
    default = Precision.FP32 if opened.target == "host" else Precision.FP16
    return Flow(
        graph=model if isinstance(model, LayerGraph) else load_graph(model),
        cluster=opened,
        target=_target(target, model) if isinstance(target, str) else target,
        precision=_word("precision", Precision, precision or default),
        planning_proportion=planning_proportion,
        overlap=overlap,
        cache=_cache(storage),
        estimator=_word("estimator", Estimator, estimator),
        constraints=constraints,
    )


def read_cluster(name: str | Path) -> Cluster:
    """A built-in cluster, "host" for this machine, a TOML file, or an IPUClusterInfo in a .json file [auto-pipeline].

    Raises:
        BadInput: no such cluster, or one that cannot be read.
    """
    if name == "host":
        from autoauto.targets.host.machine.detect import host_cluster

        return host_cluster()
    if Path(name).suffix == ".json":
        from autoauto.profile.importers.auto_pipeline import cluster_from_auto_pipeline
        from autoauto.profile.store.codec import read_json

        return cluster_from_auto_pipeline(read_json(Path(name)))
    return load_cluster(str(name))


def check_cluster(cluster: Cluster, target: str, cores_per_device: int = 1) -> None:
    """Refuse a cluster of another target, and a host cluster that does not match this machine.

    Raises:
        BadInput: the cluster is for another target, needs more cores than there are, or a cycle of it is no nanosecond.
    """
    if cluster.target != target:
        raise BadInput(
            f"the cluster must be for --target {target}, {cluster.name} is for {cluster.target!r}; "
            f"try --target {cluster.target}"
        )
    if target == "host":
        from autoauto.targets.host.machine.detect import usable_cores
        from autoauto.targets.host.machine.machine import CLOCK_HZ

        n_cores = len(cluster) * cores_per_device
        if n_cores > usable_cores():
            raise BadInput(f"{cluster.name} needs {n_cores} cores, this process may use {usable_cores()}")
        if any(device.clock_hz != CLOCK_HZ for device in cluster.devices):
            raise BadInput(f"a cycle of a host device is a nanosecond, so clock_hz must be 1e9 in {cluster.name}")


def _word(name: str, known: type[Word], given: str) -> Word:
    if given not in set(known):
        raise BadInput(f"{name} is one of {', '.join(known)}, got {given!r}")
    return known(given)


def _cluster(cluster: str | Path | Mapping[str, object] | Cluster | None, target: str | Target) -> Cluster:
    if cluster is None:
        if not isinstance(target, str):
            raise BadInput("a target of your own needs a cluster of its devices, got none; give `cluster`")
        cluster = DEFAULT_CLUSTERS[target]
    if isinstance(cluster, Mapping):
        from autoauto.profile.importers.auto_pipeline import cluster_from_auto_pipeline

        cluster = cluster_from_auto_pipeline(cluster)
    if not isinstance(cluster, str | Path | Cluster):
        raise BadInput(f"a cluster is a name, a file, an IPUClusterInfo or a Cluster, got {cluster!r:.60}")
    opened = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    if isinstance(target, str):
        check_cluster(opened, target)
    return opened


def _target(name: str, model: str | Path | ModelProto | LayerGraph) -> Target:
    if name == "ipu":
        from autoauto.targets.ipu.target import IpuTarget

        return IpuTarget()
    if not isinstance(model, str | Path):
        raise BadInput("the host runs a model's file, got a model without one; save it, and give its path")
    from autoauto.targets.host.target import HostTarget

    return HostTarget(onnx_source(str(model)))


def _cache(storage: str | None) -> Cache:
    """The cache of compiled layers: on the server of the trials where there is one, else a file."""
    if storage is None or not str(storage).startswith("postgresql"):
        return ProfileCache(cache_dir() / "profiles.db")
    from autoauto.profile.store.shared_cache import SharedCache

    return SharedCache(storage)
