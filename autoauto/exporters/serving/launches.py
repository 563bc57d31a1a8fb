"""The processes of all replicas of a deployment, and what an engine must know to start each: `processes`."""

from __future__ import annotations

from math import floor
from typing import NamedTuple

from autoauto.engines.command import Command, Launch, Machines, PoolPart
from autoauto.engines.engine import Engine
from autoauto.exporters.exporter import DecoderModel, Deployment, generation
from autoauto.exporters.serving.replicas import ServedReplica, gpu_session, served_replicas
from autoauto.records.costs.decoder import NO_SPECULATION, Decoder, WeightFormat, Workload, lacks_draft
from autoauto.records.costs.profile import WEIGHTS
from autoauto.records.errors import BadInput
from autoauto.targets.gpu.nodes import NodeGpus
from autoauto.targets.gpu.session import GpuSession

_SHARE_DIGITS = 10_000
_LENGTH_HEADROOM, _LENGTH_BLOCK = 0.1, 256
_JOIN_PORT = 29_500
"""The machines of the first replica find each other on this port; those of the next replica on the next."""
_TRANSFER_PORT, _TRANSFER_PORTS = 5600, 100
"""Servers of two pools ask the first replica for caches on this port; the next replica has its port 100 further."""


class ServedProcess(NamedTuple):
    """A process of an engine: a replica, or its part on one of its machines."""

    replica: ServedReplica
    part: NodeGpus
    launch: Launch  # of which its command is made

    @property
    def name(self) -> str:
        """For example "replica-0", or "replica-0-machine-1" where a replica has several."""
        if self.is_whole:
            return self.replica.name
        return f"{self.replica.name}-machine-{self.part.machine}"

    @property
    def is_whole(self) -> bool:
        """True if it is all of the replica."""
        return len(self.replica.parts) == 1

    def command(self, engine: Engine) -> Command:
        """That starts it on the port of the replica, with the names that its files have in an artifact."""
        command = engine.launcher.command(self.launch, self.replica.port)
        names = {name: f"{self.name}-{name}" for name in command.files}
        words = tuple(names.get(word, word) for word in command.words)
        return command._replace(words=words, files={names[name]: text for name, text in command.files.items()})


def decoder_model(deployment: Deployment) -> DecoderModel:
    """The decoder of a deployment that generates text."""
    assert isinstance(deployment.source, DecoderModel)
    return deployment.source


def weight_bytes(deployment: Deployment) -> int:
    """Of the weights of all GPUs of a replica, as they are in memory."""
    of_a_gpu = sum(stage.memory_bytes[WEIGHTS] for stage in deployment.plan.plans[0].stages)
    return of_a_gpu * gpu_session(deployment).group_size


def processes(deployment: Deployment, engine: Engine) -> tuple[ServedProcess, ...]:
    """All processes of all replicas; raises `BadInput` if the engine does not take the configuration."""
    session, model, mode = gpu_session(deployment), decoder_model(deployment), generation(deployment)
    if session.engine != engine.name:
        raise BadInput(
            f"--to {engine.launcher.to} starts the engine {engine.name}, got a configuration for {session.engine}; "
            f"try the --to of that engine, or search with --engine {engine.name}"
        )
    max_length = accepted_length(mode.input_tokens + mode.output_tokens, model.decoder.checkpoint.max_length)
    weights = _made_weights(model.decoder, session, engine)
    replicas = served_replicas(deployment, engine)
    machines: set[int] = set()
    for replica in replicas:
        machines.update(part.machine for part in replica.parts)
    # An engine drafts where it has what it needs.
    lacks = lacks_draft(model.speculation, model.decoder.checkpoint)
    speculation = NO_SPECULATION if lacks else model.speculation
    requests = Workload(mode.input_tokens, mode.output_tokens, speculation, model.cached_share)
    every = []
    for index, replica in enumerate(replicas):
        split, n_sequences = session.split, int(session.of_rank((deployment.knobs.batch_size,))[0])
        if session.prefill is not None and replica.is_prefill:
            split, n_sequences = session.prefill.split, session.prefill.batch_size
        for rank, part in enumerate(replica.parts):
            pool: PoolPart | None = None
            if session.prefill is not None:
                port = _TRANSFER_PORT + index * _TRANSFER_PORTS
                # A machine is a variable for shells and Docker Compose, where there are several.
                address = "127.0.0.1" if len(machines) == 1 else f"${{MACHINE_{part.machine}_ADDR}}"
                pool = PoolPart(replica.is_prefill, address, port)
            launch = Launch(
                model=model.served_name,
                split=split,
                blocks=replica.blocks,
                n_sequences=n_sequences,
                max_batched_tokens=session.max_batched_tokens,
                max_length=max_length,
                memory_share=_share(deployment, part.kind, split.n_gpus, len(replica.blocks), engine),
                weights=weights,
                kv_cache=_cache_format(model.decoder, session),
                machines=Machines(len(replica.parts), rank, _JOIN_PORT + index),
                requests=requests,
                pool=pool,
            )
            every.append(ServedProcess(replica, part, launch))
    return tuple(every)


def accepted_length(n_tokens: int, n_positions: int | None) -> int:
    """The tokens of the longest sequence that an engine accepts: a tenth more than modelled, in full blocks of 256.

    A template of a chat and a prompt that is a little longer fit then. The model has no more than its positions.

    >>> accepted_length(2048, None), accepted_length(2048, 2048)
    (2304, 2048)
    """
    most = int(-(-n_tokens * (1 + _LENGTH_HEADROOM) // _LENGTH_BLOCK) * _LENGTH_BLOCK)
    return most if n_positions is None else min(most, n_positions)


def _made_weights(decoder: Decoder, session: GpuSession, engine: Engine) -> WeightFormat | None:
    """The format that the engine makes when it loads the checkpoint; None where that has it already."""
    published = decoder.checkpoint.weights
    weights = WeightFormat(session.precision or published)
    if conflict := engine.makes_conflict(published, weights):
        advice = f"try a model that is published in {weights}, or --precision {published}"
        raise BadInput(f"{conflict}; {advice}")
    return None if weights is published else weights


def _cache_format(decoder: Decoder, session: GpuSession) -> WeightFormat | None:
    published = decoder.checkpoint.kv_cache
    kv_cache = WeightFormat(session.kv_cache_precision or published)
    return None if kv_cache is published is WeightFormat.BF16 else kv_cache


def _share(deployment: Deployment, kind: str, n_gpus: int, n_stages: int, engine: Engine) -> float:
    """The share of the memory of a GPU, as the engine counts it and as the plan was made with."""
    from autoauto.targets.gpu.systems import system_named  # of extra gpu

    system = system_named(kind)
    share = engine.memory.share(system.memory_bytes, n_gpus, n_stages)
    usable = min(device.memory_bytes for device in deployment.cluster.devices if device.name == kind)
    if usable >= system.memory_bytes:
        return share
    if conflict := engine.headroom_conflict(usable / system.memory_bytes, kind):
        raise BadInput(conflict)
    # Rounded down, so that the engine takes no more than the plan leaves.
    return floor(share * usable / system.memory_bytes * _SHARE_DIGITS) / _SHARE_DIGITS
