"""The target "gpu" by name: `GPU`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autoauto.engines.registry import ENGINES, equal_groups_note
from autoauto.records.costs.decoder import Decoder
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, DeviceKind, LinkedMachine, Period
from autoauto.records.target import Target
from autoauto.records.units import Precision
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.target import NamedTarget, OptionValues, Request, TargetOption

DEFAULT_CLUSTER = "h100_sxm-8"
_OPTIONS = (
    TargetOption(
        "measured",
        "a CSV file of configurations of the model with the TPOT, TTFT or tokens/s that somebody measured: forecasts "
        "are multiplied by one factor an engine, system and format, and carry its interval (columns: docs/gpu.md)",
        kind=str,
        default=None,
        metavar="FILE.csv",
    ),
)


def _devices(given: Cluster | None, options: OptionValues) -> Cluster:
    """GPUs by system and number, or those of a description.

    Raises:
        BadInput: a device of the description is no system that has measured times.
        MissingExtra: the package of measured times is not installed.
    """
    from autoauto.targets.gpu.systems import CLOCK_HZ, cluster_named, machine_of, system_named

    if given is None:
        return cluster_named(DEFAULT_CLUSTER)
    for name in dict.fromkeys(device.name for device in given.devices):
        system_named(name)
    if any(device.clock_hz != CLOCK_HZ for device in given.devices):
        raise BadInput(f"a cycle of a GPU is a nanosecond, so clock_hz must be 1e9 in {given.name}")
    if given.kinds:
        return Cluster.of_kinds(given.name, given.target, list(map(_in_nodes, given.kinds)), given.topology)
    if given.machine is None:
        return replace(given, machine=machine_of(system_named(given.devices[0].name)))
    return given


def _in_nodes(kind: DeviceKind) -> DeviceKind:
    """GPUs whose nodes are not said stand in those of their system, all linked alike."""
    from autoauto.targets.gpu.systems import machine_of, system_named

    if kind.linked is not None:
        return kind
    return replace(kind, linked=LinkedMachine(machine_of(system_named(kind.device.name)), kind.device_link))


def _cluster(name: str) -> Cluster | None:
    """GPUs by system and number, or of several kinds as in "h100_sxm-8+l40s-8"; None for a file.

    Raises:
        BadInput: it is neither.
        MissingExtra: the package of measured times is not installed.
    """
    from autoauto.targets.gpu.systems import cluster_named, kind_names
    from autoauto.targets.gpu.tables import check_installed

    check_installed()
    if Path(name).suffix or Path(name).is_file():
        return None
    parts = list(map(cluster_named, kind_names(name)))
    if len(parts) == 1:
        return parts[0]
    kinds = list(map(_kind, parts))
    if len({kind.device.name for kind in kinds}) < len(kinds):
        raise BadInput(f"each kind of GPUs stands once in a cluster, got {name}; add up the numbers of one kind")
    return Cluster.of_kinds(name, GPU.name, kinds)


def _kind(part: Cluster) -> DeviceKind:
    """The GPUs of a system, which send to those of another kind as to another node."""
    from autoauto.targets.gpu.systems import system_named

    device, system = part.devices[0], system_named(part.devices[0].name)
    linked = None if part.machine is None else LinkedMachine(part.machine, system.link())
    return DeviceKind(device, len(part), system.link(same_node=False), part.receive_links[0], linked=linked)


def _open(request: Request) -> tuple[Target, Cluster]:
    """The measured times of what a decoder computes; `evaluate/serving/measured.py` adds those of `--measured`.

    Raises:
        MissingExtra: the package of measured times is not installed.
    """
    from autoauto.targets.gpu.systems import system_named
    from autoauto.targets.gpu.tables import check_installed
    from autoauto.targets.gpu.target import GpuTarget

    check_installed()
    assert request.decoder is not None
    names = tuple(dict.fromkeys(device.name for device in request.cluster.devices))
    notes: tuple[str, ...] = (equal_groups_note(),) if len(names) > 1 else ()
    notes += _contradictions(request.decoder, names)
    return GpuTarget(request.decoder, tuple(map(system_named, names)), notes), request.cluster


def _contradictions(decoder: Decoder, systems: Sequence[str]) -> tuple[str, ...]:
    """A sentence for every group of which forecasts of a decoder may be asked, and that measured rows contradict."""
    every = ((engine.name, rows) for engine in ENGINES.values() for rows in engine.contradicted)
    return tuple(rows.note(name) for name, rows in every if rows.system in systems and rows.is_of(decoder))


GPU = NamedTarget(
    name="gpu",
    summary="decoders on GPUs, by measured times of kernels (extra gpu)",
    default_cluster=DEFAULT_CLUSTER,
    default_precision=Precision.BF16,
    options=_OPTIONS,
    periods=(Period.SERIAL,),
    devices=_devices,
    open=_open,
    sessions=(GpuSession,),
    precisions=(Precision.BF16,),
    serves_decoders=True,
    cluster_named=_cluster,
)
