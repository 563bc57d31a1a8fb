"""The defaults of a search: space, study name, and the session that real devices measure as a baseline."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.modes.training_table import default_orders
from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.hardware import Cluster
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


def default_space(
    flow: Flow,
    given: Mapping[str, Any] = {},
    global_batch: int | None = None,
    objectives: Objectives = Objective.THROUGHPUT,
) -> SearchSpace:
    """The space for the target and the devices of a flow: all ways to use them, as replicas of pipelines or in phases.

    Args:
        given: values of knobs, and constraints, in place of the defaults.
        global_batch: samples of a step of training, from which the numbers of micro-batches follow.
        objectives: of the search; where the fewest devices are one, every number of pipelines is tried.

    Raises:
        BadInput: no configuration has such a step, or the flow cannot evaluate them.
    """
    traits, n_devices = flow.traits, len(flow.cluster)
    values: dict[str, Any] = {"strategy": _strategies(flow, given), **traits.space, **_values_of_model(flow, given)}
    values |= given
    constraints: list[Constraint] = list(values.pop("constraints", ()))

    # The sizes of groups come first: how many pipelines there is room for depends on them.
    for name in set(traits.groups) - values.keys():
        values[name] = _group_sizes(flow.cluster.machine_size)
    groups = [values[name] for name in traits.groups]
    smallest_group = prod(map(min, groups))

    # Then a global batch, which says how many micro-batches a step has: an order may need more of longer pipelines.
    if global_batch is not None:
        counts = values.get("replicas", default_counts(n_devices))
        sizes = values.get("batch_size", _BATCH_SIZES)
        values["n_micro_batches"], values["batch_size"], whole_step = of_global_batch(global_batch, counts, sizes)
        values["strategy"] = given.get("strategy", (Strategy.PIPELINE,))
        constraints.append(whole_step)
    if "n_ipu" not in values:
        n_others = min(values.get("replicas", (1,))) * smallest_group
        values["n_ipu"] = _lengths(flow, values, n_others)
    if "replicas" not in values:
        n_each = min(values["n_ipu"]) * smallest_group
        leaves_out = Objective.DEVICES not in objective_tuple(objectives)
        group_sizes = [size for sizes in groups for size in sizes]
        numbers, bounds = _replicas(flow, group_sizes, leaves_out=leaves_out)
        values["replicas"] = tuple(n for n in numbers if n == 1 or n * n_each <= n_devices)
        constraints += bounds

    # Here already, and not by `on_cluster` alone: a space without it would have cells that take time to make.
    counts = [values["n_ipu"], values["replicas"], *groups]
    if prod(map(min, counts)) <= n_devices < prod(map(max, counts)):
        constraints.append(Constraint(f"n_devices <= {n_devices}"))
    if len(values.get("stage_replicas", ())) > 1:  # one device runs the same either way
        constraints.append(Constraint("n_ipu > 1 or stage_replicas == 0"))
    if "batch_size" not in given and "batch_size" in values:
        values["batch_size"] = _thinned(values, traits.sessions)
    pools = _pools_of(flow, values, given)
    if pools is not None:
        values |= pools
        for index, constraint in enumerate(constraints):
            # Two pools need not have the replicas that one pool has on all devices.
            if {"replicas", "n_devices"}.issubset(constraint.names):
                constraints[index] = Constraint(f"{_WORKERS} > 0 or {constraint.text}")
    return on_cluster(SearchSpace(**values, constraints=constraints), flow)


def _values_of_model(flow: Flow, given: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The values of knobs that follow from the model, and where training is searched those of its order."""
    values: dict[str, tuple[Any, ...]] = {}
    if any(knob.name in given for knob in Training.knobs):
        orders = [*default_orders(flow.setting, 1), *default_orders(flow.setting, len(flow.cluster))]
        values["schedule"] = tuple(dict.fromkeys(orders))
    if flow.graph.fixed_batch is not None:
        values["batch_size"] = (1,)
    if not any(layer.op.startswith("Conv") for layer in flow.graph.layers):
        values["channels_last"] = (False,)  # it is the layout of convolutions
    return values


def _group_sizes(n_devices: int) -> tuple[int, ...]:
    """The powers of 2 below the devices of a machine, and all of them.

    >>> _group_sizes(8), _group_sizes(6), _group_sizes(1)
    ((1, 2, 4, 8), (1, 2, 4, 6), (1,))
    """
    sizes = [1 << i for i in range((n_devices - 1).bit_length())]
    return (*sizes, n_devices)


def _pools_of(flow: Flow, values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, tuple[Any, ...]] | None:
    """The prefill workers of the best two pools, as values of knobs; with 0 of them where one pool is searched too.

    Beside them any number of replicas stands. None where two pools are not searched.
    """
    if flow.pools == (1,):
        return None
    from autoauto.evaluate.serving.flow import ServingFlow  # of extra gpu

    names = [name for name in TABLE if name.startswith("prefill_")]
    if too := [name for name in names if name in given]:
        raise BadInput(f"--pools chooses prefill workers, got {TABLE[too[0]].option} too; leave either out")
    serving = flow.serving
    assert isinstance(serving, ServingFlow)
    best = serving.best_pools(values, given.get("replicas"))
    if best is None:
        if 1 in flow.pools:
            return None
        raise BadInput(
            f"two pools need room for a prefill worker and a replica that keep all bounds, {flow.cluster.name} has "
            "none; try --pools 1,2, more GPUs, or other bounds"
        )
    own = best.knobs.session.values
    chosen: dict[str, tuple[Any, ...]] = {name: (own[name],) for name in names}
    if 1 in flow.pools:
        chosen[_WORKERS] = (0, *chosen[_WORKERS])
    chosen["replicas"] = tuple(sorted({*values["replicas"], best.knobs.replicas}))
    return chosen


