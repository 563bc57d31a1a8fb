"""The opened target "gpu": `GpuTarget`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from autoauto.engines.engine import Engine
from autoauto.engines.registry import ENGINES, engine_named
from autoauto.records.costs.decoder import Decoder, WeightFormat, Workload
from autoauto.records.costs.options import Session
from autoauto.records.hardware import Device, Period
from autoauto.records.target import Origin, TargetTraits
from autoauto.records.units import IntArray
from autoauto.targets.gpu.calibration import NOT_CALIBRATED, Calibration, Factors, Group
from autoauto.targets.gpu.costs import DecoderCosts, layer_costs
from autoauto.targets.gpu.memory import MemoryRule, memory_rule
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.gpu.systems import GpuSystem, system_named
from autoauto.targets.gpu.tables import Serving

DEFAULT_TOKENS = 1024
"""Of a prompt, and of an answer, where none are given."""


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """Groups of GPUs that serve a decoder, by measured times of their kernels.

    Attributes:
        decoder: what they serve.
        systems: the kinds of GPUs.
        notes: what was assumed, a sentence each.
        calibration: what measured rows say of forecasts.
    """

    decoder: Decoder
    systems: tuple[GpuSystem, ...]
    notes: tuple[str, ...] = ()
    calibration: Calibration = NOT_CALIBRATED

    @property
    def version(self) -> str:
        """Implements `Target`; with measured rows also which they are."""
        factors = sorted(self.calibration.factors.items())
        digest = hashlib.sha256(repr(factors).encode()).hexdigest()[:12]
        return f"{_version()} measured {digest}" if factors else _version()

    @property
    def traits(self) -> TargetTraits:
        """Engines that were measured on any of the GPUs, formats of the checkpoint, groups inside a node."""
        size = max(system.n_gpus_per_node for system in self.systems)
        sizes = tuple(1 << i for i in range(size.bit_length()) if 1 << i <= min(size, 8))
        checkpoint = self.decoder.checkpoint
        measured = {name for system in self.systems for name in system.engines}
        return TargetTraits(
            origin=Origin.MODELLED,
            space={
                "engine": tuple(name for name, engine in ENGINES.items() if engine.kernel_times in measured),
                "tensor_parallel": sizes,
                "expert_parallel": sizes if self.decoder.experts else (1,),
                "precision": (checkpoint.weights,),
                "kv_cache_precision": (checkpoint.kv_cache,),
                "input_tokens": (DEFAULT_TOKENS,),
                "output_tokens": (DEFAULT_TOKENS,),
                "batch_size": BATCH_SIZES,
            },
            period=Period.SERIAL,
            groups="tensor_parallel",
            sessions=(GpuSession,),
            in_seconds=True,
        )

    def serving(self, system: GpuSystem, session: GpuSession) -> Serving:
        """How a group of a system serves the decoder."""
        checkpoint = self.decoder.checkpoint
        return Serving(
            system.name,
            session.engine,
            session.tensor_parallel,
            session.expert_parallel,
            weights=WeightFormat(session.precision or checkpoint.weights),
            kv_cache=WeightFormat(session.kv_cache_precision or checkpoint.kv_cache),
        )

    def layer_costs(
        self, system: GpuSystem, session: GpuSession, requests: Workload, n_sequences: IntArray
    ) -> DecoderCosts:
        """See `costs.layer_costs`."""
        engine, serving = self.engine(session), self.serving(system, session)
        n_tokens = session.max_batched_tokens
        return layer_costs(self.decoder, serving, system, engine, requests, n_sequences, n_tokens)

    def memory_rule(self, system: GpuSystem, session: GpuSession, n_stages: int, n_sequences: IntArray) -> MemoryRule:
        """What a GPU of a group holds besides weights and KV cache, with so many sequences in flight."""
        engine, serving = self.engine(session), self.serving(system, session)
        return memory_rule(self.decoder, serving, system, engine, n_stages, session.max_batched_tokens, n_sequences)

    def factors(self, system: GpuSystem, session: GpuSession, n_stages: int) -> Factors:
        """By what forecasts of pipelines of groups of a system are multiplied."""
        serving = self.serving(system, session)
        group = Group(self.decoder.name, serving.engine, serving.system, serving.weights)
        factors = self.calibration.of(group).widened(self.engine(session).stages_error(n_stages))
        for rows in () if factors.tpot.n_rows else self.engine(session).contradicted:
            if (rows.system, rows.weights) == (serving.system, serving.weights) and rows.is_of(self.decoder):
                return factors.holding(rows.tpot)
        return factors

    def needs(self, session: Session) -> str:
        """Implements `ServesDecoder`: a checkpoint in a format that the engine does not make of this one."""
        assert isinstance(session, GpuSession)
        published, engine = self.decoder.checkpoint.weights, self.engine(session)
        weights = WeightFormat(session.precision or published)
        if not engine.makes_conflict(published, weights):
            return ""
        return f"{engine.name} needs a checkpoint that is published in {weights}"

    def engine(self, session: GpuSession) -> Engine:
        """The engine of a session."""
        return engine_named(session.engine)


@cache
def _version() -> str:
    return f"gpu 1 aiconfigurator-core {version('aiconfigurator-core')}"


def system_of(device: Device) -> GpuSystem:
    """The figures of a GPU, by its name.

    Raises:
        BadInput: there are none.
    """
    return system_named(device.name)


BATCH_SIZES = tuple(sorted({*range(1, 33), *range(32, 129, 4), *range(128, 257, 8), *range(256, 513, 16)}))
"""Sequences of a micro-batch in the default space."""
