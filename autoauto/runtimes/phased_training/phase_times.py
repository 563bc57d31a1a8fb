"""What the parts of a phase take, each measured alone, and what whole loops made of them should take.

The clock of the parts is the process's CPU time: on a busy machine short parts escape the other processes and long
loops do not, so that the wall clock would tell two different machines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

from autoauto.runtimes.phased_training.network import Call, Network, Samples
from autoauto.runtimes.phased_training.phase import add, learn, load_all, mover, store_all, sums_of
from autoauto.runtimes.phased_training.training import Loop, feed, fill, run_update
from autoauto.targets.host.transport.array_file import StreamingMemory

STEPS_ALONE = 3
"""Micro-batches of a phase that is measured alone."""


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds of a phase's parts.

    Attributes:
        variables_s: V, to load the variables.
        load_s, compute_s, store_s: L, C and S of a micro-batch.
        add_s: A, to add the gradients of a micro-batch to their sums.
        sums_s: G, to load and store those sums.
        learn_s: U, to update the variables.
    """

    variables_s: float
    load_s: float
    compute_s: float
    store_s: float
    add_s: float
    sums_s: float
    learn_s: float

    def serialised_s(self, steps: int) -> float:
        """V + N (L + C + S) + (N - 1) A + U: seed 002 with its optimiser.

        >>> PhaseTimes(4, 1, 3, 1, 0, 0, 2).serialised_s(10)
        56
        """
        return self.variables_s + self._rest_s(steps)

    def naive_s(self, steps: int) -> float:
        """N (V + L + C + S) + (N - 1) (A + G) + U: between two steps the sums of gradients move as well.

        >>> PhaseTimes(4, 1, 3, 1, 0, 0, 2).naive_s(10)
        92
        """
        return steps * self.variables_s + (steps - 1) * self.sums_s + self._rest_s(steps)

    def overlapped_s(self, steps: int) -> float:
        """Serialised, V + L + max(L, C) + (N - 2) max(L + S, C) + max(S, C) + S + U (IPU.md section 5), C with A.

        >>> PhaseTimes(0, 1, 4, 1, 0, 0, 0).overlapped_s(2), PhaseTimes(0, 3, 2, 1, 0, 0, 0).overlapped_s(2)
        (10, 9)
        """
        if steps == 1:
            return self.serialised_s(1)
        load, compute, store = self.load_s, self.compute_s + self.add_s, self.store_s
        middle = (steps - 2) * max(load + store, compute)
        ends = load + max(load, compute) + max(store, compute) + store
        return self.variables_s + ends + middle + self.learn_s

    def _rest_s(self, steps: int) -> float:
        a_step = self.load_s + self.compute_s + self.store_s
        return steps * a_step + (steps - 1) * self.add_s + self.learn_s


class LoopTime(NamedTuple):
    """Seconds of an update on the wall and on the process's own clock; much more of the first: a busy machine."""

    wall_s: float
    cpu_s: float


class Measured(NamedTuple):
    """One round of measurements: the parts of every call, and updates of each number of steps by each loop."""

    phases: list[PhaseTimes]
    loops: dict[tuple[int, Loop], LoopTime]


def measure(network: Network, samples: Samples, steps: Sequence[int], loops: Sequence[Loop], repeats: int) -> Measured:
    """Measure parts and loops in turn, in this process; `network.steps` is the most steps."""
    with StreamingMemory(network.buffers()) as memory:
        fill(memory, network)
        feed(memory, network, samples, 0)
        _time_loop(memory, network, network.steps, Loop())  # every entry has been written, every page touched
        phases = time_phases(memory, network.calls, repeats)
        times = {(n, loop): _time_loop(memory, network, n, loop) for n in steps for loop in loops}
    return Measured(phases, times)


def time_phases(memory: StreamingMemory, calls: Sequence[Call], repeats: int) -> list[PhaseTimes]:
    """Medians of the parts of phases that run in turn, so that caches hold what the other phases left."""
    rounds = [[_time_parts(memory, call) for call in calls] for _ in range(repeats)]
    return [PhaseTimes(**medians(runs)) for runs in zip(*rounds, strict=True)]


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median under each key.

    >>> medians([{"a": 1.0}, {"a": 9.0}, {"a": 2.0}])
    {'a': 2.0}
    """
    return {key: median(run[key] for run in runs) for key in runs[0]}


def _time_parts(memory: StreamingMemory, call: Call) -> dict[str, float]:
    """Seconds of one phase by part, with what it takes to free the memory; its variables stay what they are."""
    seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def part(name: str, n_times: int = 1) -> Iterator[None]:
        begin = process_time()
        yield
        seconds[name] += (process_time() - begin) / n_times

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
    with part("learn_s"):
        learn(memory, call, sums, STEPS_ALONE, learning_rate=0.0)
    return seconds


def _time_loop(memory: StreamingMemory, network: Network, steps: int, loop: Loop) -> LoopTime:
    with mover(loop.io_mode) as start_move:
        wall, cpu = perf_counter(), process_time()
        run_update(memory, network, steps, loop, start_move)
        return LoopTime(perf_counter() - wall, process_time() - cpu)