def _strategies(flow: Flow, given: Mapping[str, Any]) -> tuple[Strategy, ...]:
    """How the devices can run a model.

    Phases need a streaming memory and like devices, do not keep to blocks, and have no replicas of pipelines or stages.
    Some sessions are for pipelines alone.
    """
    has_memory = flow.cluster.streaming_memory is not None and not flow.cluster.kinds
    is_asked = 1 in given.get("replicas", (1,)) and False in given.get("stage_replicas", (False,))
    if has_memory and is_asked and flow.setting.cut_at is CutAt.LAYERS and _may_phase(flow, given):
        return tuple(Strategy)
    return (Strategy.PIPELINE,)


def _may_phase(flow: Flow, given: Mapping[str, Any]) -> bool:
    """True if every given knob of sessions has a value with which phases run."""
    for kind in flow.traits.sessions:
        for knob in kind.knobs:
            if knob.name not in given:
                continue
            if not any(_runs_in_phases(kind(**{knob.field: value})) for value in given[knob.name]):
                return False
    return True


def _runs_in_phases(session: Session) -> bool:
    try:
        session.check_devices(1, in_phases=True)
    except Mismatch:
        return False
    return True


def default_counts(n_devices: int) -> tuple[int, ...]:
    """The lengths and the numbers of pipelines that a search tries: powers of two, divisors, `n_devices` by each."""
    counts = {1 << i for i in range(n_devices.bit_length())}
    counts.update(n for n in range(1, n_devices + 1) if n_devices % n == 0)
    counts.update([n_devices // n for n in counts])  # so many pipelines of n devices there are
    return tuple(sorted(counts))


def _counts_of(cluster: Cluster) -> set[int]:
    counts = set(default_counts(len(cluster)))
    for kind in cluster.kinds:
        counts.update(default_counts(kind.n_devices))
    return counts


def _thinned(values: Mapping[str, Any], sessions: Sequence[type[Session]]) -> tuple[int, ...]:
    """The batch sizes, or every second, fourth, ... of them, so that the space is not too large."""
    sizes: tuple[int, ...] = values["batch_size"]
    counted = {"batch_size"}
    others = 1  # configurations of every batch size
    if len(sessions) == 1:
        # Of the values of one class of sessions only those count that go together.
        of_session = {knob.name: values.get(knob.name, default_values(knob)) for knob in sessions[0].knobs}
        counted |= of_session.keys()
        others = len(possible_choices(sessions[0], of_session))
    others *= prod(len(each) for name, each in values.items() if name not in counted)
    while len(sizes) > 1 and others * len(sizes) > MAX_CONFIGURATIONS:
        sizes = sizes[-1::-2][::-1]
    return sizes


def _lengths(flow: Flow, values: Mapping[str, Any], n_others: int) -> tuple[int, ...]:
    """The lengths of pipelines that a search tries: where forecasts are made at once, all that are short.

    Args:
        values: of knobs; every order among them must run on a length.
        n_others: devices that one stage takes at least, with the stages beside it in other replicas.
    """
    n_devices = len(flow.cluster)
    counts = _counts_of(flow.cluster)
    if flow.first_mode.forecasts_cells:
        counts.update(range(1, min(MAX_EVERY_LENGTH, n_devices) + 1))
    orders = values.get("schedule", (Order.INFERENCE,))
    most_steps = max(values.get("n_micro_batches", (1,)))
    lengths = []
    for n in sorted(counts):
        has_devices = n * n_others <= n_devices
        # A length of 1 stays in any case: the space then says what it lacks.
        if n == 1 or (has_devices and all(most_steps >= min_micro_batches(order, n) for order in orders)):
            lengths.append(n)
    return tuple(lengths)


def _replicas(
    flow: Flow, group_sizes: Sequence[int], *, leaves_out: bool
) -> tuple[tuple[int, ...], tuple[Constraint, ...]]:
    """The numbers of pipelines that a search tries, and a constraint on them.

    Like pipelines that share nothing are as many as there are groups of GPUs for, or one alone. Those that lie inside
    machines may be fewer, by less than one a machine. None of this is left out where devices are to be few.
    """
    n_devices = len(flow.cluster)
    if not leaves_out and n_devices <= MAX_EVERY_COUNT:
        return tuple(range(1, n_devices + 1)), ()
    n_each = flow.cluster.machine_size
    divides_machines = all(n > 0 and n_each % n == 0 for n in group_sizes)
    if not flow.first_mode.forecasts_cells or flow.cluster.kinds or not divides_machines or n_devices > MAX_EVERY_COUNT:
        return tuple(sorted(_counts_of(flow.cluster))), ()
    n_full, rest = divmod(n_devices, n_each)
    n_machines = n_full + bool(rest)
    counts = {n_devices // n for n in range(1, n_devices + 1)}  # pipelines of n devices, across machines
    counts |= {n_full * (n_each // n) + rest // n for n in range(1, n_each + 1)}  # inside machines
    counts -= {0}
    if n_devices == 1:
        return tuple(sorted(counts)), ()
    # No more pipelines have room, or too few to lie inside machines: less than one a machine stays idle.
    pipeline = " * ".join(("n_ipu", *flow.traits.groups))
    most = Constraint(f"replicas == 1 or n_devices + {n_machines} * {pipeline} > {n_devices}")
    return tuple(sorted(counts)), (most,)


def on_cluster(space: SearchSpace, flow: Flow) -> SearchSpace:
    """The configurations of a space that need no more devices than the cluster of a flow has.

    Raises as `Flow.checked`.
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
    """Model, cluster, objectives, and a digest of all that the answer depends on: an equal search resumes."""
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
