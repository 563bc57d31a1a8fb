"""The defaults of a search: space, study name, and the session that real devices measure as a baseline."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.training_orders import default_orders
from autoauto.records.costs.options import Session
from autoauto.records.errors import Mismatch
from autoauto.records.installation import VERSION
from autoauto.records.plans.plan import CutAt
from autoauto.records.schedule import Order
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.modes.training import Training, min_micro_batches
from autoauto.space.objectives import Objectives, objective_tuple, objectives_text
from autoauto.space.sessions import session_of
from autoauto.space.space import MAX_CONFIGURATIONS, SearchSpace, of_global_batch

MAX_BASELINE_BATCH_SIZE = 8
MAX_EVERY_LENGTH = 16
"""Of pipelines of which every length is tried, where forecasts are made at once; of longer ones some are."""
MAX_EVERY_COUNT = 64
"""Of devices for which every number of pipelines is tried, likewise."""
_BATCH_SIZES = tuple(range(1, 129))  # of `SearchSpace`
_NOT_GIVEN: Mapping[str, Any] = {}


def default_space(flow: Flow, given: Mapping[str, Any] = _NOT_GIVEN, global_batch: int | None = None) -> SearchSpace:
    """The space for the target and the devices of a flow: all ways to use them, as replicas of pipelines or in phases.

    Args:
        flow: has the devices.
        given: values of knobs, and constraints, in place of the defaults.
        global_batch: samples of a step of training, from which the numbers of micro-batches follow.

    Raises:
        BadInput: no configuration has such a step, or the flow cannot evaluate them.
    """
    traits, n_devices = flow.traits, len(flow.cluster)
    values: dict[str, Any] = {"strategy": _strategies(flow, given), **traits.space, **given}
    if "schedule" not in given and any(knob.name in given for knob in Training.knobs):
        values["schedule"] = tuple(
            dict.fromkeys(order for n in (1, n_devices) for order in default_orders(flow.setting, n))
        )
    if flow.graph.fixed_batch is not None and "batch_size" not in given:
        values["batch_size"] = (1,)
    if "channels_last" not in given and not any(layer.op.startswith("Conv") for layer in flow.graph.layers):
        values["channels_last"] = (False,)  # it is the layout of convolutions
    group = traits.groups
    if group and group not in values:
        n_each = flow.cluster.machine_size
        values[group] = (*(1 << i for i in range((n_each - 1).bit_length())), n_each)
    if global_batch is not None:
        counts, sizes = values.get("replicas", default_counts(n_devices)), values.get("batch_size", _BATCH_SIZES)
        steps, sizes, whole_step = of_global_batch(global_batch, counts, sizes)
        strategies = given.get("strategy", (Strategy.PIPELINE,))
        values |= {"n_micro_batches": steps, "batch_size": sizes, "strategy": strategies}
        values["constraints"] = (*values.get("constraints", ()), whole_step)
    orders, steps = values.get("schedule", (Order.INFERENCE,)), values.get("n_micro_batches", (1,))
    if "n_ipu" not in {**traits.space, **given}:
        n_others = min(values.get("replicas", (1,))) * min(values.get(group, (1,)))
        values["n_ipu"] = tuple(
            n
            for n in _lengths(flow)
            if n == 1
            or (n * n_others <= n_devices and all(max(steps) >= min_micro_batches(order, n) for order in orders))
        )
    if "replicas" not in {**traits.space, **given}:
        n_each = min(values["n_ipu"]) * min(values.get(group, (1,)))
        numbers, bounds = _replicas(flow, values.get(group, (1,)))
        values["replicas"] = tuple(n for n in numbers if n == 1 or n * n_each <= n_devices)
        values["constraints"] = (*values.get("constraints", ()), *bounds)
    counts = [values["n_ipu"], values["replicas"], values.get(group, (1,))]
    if prod(map(min, counts)) <= n_devices < prod(map(max, counts)):  # as `on_cluster`, whose cells take time to make
        values["constraints"] = (*values.get("constraints", ()), Constraint(f"n_devices <= {n_devices}"))
    if len(values.get("stage_replicas", ())) > 1:  # one device runs the same either way
        values["constraints"] = (*values.get("constraints", ()), Constraint("n_ipu > 1 or stage_replicas == 0"))
    if "batch_size" not in given and "batch_size" in values:
        values["batch_size"] = _thinned(values)
    return on_cluster(SearchSpace(**values), flow)


def _strategies(flow: Flow, given: Mapping[str, Any]) -> tuple[Strategy, ...]:
    """How the devices can run a model.

    Phases need a streaming memory and like devices, do not keep to blocks, and have no replicas of pipelines or stages.
    Some sessions are for pipelines alone.
    """
    has_memory = flow.cluster.streaming_memory is not None and not flow.cluster.kinds
    is_asked = 1 in given.get("replicas", (1,)) and False in given.get("stage_replicas", (False,))
    can_phase = has_memory and is_asked and flow.setting.cut_at is CutAt.LAYERS and _may_phase(flow, given)
    return tuple(Strategy) if can_phase else (Strategy.PIPELINE,)


def _may_phase(flow: Flow, given: Mapping[str, Any]) -> bool:
    """Whether every knob of sessions has a value with which phases run."""
    knobs = ((kind, knob) for kind in flow.traits.sessions for knob in kind.knobs if knob.name in given)
    return all(any(_runs_in_phases(kind(**{knob.field: value})) for value in given[knob.name]) for kind, knob in knobs)


def _runs_in_phases(session: Session) -> bool:
    try:
        session.check_devices(1, in_phases=True)
    except Mismatch:
        return False
    return True


def default_counts(n_devices: int) -> tuple[int, ...]:
    """The lengths of pipelines that a search tries, and their numbers: powers of two, divisors, and what they leave.

    >>> default_counts(4), default_counts(6), default_counts(7)
    ((1, 2, 4), (1, 2, 3, 4, 6), (1, 2, 3, 4, 7))
    """
    powers = (1 << i for i in range(n_devices.bit_length()))
    divisors = (n for n in range(1, n_devices + 1) if n_devices % n == 0)
    counts = {*powers, *divisors}
    return tuple(sorted(counts | {n_devices // n for n in counts}))  # so many pipelines of n devices there are


def _thinned(values: Mapping[str, Any]) -> tuple[int, ...]:
    """The batch sizes, or every second of them and so on, so that a space of many other values is not too large."""
    sizes: tuple[int, ...] = values["batch_size"]
    others = prod(len(each) for name, each in values.items() if name not in ("batch_size", "constraints"))
    while len(sizes) > 1 and others * len(sizes) > MAX_CONFIGURATIONS:
        sizes = sizes[-1::-2][::-1]
    return sizes


def _lengths(flow: Flow) -> tuple[int, ...]:
    """The lengths of pipelines that a search tries: where forecasts are made at once, all that are short."""
    counts = set(default_counts(len(flow.cluster)))
    if flow.forecasts_cells:
        counts |= {n for n in range(1, MAX_EVERY_LENGTH + 1) if n <= len(flow.cluster)}
    return tuple(sorted(counts.union(*(default_counts(kind.n_devices) for kind in flow.cluster.kinds))))


def _replicas(flow: Flow, group_sizes: Sequence[int]) -> tuple[tuple[int, ...], tuple[Constraint, ...]]:
    """The numbers of pipelines that a search tries, and a constraint on them.

    Like pipelines that share nothing are as many as there are groups of GPUs for, or one alone. Those that lie inside
    machines may be fewer, by less than one a machine.
    """
    n_devices, kinds = len(flow.cluster), flow.cluster.kinds
    whole = all(flow.cluster.machine_size % n == 0 for n in group_sizes)
    if not flow.forecasts_cells or kinds or not whole or n_devices > MAX_EVERY_COUNT:
        counts = {*default_counts(n_devices)}.union(*(default_counts(kind.n_devices) for kind in kinds))
        return tuple(sorted(counts)), ()
    n_full, rest = divmod(n_devices, flow.cluster.machine_size)
    n_machines = n_full + bool(rest)
    inside = {n_full * (flow.cluster.machine_size // n) + rest // n for n in range(1, flow.cluster.machine_size + 1)}
    counts = ({n_devices // n for n in range(1, n_devices + 1)} | inside) - {0}
    most = Constraint(f"replicas == 1 or n_devices + {n_machines} * n_ipu * {flow.traits.groups} > {n_devices}")
    return tuple(sorted(counts)), (most,) if n_devices > 1 else ()


def on_cluster(space: SearchSpace, flow: Flow) -> SearchSpace:
    """The configurations of a space that need no more devices than the cluster of a flow has.

    Raises:
        BadInput: as `Flow.checked`.
    """
    space = flow.checked(space)
    n_devices = len(flow.cluster)
    bound = Constraint(f"n_devices <= {n_devices}")
    of_device = max(space[flow.traits.groups]) if flow.traits.groups else 1
    most = max(space["n_ipu"]) * max(space["replicas"]) * of_device
    if most <= n_devices or bound in space.constraints:
        return space
    return space.with_values(constraints=(*space.constraints, bound))


def fingerprint_of(flow: Flow, space: SearchSpace) -> dict[str, str]:
    """The attributes that two trials must share to be comparable."""
    mode = "training" if space.training else flow.setting.modes[0].__name__.lower()
    return {"autoauto": VERSION, "mode": mode, **flow.fingerprint()}


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


def baseline_of(flow: Flow, objectives: Objectives, space: SearchSpace) -> Knobs | None:
    """What one would run on real devices without a search, which a search measures as well; None on a model of them.

    It is one session of the first runtime with all cores, or with one core for an objective that counts devices, and
    the largest batch size of the space up to 8 (its smallest when all are larger). With several objectives nothing is
    the best, so nothing is compared with it.
    """
    objective, *others = objective_tuple(objectives)
    if not flow.traits.runs_plans or others:
        return None
    batch_size = max(
        (size for size in space["batch_size"] if size <= MAX_BASELINE_BATCH_SIZE), default=space["batch_size"][0]
    )
    n_cores = 1 if objective.per_device else max(space["cores_per_device"])
    values = product(space["precision"], space["runtime"])
    first = {knob.field: space[knob.name][0] for knob in space.session.knobs}
    sessions = (
        session_of({"runtime": runtime, "precision": precision, "cores_per_device": n_cores})
        if runtime
        else space.session(**first)
        for precision, runtime in values
    )
    return Knobs(1, batch_size, session=next(session for session in sessions if session.is_possible))
