"""The replicas of a plan that generates text, each with its GPUs, port and blocks: `served_replicas`.

machine 0   |g0 g1|g2 g3|g4 g5|   replica 0: a stage is a group of GPUs, their order is that of the stages
machine 1   |g0 g1|g2 g3|g4 g5|   replica 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from autoauto.engines.engine import Engine, NodePart
from autoauto.engines.rules import GroupSplit
from autoauto.exporters.exporter import Deployment
from autoauto.records.errors import BadInput
from autoauto.targets.gpu.nodes import NodeGpus, free_groups, groups_of, parts_of
from autoauto.targets.gpu.session import GpuSession

FIRST_PORT = 8000
"""Of the first replica; the others have the next."""


class ServedReplica(NamedTuple):
    """A replica: a process of an engine on every machine that it has GPUs of, mostly one."""

    number: int  # of the replica
    plan: int  # which of the plans of a `Plan` it has
    parts: tuple[NodeGpus, ...]  # its GPUs, machine after machine in the order of the stages
    port: int  # on which its first machine answers
    blocks: tuple[int, ...]  # of every stage; the first stage has the embedding, too, the last one norm and head
    is_prefill: bool = False  # True if it computes prompts for all others

    @property
    def name(self) -> str:
        """For example "replica-0", or "prefill-1"."""
        kind = "prefill" if self.is_prefill else "replica"
        return f"{kind}-{self.number}"


def served_replicas(deployment: Deployment, engine: Engine) -> tuple[ServedReplica, ...]:
    """All replicas, in the order of their first devices, and servers that compute their prompts behind them.

    Raises BadInput if an engine cannot span machines.
    """
    session = gpu_session(deployment)
    groups = groups_of(deployment.cluster, session.group_size)
    replicas = []
    # Sorted by their first devices, so that machines and ports go up with the numbers of the replicas.
    for number, (_, plan, members) in enumerate(sorted(_placed(deployment, groups))):
        parts = parts_of(members)
        nodes = [NodePart(part.machine, len(part.gpus)) for part in parts]
        if conflict := engine.nodes_conflict(nodes, session.split):
            shown = ", ".join(f"{len(part.gpus)} {part.kind} of machine {part.machine}" for part in parts)
            raise BadInput(f"{conflict}, got {shown}; try another --n-ipu")
        if engine.launcher.placing.ranks_first:
            parts = tuple(part._replace(gpus=ranks_first(part.gpus, session.split)) for part in parts)
        firsts = [block.layers.start for block in deployment.graph.blocks]
        blocks: list[int] = []
        for start, stop in pairwise(deployment.plan.plans[plan].partition):
            blocks.append(sum(start <= first < stop for first in firsts))
        replicas.append(ServedReplica(number, plan, parts, FIRST_PORT + number, tuple(blocks)))
    return (*replicas, *_prefill_workers(deployment, replicas))


def _prefill_workers(deployment: Deployment, replicas: Sequence[ServedReplica]) -> Iterator[ServedReplica]:
    """Servers that compute prompts, each with all blocks, on the GPUs that replicas leave."""
    session = gpu_session(deployment)
    if session.prefill is None:
        return
    taken = list(chain.from_iterable(replica.parts for replica in replicas))
    blocks = (len(deployment.graph.blocks),)
    plan = 1 + max(replica.plan for replica in replicas)
    kind = session.kind_beside(deployment.cluster) or deployment.cluster.devices[0].name
    pool = session.prefill
    groups = free_groups(deployment.cluster, kind, pool.split.n_gpus, pool.workers, taken)
    for number, group in enumerate(groups):
        port = FIRST_PORT + len(replicas) + number
        yield ServedReplica(number, plan, tuple(parts_of((group,))), port, blocks, is_prefill=True)


def ranks_first(gpus: Sequence[int], split: GroupSplit) -> tuple[int, ...]:
    """The GPUs of stages, one group after the other, in the order of the ranks of the attention.

    >>> ranks_first((0, 1, 2, 3, 4, 5, 6, 7), GroupSplit(tensor_parallel=2, attention_data_parallel=2))
    (0, 1, 4, 5, 2, 3, 6, 7)
    """
    ranked: list[int] = []
    for rank in range(0, split.n_gpus, split.tensor_parallel):  # the first GPU of a rank in its stage
        for stage in range(0, len(gpus), split.n_gpus):
            start = stage + rank
            ranked += gpus[start : start + split.tensor_parallel]
    return tuple(ranked)


def gpu_session(deployment: Deployment) -> GpuSession:
    """The session of a deployment, which is one of engines on groups of GPUs."""
    session = deployment.knobs.session
    assert isinstance(session, GpuSession)
    return session


def _placed(deployment: Deployment, groups: tuple[NodeGpus, ...]) -> Iterator[tuple[int, int, tuple[NodeGpus, ...]]]:
    """For every replica the index of its first device, its plan, and the groups of its stages."""
    grouped = deployment.cluster.grouped(gpu_session(deployment).group_size)
    for number, plan in enumerate(deployment.plan.plans):
        assert plan.placement
        for devices in plan.placement:
            indices = [grouped.index(devices[stage.device]) for stage in plan.stages]
            yield min(indices), number, tuple(groups[index] for index in indices)
