"""The defaults of a search: space, noise, study name, turns, and the configuration that its best is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from autoauto.evaluate.flow import Flow
from autoauto.records.installation import VERSION
from autoauto.records.knobs import DEFAULT_NOISE, Knobs, Objectives, SearchSpace, Strategy, objectives_text
from autoauto.records.schedule import Order

POPLAR_MEMORY_PROPORTION = 0.6
"""Poplar's default of availableMemoryProportion [poplar-docs]."""
MAX_DEFAULT_BATCH_SIZE = 8
N_REPEATS = 3
"""Number of turns in which the best configuration is verified on real devices."""


def default_space(flow: Flow) -> SearchSpace:
    """The space for the target and the devices of a flow.

    It is smaller on real devices: every measurement takes their time, and the part of the memory that they may use
    makes little difference.
    """
    powers = default_n_ipu(len(flow.cluster))
    if flow.runner is None:
        return SearchSpace(powers)
    return SearchSpace(powers, (1.0,), (1, 2, 4, 8, 16, 32), replicas=powers)


def default_n_ipu(n_devices: int) -> tuple[int, ...]:
    """The counts of devices that a search tries: powers of two up to 4, as far as the cluster goes.

    >>> default_n_ipu(4), default_n_ipu(1)
    ((1, 2, 4), (1,))
    """
    return tuple(n for n in (1, 2, 4) if n <= n_devices)


def default_noise(flow: Flow) -> float:
    """The share of a value that is noise: none on a cost model."""
    return 0.0 if flow.runner is None else DEFAULT_NOISE


def fingerprint_of(flow: Flow, space: SearchSpace) -> dict[str, str]:
    """The attributes that two trials must share to be comparable."""
    return {"autoauto": VERSION, "mode": "training" if space.training else "inference", **flow.fingerprint()}


def default_study_name(flow: Flow, objectives: Objectives, fingerprint: Mapping[str, str]) -> str:
    """Model, cluster, objectives, and a digest of all that trials depend on: an equal search resumes the study."""
    digest = hashlib.sha256(repr(fingerprint).encode()).hexdigest()
    return f"{flow.graph.name}-{flow.cluster.name}-{objectives_text(objectives).replace(',', '-')}-{digest[:6]}"


def default_knobs(space: SearchSpace, real: bool) -> Knobs:
    """The configuration that one would run without a search.

    It is one pipeline of the maximum number of devices, with Poplar's default memory proportion, the largest batch size
    of the space up to 8 (its smallest when all are larger), and the first value of every other knob. On real devices,
    where one would not start with a pipeline, it is one device that may use all its memory.

    Args:
        space: of the search.
        real: whether real devices measure.
    """
    small_sizes = [size for size in space.batch_size if size <= MAX_DEFAULT_BATCH_SIZE]
    batch_size = max(small_sizes, default=space.batch_size[0])
    if real:
        return Knobs(1, 1.0, batch_size)
    n_ipu = max(space.n_ipu)
    if Strategy.PIPELINE not in space.strategy:
        order = Order.SEQUENTIAL if space.training else Order.INFERENCE
        phased = (order, space.recompute[0], space.steps[0], Strategy.PHASED)
        return Knobs(n_ipu, POPLAR_MEMORY_PROPORTION, batch_size, *phased)
    pipeline = (space.schedule[0], space.recompute[0], space.n_micro_batches[0])
    return Knobs(n_ipu, POPLAR_MEMORY_PROPORTION, batch_size, *pipeline)


def default_n_repeats(flow: Flow) -> int:
    """Number of turns of a verification: one on a cost model, where all measurements are equal."""
    return 1 if flow.runner is None else N_REPEATS
