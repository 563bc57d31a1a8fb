"""Profiles of PipeEdge, `read_pipeedge`: layers of transformers, measured on several types of devices [pipeedge]."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Struct, field, yaml

from autoauto.evaluate.imported import CLOCK_HZ, like_devices
from autoauto.records.costs.profile import PARAMETER, LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import Positive, PositiveWhole, Whole
from autoauto.records.files.json import from_plain
from autoauto.records.hardware import Link, Period
from autoauto.records.units import MIB
from studies.published_graphs.graph import ImportedGraph, ImportedKind, ImportedProfile

_BYTES = {"torch.float32": 4, "torch.float16": 2, "torch.bfloat16": 2, "torch.float64": 8}


class _ModelTimes(Struct):
    batch_size: PositiveWhole
    dtype: str
    time_s: list[float]


class _DeviceType(Struct):
    bw_mbps: float = field(name="bw_Mbps")
    mem_mb: float = field(name="mem_MB")
    model_profiles: dict[str, list[_ModelTimes]] | None = None


class _Model(Struct):
    layers: Whole
    mem_mb: list[float] = field(name="mem_MB")
    parameters_in: Whole
    parameters_out: list[Whole]


def read_pipeedge(path: Path, model: str | None = None) -> ImportedGraph:
    """The layers of a model on all types of devices that it was measured on and that there are.

    Args:
        path: its folder, or one of the files in it: `device_types.yml`, `models.yml` and `devices.yml`.
        model: its name in `models.yml`; None is the first with layers.

    A device moves one micro-batch while it computes another; a link's Mbit is 1024**2 bits, as in PipeEdge.

    Raises:
        BadInput: a file is missing or has another form, or there is no such model or no device for it.
    """
    folder = path if path.is_dir() else path.parent
    types = from_plain(dict[str, _DeviceType], _read(folder / "device_types.yml"), str(folder / "device_types.yml"))
    models = from_plain(dict[str, _Model], _read(folder / "models.yml"), str(folder / "models.yml"))
    hosts = from_plain(dict[str, list[str]], _read(folder / "devices.yml"), str(folder / "devices.yml"))
    known = [name for name, description in models.items() if description.layers]
    name = model or next(iter(known), "")
    if name not in known:
        raise BadInput(f"{folder / 'models.yml'} has the models {', '.join(known)}, got {name!r}")
    measured = {kind: times[0] for kind, device in types.items() if (times := (device.model_profiles or {}).get(name))}
    n_devices = {kind: len(names) for kind, names in hosts.items() if names}
    notes = _match(measured, n_devices)
    kinds = tuple(
        _kind(folder, name, models[name], kind, types[kind], measured[kind], n_devices[kind])
        for kind in measured
        if kind in n_devices
    )
    if not kinds:
        raise BadInput(f"{folder}: no device that there is has a profile of {name}; measure it on one of them")
    profile = ImportedProfile(kinds, None, False, Period.DUPLEX, "s", CLOCK_HZ)
    n_layers = models[name].layers
    return ImportedGraph(n_layers, frozenset(pairwise(range(n_layers))), lambda _: profile, (f"model {name}", *notes))


def _match(measured: dict[str, _ModelTimes], n_devices: dict[str, int]) -> list[str]:
    """Give devices whose type has no profile that of the one type that has no devices; returns what was assumed.

    The files of PipeEdge call one type by two names.
    """
    without_profile = [kind for kind in n_devices if kind not in measured]
    without_devices = [kind for kind in measured if kind not in n_devices]
    if not without_profile:
        return []
    if len(without_profile) > 1 or len(without_devices) != 1:
        return [f"{', '.join(without_profile)} have no profile and are not used"]
    [unknown], [profiled] = without_profile, without_devices
    n_devices[profiled] = n_devices.pop(unknown)
    return [f"devices {unknown} have no profile; that of {profiled}, which has no devices, is theirs"]


def _kind(
    folder: Path, name: str, model: _Model, kind: str, device: _DeviceType, times: _ModelTimes, n_devices: int
) -> ImportedKind:
    lengths = {len(times.time_s), len(model.mem_mb), len(model.parameters_out), model.layers}
    if len(lengths) > 1:
        raise BadInput(f"{folder}: {name} needs times and sizes for each of {model.layers} layers, {kind} has others")
    if times.dtype not in _BYTES:
        raise BadInput(f"{folder}: a dtype is {', '.join(_BYTES)}, got {times.dtype}")
    from_plain(tuple[Positive, Positive], (device.bw_mbps, device.mem_mb), f"{folder}: bw_Mbps and mem_MB of {kind}")
    sample_bytes = _BYTES[times.dtype] * times.batch_size
    moved = [n * sample_bytes for n in (model.parameters_in, *model.parameters_out)]
    layers = tuple(
        LayerProfile(round(time_s * CLOCK_HZ), 0, {}, {PARAMETER: round(mib * MIB)}, sum(ends), 0, *ends, 0)
        for time_s, mib, ends in zip(times.time_s, model.mem_mb, pairwise(moved), strict=True)
    )
    numbers = tuple(str(number) for number in range(1, len(layers) + 1))
    profile = ModelProfile(name, f"pipeedge {kind}", None, numbers, numbers, (None,) * len(layers), layers)
    link = Link(device.bw_mbps * MIB / 8, 0)
    return ImportedKind(profile, like_devices(kind, n_devices, device.mem_mb * MIB, link))


def _read(path: Path) -> Any:
    try:
        return yaml.decode(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise BadInput(f"{path}: it must be a file of PipeEdge, {str(error).splitlines()[0]}") from error
