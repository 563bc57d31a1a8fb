"""What importers make of profiles of other programs: `ImportedGraph`, and `ImportedProfile` with layers in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.exchange import TensorUse
from autoauto.records.hardware import MAX_DEVICES, Cluster, Device, Link, Period
from autoauto.records.profile import ModelProfile

CLOCK_HZ = 1e9
"""Imported times become nanoseconds: cycles of this clock."""


class ImportedKind(NamedTuple):
    """One kind of device: the layers on it, and all devices of the kind."""

    profile: ModelProfile
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class ImportedProfile:
    """Layers in one order, and the devices to divide them among.

    Attributes:
        kinds: the kinds of devices; each has a profile of the same layers.
        tensors: what layers exchange where any device reaches any other; None where neighbours pass all on.
        training: whether neighbours exchange gradients, too.
        period: what the devices do at the same time, by the program that the profile is of.
        unit: of the times in the file.
        cycles_per_unit: cycles of the reference clock in a unit of time.
    """

    kinds: tuple[ImportedKind, ...]
    tensors: tuple[TensorUse, ...] | None
    training: bool
    period: Period
    unit: str
    cycles_per_unit: float


@dataclass(frozen=True, slots=True)
class ImportedGraph:
    """The layers of a file, which may run in any order that its edges allow.

    Attributes:
        n_layers: how many layers there are.
        edges: pairs of layers, of which the first comes before the second; without cycles.
        in_order: the profile with its layers in an order.
        notes: what was assumed about the file, one sentence each.
    """

    n_layers: int
    edges: frozenset[tuple[int, int]]
    in_order: Callable[[Sequence[int]], ImportedProfile]
    notes: tuple[str, ...] = ()


def like_devices(name: str, n_devices: int, memory_bytes: float, link: Link) -> Cluster:
    """A line of equal devices; the host's links are like those between them.

    Raises:
        BadInput: they are too many.
    """
    if n_devices > MAX_DEVICES:
        raise BadInput(f"a cluster has at most {MAX_DEVICES} devices, got {n_devices}; try fewer")
    device = Device(name, CLOCK_HZ, memory_bytes, n_tiles=1, tile_memory_bytes=int(memory_bytes))
    links = (link,) * n_devices
    return Cluster(name, "imported", (device,) * n_devices, links, links)
