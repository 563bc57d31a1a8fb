"""The replicas of a plan that generates text, each with its GPUs, port and blocks: `served_replicas`.

machine 0   |g0 g1|g2 g3|g4 g5|   replica 0: a stage is a group of GPUs, their order is that of the stages
machine 1   |g0 g1|g2 g3|g4 g5|   replica 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

from autoauto.exporters.exporter import Deployment
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.plans.plan import Plan
from autoauto.targets.gpu.session import GpuSession

FIRST_PORT = 8000
"""Of the first replica; the others have the next."""


class GpuGroup(NamedTuple):
    """Neighbouring GPUs of a machine that are one device of a pipeline.

    Attributes:
        machine: of the GPUs, counted over the cluster.
        kind: the name of the GPUs.
        gpus: their numbers in the machine.
    """

    machine: int
    kind: str
    gpus: tuple[int, ...]


class MachinePart(NamedTuple):
    """The GPUs of a replica that are of one machine.

    Attributes:
        machine: counted over the cluster.
        kind: the name of its GPUs.
        gpus: their numbers in the machine, in the order of the stages.
    """

    machine: int
    kind: str
    gpus: tuple[int, ...]


class ServedReplica(NamedTuple):
    """A replica: a process of an engine on every machine that it has GPUs of, mostly one.

    Attributes:
        number: of the replica.
        plan: which of the plans of a `Plan` it has.
        parts: its GPUs, machine after machine in the order of the stages.
        port: on which its first machine answers.
        blocks: of every stage; the first stage has the embedding, too, the last one norm and head.
    """

    number: int
    plan: int
    parts: tuple[MachinePart, ...]
    port: int
    blocks: tuple[int, ...]


def served_replicas(deployment: Deployment, to: str, *, spans_machines: bool) -> tuple[ServedReplica, ...]:
    """All replicas, in the order of their first devices.

    Raises:
        BadInput: the GPUs of a replica are of several machines, and the engine cannot have them so.
    """
    groups = groups_of(deployment.cluster, gpu_session(deployment).tensor_parallel)
    replicas = []
    for number, (_, plan, members) in enumerate(sorted(_placed(deployment, groups))):
        parts = _parts(members)
        _check_parts(parts, to, spans_machines=spans_machines)
        blocks = n_blocks_of(deployment, deployment.plan.plans[plan])
        replicas.append(ServedReplica(number, plan, parts, FIRST_PORT + number, blocks))
    return tuple(replicas)


def gpu_session(deployment: Deployment) -> GpuSession:
    """How a group of GPUs serves the decoder of a deployment."""
    session = deployment.knobs.session
    assert isinstance(session, GpuSession)
    return session


def n_blocks_of(deployment: Deployment, plan: Plan) -> tuple[int, ...]:
    """The blocks of every stage of a plan."""
    starts = [block.layers.start for block in deployment.graph.blocks]
    return tuple(sum(start <= first < stop for first in starts) for start, stop in pairwise(plan.partition))


def groups_of(cluster: Cluster, n_each: int) -> tuple[GpuGroup, ...]:
    """The groups of a cluster, in the order of the devices that a plan counts.

    Where a cluster does not say what a machine is, GPUs of a kind fill machines of the size that this kind has.
    """
    grouped = cluster.grouped(n_each)
    if cluster.machine is not None:
        ids = map(grouped.machine_device, range(len(grouped)))
        return tuple(
            GpuGroup(machine, device.name, _gpus(number * n_each, n_each))
            for (machine, number), device in zip(ids, grouped.devices, strict=True)
        )
    return tuple(_by_kind(grouped, n_each))


def _by_kind(grouped: Cluster, n_each: int) -> Iterator[GpuGroup]:
    from autoauto.targets.gpu.systems import system_named  # of extra gpu

    n_gpus: Counter[str] = Counter()
    machines: dict[tuple[str, int], int] = {}
    for device in grouped.devices:
        machine, first = divmod(n_gpus[device.name], system_named(device.name).n_gpus_per_node)
        n_gpus[device.name] += n_each
        number = machines.setdefault((device.name, machine), len(machines))
        yield GpuGroup(number, device.name, _gpus(first, n_each))


def _gpus(first: int, n_each: int) -> tuple[int, ...]:
    return tuple(range(first, first + n_each))


def _placed(deployment: Deployment, groups: tuple[GpuGroup, ...]) -> Iterator[tuple[int, int, tuple[GpuGroup, ...]]]:
    """For every replica the index of its first device, its plan, and the groups of its stages."""
    grouped = deployment.cluster.grouped(gpu_session(deployment).tensor_parallel)
    for number, plan in enumerate(deployment.plan.plans):
        assert plan.placement
        for devices in plan.placement:
            indices = [grouped.index(devices[stage.device]) for stage in plan.stages]
            yield min(indices), number, tuple(groups[index] for index in indices)


def _parts(groups: tuple[GpuGroup, ...]) -> tuple[MachinePart, ...]:
    """The groups of a replica, those of neighbouring stages on one machine together."""
    runs = groupby(groups, key=lambda group: (group.machine, group.kind))
    return tuple(MachinePart(*where, tuple(gpu for group in run for gpu in group.gpus)) for where, run in runs)


def _check_parts(parts: tuple[MachinePart, ...], to: str, *, spans_machines: bool) -> None:
    """Refuse machines that an engine cannot join: each has as many GPUs, and stages that follow each other.

    Raises:
        BadInput: they are such.
    """
    if len(parts) == 1:
        return
    shown = ", ".join(f"{len(part.gpus)} {part.kind} of machine {part.machine}" for part in parts)
    if not spans_machines:
        raise BadInput(f"--to {to} starts a replica on one machine, got stages on {shown}; try a smaller --n-ipu")
    if len({part.machine for part in parts}) < len(parts) or len({len(part.gpus) for part in parts}) > 1:
        raise BadInput(
            f"--to {to} has as many GPUs of every machine of a replica, in the order of its stages, got {shown}; "
            "try another --n-ipu"
        )
