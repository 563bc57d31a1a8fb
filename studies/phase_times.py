"""Times of the parts of a phase, and the predicted times of whole loops: `PhaseTimes`, `measure`.

Parts are measured as CPU time of the process. On a busy machine other processes interrupt long loops more often than
short parts, so that times on the wall clock would not be comparable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

from autoauto.programs.phased_training.network import Network, PhaseCall, Samples
from autoauto.programs.phased_training.training import (
    UpdateLoop,
    add,
    feed,
    fill,
    load_all,
    mover,
    run_update,
    store_all,
    sums_of,
    update_variables,
)
from autoauto.targets.host.transport.shared_memory import ArrayFile

STEPS_ALONE = 3
"""Micro-batches over which the parts of a phase are averaged."""


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds of a phase's parts.

    Attributes:
        variables_s: V, loading the variables.
        load_s, compute_s, store_s: L, C and S of a micro-batch.
        add_s: A, adding the gradients of a micro-batch to their sums.
        sums_s: G, loading and storing those sums.
        update_s: U, updating the variables.
    """

    variables_s: float
    load_s: float
    compute_s: float
    store_s: float
    add_s: float
    sums_s: float
    update_s: float

    def serialised_s(self, steps: int) -> float:
        """V + N (L + C + S) + (N - 1) A + U, the serialised loop of [popxl-phased] with the optimiser."""
        return self.variables_s + self._rest_s(steps)

    def naive_s(self, steps: int) -> float:
        """N (V + L + C + S) + (N - 1) (A + G) + U: the sums of gradients move between two steps, too."""
        return steps * self.variables_s + (steps - 1) * self.sums_s + self._rest_s(steps)

    def overlapped_s(self, steps: int) -> float:
        """V + L + max(L, C) + (N - 2) max(L + S, C) + max(S, C) + S + U, where C contains A: [popxl-phased].

        The loop is serialised, and loads and stores share one thread beside the computing one.
        """
        if steps == 1:
            return self.serialised_s(1)
        load, compute, store = self.load_s, self.compute_s + self.add_s, self.store_s
        middle = (steps - 2) * max(load + store, compute)
        ends = load + max(load, compute) + max(store, compute) + store
        return self.variables_s + ends + middle + self.update_s

    def _rest_s(self, steps: int) -> float:
        step_s = self.load_s + self.compute_s + self.store_s
        return steps * step_s + (steps - 1) * self.add_s + self.update_s


class LoopTime(NamedTuple):
    """Seconds of an update on the wall clock and as CPU time; a large ratio means a busy machine."""

    wall_s: float
    cpu_s: float


class MeasuredRound(NamedTuple):
    """One round of measurements: the parts of every phase, and the updates by number of steps and loop."""

    phases: list[PhaseTimes]
    loops: dict[tuple[int, UpdateLoop], LoopTime]


def measure(
    network: Network, samples: Samples, steps: Sequence[int], loops: Sequence[UpdateLoop], repeats: int
) -> MeasuredRound:
    """Measure parts and loops in this process; `network.steps` is the maximum of `steps`."""
    with ArrayFile(network.buffers()) as memory:
        fill(memory, network)
        feed(memory, network, samples, 0)
        _time_loop(memory, network, network.steps, UpdateLoop())  # writes every entry and touches every page
        # Phases run in turn, so that caches contain the data of the other phases as in a loop.
        runs: list[list[dict[str, float]]] = [[] for _ in network.calls]
        for _ in range(repeats):
            for call, own in zip(network.calls, runs, strict=True):
                own.append(_time_parts(memory, call))
        phases = [PhaseTimes(**medians(own)) for own in runs]
        times = {(n, loop): _time_loop(memory, network, n, loop) for n, loop in product(steps, loops)}
    return MeasuredRound(phases, times)


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median under each key."""
    return {key: median(run[key] for run in runs) for key in runs[0]}


def _time_parts(memory: ArrayFile, call: PhaseCall) -> dict[str, float]:
    """Seconds of one phase by part, with the time to free its memory; the variables do not change."""
    seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def part(name: str, n_times: int = 1) -> Iterator[None]:
        start = process_time()
        yield
        seconds[name] += (process_time() - start) / n_times

    with part("variables_s"):
        variables = load_all(memory, call.variables)
    with part("sums_s"):
        sums = load_all(memory, sums_of(call))
    for step in range(STEPS_ALONE):
        with part("load_s", STEPS_ALONE):
            loaded = load_all(memory, call.loads, step)
        with part("compute_s", STEPS_ALONE):
            computed = call.graph(variables, loaded)
        with part("add_s", STEPS_ALONE):
            add(sums, computed.gradients)
        with part("store_s", STEPS_ALONE):
            store_all(memory, call.stores, computed.stored, step)
        with part("compute_s", STEPS_ALONE):
            del loaded, computed
    with part("sums_s"):
        store_all(memory, sums_of(call), sums)
    with part("variables_s"):
        del variables
    with part("update_s"):
        update_variables(memory, call, sums, STEPS_ALONE, learning_rate=0.0)
    return seconds


def _time_loop(memory: ArrayFile, network: Network, steps: int, loop: UpdateLoop) -> LoopTime:
    with mover(loop.io_mode) as start_move:
        wall, cpu = perf_counter(), process_time()
        run_update(memory, network, steps, loop, start_move)
        return LoopTime(perf_counter() - wall, process_time() - cpu)
