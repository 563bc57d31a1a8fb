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
from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.installation import VERSION
from autoauto.records.plans.plan import CutAt
from autoauto.records.schedule import Order
from autoauto.space.constraint import Constraint
from autoauto.space.grid import default_values, possible_choices
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.modes.training import Training, min_micro_batches
from autoauto.space.objectives import Objective, Objectives, objective_tuple, objectives_text
from autoauto.space.sessions import session_of
from autoauto.space.space import MAX_CONFIGURATIONS, SearchSpace, of_global_batch
from autoauto.space.table import TABLE

MAX_BASELINE_BATCH_SIZE = 8
MAX_EVERY_LENGTH = 16
"""Every length of a pipeline up to this one is tried where forecasts are made at once; of longer ones, some are."""
MAX_EVERY_COUNT = 64
"""Every number of pipelines is tried on up to so many devices where forecasts are made at once."""
_BATCH_SIZES = tuple(range(1, 129))  # of `SearchSpace`
_WORKERS = "prefill_workers"
_NOT_GIVEN: Mapping[str, Any] = {}


def default_space(
    flow: Flow,
    given: Mapping[str, Any] = _NOT_GIVEN,
    global_batch: int | None = None,
    objectives: Objectives = Objective.THROUGHPUT,
) -> SearchSpace:
    """The space for the target and the devices of a flow: all ways to use them, as replicas of pipelines or in phases.

    Args:
        flow: has the devices.
        given: values of knobs, and constraints, in place of the defaults.
        global_batch: samples of a step of training, from which the numbers of micro-batches follow.
        objectives: of the search; where the fewest devices are one, every number of pipelines is tried.

    Raises:
        BadInput: no configuration has such a step, or the flow cannot evaluate them.
    """
    traits, n_devices = flow.traits, len(flow.cluster)
    values: dict[str, Any] = {"strategy": _strategies(flow, given), **traits.space, **given}
    if "schedule" not in given and any(knob.name in given for knob in Training.knobs):
        orders = [*default_orders(flow.setting, 1), *default_orders(flow.setting, n_devices)]
        values["schedule"] = tuple(dict.fromkeys(orders))
    if flow.graph.fixed_batch is not None and "batch_size" not in given:
        values["batch_size"] = (1,)
    if "channels_last" not in given and not any(layer.op.startswith("Conv") for layer in flow.graph.layers):
        values["channels_last"] = (False,)  # it is the layout of convolutions
    for name in set(traits.groups) - values.keys():
        n_each = flow.cluster.machine_size
        values[name] = (*(1 << i for i in range((n_each - 1).bit_length())), n_each)
    groups = [values[name] for name in traits.groups]
    smallest_group = prod(map(min, groups))
    if global_batch is not None:
        counts, sizes = values.get("replicas", default_counts(n_devices)), values.get("batch_size", _BATCH_SIZES)
        steps, sizes, whole_step = of_global_batch(global_batch, counts, sizes)
        strategies = given.get("strategy", (Strategy.PIPELINE,))
        values |= {"n_micro_batches": steps, "batch_size": sizes, "strategy": strategies}
        values["constraints"] = (*values.get("constraints", ()), whole_step)
    orders, steps = values.get("schedule", (Order.INFERENCE,)), values.get("n_micro_batches", (1,))
    if "n_ipu" not in traits.space and "n_ipu" not in given:
        n_others = min(values.get("replicas", (1,))) * smallest_group
        lengths = []
        for n in _lengths(flow):
            has_devices = n * n_others <= n_devices
            if n == 1 or (has_devices and all(max(steps) >= min_micro_batches(order, n) for order in orders)):
                lengths.append(n)
        values["n_ipu"] = tuple(lengths)
    if "replicas" not in traits.space and "replicas" not in given:
        n_each = min(values["n_ipu"]) * smallest_group
        leaves_out = Objective.DEVICES not in objective_tuple(objectives)
        numbers, bounds = _replicas(flow, [size for sizes in groups for size in sizes], leaves_out=leaves_out)
        values["replicas"] = tuple(n for n in numbers if n == 1 or n * n_each <= n_devices)
        values["constraints"] = (*values.get("constraints", ()), *bounds)
    counts = [values["n_ipu"], values["replicas"], *groups]
    if prod(map(min, counts)) <= n_devices < prod(map(max, counts)):  # as `on_cluster`, whose cells take time to make
        values["constraints"] = (*values.get("constraints", ()), Constraint(f"n_devices <= {n_devices}"))
    if len(values.get("stage_replicas", ())) > 1:  # one device runs the same either way
        values["constraints"] = (*values.get("constraints", ()), Constraint("n_ipu > 1 or stage_replicas == 0"))
    if "batch_size" not in given and "batch_size" in values:
        values["batch_size"] = _thinned(values, traits.sessions)
    values |= _prefill_values(flow, values, given)
    return on_cluster(SearchSpace(**values), flow)


