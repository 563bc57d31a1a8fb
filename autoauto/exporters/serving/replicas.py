"""The replicas of a plan that generates text, each with its GPUs, port and blocks: `served_replicas`.

machine 0   |g0 g1|g2 g3|g4 g5|   replica 0: a stage is a group of GPUs, their order is that of the stages
machine 1   |g0 g1|g2 g3|g4 g5|   replica 1
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from autoauto.engines.engine import Engine, NodePart
from autoauto.exporters.exporter import Deployment
from autoauto.records.errors import BadInput
from autoauto.records.plans.plan import Plan
from autoauto.targets.gpu.nodes import NodeGpus, groups_of, parts_of
from autoauto.targets.gpu.session import GpuSession

FIRST_PORT = 8000
"""Of the first replica; the others have the next."""


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
    parts: tuple[NodeGpus, ...]
    port: int
    blocks: tuple[int, ...]


def served_replicas(deployment: Deployment, engine: Engine) -> tuple[ServedReplica, ...]:
    """All replicas, in the order of their first devices.

    Raises:
        BadInput: the GPUs of a replica are of several machines, and the engine cannot have them so.
    """
    groups = groups_of(deployment.cluster, gpu_session(deployment).tensor_parallel)
    replicas = []
    for number, (_, plan, members) in enumerate(sorted(_placed(deployment, groups))):
        parts = parts_of(members)
        if conflict := engine.nodes_conflict([NodePart(part.machine, len(part.gpus)) for part in parts]):
            shown = ", ".join(f"{len(part.gpus)} {part.kind} of machine {part.machine}" for part in parts)
            raise BadInput(f"{conflict}, got {shown}; try another --n-ipu")
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


def _placed(deployment: Deployment, groups: tuple[NodeGpus, ...]) -> Iterator[tuple[int, int, tuple[NodeGpus, ...]]]:
    """For every replica the index of its first device, its plan, and the groups of its stages."""
    grouped = deployment.cluster.grouped(gpu_session(deployment).tensor_parallel)
    for number, plan in enumerate(deployment.plan.plans):
        assert plan.placement
        for devices in plan.placement:
            indices = [grouped.index(devices[stage.device]) for stage in plan.stages]
            yield min(indices), number, tuple(groups[index] for index in indices)
