"""The defaults of a search: space, study name, and the configuration that its best is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from autoauto.evaluate.flow import Flow
from autoauto.records.installation import VERSION
from autoauto.records.knob_table import Strategy
from autoauto.records.knobs import Knobs, Objectives, SearchSpace, objectives_text
from autoauto.records.schedule import Order
from autoauto.records.target import TargetTraits

MAX_DEFAULT_BATCH_SIZE = 8


def default_space(flow: Flow) -> SearchSpace:
    """The space for the target and the devices of a flow."""
    powers, traits, all_devices = default_n_ipu(len(flow.cluster)), flow.traits, len(flow.cluster)
    values: dict[str, Any] = dict(traits.space)
    if traits.replicates:
        values["replicas"] = powers
    if traits.groups_cores:
        values["cores_per_device"] = (*(1 << i for i in range((all_devices - 1).bit_length())), all_devices)
    return SearchSpace(powers, **values)


def default_n_ipu(n_devices: int) -> tuple[int, ...]:
    """The counts of devices that a search tries: powers of two up to 4, as far as the cluster goes.

    >>> default_n_ipu(4), default_n_ipu(1)
    ((1, 2, 4), (1,))
    """
    return tuple(n for n in (1, 2, 4) if n <= n_devices)


def fingerprint_of(flow: Flow, space: SearchSpace) -> dict[str, str]:
    """The attributes that two trials must share to be comparable."""
    return {"autoauto": VERSION, "mode": "training" if space.training else "inference", **flow.fingerprint()}


def default_study_name(flow: Flow, objectives: Objectives, fingerprint: Mapping[str, str]) -> str:
    """Model, cluster, objectives, and a digest of all that trials depend on: an equal search resumes the study."""
    digest = hashlib.sha256(repr(fingerprint).encode()).hexdigest()
    return f"{flow.graph.name}-{flow.cluster.name}-{objectives_text(objectives).replace(',', '-')}-{digest[:6]}"


def default_knobs(space: SearchSpace, traits: TargetTraits, one_device: bool = False) -> Knobs:
    """The configuration that one would run without a search.

    It is one pipeline of the maximum number of devices, with the target's memory proportion, the largest batch size of
    the space up to 8 (its smallest when all are larger), and the first value of every other knob. Where devices run
    whole plans one would not start with a pipeline: there it is one session with all cores, or with one where
    `one_device` says that the objective counts devices.
    """
    small_sizes = [size for size in space.batch_size if size <= MAX_DEFAULT_BATCH_SIZE]
    batch_size = max(small_sizes, default=space.batch_size[0])
    if traits.runs_plans:
        n_cores = 1 if one_device else max(space.cores_per_device)
        return Knobs(1, traits.memory_proportion, batch_size, cores_per_device=n_cores)
    n_ipu = max(space.n_ipu)
    if Strategy.PIPELINE not in space.strategy:
        order = Order.SEQUENTIAL if space.training else Order.INFERENCE
        phased = (order, space.recompute[0], space.steps[0], Strategy.PHASED)
        return Knobs(n_ipu, traits.memory_proportion, batch_size, *phased)
    pipeline = (space.schedule[0], space.recompute[0], space.n_micro_batches[0])
    return Knobs(n_ipu, traits.memory_proportion, batch_size, *pipeline)