def _prefill_values(flow: Flow, values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The prefill workers of the best two pools, as values of knobs; with 0 of them where one pool is searched too.

    Beside them any number of replicas stands; nothing where two pools are not searched.

    Raises:
        BadInput: prefill workers are given, or no two pools fit and nothing else is searched.
    """
    if flow.pools == (1,):
        return {}
    from autoauto.evaluate.serving.flow import ServingFlow  # of extra gpu

    names = [name for name in TABLE if name.startswith("prefill_")]
    if too := [name for name in names if name in given]:
        raise BadInput(f"--pools chooses prefill workers, got {TABLE[too[0]].option} too; leave either out")
    serving = flow.serving
    assert isinstance(serving, ServingFlow)
    best = serving.best_pools(values, given.get("replicas"))
    if best is None:
        if 1 in flow.pools:
            return {}
        raise BadInput(
            f"two pools need room for a prefill worker and a replica that keep all bounds, {flow.cluster.name} has "
            "none; try --pools 1,2, more GPUs, or other bounds"
        )
    own = best.knobs.session.values
    chosen: dict[str, tuple[Any, ...]] = {name: (own[name],) for name in names}
    chosen[_WORKERS] = ((0,) if 1 in flow.pools else ()) + chosen[_WORKERS]
    chosen["replicas"] = tuple(sorted({*values["replicas"], best.knobs.replicas}))
    chosen["constraints"] = tuple(map(_of_one_pool, values.get("constraints", ())))
    return chosen


def _of_one_pool(constraint: Constraint) -> Constraint:
    """A constraint on the replicas that one pool has on all devices, which two pools need not meet; others stay."""
    if {"replicas", "n_devices"}.issubset(constraint.names):
        return Constraint(f"{_WORKERS} > 0 or {constraint.text}")
    return constraint


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
    """True if every given knob of sessions has a value with which phases run."""
    for kind in flow.traits.sessions:
        for knob in kind.knobs:
            values = given.get(knob.name, ())
            if knob.name in given and not any(_runs_in_phases(kind(**{knob.field: value})) for value in values):
                return False
    return True


def _runs_in_phases(session: Session) -> bool:
    try:
        session.check_devices(1, in_phases=True)
    except Mismatch:
        return False
    return True


def default_counts(n_devices: int) -> tuple[int, ...]:
    """The lengths and the numbers of pipelines that a search tries: powers of two, divisors, and `n_devices` by each.

    >>> default_counts(4), default_counts(6), default_counts(7)
    ((1, 2, 4), (1, 2, 3, 4, 6), (1, 2, 3, 4, 7))
    """
    counts = {1 << i for i in range(n_devices.bit_length())}
    counts.update(n for n in range(1, n_devices + 1) if n_devices % n == 0)
    counts.update([n_devices // n for n in counts])  # so many pipelines of n devices there are
    return tuple(sorted(counts))


def _thinned(values: Mapping[str, Any], sessions: Sequence[type[Session]]) -> tuple[int, ...]:
    """The batch sizes, or every second, fourth, ... of them, so that the space is not too large."""
    sizes: tuple[int, ...] = values["batch_size"]
    counted, others = {"batch_size", "constraints"}, 1
    if len(sessions) == 1:
        of_session = {knob.name: values.get(knob.name, default_values(knob)) for knob in sessions[0].knobs}
        counted |= of_session.keys()
        others = len(possible_choices(sessions[0], of_session))
    others *= prod(len(each) for name, each in values.items() if name not in counted)
    while len(sizes) > 1 and others * len(sizes) > MAX_CONFIGURATIONS:
        sizes = sizes[-1::-2][::-1]
    return sizes


def _lengths(flow: Flow) -> tuple[int, ...]:
    """The lengths of pipelines that a search tries: where forecasts are made at once, all that are short."""
    counts = set(default_counts(len(flow.cluster)))
    if flow.forecasts_cells:
        counts.update(range(1, min(MAX_EVERY_LENGTH, len(flow.cluster)) + 1))
    for kind in flow.cluster.kinds:
        counts.update(default_counts(kind.n_devices))
    return tuple(sorted(counts))


def _replicas(
    flow: Flow, group_sizes: Sequence[int], *, leaves_out: bool
) -> tuple[tuple[int, ...], tuple[Constraint, ...]]:
    """The numbers of pipelines that a search tries, and a constraint on them.

    Like pipelines that share nothing are as many as there are groups of GPUs for, or one alone. Those that lie inside
    machines may be fewer, by less than one a machine. None of this is left out where devices are to be few.
    """
    n_devices, kinds = len(flow.cluster), flow.cluster.kinds
    if not leaves_out and n_devices <= MAX_EVERY_COUNT:
        return tuple(range(1, n_devices + 1)), ()
    whole = all(n > 0 and flow.cluster.machine_size % n == 0 for n in group_sizes)
    if not flow.forecasts_cells or kinds or not whole or n_devices > MAX_EVERY_COUNT:
        counts = set(default_counts(n_devices))
        for kind in kinds:
            counts.update(default_counts(kind.n_devices))
        return tuple(sorted(counts)), ()
    n_full, rest = divmod(n_devices, flow.cluster.machine_size)
    n_machines = n_full + bool(rest)
    inside = {n_full * (flow.cluster.machine_size // n) + rest // n for n in range(1, flow.cluster.machine_size + 1)}
    counts = ({n_devices // n for n in range(1, n_devices + 1)} | inside) - {0}
    if n_devices == 1:
        return tuple(sorted(counts)), ()
    each = " * ".join(("n_ipu", *flow.traits.groups))
    most = Constraint(f"replicas == 1 or n_devices + {n_machines} * {each} > {n_devices}")
    return tuple(sorted(counts)), (most,)


def on_cluster(space: SearchSpace, flow: Flow) -> SearchSpace:
    """The configurations of a space that need no more devices than the cluster of a flow has.

    Raises:
        BadInput: as `Flow.checked`.
    """
    space = flow.checked(space)
    n_devices = len(flow.cluster)
    bound = Constraint(f"n_devices <= {n_devices}")
    most = prod(max(space[name]) for name in ("n_ipu", "replicas", *flow.traits.groups))
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
    """The configuration that one would run on real devices without a search; a search measures it as well.

    It is one session of the first runtime with all cores, or with one core for an objective that counts devices, and
    the largest batch size of the space up to 8 (its smallest when all are larger). There is none on modelled devices,
    and none for several objectives, of which no configuration is the best.
    """
    objective, *others = objective_tuple(objectives)
    if not flow.traits.runs_plans or others:
        return None
    small = [size for size in space["batch_size"] if size <= MAX_BASELINE_BATCH_SIZE]
    batch_size = max(small, default=space["batch_size"][0])
    n_cores = 1 if objective.per_device else max(space["cores_per_device"])
    for precision, runtime in product(space["precision"], space["runtime"]):
        if runtime:
            session = session_of({"runtime": runtime, "precision": precision, "cores_per_device": n_cores})
        else:
            session = space.session(**{knob.field: space[knob.name][0] for knob in space.session.knobs})
        if session.is_possible:
            return Knobs(1, batch_size, session=session)
    raise Mismatch("a runtime of the space must compute in one of its precisions, none does; try others")
