"""What stages of a decoder cost on GPUs, at many batch sizes: `ServingCosts`, `PositionCosts`.

All S micro-batches of a pipeline are in flight, and every sequence has its keys and values on the GPUs of every stage:

    bytes of a GPU = weights of its stage            of embedding and head once, where one stage has both of a tied pair
                   + KV cache of b x S sequences     of their full length, for the blocks of its stage
                   + activations and workspace       whatever its layers
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.engines.registry import DEFAULT_ENGINE, engine_named
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.records.costs.decoder import NO_SPECULATION, Speculation, Workload
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
from autoauto.targets.gpu.systems import CLOCK_HZ, system_named
from autoauto.targets.gpu.target import GpuTarget

KV_CACHE = "KV cache"
"""A category of memory, beside those of `records/costs/profile.py`."""
Sizes = tuple[int, ...]
"""Batch sizes."""


class StagePosition(NamedTuple):
    """The position of a stage in its pipeline."""

    kind: int  # of its GPUs, counted over the kinds of the cluster
    is_first: bool  # it has the embedding
    is_last: bool  # it has norm and head
    link: Link  # to the next stage


class PositionCosts(NamedTuple):
    """What stages of a position cost: a row of a block of every kind, then those of embedding, norm and head it has.

    Attributes:
        decode_s: of a decode step, shape (rows, batch sizes).
        prompt_s: that one prompt adds to the steps that compute it, of the same shape.
        weight_bytes: shape (rows,).
        send_cycles: of a transfer to the next stage, shape (batch sizes,).
        sequence_bytes: that one sequence holds in a block when it ends, shape (kinds,).
        n_sequences: of a rank of the attention in flight, shape (batch sizes,).
        rule: what a GPU holds besides.
        limit_bytes: that it may hold.
    """

    decode_s: FloatArray
    prompt_s: FloatArray
    weight_bytes: IntArray
    send_cycles: IntArray
    sequence_bytes: FloatArray
    n_sequences: FloatArray
    rule: MemoryRule
    limit_bytes: int

    @property
    def n_kinds(self) -> int:
        """Number of kinds of blocks."""
        return len(self.sequence_bytes)

    @property
    def send_s(self) -> FloatArray:
        """Seconds of a transfer to the next stage."""
        return np.asarray(self.send_cycles / CLOCK_HZ)

    @property
    def cache_bytes(self) -> FloatArray:
        """Bytes of the keys and values of all sequences in a block, shape (kinds, batch sizes)."""
        return np.asarray(np.round(self.sequence_bytes[:, None] * self.n_sequences))

    @property
    def reserve_bytes(self) -> FloatArray:
        """Bytes that an engine leaves free for every block, of the same shape."""
        return np.asarray(np.round((self.rule.kv_factor - 1.0) * (self.sequence_bytes[:, None] * self.n_sequences)))

    @property
    def block_bytes(self) -> FloatArray:
        """Bytes that a GPU holds for every block, shape (kinds, batch sizes)."""
        return np.asarray(self.weight_bytes[: self.n_kinds, None] + self.cache_bytes + self.reserve_bytes)

    @property
    def usable_bytes(self) -> FloatArray:
        """Bytes that blocks may fill, shape (batch sizes,)."""
        return np.asarray(self.limit_bytes - self.rule.fixed_bytes - self.weight_bytes[self.n_kinds :].sum())

    def base_s(self, n_prompts: FloatArray) -> FloatArray:
        """A mean step without blocks, with so many prompts, shape (batch sizes,)."""
        decode = self.decode_s[self.n_kinds :].sum(axis=0)
        prompt = self.prompt_s[self.n_kinds :].sum(axis=0)
        return np.asarray(decode + n_prompts * prompt + self.send_s)

    def blocks_s(self, n_prompts: FloatArray) -> FloatArray:
        """Seconds that a block adds to a mean step, shape (kinds, batch sizes)."""
        return np.asarray(self.decode_s[: self.n_kinds] + n_prompts * self.prompt_s[: self.n_kinds])

    def steps(self, n_blocks: IntArray) -> tuple[FloatArray, FloatArray]:
        """Seconds of a decode step and of a prompt of a stage of so many blocks, shape (kinds, batch sizes)."""
        n = self.n_kinds
        decode = self.decode_s[n:].sum(axis=0) + (n_blocks * self.decode_s[:n]).sum(axis=0)
        prompt = self.prompt_s[n:].sum(axis=0) + (n_blocks * self.prompt_s[:n]).sum(axis=0)
        return decode, prompt

    def step_cycles(self, n_blocks: IntArray, n_prompts: float, index: int) -> int:
        """Nanoseconds of a mean step at one batch size of so many blocks, shape (kinds,), each layer rounded."""
        layers = np.round((self.decode_s[:, index] + n_prompts * self.prompt_s[:, index]) * CLOCK_HZ)
        return int(layers[self.n_kinds :].sum() + (n_blocks * layers[: self.n_kinds]).sum())

    def kv_sequences(self, n_blocks: IntArray, index: int) -> float:
        """Sequences of full length whose keys and values a GPU with so many blocks, shape (kinds,), has room for."""
        usable = self.usable_bytes[index] - float((n_blocks * self.weight_bytes[: self.n_kinds]).sum())
        return max(0.0, float(usable / self.rule.kv_factor / (n_blocks * self.sequence_bytes).sum()))

    def memory_bytes(self, n_blocks: IntArray, index: int) -> dict[str, int]:
        """Bytes that a GPU holds at one batch size for `n_blocks`, shape (kinds,), by category."""
        weights = self.weight_bytes
        return {
            WEIGHTS: int(weights[self.n_kinds :].sum() + (n_blocks * weights[: self.n_kinds]).sum()),
            KV_CACHE: int((n_blocks * self.cache_bytes[:, index]).sum()),
            RESERVE: int((n_blocks * self.reserve_bytes[:, index]).sum()),
            TEMPORARY: int(self.rule.fixed_bytes[index]),
        }


def position_costs(
    layers: DecoderCosts, position: StagePosition, n_sequences: FloatArray, rule: MemoryRule, limit_bytes: int
) -> PositionCosts:
    """The costs of stages of a position."""
    kinds = [1 + layers.order.index(kind) for kind in range(1 + max(layers.order))]  # the first block of each
    rows = list(kinds)
    if position.is_first:
        rows.append(0)  # embedding
    if position.is_last:
        rows += [-2, -1]  # norm and head
    weights = np.round(layers.weight_bytes[rows]).astype(np.int64)
    if layers.is_tied and position.is_first and position.is_last:
        weights = weights[:-1]  # one stage has one table
    sent = np.round(layers.send_bytes).astype(np.int64)
    return PositionCosts(
        decode_s=layers.decode_s[rows],
        prompt_s=layers.prompt_s[rows],
        weight_bytes=weights,
        send_cycles=np.zeros_like(sent) if position.is_last else position.link.cycles(sent, CLOCK_HZ),
        sequence_bytes=layers.cache_bytes[kinds],
        n_sequences=n_sequences,
        rule=rule,
        limit_bytes=limit_bytes,
    )


def blocks_of_kinds(order: Sequence[int], n_blocks: IntArray) -> IntArray:
    """How many blocks of every kind stages have that have so many blocks each, shape (stages, kinds, ...).

    >>> blocks_of_kinds((0, 1, 1, 0), np.array([1, 3])).tolist()
    [[1, 0], [1, 2]]
    """
    is_kind = np.array(order)[:, None] == np.arange(1 + max(order))
    # How many blocks of every kind come before a block; a stage has the difference of its two ends.
    before = np.concatenate([np.zeros((1, is_kind.shape[1]), dtype=np.int64), is_kind.cumsum(axis=0)])
    stops = n_blocks.cumsum(axis=0)
    return np.asarray(np.moveaxis(before[stops] - before[stops - n_blocks], -1, 1))


class ServingCosts:
    """The costs of a decoder on the GPUs of a setting."""

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

    def requests(self, knobs: Knobs) -> Workload:
        """The requests of a configuration, with what is known of drafts and of cached prompts.

        Replicas whose prompts other servers compute have all of a prompt; engines compute its last token again.
        """
        cached_share = self.target.cached_share if session_of(knobs).prefill is None else 1.0
        return requests_of(knobs)._replace(speculation=self.target.speculation, cached_share=cached_share)

    def factors(self, knobs: Knobs) -> list[Factors]:
        """The factors on the times of every kind of GPUs."""
        of = session_of(knobs), knobs.n_ipu, requests_of(knobs)
        return [self.target.factors(system_named(device.name), *of) for device in self.kinds(knobs)]

    def layers(self, device: Device, knobs: Knobs, sizes: Sizes) -> DecoderCosts:
        """The costs of all layers on one kind of GPU, at the batch sizes `sizes` in place of the one of `knobs`.

        Raises:
            Unsupported: the group cannot split the model, does not fit a node, or there are no times.
        """
        session, requests = session_of(knobs), self.requests(knobs)
        return self._layers.of(
            (device.name, session, requests, sizes),
            lambda: self.target.layer_costs(system_named(device.name), session, requests, session.of_rank(sizes)),
        )

    def stage(self, knobs: Knobs, position: StagePosition, sizes: Sizes) -> PositionCosts:
        """Costs of stages of a position; raises as `layers`, or if the engine does not leave free what a plan does."""
        device, session = self.kinds(knobs)[position.kind], session_of(knobs)
        system = system_named(device.name)
        n_in_flight = session.of_rank(sizes) * knobs.n_ipu
        n_sampled = n_in_flight * self.target.speculation.step_tokens
        rule = self.target.memory_rule(system, session, knobs.n_ipu, n_sampled)
        # What headroom leaves. A file may say what a GPU is sold with, which is more than a program can have.
        share = min(1.0, device.memory_bytes / session.group_size / system.memory_bytes)
        if conflict := self.target.engine(session).headroom_conflict(share, system.name):
            raise Unsupported(conflict)
        limit_bytes = int(int(rule.limit_bytes * share) * (self.setting.planning_proportion or 1.0))
        return position_costs(
            self.layers(device, knobs, sizes), position, n_in_flight.astype(np.float64), rule, limit_bytes
        )


def check_tokens(knobs: Knobs, speculation: Speculation = NO_SPECULATION) -> None:
    """Raise Unsupported if a step lacks room for the sequences that the engine counts, or a pipeline has drafts."""
    session = session_of(knobs)
    if speculation.draft_tokens and knobs.n_ipu > 1:
        raise Unsupported(
            f"{session.engine} drafts tokens where a replica has one stage, got {knobs.n_ipu}; try --n-ipu 1, or "
            "without --draft-tokens"
        )
    rules, n_each = engine_named(session.engine).step_rules, speculation.step_tokens
    if rules.n_counted_sequences(knobs.batch_size, knobs.n_ipu) * n_each <= session.max_batched_tokens:
        return  # a rank has no more than all
    of_rank = int(session.of_rank((knobs.batch_size,))[0])
    n_sequences = rules.n_counted_sequences(of_rank, knobs.n_ipu)
    if n_sequences * n_each > session.max_batched_tokens:
        each = f", of {n_each} tokens each" if speculation.draft_tokens else ""
        raise Unsupported(
            f"{session.engine} needs max_batched_tokens of at least its {n_sequences:,} sequences{each}, "
            f"got {session.max_batched_tokens:,}; try a smaller batch_size"
        )


def session_of(knobs: Knobs) -> GpuSession:
    """The session of a configuration on GPUs; raises BadInput if it has another one."""
    if not isinstance(knobs.session, GpuSession):
        raise BadInput(f"a configuration on GPUs has an engine, got none; try engine {DEFAULT_ENGINE}")
    return knobs.session


def requests_of(knobs: Knobs) -> Workload:
    """The requests of a configuration that generates text; raises BadInput if it has another mode."""
    if not isinstance(knobs.mode, Generation):
        raise BadInput("a configuration on GPUs has input_tokens and output_tokens, got none; give both")
    return Workload(knobs.mode.input_tokens, knobs.mode.output_tokens)
