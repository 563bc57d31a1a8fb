"""GPUs and the links between them, `GpuSystem`, and clusters of them by name: `cluster_named("h100_sxm-6")`.

Figures come from a YAML file for each system in the package of extra gpu, which is read and not run [aiconfigurator].
Memory is the part that a program can have, which is less than a GPU is sold with: `usable_bytes`. `prices_of` reads the
prices that a user gives.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from autoauto.engines.engine import Engine
from autoauto.engines.rules import GroupSplit
from autoauto.records.errors import BadInput, Unsupported, did_you_mean, missing_extra
from autoauto.records.hardware import MAX_DEVICES, Cluster, Device, Link, Machine
from autoauto.records.installation import gpu_tables_dir
from autoauto.records.units import GIB, MIB

TARGET = "gpu"
CLOCK_HZ = 1e9
"""A cycle of a GPU is a nanosecond: its costs are times."""
_NAME = re.compile(r"(?P<system>[a-z0-9_]+)-(?P<n_gpus>[1-9][0-9]{0,5}(\+[1-9][0-9]{0,5})*)")
_NUMBER_FIRST = re.compile(r"(?P<n_gpus>[1-9][0-9]{0,5}) ?x ?(?P<system>[a-z][a-z0-9_]*)")
"""The form that people write: 8xH100."""
_COMMON = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s")
"""Systems whose names are known without the package."""
_COMMON_FORM = "_sxm"
"""The form of the module that a name without a form means."""
_NEXT_KIND = re.compile(r"\+(?=[^0-9+]*[a-z])")
"""The sign between two systems; before a number it separates nodes."""
_SHOWN_MIB = {"h100_sxm": 81_559, "h100_pcie": 81_559, "h200_sxm": 143_771, "b200_sxm": 183_359, "l4": 23_034}
"""Total memory by nvidia-smi, of systems for which the package has the figure of the data sheet."""
_DRIVER_BYTES, _DRIVER_SHARE = 0.4 * GIB, 0.0017
"""Memory of the driver, as part of the total by nvidia-smi: 0.42 to 0.70 GiB of 22 to 179 GiB in logs of engines."""


def usable_bytes(shown_bytes: float) -> int:
    """The part of the memory shown by nvidia-smi that a program can have, as in `torch.cuda.mem_get_info`; whole MiB.

    >>> [round(usable_bytes(mib * MIB) / GIB, 2) for mib in (23_034, 81_559, 143_771, 183_359)]
    [22.06, 79.11, 139.76, 178.36]
    """
    return int((shown_bytes * (1 - _DRIVER_SHARE) - _DRIVER_BYTES) // MIB) * MIB


@dataclass(frozen=True, slots=True)
class GpuSystem:
    """GPUs of one kind in nodes.

    Attributes:
        name: its name in the package, for example "h100_sxm".
        memory_bytes: of one GPU, that a program can have.
        intra_node_bytes_per_s: rate from one GPU to another of its node, one way.
        inter_node_bytes_per_s: rate to a GPU of another node.
        host_bytes_per_s: rate from the host, one way.
        latency_s: of a message between GPUs.
        engines: those whose kernels were measured on it.
        power_limit_w: the most that a GPU draws, in watts; None where the package does not say.
        n_gpus_per_rack: GPUs of a rack whose nodes are linked as fast as the GPUs of a node; 0 if there are none.
    """

    name: str
    memory_bytes: int
    n_gpus_per_node: int
    intra_node_bytes_per_s: float
    inter_node_bytes_per_s: float
    host_bytes_per_s: float
    latency_s: float
    engines: tuple[str, ...]
    power_limit_w: float | None = None
    n_gpus_per_rack: int = 0

    def link(self, *, same_node: bool = True) -> Link:
        """The link between two GPUs."""
        rate = self.intra_node_bytes_per_s if same_node else self.inter_node_bytes_per_s
        return Link(rate, round(self.latency_s * CLOCK_HZ))

    def links_between(self, n_stages: int, tensor_parallel: int) -> tuple[Link, ...]:
        """The links between the stages of groups in a line, node after node; a group lies inside a node."""
        n_groups = max(1, self.n_gpus_per_node // tensor_parallel)
        return tuple(self.link(same_node=bool(after % n_groups)) for after in range(1, n_stages))

    @property
    def device(self) -> Device:
        """One GPU."""
        n_bytes = self.memory_bytes
        return Device(self.name, CLOCK_HZ, n_bytes, 1, n_bytes, fp8=True, power_limit_w=self.power_limit_w)


def system_names() -> tuple[str, ...]:
    """The systems that the package describes and has measured times of; raises MissingExtra if it is not installed."""
    names = []
    for path in sorted(_folder().glob("*.yaml")):
        if "node:" in path.read_text(encoding="utf-8") and _engines_measured(path.stem):
            names.append(path.stem)
    return tuple(names)


def _engines_measured(system: str) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in (_folder() / "data" / system / "gemm").glob("*") if path.is_dir()))


@cache
def system_named(name: str) -> GpuSystem:
    """The figures of a system; raises BadInput if none has this name, and MissingExtra without the package."""
    known = system_names()
    if name not in known:
        raise BadInput(
            f"GPUs are {', '.join(known)}, got {name!r:.60}; {did_you_mean(name, known, 'write one of them')}"
        )
    import yaml  # of extra gpu

    content = yaml.safe_load((_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
    return _system(name, content)


def is_cluster_name(name: str) -> bool:
    """True if a name has the form "h100_sxm-8", of known systems."""
    known = _COMMON if gpu_tables_dir() is None else system_names()
    matches = [_NAME.fullmatch(part) for part in kind_names(name)]
    return all(match and _whole_name(match["system"], known) in known for match in matches)


def _whole_name(system: str, known: Collection[str]) -> str:
    """A system by the beginning of its name, "h100" for "h100_sxm".

    >>> _whole_name("h100", ["h100_pcie", "h100_sxm"]), _whole_name("h1000", ["h100_sxm"])
    ('h100_sxm', 'h1000')
    """
    whole = f"{system}{_COMMON_FORM}"
    return whole if system not in known and whole in known else system


def kind_names(name: str) -> list[str]:
    """The clusters of single systems whose names are joined to one; "8xH100" is "h100-8".

    >>> kind_names("h100_sxm-6+6+l40s-8"), kind_names("8xH100+4xL40S")
    (['h100_sxm-6+6', 'l40s-8'], ['h100-8', 'l40s-4'])
    """
    return _NEXT_KIND.split(_NUMBER_FIRST.sub(r"\g<system>-\g<n_gpus>", name.lower()))


def cluster_named(name: str) -> Cluster:
    """Like GPUs by system and number, for example "h100_sxm-6": a line of single GPUs, node after node.

    Nodes have as many GPUs as is usual for the system, or as the name says: "h100_sxm-6+6" is two nodes of six.

    Raises:
        BadInput: the name is no system and number, or its nodes cannot be.
        MissingExtra: the package is not installed.
    """
    match = _NAME.fullmatch(name)
    nodes = sorted(map(int, match["n_gpus"].split("+")), reverse=True) if match else []
    if match is None or sum(nodes) > MAX_DEVICES:
        known = ", ".join(system_names())
        raise BadInput(
            f"a cluster of GPUs is SYSTEM-N, for example h100_sxm-8, of {known}, or SYSTEM-N+N with the GPUs of every "
            f"node; got {name!r:.60}"
        )
    system = system_named(_whole_name(match["system"], system_names()))
    name = f"{system.name}-{match['n_gpus']}"
    if len(nodes) == 1:
        return cluster_of(system, nodes[0], name)
    if nodes[0] > system.n_gpus_per_node or len(set(nodes[:-1])) > 1:
        raise BadInput(
            f"nodes of {system.name} have up to {system.n_gpus_per_node} GPUs, as many in each but one that may have "
            f"fewer, got {name!r:.60}; try {system.name}-{sum(nodes)}"
        )
    return cluster_of(system, sum(nodes), name, nodes[0])


def prices_of(text: str | None) -> Mapping[str, float]:
    """Read US dollars of an hour of one GPU by the names of systems, which need not be in the cluster.

    None is built in: prices differ by place, term and month.

    Raises:
        BadInput: it is no such list, a system is unknown or named twice, or a price is not above 0.
        MissingExtra: the package of measured times is not installed.
    """
    if not text:
        return {}
    prices: dict[str, float] = {}
    for part in text.split(","):
        name, _, price = part.partition("=")
        system = system_named(_whole_name(name.strip().lower(), system_names())).name
        usd = _number(price)
        if usd is None or system in prices:
            raise BadInput(
                f"--price is GPU=USD with a number above 0, every system once, for example h100_sxm=2.5,l40s=0.9, got "
                f"{text!r:.80}"
            )
        prices[system] = usd
    return prices


def _number(text: str) -> float | None:
    """A number above 0; None of another text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value > 0 else None


