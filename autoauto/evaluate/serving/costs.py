"""What stages of a decoder cost on GPUs, at many batch sizes: `ServingCosts`, `PositionCosts`.

All S micro-batches of a pipeline are in flight, and every sequence has its keys and values on the GPUs of every stage:

    bytes of a GPU = weights of its stage            of embedding and head once, where one stage has both of a tied pair
                   + KV cache of b x S sequences     of their full length, for the blocks of its stage
                   + activations and workspace       whatever its layers
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoauto.engines.registry import DEFAULT_ENGINE, engine_named
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.plan.equal_blocks import BlockStages
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.profile import RESERVE, TEMPORARY, WEIGHTS
from autoauto.records.errors import BadInput, Unsupported
from autoauto.records.hardware import Device, Link
from autoauto.records.units import FloatArray, IntArray
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.targets.gpu.calibration import Factors
from autoauto.targets.gpu.costs import DecoderCosts
from autoauto.targets.gpu.memory import MemoryRule
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.gpu.systems import CLOCK_HZ
from autoauto.targets.gpu.target import GpuTarget, system_of

KV_CACHE = "KV cache"
"""A category of memory, beside those of `records/costs/profile.py`."""
Sizes = tuple[int, ...]
"""Batch sizes."""


class StagePosition(NamedTuple):
    """Where a stage stands.

    Attributes:
        kind: of its GPUs, counted in the cluster.
        is_first: whether it has the embedding.
        is_last: whether it has norm and head.
        link: to the next stage.
    """

    kind: int
    is_first: bool
    is_last: bool
    link: Link


class PositionCosts(NamedTuple):
    """What stages of a position cost: row 0 is of a block, others of the embedding, norm and head that they have.

    Attributes:
        decode_s: of a decode step, shape (rows, batch sizes).
        prompt_s: that one prompt adds to the steps that compute it, of the same shape.
        weight_bytes: shape (rows,).
        send_cycles: of a transfer to the next stage, shape (batch sizes,).
        kv_bytes: of the keys and values of one token in one block.
        n_tokens: of all sequences in flight when they end, shape (batch sizes,).
        rule: what a GPU holds besides.
        limit_bytes: that it may hold.
    """

    decode_s: FloatArray
    prompt_s: FloatArray
    weight_bytes: IntArray
    send_cycles: IntArray
    kv_bytes: float
    n_tokens: FloatArray
    rule: MemoryRule
    limit_bytes: int

    @property
    def send_s(self) -> FloatArray:
        """Seconds of a transfer to the next stage."""
        return np.asarray(self.send_cycles / CLOCK_HZ)

    @property
    def cache_bytes(self) -> FloatArray:
        """Keys and values of a block, shape (batch sizes,)."""
        return np.asarray(np.round(self.kv_bytes * self.n_tokens))

    @property
    def reserve_bytes(self) -> FloatArray:
        """What an engine leaves free for every block, shape (batch sizes,)."""
        return np.asarray(np.round((self.rule.kv_factor - 1.0) * (self.kv_bytes * self.n_tokens)))

    @property
    def block_bytes(self) -> FloatArray:
        """What a GPU holds for every block, shape (batch sizes,)."""
        return np.asarray(self.weight_bytes[0] + self.cache_bytes + self.reserve_bytes)

    @property
    def usable_bytes(self) -> FloatArray:
        """What blocks may fill, shape (batch sizes,)."""
        return np.asarray(self.limit_bytes - self.rule.fixed_bytes - self.weight_bytes[1:].sum())

    def stages(self, n_prompts: FloatArray) -> BlockStages:
        """Mean steps with so many prompts each, and how many blocks fit."""
        ends = self.decode_s[1:].sum(axis=0) + n_prompts * self.prompt_s[1:].sum(axis=0) + self.send_s
        most = np.floor(self.usable_bytes / self.block_bytes)
        return BlockStages(ends, self.decode_s[0] + n_prompts * self.prompt_s[0], most.astype(np.int64))

    def steps(self, n_blocks: IntArray) -> tuple[FloatArray, FloatArray]:
        """Seconds of a decode step and of a prompt of a stage of so many blocks."""
        decode, prompt = (each[1:].sum(axis=0) + n_blocks * each[0] for each in (self.decode_s, self.prompt_s))
        return decode, prompt

    def step_cycles(self, n_blocks: int, n_prompts: float, index: int) -> int:
        """Nanoseconds of a mean step at one batch size, each layer rounded."""
        layers = np.round((self.decode_s[:, index] + n_prompts * self.prompt_s[:, index]) * CLOCK_HZ)
        return int(layers[1:].sum() + n_blocks * layers[0])

    def memory_bytes(self, n_blocks: int, index: int) -> dict[str, int]:
        """What a GPU holds at one batch size, by category."""
        return {
            WEIGHTS: int(self.weight_bytes[1:].sum() + n_blocks * self.weight_bytes[0]),
            KV_CACHE: n_blocks * int(self.cache_bytes[index]),
            RESERVE: n_blocks * int(self.reserve_bytes[index]),
            TEMPORARY: int(self.rule.fixed_bytes[index]),
        }


def position_costs(
    layers: DecoderCosts, position: StagePosition, n_tokens: FloatArray, rule: MemoryRule, limit_bytes: int
) -> PositionCosts:
    """The costs of stages of a position.

    Args:
        layers: the costs of every layer on the GPUs of the position.
        position: where the stage stands.
        n_tokens: of all sequences in flight when they end, shape (batch sizes,).
        rule: what a GPU holds besides weights and KV cache.
        limit_bytes: what it may hold.
    """
    ends = [*([0] * position.is_first), *([-2, -1] * position.is_last)]
    weights = np.round(layers.weight_bytes[[1, *ends]]).astype(np.int64)
    if layers.is_tied and position.is_first and position.is_last:
        weights = weights[:-1]  # one stage has one table
    sent = np.round(layers.send_bytes).astype(np.int64)
    return PositionCosts(
        decode_s=layers.decode_s[[1, *ends]],
        prompt_s=layers.prompt_s[[1, *ends]],
        weight_bytes=weights,
        send_cycles=np.zeros_like(sent) if position.is_last else position.link.cycles(sent, CLOCK_HZ),
        kv_bytes=float(layers.kv_bytes[1]),
        n_tokens=n_tokens,
        rule=rule,
        limit_bytes=limit_bytes,
    )


class ServingCosts:
    """The costs of a decoder on the GPUs of a setting.

    Attributes:
        setting: what all configurations have in common.
        target: knows times of kernels.
    """

    def __init__(self, setting: Setting, *, is_part: bool = False) -> None:
        """Take a setting; `is_part` if its GPUs are those of one kind of a larger cluster."""
        if not isinstance(setting.target, GpuTarget):
            raise BadInput(f"--target {setting.cluster.target} generates no text; try --target gpu")
        self.setting, self.target, self._is_part = setting, setting.target, is_part
        self._layers: Memo[tuple[str, GpuSession, Workload, Sizes], DecoderCosts] = Memo(1024)

    def kinds(self, knobs: Knobs) -> list[Device]:
        """A group of GPUs of every kind."""
        cluster = self.setting.devices(knobs)
        return [kind.device for kind in cluster.kinds] or [cluster.devices[0]]

    def kind_names(self, knobs: Knobs) -> list[str]:
        """As `Stage.device_kind` has them."""
        has_several = self._is_part or self.setting.cluster.kinds
        return [device.name if has_several else "" for device in self.kinds(knobs)]

    def factors(self, knobs: Knobs) -> list[Factors]:
        """By what times of every kind are multiplied."""
        return [self.target.factors(system_of(device), session_of(knobs), knobs.n_ipu) for device in self.kinds(knobs)]

    def layers(self, device: Device, knobs: Knobs, sizes: Sizes) -> DecoderCosts:
        """The costs of all layers on a GPU of a kind at many batch sizes, instead of that of `knobs`.

        Raises:
            Unsupported: the group cannot split the model, does not fit a node, or there are no times.
        """
        session, requests = session_of(knobs), requests_of(knobs)
        return self._layers.of(
            (device.name, session, requests, sizes),
            lambda: self.target.layer_costs(system_of(device), session, requests, np.array(sizes)),
        )

    def stage(self, knobs: Knobs, position: StagePosition, sizes: Sizes) -> PositionCosts:
        """The costs of stages of a position.

        Raises:
            Unsupported: as `layers`, or the engine does not leave free what a plan does.
        """
        device, session = self.kinds(knobs)[position.kind], session_of(knobs)
        system = system_of(device)
        rule = self.target.memory_rule(system, session, knobs.n_ipu, np.array(sizes) * knobs.n_ipu)
        # What headroom leaves. A file may say what a GPU is sold with, which is more than a program can have.
        share = min(1.0, device.memory_bytes / session.tensor_parallel / system.memory_bytes)
        if conflict := self.target.engine(session).headroom_conflict(share, system.name):
            raise Unsupported(conflict)
        limit_bytes = int(int(rule.limit_bytes * share) * (self.setting.planning_proportion or 1.0))
        n_tokens = np.array(sizes, dtype=np.float64) * knobs.n_ipu * requests_of(knobs).max_length
        return position_costs(self.layers(device, knobs, sizes), position, n_tokens, rule, limit_bytes)


def check_tokens(knobs: Knobs) -> None:
    """Refuse steps without room for a token of every sequence that the engine counts.

    Raises:
        Unsupported: there are too many sequences.
    """
    session = session_of(knobs)
    n_sequences = engine_named(session.engine).n_counted_sequences(knobs.batch_size, knobs.n_ipu)
    if n_sequences > session.max_batched_tokens:
        raise Unsupported(
            f"{session.engine} needs max_batched_tokens of at least its {n_sequences:,} sequences, "
            f"got {session.max_batched_tokens:,}; try a smaller batch_size"
        )


def session_of(knobs: Knobs) -> GpuSession:
    """The session of a configuration on GPUs.

    Raises:
        BadInput: it has another one.
    """
    if not isinstance(knobs.session, GpuSession):
        raise BadInput(f"a configuration on GPUs has an engine, got none; try engine {DEFAULT_ENGINE}")
    return knobs.session


def requests_of(knobs: Knobs) -> Workload:
    """The requests of a configuration that generates text.

    Raises:
        BadInput: it has another mode.
    """
    if not isinstance(knobs.mode, Generation):
        raise BadInput("a configuration on GPUs has input_tokens and output_tokens, got none; give both")
    return Workload(knobs.mode.input_tokens, knobs.mode.output_tokens)
