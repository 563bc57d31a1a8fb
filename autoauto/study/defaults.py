"""The defaults of a search: space, study name, and the configuration that its best is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from autoauto.evaluate.flow import Flow
from autoauto.records.constraint import Constraint
from autoauto.records.installation import VERSION
from autoauto.records.knob_table import Strategy
from autoauto.records.knobs import (
    Knobs,
    Objective,
    Objectives,
    SearchSpace,
    min_micro_batches,
    objective_tuple,
    objectives_text,
)
from autoauto.records.schedule import Order
from autoauto.records.target import TargetTraits

MAX_DEFAULT_BATCH_SIZE = 8
_NOT_GIVEN: Mapping[str, Any] = {}


def default_space(flow: Flow, given: Mapping[str, Any] = _NOT_GIVEN) -> SearchSpace:
    """The space for the target and the devices of a flow: all ways to use them as replicas of pipelines.

    Args:
        flow: has the devices.
        given: values of knobs, and constraints, in place of the defaults.
    """
    traits, n_devices = flow.traits, len(flow.cluster)
    values: dict[str, Any] = {**traits.space, **given}
    if traits.groups_cores and "cores_per_device" not in given:
        values["cores_per_device"] = (*(1 << i for i in range((n_devices - 1).bit_length())), n_devices)
    orders, steps = values.get("schedule", (Order.INFERENCE,)), values.get("n_micro_batches", (1,))
    if "n_ipu" not in given:
        n_others = min(values.get("replicas", (1,))) * min(values.get("cores_per_device", (1,)))
        values["n_ipu"] = tuple(
            n
            for n in default_counts(n_devices)
            if n == 1
            or (n * n_others <= n_devices and all(min(steps) >= min_micro_batches(order, n) for order in orders))
        )
    if "replicas" not in given and orders == (Order.INFERENCE,):
        n_each = min(values["n_ipu"]) * min(values.get("cores_per_device", (1,)))
        values["replicas"] = tuple(n for n in default_counts(n_devices) if n == 1 or n * n_each <= n_devices)
    if len(values.get("stage_replicas", ())) > 1:  # one device runs the same either way
        values["constraints"] = (*values.get("constraints", ()), Constraint("n_ipu > 1 or stage_replicas == 0"))
    return on_cluster(SearchSpace(**values), flow)


def default_counts(n_devices: int) -> tuple[int, ...]:
    """The lengths of pipelines that a search tries, and their numbers: powers of two, divisors, and what they leave.

    >>> default_counts(4), default_counts(6), default_counts(7)
    ((1, 2, 4), (1, 2, 3, 4, 6), (1, 2, 3, 4, 7))
    """
    powers = (1 << i for i in range(n_devices.bit_length()))
    divisors = (n for n in range(1, n_devices + 1) if n_devices % n == 0)
    counts = {*powers, *divisors}
    return tuple(sorted(counts | {n_devices // n for n in counts}))  # so many pipelines of n devices there are


def on_cluster(space: SearchSpace, flow: Flow) -> SearchSpace:
    """The configurations of a space that need no more devices than the cluster of a flow has.

    Raises:
        BadInput: as `Flow.check`.
    """
    flow.check(space)
    n_devices = len(flow.cluster)
    bound = Constraint(f"n_devices <= {n_devices}")
    most = max(space.n_ipu) * max(space.replicas) * max(space.cores_per_device)
    if most <= n_devices or bound in space.constraints:
        return space
    return replace(space, constraints=(*space.constraints, bound))


def fingerprint_of(flow: Flow, space: SearchSpace) -> dict[str, str]:
    """The attributes that two trials must share to be comparable."""
    return {"autoauto": VERSION, "mode": "training" if space.training else "inference", **flow.fingerprint()}


def default_study_name(
    flow: Flow, objectives: Objectives, fingerprint: Mapping[str, str], space: SearchSpace, *method: object
) -> str:
    """Model, cluster, objectives, and a digest of all that the answer depends on: an equal search resumes the study.

    Args:
        flow: has the model and the cluster.
        objectives: of the search.
        fingerprint: what its trials depend on.
        space: what it searches.
        method: how it chooses, for example the name of the method and the noise.
    """
    digest = hashlib.sha256(repr((fingerprint, space, method)).encode()).hexdigest()
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


def default_of(flow: Flow, objectives: Objectives) -> Callable[[SearchSpace], Knobs] | None:
    """What makes the `default_knobs` of a space, which a search tries as well; None for several objectives."""
    if len(objective_tuple(objectives)) > 1:
        return None
    return partial(default_knobs, traits=flow.traits, one_device=objectives is Objective.PER_IPU)
