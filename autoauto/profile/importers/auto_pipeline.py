"""JSON documents of Graphcore's auto_pipeline: ModelInfo, IPUClusterInfo, AutoPipelineConfiguration [auto-pipeline].

`read_profile` and the functions `..._from_auto_pipeline` read them, so that a profile that auto_pipeline took on real
IPUs can be planned here; `autoauto/exporters/graphcore/auto_pipeline.py` writes them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from autoauto.profile.codec import read_profile_record
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MAX_NUMBER, MAX_RATE, AnyWhole, Positive
from autoauto.records.files.json import from_plain, read_json
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.units import MIB, bytes_per_s

# IPUClusterInfo does not name the IPU that it describes; the 894 MB of its example are those of a Mk2 [ipu-hardware].
MK2_TILES = 1472
MK2_TILE_MEMORY_BYTES = 638_976


_Clock = Annotated[float, Meta(ge=1e6, le=MAX_RATE)]
_GBps = Annotated[float, Meta(ge=1e-9, le=MAX_RATE / 1e9)]
_Megabytes = Annotated[float, Meta(gt=0, le=MAX_NUMBER)]


class _Cycle(Struct):
    forward: AnyWhole
    backward: AnyWhole = 0


class _Memory(Struct, rename="camel"):
    shared: dict[str, AnyWhole]
    exclusive: dict[str, AnyWhole]
    inputs: AnyWhole
    outputs: AnyWhole
    max_temporary: AnyWhole
    cur_carry_over: AnyWhole
    cur_activation: AnyWhole = 0


class _LayerInfo(Struct):
    cycle: _Cycle
    memory: _Memory


class _ModelInfo(Struct, rename="camel"):
    layer_name: list[Any]
    layer_info: list[_LayerInfo]
    layer_type: list[Any] | None = None


class _Connection(Struct):
    send_gbps: _GBps = field(name="sendGBps")
    send_idle_cycle: AnyWhole = field(name="sendIdleCycle")
    recv_gbps: _GBps = field(name="recvGBps")
    recv_idle_cycle: AnyWhole = field(name="recvIdleCycle")


class _IpuClusterInfo(Struct):
    clock: _Clock
    memory: _Megabytes
    connection: list[_Connection]


class _AutoPipelineConfiguration(Struct, rename="camel"):
    memory_proportion: Positive


def read_profile(path: Path) -> ModelProfile:
    """Read a profile from a JSON file, a ModelInfo or our own form, which has a schema number.

    Raises BadInput if it is neither.
    """
    info = read_json(path)
    read = read_profile_record if isinstance(info, dict) and "schema" in info else profile_from_auto_pipeline
    return read(info, str(path))


def profile_from_auto_pipeline(info: object, where: str = "ModelInfo") -> ModelProfile:
    """Turn a ModelInfo into a profile; layers of one `layerName` are one layer called again, hence tied.

    Missing backward cycles and activations are 0, as for inference. Without `layerType` every name is a kind. `where`
    is the start of every error.

    Raises BadInput if a field is missing, of the wrong length or not a number from 0.
    """
    model = from_plain(_ModelInfo, info, where)
    names = list(map(str, model.layer_name))
    kinds = names if model.layer_type is None else list(map(str, model.layer_type))
    layers = model.layer_info
    if not len(names) == len(kinds) == len(layers) > 0:
        lengths = f"layerName {len(names)}, layerType {len(kinds)}, layerInfo {len(layers)}"
        raise BadInput(f"{where} needs lists of one length, at least 1, got {lengths}; give every layer an entry")
    n_calls = Counter(names)
    return ModelProfile(
        model="upstream",
        target="upstream",
        options=None,
        names=tuple(names),
        kinds=tuple(kinds),
        tied=tuple(name if n_calls[name] > 1 else None for name in names),
        layers=tuple(map(_layer_from, layers)),
    )


def cluster_from_auto_pipeline(info: object, where: str = "IPUClusterInfo") -> Cluster:
    """Turn an IPUClusterInfo, with its clock in Hz and its memory in MiB, into a cluster of Mk2-like IPUs.

    Raises BadInput for a field that is missing or not a positive number.
    """
    cluster = from_plain(_IpuClusterInfo, info, where)
    # Rounded only after the planning proportion [auto-pipeline]; whole numbers are integers, as in its files.
    memory_bytes: float = cluster.memory * MIB
    if memory_bytes == int(memory_bytes):
        memory_bytes = int(memory_bytes)
    device = Device("ipu", cluster.clock, memory_bytes, MK2_TILES, MK2_TILE_MEMORY_BYTES)
    ends = cluster.connection
    if not ends:
        raise BadInput(
            f"{where}: connection needs one entry per device, at least 1, got an empty list; describe every IPU"
        )
    return Cluster(
        name="upstream",
        target="ipu",
        devices=(device,) * len(ends),
        receive_links=tuple(Link(bytes_per_s(end.recv_gbps), int(end.recv_idle_cycle)) for end in ends),
        send_links=tuple(Link(bytes_per_s(end.send_gbps), int(end.send_idle_cycle)) for end in ends),
    )


def planning_proportion_from_auto_pipeline(configuration: object, where: str = "AutoPipelineConfiguration") -> float:
    """Read `memoryProportion` of an AutoPipelineConfiguration; `usePoplarEstimation` has no counterpart here.

    Raises BadInput if it is missing or not a positive number.
    """
    return from_plain(_AutoPipelineConfiguration, configuration, where).memory_proportion


def _layer_from(layer: _LayerInfo) -> LayerProfile:
    memory = layer.memory
    return LayerProfile(
        forward_cycles=int(layer.cycle.forward),
        backward_cycles=int(layer.cycle.backward),
        shared={key: int(n_bytes) for key, n_bytes in memory.shared.items()},
        exclusive={key: int(n_bytes) for key, n_bytes in memory.exclusive.items()},
        temporary_bytes=int(memory.max_temporary),
        carried_bytes=int(memory.cur_carry_over),
        input_bytes=int(memory.inputs),
        output_bytes=int(memory.outputs),
        activation_bytes=int(memory.cur_activation),
    )
