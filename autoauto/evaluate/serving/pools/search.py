"""The best numbers of prefill workers and decode replicas on a cluster: `best_pools`.

A worker of a kind (its group, its batch) gives u requests/s, a replica of a kind (group, stages, batch) v. Of all pairs
of kinds, and all numbers N of replicas, P workers have room beside them, and both give min(P u, N v):

    P u      |\\                     for every pair the best N is beside the crossing; all N are tried,
             |  \\    / N v          since room in nodes is no line
             |    \\/
             +----------------> N

Kinds are left out that another of as many GPUs beats in both rate and latency. What remains is put in order of its
rate, and forecast as all configurations are, until none that follows can be better: rates of a replica that stands
alone bound those of replicas side by side, whose pipelines may be over nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from autoauto.evaluate.serving.costs import Sizes, session_of
from autoauto.evaluate.serving.nodes import free_gpus, n_fitting
from autoauto.evaluate.serving.pools.rates import queue_s
from autoauto.evaluate.serving.rates import AT_BOUND, MIDDLE
from autoauto.evaluate.serving.ways import ReplicaWays
from autoauto.records.errors import DoesNotFit
from autoauto.records.units import FloatArray, IntArray, format_number
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.numbers import TokenResult
from autoauto.space.trial import Trial
from autoauto.targets.gpu.nodes import NodeGpus, groups_of
from autoauto.targets.gpu.session import GpuSession, PrefillPool

PREFILL_BATCHES = (1, 2, 4, 8)
"""Prompts of a rank of a prefill worker that are tried, where a step holds them."""
_MOST_TRIED, _MOST_CHECKED = 400, 50_000
"""So many pairs are forecast, and looked at, at most; without bounds the first is mostly the best."""
_ALL = 0.995
"""The share of the time from which on servers are said to compute all of it."""
Values = Mapping[str, Sequence[Any]]
"""The values of knobs by their names."""
Keeps = Callable[[Knobs, float, float], bool]
"""Whether a configuration with a TPOT and a TTFT keeps the bounds on them."""


class _Kind(NamedTuple):
    """A server of a pool."""

    knobs: Knobs
    n_gpus: int
    per_s: float  # requests a second
    latency_s: float  # where bounds must hold: TPOT of a replica, TTFT of a worker where no other prompt waits


class _Pairs(NamedTuple):
    """Numbers of two kinds of servers, one an entry."""

    per_s: FloatArray  # requests a second of both together, at most
    n_gpus: IntArray  # of both
    replica: IntArray
    worker: IntArray
    n_replicas: IntArray
    n_workers: IntArray


def best_pools(
    ways: ReplicaWays,
    values: Values,
    keeps: Keeps,
    forecast: Callable[[Knobs], Trial],
    replicas: Collection[int] | None = None,
) -> Trial | None:
    """The forecast of the two pools with the most tokens a second; None where none fits and keeps all bounds.

    Args:
        values: of knobs that are searched; stages, groups and batch sizes are those of replicas.
        keeps: tells of bounds what latencies tell.
        replicas: the numbers of replicas that may be; None for any.
    """
    best: Trial | None = None
    n_tokens, n_tried = values["output_tokens"][0], 0
    for per_s, knobs in _pairs(ways, values, keeps):
        # Bounds of rates fall, so nothing that follows is better than the best.
        if n_tried == _MOST_TRIED or (best is not None and per_s * n_tokens <= best.samples_per_s):
            break
        if replicas is not None and knobs.replicas not in replicas:
            continue
        trial, n_tried = forecast(knobs), n_tried + 1
        if trial.fits and (best is None or trial.samples_per_s > best.samples_per_s):
            best = trial
    return best


def _pairs(ways: ReplicaWays, values: Values, keeps: Keeps) -> Iterator[tuple[float, Knobs]]:
    """Configurations that may keep all bounds, with a bound of their rates.

    The highest rates come first, of the same rate the fewest GPUs, then those whose workers wait most.
    """
    parts = list(enumerate(ways.parts or (ways,), start=1))
    workers: list[_Kind] = []
    replicas: list[_Kind] = []
    every: list[_Pairs] = []
    for session in _sessions(values):
        for_workers = [(part, _prefill_kinds(part, number, session, values, keeps)) for number, part in parts]
        for_replicas = [(part, _decode_kinds(part, session, values, keeps)) for _, part in parts]
        for (worker_ways, some), (replica_ways, others) in product(for_workers, for_replicas):
            # Entries number the kinds of their own lists, which are put behind those of all before.
            for each in _matched(worker_ways, some, replica_ways, others):
                every.append(each._replace(replica=each.replica + len(replicas), worker=each.worker + len(workers)))
            workers += some
            replicas += others
    if not every:
        return
    pairs = _Pairs(*(np.concatenate(column) for column in zip(*every, strict=True)))
    of_prompts = pairs.n_workers * np.array([worker.per_s for worker in workers])[pairs.worker]
    # lexsort sorts by its last key first.
    for index in np.lexsort((-of_prompts, pairs.n_gpus, -pairs.per_s))[:_MOST_CHECKED]:
        replica, worker = replicas[pairs.replica[index]], workers[pairs.worker[index]]
        per_s, n_workers = pairs.per_s[index].item(), int(pairs.n_workers[index])
        pool = replace(_prefill(worker.knobs), workers=n_workers)
        busy = np.array(per_s / (n_workers * worker.per_s))
        waits_s = queue_s(worker.knobs.batch_size / worker.per_s, n_workers, busy).item()
        session = replace(session_of(replica.knobs), prefill=pool)
        knobs = replace(replica.knobs, replicas=int(pairs.n_replicas[index]), session=session)
        if keeps(knobs, replica.latency_s, worker.latency_s + waits_s + replica.latency_s):
            yield per_s, knobs


def _matched(
    for_workers: ReplicaWays, workers: Sequence[_Kind], for_replicas: ReplicaWays, replicas: Sequence[_Kind]
) -> Iterator[_Pairs]:
    """All numbers of replicas of every kind, with as many workers of every kind as have room beside them."""
    if not workers:
        return
    is_shared = for_workers is for_replicas  # else each pool has the GPUs of its kind for itself
    n_each = np.array([worker.n_gpus for worker in workers])
    u = np.array([worker.per_s for worker in workers])
    sizes, column = np.unique(n_each, return_inverse=True)
    cluster = for_workers.costs.setting.cluster
    alone = [n_fitting(free_gpus(cluster, ()), size, cluster.machine_size) for size in sizes.tolist()]
    rooms: dict[object, tuple[IntArray, IntArray]] = {}
    for number, replica in enumerate(replicas):
        key = replica.knobs.session, replica.knobs.n_ipu
        if key not in rooms:
            rooms[key] = _room(for_replicas, replica.knobs, sizes.tolist(), is_shared=is_shared)
        n_replicas, beside = rooms[key]
        n_workers = (beside if is_shared else np.tile(alone, (len(n_replicas), 1)))[:, column]
        per_s = np.minimum(n_workers * u, n_replicas[:, None] * replica.per_s)
        row, worker = np.nonzero(per_s)
        yield _Pairs(
            per_s[row, worker],
            n_replicas[row] * replica.n_gpus + n_workers[row, worker] * n_each[worker],
            np.full(len(row), number),
            worker,
            n_replicas[row],
            n_workers[row, worker],
        )


def _prefill(knobs: Knobs) -> PrefillPool:
    """A worker that is a configuration of its own; its replicas are the number of its kind."""
    split = session_of(knobs).split
    n_prompts = knobs.batch_size // split.attention_data_parallel
    return PrefillPool(1, *split, batch_size=n_prompts, kind=knobs.replicas)


def _room(ways: ReplicaWays, knobs: Knobs, sizes: Sequence[int], *, is_shared: bool) -> tuple[IntArray, IntArray]:
    """All numbers of replicas that stand on the GPUs, and how many workers of every size have room beside each.

    Where workers have GPUs of another kind, only the largest number of replicas.
    """
    cluster, nodes = ways.costs.setting.hardware(knobs.session), ways.nodes(knobs)
    groups, free = groups_of(cluster, knobs.session.group_size), nodes.full
    kinds = (cluster.devices[0].name,) * knobs.n_ipu
    taken: list[NodeGpus] = []
    rows: list[list[int]] = []
    while (numbers := nodes.groups_for(free, kinds)) is not None:
        free = nodes.without(free, numbers)
        taken += [groups[number] for number in numbers]
        left = free_gpus(cluster, taken) if is_shared else {}
        rows.append([n_fitting(left, size, cluster.machine_size) for size in sizes])
    counts = np.arange(1, len(rows) + 1)
    room = np.array(rows, dtype=np.int64).reshape(len(rows), len(sizes))
    return (counts, room) if is_shared else (counts[-1:], room[-1:])


def _sessions(values: Values) -> Iterator[GpuSession]:
    """Sessions with the values that both pools share: engine, formats, tokens of a step."""
    names = [name for name in ("engine", "precision", "kv_cache_precision", "max_batched_tokens") if name in values]
    for picks in product(*(values[name] for name in names)):
        given = zip(names, picks, strict=True)
        yield GpuSession(**{name: value for name, value in given if value is not None})


def _splits(session: GpuSession, values: Values) -> Iterator[GpuSession]:
    for picks in product(*(values[name] for name in _GROUP)):
        split = replace(session, **dict(zip(_GROUP, picks, strict=True)))
        if split.is_possible:
            yield split


_GROUP = ("tensor_parallel", "expert_parallel", "attention_data_parallel")


def _prefill_kinds(ways: ReplicaWays, number: int, session: GpuSession, values: Values, keeps: Keeps) -> list[_Kind]:
    """Workers on GPUs of a kind, whose number is that of their replicas, with prompts of the first of the lengths."""
    n_tokens = values["input_tokens"][0]
    kinds: list[_Kind] = []
    batches = [n for n in PREFILL_BATCHES if n == 1 or n * n_tokens <= session.max_batched_tokens]
    for split in _splits(session, values):
        sizes = tuple(n * split.attention_data_parallel for n in batches)
        knobs = Knobs(1, sizes[0], 1, Generation(n_tokens, 1), split)
        for index, per_s, held in _alone(ways, knobs, sizes):
            alone = replace(knobs, batch_size=sizes[index], replicas=number)
            kinds.append(_Kind(alone, split.group_size, per_s, held.ttft_s))
    return _best_kinds([kind for kind in kinds if keeps(kind.knobs, 0.0, kind.latency_s)])


def _decode_kinds(ways: ReplicaWays, session: GpuSession, values: Values, keeps: Keeps) -> list[_Kind]:
    mode = Generation(values["input_tokens"][0], values["output_tokens"][0])
    kinds: list[_Kind] = []
    n_all = len(ways.costs.setting.cluster)
    for split, n_stages in product(_splits(session, values), values["n_ipu"]):
        n_gpus = n_stages * split.group_size
        if n_gpus > n_all:
            continue
        sizes = tuple(split.batch_sizes(values["batch_size"]))
        knobs = Knobs(n_stages, sizes[0], 1, mode, split.of_decode)
        for index, per_s, held in _alone(ways, knobs, sizes):
            alone = replace(knobs, batch_size=sizes[index])
            kinds.append(_Kind(alone, n_gpus, per_s / mode.output_tokens, held.tpot_s))
    return _best_kinds([kind for kind in kinds if keeps(kind.knobs, kind.latency_s, kind.latency_s)])


def _alone(ways: ReplicaWays, knobs: Knobs, sizes: Sizes) -> Iterator[tuple[int, float, TokenResult]]:
    """For every batch size that fits its number, tokens a second, and results at the end at which bounds must hold."""
    try:
        (way,) = ways.ways(knobs, sizes)
    except DoesNotFit:
        return
    rates, held = way.at(MIDDLE), way.at(AT_BOUND)
    for index in np.flatnonzero(way.fits).tolist():
        yield index, rates.tokens_per_s[index].item(), held.of(index)


def _best_kinds(kinds: Sequence[_Kind]) -> list[_Kind]:
    """The kinds that no other of as many GPUs beats in both rate and latency."""
    by_size: dict[int, list[_Kind]] = defaultdict(list)
    # In the order of falling rates a kind is worth something if it is quicker than all before.
    for kind in sorted(kinds, key=lambda kind: (-kind.per_s, kind.latency_s)):
        front = by_size[kind.n_gpus]
        if not front or kind.latency_s < front[-1].latency_s:
            front.append(kind)
    return [kind for front in by_size.values() for kind in front]


def compared_text(single: Trial | None, pooled: Trial | None, prompt_share: float | None) -> str:
    """Which of the best of one pool and of two gives more, and why."""
    if pooled is None:
        return "one pool: no prefill worker fits beside a replica and keeps all bounds"
    if single is None:
        return f"two pools: replicas that compute prompts do not keep all bounds; {_waiting(pooled)}"
    better, other = "one pool", "two pools"
    if pooled.samples_per_s > single.samples_per_s:
        better, other = other, better
    fewer, more = sorted((single.samples_per_s, pooled.samples_per_s))
    shares = ""
    if prompt_share is not None:
        shares = f"prompts take {prompt_share:.0%} of the steps of one pool, "
    times = f"{format_number(more / fewer, 2)} times the {format_number(fewer, 0)} tokens/s of {other}"
    return f"{better}: {times}; {shares}{_waiting(pooled)}"


def _waiting(pooled: Trial) -> str:
    busy = pooled.tokens.prefill_busy_share or 0.0
    if busy < _ALL:
        return f"prefill workers wait {1 - busy:.0%} of the time"
    return "replicas wait for prompts"
