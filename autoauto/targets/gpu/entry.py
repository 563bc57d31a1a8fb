"""The target "gpu" by name: `GPU`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autoauto.engines.registry import ENGINES, equal_groups_note
from autoauto.records.costs.decoder import Decoder
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, DeviceKind, LinkedMachine, Period
from autoauto.records.target import Target
from autoauto.records.units import Precision, digits
from autoauto.targets.gpu.family_errors import error_notes
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.gpu.systems import (
    CLOCK_HZ,
    cluster_named,
    is_cluster_name,
    kind_names,
    machine_of,
    prices_of,
    system_named,
)
from autoauto.targets.gpu.workload import cached_share_of, drafts_of, traffic_notes, traffic_of, workload_notes
from autoauto.targets.target import NamedTarget, OptionValues, Request, TargetOption

DEFAULT_CLUSTER = "h100_sxm-8"


def _text(name: str, about: str, metavar: str) -> TargetOption:
    """An option that is a text, and None where it is not given."""
    return TargetOption(name, about, kind=str, default=None, metavar=metavar)


_OPTIONS = (
    _text(
        "measured",
        "a CSV file of configurations of the model with the TPOT, TTFT or tokens/s that somebody measured: forecasts "
        "are multiplied by one factor an engine, system and format, and carry its interval (columns: docs/gpu.md)",
        "FILE.csv",
    ),
    TargetOption(
        "accept_length",
        "speculative decoding: tokens that a sequence gets of a step in the mean, from 1; needs --draft-tokens; "
        "default 1",
        kind=float,
        default=1.0,
        metavar="L",
    ),
    TargetOption(
        "draft_tokens",
        "tokens that are proposed for a sequence in a step, which verifies them; default none",
        kind=int,
        default=0,
        metavar="N",
    ),
    TargetOption(
        "draft_cost",
        "the time of the draft model, as a share of the step that verifies; default 0",
        kind=float,
        default=0.0,
        metavar="SHARE",
    ),
    _text(
        "draft_model",
        "an EAGLE-3 head for the engine to load; by default the checkpoint's own layers of multi-token prediction",
        "NAME|FOLDER",
    ),
    TargetOption(
        "cached_share",
        "the share of the tokens of a prompt that the prefix cache serves, below 1; default 0",
        kind=float,
        default=0.0,
        metavar="SHARE",
    ),
    _text(
        "price",
        "US dollars of an hour of one GPU, by the name of its system, several with commas: h100_sxm=2.5,l40s=0.9; "
        "no price is built in (an entry price_per_hour of a cluster file says the same)",
        "GPU=USD",
    ),
    TargetOption(
        "concurrency",
        "requests in flight of the whole cluster, by clients that ask again as soon as they are answered: the batch "
        "size times stages and replicas is so much, or as much below it as divides evenly; default: any",
        kind=int,
        default=None,
        metavar="N",
    ),
    TargetOption(
        "pools",
        "of a search: 1 for replicas that compute prompts and answers, 2 for prefill workers and replicas that compute "
        "answers alone, 1,2 for the better of both (docs/pools.md); default 1, or what --prefill-workers says",
        kind=str,
        default="1",
        choices=("1", "2", "1,2"),
        metavar="1|2|1,2",
    ),
    TargetOption(
        "rate",
        "requests a second that arrive, whether others are answered or not: percentiles are simulated; default: "
        "clients that ask again when they were answered, or the rate of --trace (docs/traffic.md)",
        kind=float,
        default=None,
        metavar="R",
    ),
    _text(
        "arrival",
        "how they arrive: poisson, constant (evenly), or gamma:CV, times between them with that coefficient of "
        "variation; default poisson",
        "poisson|constant|gamma:CV",
    ),
    _text(
        "input_lengths",
        "tokens of prompts where they differ: 512:2048 for all between evenly, or p50=512,p90=2048; default all alike",
        "LENGTHS",
    ),
    _text("output_lengths", "the same of answers", "LENGTHS"),
    _text(
        "trace",
        "requests that were recorded, as CSV of Azure, BurstGPT or time_s,input_tokens,output_tokens, or Mooncake's "
        "JSONL, also .gz; with --rate as fast as that",
        "FILE",
    ),
    TargetOption(
        "for_rate",
        "the fewest GPUs that keep the bounds while so many requests a second arrive: --rate R --objective devices; "
        "bounds hold in every 5 minutes of --trace",
        kind=float,
        default=None,
        metavar="R",
    ),
    TargetOption("for_trace", "the same for the requests of --trace, as fast as they came", metavar="FILE"),
)


def _devices(given: Cluster | None, options: OptionValues) -> Cluster:
    """GPUs by system and number, or those of a description."""
    devices = cluster_named(DEFAULT_CLUSTER) if given is None else _described(given)
    prices = prices_of(options.get("price"))
    if not prices:
        return devices
    return devices.with_each(
        lambda device: replace(device, price_per_hour=prices.get(device.name, device.price_per_hour))
    )


_MOST_TIMES = 16
"""Parts of a GPU (MIG) have an eighth of its memory, and other cards of its kind up to twice as much."""
_MOST_SLOWER = 2
"""How many times slower than measured ones links may be before it is said."""


def _described(given: Cluster) -> Cluster:
    """A described cluster of GPUs, with the nodes and power limits of their systems where it has none.

    Raises:
        BadInput: a device is no system that has measured times, or has another memory or power by far.
    """
    for device in dict.fromkeys(given.devices):
        _check_units(device, given.name)
    if any(device.clock_hz != CLOCK_HZ for device in given.devices):
        raise BadInput(f"a cycle of a GPU is a nanosecond, so clock_hz must be 1e9 in {given.name}")
    given = given.with_each(_with_power_limit)
    if given.kinds:
        kinds: list[DeviceKind] = []
        for kind in given.kinds:  # all links between nodes are alike
            linked = kind.linked or LinkedMachine(machine_of(system_named(kind.device.name)), kind.device_link)
            kinds.append(replace(kind, linked=linked))
        return Cluster.of_kinds(given.name, given.target, kinds, given.topology)
    if given.machine is None:
        return replace(given, machine=machine_of(system_named(given.devices[0].name)))
    return given


def _check_units(device: Device, where: str) -> None:
    """Refuse a memory or a power that is of no such GPU, nor of a part of one: it is in another unit.

    Of a cluster of several kinds the GPUs without memory would be left out without a word.
    """
    system = system_named(device.name)
    pairs = {
        "memory_bytes": (device.memory_bytes, system.memory_bytes),
        "power_limit_w": (device.power_limit_w, system.power_limit_w),
    }
    for name, (given, whole) in pairs.items():
        if given and whole and not whole <= _MOST_TIMES * given <= _MOST_TIMES**2 * whole:
            raise BadInput(
                f"{name} of {device.name} must be within {_MOST_TIMES} times the {whole:,.0f} of its system, got "
                f"{given:,} in {where}; which unit is it in?"
            )


def _with_power_limit(device: Device) -> Device:
    if device.power_limit_w is not None:
        return device
    return replace(device, power_limit_w=system_named(device.name).power_limit_w)


def _cluster(name: str) -> Cluster | None:
    """The cluster called "h100_sxm-8" or "h100_sxm-8+l40s-8"; None for the path of a file."""
    from autoauto.targets.gpu.tables import check_installed

    check_installed()
    if Path(name).suffix or Path(name).is_file():
        return None
    parts = [cluster_named(part) for part in kind_names(name)]
    if len(parts) == 1:
        return parts[0]
    kinds = [_kind(part) for part in parts]
    if len({kind.device.name for kind in kinds}) < len(kinds):
        raise BadInput(f"each kind of GPUs stands once in a cluster, got {name}; add up the numbers of one kind")
    return Cluster.of_kinds("+".join(part.name for part in parts), GPU.name, kinds)


def _kind(part: Cluster) -> DeviceKind:
    """The GPUs of a system, which send to those of another kind as to another node."""
    device, system = part.devices[0], system_named(part.devices[0].name)
    linked = None if part.machine is None else LinkedMachine(part.machine, system.link())
    return DeviceKind(device, len(part), system.link(same_node=False), part.receive_links[0], linked=linked)


def _open(request: Request) -> tuple[Target, Cluster]:
    """The measured times of what a decoder computes; `evaluate/serving/measured.py` adds those of `--measured`."""
    from autoauto.targets.gpu.tables import check_installed
    from autoauto.targets.gpu.target import GpuTarget, measured_engines

    check_installed()
    assert request.decoder is not None
    names = tuple(dict.fromkeys(device.name for device in request.cluster.devices))
    systems = tuple(map(system_named, names))
    notes: list[str] = []
    if len(names) > 1:
        notes.append(equal_groups_note())
    notes += _link_notes(request.cluster)
    notes += _contradictions(request.decoder, names)
    notes += _stand_ins(request.decoder, names)
    notes += error_notes(request.decoder, measured_engines(systems), names)
    speculation, cached_share = drafts_of(request.options), cached_share_of(request.options)
    traffic = traffic_of(request.options)
    if traffic is not None and traffic.trace is not None and traffic.trace.knows_cached:
        cached_share = traffic.trace.means[2]
    notes += workload_notes(speculation, cached_share)
    notes += traffic_notes(traffic)
    target = GpuTarget(
        request.decoder,
        systems,
        tuple(notes),
        speculation=speculation,
        cached_share=cached_share,
        traffic=traffic,
        n_in_flight=request.options["concurrency"],
        pools=tuple(map(int, str(request.options["pools"]).split(","))),
    )
    return target, request.cluster


def _link_notes(cluster: Cluster) -> list[str]:
    """A sentence for every kind of GPUs whose links are slower than those over which its groups were measured."""
    rates: dict[str, list[float]] = {}
    for kind in cluster.kinds:
        if kind.linked is not None:
            rates[kind.device.name] = [kind.linked.link.bytes_per_s]
    if not cluster.kinds:
        rates[cluster.devices[0].name] = [link.bytes_per_s for link in cluster.receive_links[1:]]
    notes = []
    for name, of_kind in rates.items():
        measured = system_named(name).intra_node_bytes_per_s
        if of_kind and _MOST_SLOWER * max(of_kind) < measured:
            notes.append(
                f"the GPUs of a group exchange in the times measured on {name}, over links of "
                f"{digits(measured / 1e9, 4)} GB/s; the {digits(max(of_kind) / 1e9, 4)} GB/s of the file are of "
                "transfers between stages"
            )
    return notes


def _contradictions(decoder: Decoder, systems: Sequence[str]) -> list[str]:
    notes = []
    for engine in ENGINES.values():
        for rows in engine.measured.contradicted:
            if rows.system in systems and rows.is_of(decoder):
                notes.append(rows.note(engine.name))
    return notes


def _stand_ins(decoder: Decoder, systems: Sequence[str]) -> list[str]:
    notes = []
    for engine in ENGINES.values():
        for products in engine.kernel_exceptions.stand_ins:
            if any(products.is_asked(decoder, system) for system in systems):
                notes.append(products.note(engine.name))
    for engine in ENGINES.values():
        attention = engine.kernel_exceptions.attention
        if attention and any(attention.is_of(decoder, system) for system in systems):
            notes.append(attention.note(engine.name))
    return notes


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
    has_cluster=is_cluster_name,
)
