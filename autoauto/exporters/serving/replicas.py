"""The replicas of a plan that generates text, each with its GPUs, port and blocks: `served_replicas`.

    machine 0   |g0 g1|g2 g3|g4 g5|   replica 0: a stage is a group of GPUs, their order is that of the stages
    machine 1   |g0 g1|g2 g3|g4 g5|   replica 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from autoauto.exporters.registry import Deployment
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.plans.plan import Plan
from autoauto.targets.gpu.session import GpuSession

FIRST_PORT = 8000
"""Of the first replica of a machine; the others have the next."""


class Group(NamedTuple):
    """Neighbouring GPUs of a machine that are one device of a pipeline.

    Attributes:
        machine: of the GPUs, counted over the cluster.
        kind: the name of the GPUs.
        gpus: their numbers in the machine.
    """

    machine: int
    kind: str
    gpus: tuple[int, ...]


class ServedReplica(NamedTuple):
    """A replica: one process of an engine on GPUs of one machine.

    Attributes:
        number: of the replica.
        plan: which of the plans of a `Plan` it has.
        machine: where it runs.
        kind: the name of its GPUs.
        gpus: their numbers in the machine, in the order of the stages.
        port: on which it answers.
        blocks: of every stage; the first stage has the embedding, too, the last one norm and head.
    """

    number: int
    plan: int
    machine: int
    kind: str
    gpus: tuple[int, ...]
    port: int
    blocks: tuple[int, ...]

    @property
    def name(self) -> str:
        """For example "replica-0"."""
        return f"replica-{self.number}"


def served_replicas(deployment: Deployment, to: str) -> tuple[ServedReplica, ...]:
    """All replicas, in the order of their first devices.

    Raises:
        BadInput: the GPUs of a replica are of several machines.
    """
    session = gpu_session(deployment)
    groups = groups_of(deployment.cluster, session.tensor_parallel)
    placed = sorted(_placed(deployment, groups))
    ports: Counter[int] = Counter()
    replicas = []
    for number, (_, plan, members) in enumerate(placed):
        machine, kind = _one_machine(members, to)
        gpus = tuple(gpu for group in members for gpu in group.gpus)
        blocks = n_blocks_of(deployment, deployment.plan.plans[plan])
        replicas.append(ServedReplica(number, plan, machine, kind, gpus, FIRST_PORT + ports[machine], blocks))
        ports[machine] += 1
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


def groups_of(cluster: Cluster, n_each: int) -> tuple[Group, ...]:
    """The groups of a cluster, in the order of the devices that a plan counts.

    Where a cluster does not say what a machine is, GPUs of a kind fill machines of the size that this kind has.
    """
    grouped = cluster.grouped(n_each)
    if cluster.machine is not None:
        places = (grouped.machine_device(index) for index in range(len(grouped)))
        return tuple(
            Group(place.machine, device.name, _gpus(place.device * n_each, n_each))
            for place, device in zip(places, grouped.devices, strict=True)
        )
    return tuple(_by_kind(grouped, n_each))


def _by_kind(grouped: Cluster, n_each: int) -> Iterator[Group]:
    from autoauto.targets.gpu.systems import system_named  # of extra gpu

    n_gpus: Counter[str] = Counter()
    machines: dict[tuple[str, int], int] = {}
    for device in grouped.devices:
        machine, first = divmod(n_gpus[device.name], system_named(device.name).n_gpus_per_node)
        n_gpus[device.name] += n_each
        number = machines.setdefault((device.name, machine), len(machines))
        yield Group(number, device.name, _gpus(first, n_each))


def _gpus(first: int, n_each: int) -> tuple[int, ...]:
    return tuple(range(first, first + n_each))


def _placed(deployment: Deployment, groups: tuple[Group, ...]) -> Iterator[tuple[int, int, tuple[Group, ...]]]:
    """For every replica the index of its first device, its plan, and the groups of its stages."""
    grouped = deployment.cluster.grouped(gpu_session(deployment).tensor_parallel)
    for number, plan in enumerate(deployment.plan.plans):
        assert plan.placement
        for devices in plan.placement:
            indices = [grouped.index(devices[stage.device]) for stage in plan.stages]
            yield min(indices), number, tuple(groups[index] for index in indices)


def _one_machine(groups: tuple[Group, ...], to: str) -> tuple[int, str]:
    """The machine of a replica, and the name of its GPUs.

    Raises:
        BadInput: it has several.
    """
    machines = {group.machine: group.kind for group in groups}
    if len(machines) > 1:
        kinds = ", ".join(dict.fromkeys(machines.values()))
        raise BadInput(
            f"--to {to} starts a replica on one machine, got stages on {len(machines)} machines of {kinds}; "
            "try a smaller --n-ipu, or more --replicas"
        )
    ((machine, kind),) = machines.items()
    return machine, kind