def machine_of(system: GpuSystem, n_gpus: int | None = None) -> Machine:
    """A node of a system, of as many GPUs as is usual for it or as are given."""
    size = system.n_gpus_per_node if n_gpus is None else n_gpus
    return Machine(size, system.host_bytes_per_s * size)


def cluster_of(system: GpuSystem, n_gpus: int, name: str, n_each: int | None = None) -> Cluster:
    """A line of GPUs in nodes of `n_each`; the host exchanges tokens with the first and the last, in no time."""
    machine = machine_of(system, n_each)
    between = [system.link(same_node=bool(after % machine.n_devices)) for after in range(1, n_gpus)]
    host = Link(system.host_bytes_per_s, 0)
    return Cluster(
        name=name,
        target=TARGET,
        devices=(system.device,) * n_gpus,
        receive_links=(host, *between),
        send_links=(*between, host),
        machine=machine,
    )


def check_group(system: GpuSystem, engine: Engine, split: GroupSplit) -> None:
    """Make sure that kernels of the engine were measured, and that a group lies inside a node, or is of whole ones.

    Whole nodes are for ranks of the attention, each of which lies inside a node, or for any group inside a rack.

    Raises:
        Unsupported: they were not, or it does not.
    """
    if engine.kernel_times not in system.engines:
        raise Unsupported(
            f"{system.name} has measured times of {', '.join(system.engines) or 'no engine'}, got {engine.name}"
        )
    n_gpus, size = split.n_gpus, system.n_gpus_per_node
    if 1 <= n_gpus <= size:
        return
    has_ranks = split.attention_data_parallel > 1 and size % split.tensor_parallel == 0
    is_in_rack = 1 <= n_gpus <= system.n_gpus_per_rack
    if n_gpus % size or not (has_ranks or is_in_rack):
        raise Unsupported(f"a group lies inside a node, which has {size} GPUs in {system.name}; got {split}")


def _folder() -> Path:
    folder = gpu_tables_dir()
    if folder is None:
        raise missing_extra("the target gpu", "gpu")
    return folder / "systems"


def _system(name: str, content: dict[str, Any]) -> GpuSystem:
    gpu, node = content["gpu"], content["node"]
    has_racks = float(node["inter_node_bw"]) >= float(node["intra_node_bw"])
    shown_bytes = _SHOWN_MIB[name] * MIB if name in _SHOWN_MIB else float(gpu["mem_capacity"])
    return GpuSystem(
        name=name,
        memory_bytes=usable_bytes(shown_bytes),
        n_gpus_per_node=int(node["num_gpus_per_node"]),
        intra_node_bytes_per_s=float(node["intra_node_bw"]),
        inter_node_bytes_per_s=float(node["inter_node_bw"]),
        host_bytes_per_s=float(node["pcie_bw"]),
        latency_s=float(node["p2p_latency"]),
        engines=_engines_measured(name),
        power_limit_w=float(gpu["power"]) if "power" in gpu else None,
        n_gpus_per_rack=int(node.get("num_gpus_per_rack", 0)) if has_racks else 0,
    )
