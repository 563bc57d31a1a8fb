"""A few ranges of layers to compile whole, so that an estimate can learn from them: `sample`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import fsum, pow
from random import Random

from autoauto.profile.profiler import Progress
from autoauto.records.correction import WholeRange
from autoauto.records.errors import DoesNotFit
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import CompiledRange, CompileOptions, ModelProfile, Target
from autoauto.records.timeline import Runner

N_CANDIDATES = 63  # configurations that a bisection of the default space compiles whole, at most
SHARE = 0.1  # of what that costs
LEAST = 3  # examples of a batch size that make it known
MOST, MOST_RUN = 24, 12
"""Ranges, where the budget allows them; fewer on real devices where the whole model takes longer than `QUICK_S`."""
QUICK_S = 0.1
SHORTEST = 16  # a range has at least this part of the layers, 1 / 16: stages of 16 devices
N_DRAWS = 4  # of which the one is taken whose operators are least like those before


def sample(
    graph: LayerGraph,
    target: Target,
    device: Device,
    options: CompileOptions,
    profile: Callable[[CompileOptions], ModelProfile],
    progress: Progress | None = None,
) -> Iterator[tuple[CompileOptions, list[WholeRange]]]:
    """A few ranges compiled whole at each of two batch sizes near that of `options`; one that cannot be is left out.

    A real device takes seconds for a range of a large model, so it is asked for fewer. `profile` profiles the model;
    `progress(done, total)` counts compiles.
    """
    sizes, operators = sample_batch_sizes(options.batch_size), [layer.op for layer in graph.layers]
    budget = SHARE * N_CANDIDATES / len(sizes)
    for near in (replace(options, batch_size=batch_size) for batch_size in sizes):
        cycles = [layer.forward_cycles + layer.backward_cycles for layer in profile(near).layers]
        quick = not isinstance(target, Runner) or sum(cycles) <= QUICK_S * device.clock_hz
        chosen = choose(operators, cycles, budget, (MOST if quick else MOST_RUN) // len(sizes), seed=near.batch_size)
        wholes = []
        for done, layers in enumerate(chosen):
            if progress is not None:
                progress(done, len(chosen))
            with suppress(DoesNotFit):
                wholes.append(whole_range(layers, target.compile(graph, layers, device, near)))
        if progress is not None:
            progress(len(chosen), len(chosen))
        yield near, wholes


def whole_range(layers: LayerRange, compiled: CompiledRange) -> WholeRange:
    """What of a compiled range is an example."""
    return WholeRange(layers, compiled.forward_cycles, compiled.backward_cycles, compiled.memory_bytes)


def sample_batch_sizes(batch_size: int) -> tuple[int, ...]:
    """The batch sizes to sample at: the power of 4 below and the one before, so that few serve all.

    >>> [sample_batch_sizes(n) for n in (1, 3, 4, 63, 128)]
    [(1,), (1,), (1, 4), (4, 16), (16, 64)]
    """
    power = (batch_size.bit_length() - 1) // 2
    return tuple(4**n for n in range(max(power - 1, 0), power + 1))


def is_sampled(batch_size: int, sampled: Iterable[int]) -> bool:
    """Whether a batch size is at most 4 times another that is sampled, and no less than a quarter of it.

    >>> is_sampled(100, [16, 64]), is_sampled(3, [16, 64]), is_sampled(1, [])
    (True, False, False)
    """
    return any(batch_size <= 4 * near and near <= 4 * batch_size for near in sampled)


def well_known(n_examples: Mapping[int, int]) -> list[int]:
    """The batch sizes with as many examples as a sample has at least: a measured stage alone is none.

    >>> well_known({1: 12, 8: 1})
    [1]
    """
    return [batch_size for batch_size, n in n_examples.items() if n >= LEAST]


def choose(
    operators: Sequence[str], cycles: Sequence[int], budget: float, most: int, seed: int = 0
) -> list[LayerRange]:
    """Different ranges of two layers or more, spread over length, position and mix of operators.

    There are `most` of them, or as many as cost together at most `budget` times the whole model by `cycles`, but at
    least a third of `most` if there can be.
    Lengths are spread evenly by ratio, from a sixteenth of the model; the first few are as spread as all. Equal
    arguments choose equal ranges.
    """
    random, whole = Random(seed), max(sum(cycles), 1)
    chosen: dict[LayerRange, dict[str, float]] = {}
    spent = 0.0
    for index in range(1, 4 * most) if len(operators) > 1 else ():
        length = _length(len(operators), _spread(index))
        draws = [_start(len(operators) - length, random) for _ in range(N_DRAWS)]
        mixes = {LayerRange(start, start + length): _mix(operators, cycles, start, length) for start in draws}
        new = [layers for layers in mixes if layers not in chosen]
        if not new:
            continue
        layers = max(new, key=lambda layers: min((_distance(mixes[layers], mix) for mix in chosen.values()), default=0))
        spent += sum(cycles[slice(*layers)]) / whole
        if len(chosen) == most or (spent > budget and 3 * len(chosen) >= most):
            break
        chosen[layers] = mixes[layers]
    return list(chosen)


def _start(last: int, random: Random) -> int:
    """Where a range begins, from 0 to `last`; the ends more often, since few ranges reach there otherwise."""
    more = last // 5 + 1
    return min(max(random.randrange(-more, last + more + 1), 0), last)


def _length(n_layers: int, share: float) -> int:
    shortest = max(2, n_layers // SHORTEST)
    return round(shortest * pow(n_layers / shortest, share))


def _spread(index: int) -> float:
    """Van der Corput's sequence, 1/2, 1/4, 3/4, 1/8, ...: every beginning of it is spread over 0 to 1.

    >>> [_spread(index) for index in (1, 2, 3, 4, 5)]
    [0.5, 0.25, 0.75, 0.125, 0.625]
    """
    digits = f"{index:b}"[::-1]
    return int(digits, 2) / (1 << len(digits))


def _mix(operators: Sequence[str], cycles: Sequence[int], start: int, length: int) -> dict[str, float]:
    """The share of every operator in the cycles of a range."""
    totals: Counter[str] = Counter()
    for name, n_cycles in zip(operators[start : start + length], cycles[start : start + length], strict=True):
        totals[name] += n_cycles
    whole = max(totals.total(), 1)
    return {name: total / whole for name, total in totals.items()}


def _distance(left: dict[str, float], right: dict[str, float]) -> float:
    """How far two mixes are apart; `fsum`, since a set has another order in every process, and its last digit ties."""
    return fsum(abs(left.get(name, 0.0) - right.get(name, 0.0)) for name in {*left, *right})
