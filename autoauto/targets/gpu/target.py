"""The opened target "gpu": `GpuTarget`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version

from autoauto.engines.engine import Engine
from autoauto.engines.registry import ENGINES, engine_named
from autoauto.records.costs.decoder import NO_SPECULATION, Decoder, Speculation, WeightFormat, Workload, lacks_draft
from autoauto.records.costs.options import Session
from autoauto.records.costs.traffic import TrafficLoad
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device, Period
from autoauto.records.target import Origin, TargetTraits
from autoauto.records.units import IntArray
from autoauto.targets.gpu.calibration import NOT_CALIBRATED, Calibration, Factors, Group
from autoauto.targets.gpu.costs import DecoderCosts, layer_costs
from autoauto.targets.gpu.family_errors import decoding_family, family_of
from autoauto.targets.gpu.memory import MemoryRule, memory_rule
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.gpu.systems import GpuSystem, system_named
from autoauto.targets.gpu.tables import Serving
from autoauto.targets.gpu.workload import traffic_notes, workload_errors

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
        speculation: how answers are drafted.
        cached_share: the share of a prompt that the prefix cache has.
        traffic: requests that arrive at times of their own; None where clients ask again when they were answered.
        n_in_flight: requests of such clients on the whole cluster; None for any.
        pools: of how many pools of servers a search looks for configurations.
    """

    decoder: Decoder
    systems: tuple[GpuSystem, ...]
    notes: tuple[str, ...] = ()
    calibration: Calibration = NOT_CALIBRATED
    speculation: Speculation = NO_SPECULATION
    cached_share: float = 0.0
    traffic: TrafficLoad | None = None
    n_in_flight: int | None = None
    pools: tuple[int, ...] = (1,)

    @property
    def version(self) -> str:
        """Implements `Target`; with measured rows also which they are."""
        factors = sorted(self.calibration.factors.items())
        digest = hashlib.sha256(repr(factors).encode()).hexdigest()[:12]
        workload = (self.speculation, self.cached_share)
        of_workload = "" if workload == (NO_SPECULATION, 0.0) else f" {workload}"
        of_traffic = "" if self.traffic is None else f" {self.traffic}"
        return _version() + f" measured {digest}" * bool(factors) + of_workload + of_traffic

    @property
    def traits(self) -> TargetTraits:
        """Engines that were measured on any of the GPUs, formats of the checkpoint, groups inside a node."""
        size = max(system.n_gpus_per_node for system in self.systems)
        sizes = tuple(1 << i for i in range(size.bit_length()) if 1 << i <= min(size, 8))
        checkpoint = self.decoder.checkpoint
        measured = {name for system in self.systems for name in system.engines}
        mean_input, mean_output = (None, None) if self.traffic is None else self.traffic.mean_tokens
        return TargetTraits(
            origin=Origin.MODELLED,
            space={
                "engine": tuple(name for name, engine in ENGINES.items() if engine.kernel_times in measured),
                "tensor_parallel": sizes,
                "expert_parallel": sizes if self.decoder.experts else (1,),
                "attention_data_parallel": sizes if self.decoder.experts else (1,),  # of a dense model: replicas
                "precision": (checkpoint.weights,),
                "kv_cache_precision": (checkpoint.kv_cache,),
                "input_tokens": (mean_input or DEFAULT_TOKENS,),
                "output_tokens": (mean_output or DEFAULT_TOKENS,),
                "batch_size": self._batch_sizes,
            },
            period=Period.SERIAL,
            groups=("tensor_parallel", "attention_data_parallel"),
            sessions=(GpuSession,),
            in_seconds=True,
            n_in_flight=self.n_in_flight,
        )

    @property
    def _batch_sizes(self) -> tuple[int, ...]:
        """Sequences in flight at most; where arrivals are simulated, which takes longer, powers of two."""
        sizes = GROUP_BATCH_SIZES if self.decoder.experts else BATCH_SIZES
        return sizes if self.traffic is None else tuple(size for size in sizes if size >= 8 and not size & (size - 1))

    def with_arrivals(self) -> GpuTarget:
        """The target with requests that arrive at random, where nothing is said of how they arrive.

        Raises:
            BadInput: so many are in flight, since clients ask again.
        """
        if self.traffic is not None:
            return self
        if self.n_in_flight is not None:
            raise BadInput(
                "percentiles are of requests that arrive at times of their own, got --concurrency; try --rate"
            )
        return replace(self, traffic=TrafficLoad(), notes=(*self.notes, *traffic_notes(TrafficLoad())))

    def serving(self, system: GpuSystem, session: GpuSession) -> Serving:
        """How a group of a system serves the decoder."""
        checkpoint = self.decoder.checkpoint
        return Serving(
            system.name,
            session.engine,
            session.tensor_parallel,
            session.expert_parallel,
            attention_data_parallel=session.attention_data_parallel,
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

    def factors(self, system: GpuSystem, session: GpuSession, n_stages: int, requests: Workload) -> Factors:
        """By what forecasts of pipelines of groups of a system are multiplied."""
        serving = self.serving(system, session)
        family = family_of(self.decoder)
        if session.prefill is not None:
            family = decoding_family(family, serving.n_gpus)
        group = Group(self.decoder.name, serving.engine, serving.system, serving.weights, family)
        errors = workload_errors(self.speculation, self.cached_share)
        factors = self.calibration.of(group, requests).widened(self.engine(session).measured.stages_error(n_stages))
        factors = factors.widened(*errors)
        for rows in () if factors.tpot.n_rows else self.engine(session).measured.contradicted:
            if (rows.system, rows.weights) == (serving.system, serving.weights) and rows.is_of(self.decoder):
                return factors.holding(rows.tpot)
        return factors

    def needs(self, session: Session) -> str:
        """Implements `ServesDecoder`: a checkpoint in a format that the engine does not make of this one, a draft."""
        assert isinstance(session, GpuSession)
        published, engine = self.decoder.checkpoint.weights, self.engine(session)
        weights = WeightFormat(session.precision or published)
        needs = [f"a checkpoint that is published in {weights}"] * bool(engine.makes_conflict(published, weights))
        if lacks_draft(self.speculation, self.decoder.checkpoint):
            needs.append("an EAGLE-3 head of the model (--draft-model)")
        return f"{engine.name} needs {' and '.join(needs)}" if needs else ""

    def engine(self, session: GpuSession) -> Engine:
        """The engine of a session."""
        return engine_named(session.engine)


@cache
def _version() -> str:
    return f"gpu 2 aiconfigurator-core {version('aiconfigurator-core')}"


def system_of(device: Device) -> GpuSystem:
    """The figures of a GPU, by its name.

    Raises:
        BadInput: there are none.
    """
    return system_named(device.name)


BATCH_SIZES = tuple(sorted({*range(1, 33), *range(32, 129, 4), *range(128, 257, 8), *range(256, 513, 16)}))
"""Sequences of a micro-batch in the default space."""
GROUP_BATCH_SIZES = (*BATCH_SIZES, *range(544, 1025, 32), *range(1088, 2049, 64), *range(2176, 4097, 128))
"""The same of groups with several ranks of attention, each with a part of them."""
