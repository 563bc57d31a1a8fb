"""Decoders, systems and stages by hand, and measured tables that all tests share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.engines.engine import ConstantShare, Engine, EngineMemory, HostCosts
from autoauto.engines.registry import engine_named
from autoauto.records.costs.decoder import Decoder
from autoauto.records.units import GIB
from autoauto.targets.gpu.systems import GpuSystem

NO_HOST = HostCosts(0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.fixture
def small() -> Decoder:
    """4 blocks of 64 elements with 8 heads of queries and 2 of keys and values."""
    return Decoder("small", "LlamaForCausalLM", 64, 4, 8, 2, 8, 96, 100, is_tied=False)


@pytest.fixture
def system() -> GpuSystem:
    """Nodes of 4 GPUs with 10 GiB each."""
    return GpuSystem("hand", 10 * GIB, 4, 1e9, 1e8, 1e7, 1e-5, ("vllm", "trtllm"))


def engine_by_hand(*, mixes: bool = True, host: HostCosts = NO_HOST) -> Engine:
    """An engine that takes 90 % of the memory of a GPU for all."""
    memory = EngineMemory(ConstantShare(0.9), {1: 10.0, 2: 5.0}, 0, base_bytes=GIB, group_bytes=100)
    return replace(engine_named("vllm"), mixes=mixes, memory=memory, host=host)
