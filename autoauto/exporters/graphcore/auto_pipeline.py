"""The files of Graphcore's auto_pipeline [auto-pipeline].

ModelInfo, IPUClusterInfo and AutoPipelineConfiguration are what it plans from; the partition is what it prints: the
first layer of every stage and the number of all layers, with "_" between them.
`autoauto/profile/importers/auto_pipeline.py` reads them.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from math import isinf
from pathlib import Path
from typing import Any

from autoauto.exporters.exporter import Check, Deployment, Exporter
from autoauto.exporters.graphcore.ipu_plan import ipu_plan, not_run
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.units import MIB, gbps
from autoauto.space.table import flat_value

MODEL, CLUSTER, CONFIGURATION, PARTITION = "model_info.json", "cluster_info.json", "config.json", "partition.txt"


def write(deployment: Deployment, folder: Path) -> None:
    """Write the inputs of auto_pipeline for one pipeline, and the partition."""
    plan = ipu_plan(deployment, "auto_pipeline")
    if n_io_tiles := flat_value(deployment.knobs, "io_tiles"):
        raise BadInput(f"auto_pipeline knows no transfers that overlap, got io_tiles {n_io_tiles}; try --io-tiles 0")
    pipeline = deployment.cluster.first(len(plan.stages))
    documents = {
        MODEL: profile_to_auto_pipeline(deployment.profile()),
        CLUSTER: cluster_to_auto_pipeline(pipeline),
        CONFIGURATION: planning_proportion_to_auto_pipeline(deployment.planning_proportion),
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / PARTITION).write_text("_".join(map(str, plan.partition)) + "\n", encoding="utf-8")


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Read the files back, and check the partition by the rules of auto_pipeline."""
    model, cluster = (json.loads((folder / name).read_text(encoding="utf-8")) for name in (MODEL, CLUSTER))
    partition = list(map(int, (folder / PARTITION).read_text(encoding="utf-8").split("_")))
    names = model["layerName"]
    ordered = partition == sorted(set(partition)) and (partition[0], partition[-1]) == (0, len(names))
    detail = f"{len(partition) - 1} stages, {len(cluster['connection'])} IPUs, {len(names)} layers"
    yield Check(
        "every layer is in one stage, every stage on one IPU",
        ordered and len(partition) - 1 == len(cluster["connection"]),
        detail,
    )
    stages: dict[str, set[int]] = defaultdict(set)
    for index, name in enumerate(names):
        stages[name].add(bisect_right(partition, index))
    split = [name for name, numbers in stages.items() if len(numbers) > 1]
    yield Check("layers that share a variable share a stage", not split, f"{len(split)} do not")
    same = partition == list(deployment.plan.partition)
    yield Check("the partition is that of the plan", same, "_".join(map(str, partition)))
    yield from not_run("auto_pipeline")


def profile_to_auto_pipeline(profile: ModelProfile) -> dict[str, Any]:
    """Write a profile as a ModelInfo; tied layers get one `layerName`, all others a name of their own."""
    return {
        "layerName": _names_by_tie(profile),
        "layerType": list(profile.kinds),
        "layerInfo": list(map(_layer_to, profile.layers)),
    }


def cluster_to_auto_pipeline(cluster: Cluster) -> dict[str, Any]:
    """Write a cluster as an IPUClusterInfo, which cannot express unlike devices and infinitely fast links."""
    kinds = {(device.clock_hz, device.memory_bytes) for device in cluster.devices}
    if len(kinds) > 1:
        raise BadInput(f"IPUClusterInfo needs devices of one clock and memory, {cluster.name} has {len(kinds)} kinds")
    if any(isinf(link.bytes_per_s) for link in (*cluster.receive_links, *cluster.send_links)):
        raise BadInput(f"IPUClusterInfo needs links of finite speed, {cluster.name} has an infinitely fast one")
    connections: list[dict[str, float]] = []
    for receive, send in zip(cluster.receive_links, cluster.send_links, strict=True):
        connection = {
            "sendGBps": _plain(gbps(send.bytes_per_s)),
            "sendIdleCycle": send.idle_cycles,
            "recvGBps": _plain(gbps(receive.bytes_per_s)),
            "recvIdleCycle": receive.idle_cycles,
        }
        connections.append(connection)
    device = cluster.devices[0]
    return {
        "clock": _plain(device.clock_hz),
        "memory": _plain(device.memory_bytes / MIB),
        "connection": connections,
    }


def planning_proportion_to_auto_pipeline(planning_proportion: float) -> dict[str, Any]:
    """Write an AutoPipelineConfiguration; cycles here are a compiler's estimate.

    >>> planning_proportion_to_auto_pipeline(0.85)
    {'memoryProportion': 0.85, 'usePoplarEstimation': True}
    """
    return {"memoryProportion": planning_proportion, "usePoplarEstimation": True}


def _layer_to(layer: LayerProfile) -> dict[str, Any]:
    return {
        "cycle": {
            "forward": layer.forward_cycles,
            "backward": layer.backward_cycles,
            "total": layer.forward_cycles + layer.backward_cycles,
        },
        "memory": {
            "shared": dict(layer.shared),
            "exclusive": dict(layer.exclusive),
            "inputs": layer.input_bytes,
            "outputs": layer.output_bytes,
            "curActivation": layer.activation_bytes,
            "maxTemporary": layer.temporary_bytes,
            "curCarryOver": layer.carried_bytes,
        },
    }


def _names_by_tie(profile: ModelProfile) -> list[str]:
    """One name for every tie, that of its first layer, with the index of that layer where the name is taken."""
    ties = [index if tie is None else tie for index, tie in enumerate(profile.tied)]  # a free layer is a tie of one
    names: dict[int | str, str] = {}
    taken: set[str] = set()
    for index, tie in enumerate(ties):
        if tie not in names:
            name = profile.names[index]
            while name in taken:
                name = f"{name}#{index}"
            names[tie] = name
            taken.add(name)
    return [names[tie] for tie in ties]


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) else value


EXPORTER = Exporter(
    name="auto-pipeline",
    summary="auto_pipeline, its profile, cluster, configuration and partition",
    apply=(
        "# needs ipu_tensorflow_addons; partition.txt counts the layers of model_info.json",
        "partition.get_model_partition_cost(model_info, cluster_info, pipe_partition)",
        "partition.get_auto_pipeline_partition_by_cycle_and_transfer(model_info, cluster_info, config)",
    ),
    write=write,
    check=check,
)
