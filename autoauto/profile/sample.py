"""Choose a few ranges of layers and compile them whole, as examples for the estimate: `sample`, `choose`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import fsum, pow
from random import Random

from autoauto.profile.profiler import Progress
from autoauto.records.costs.correction import WholeRange
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.profile import OUTLINED, ModelProfile
from autoauto.records.errors import DoesNotFit
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.target import CompilingTarget, traits_of

N_BISECTION_COMPILES = 63  # configurations that a bisection of the default space compiles whole, at most
SHARE = 0.1  # of the cost of these compiles that samples near one batch size may cost
SAMPLE_SHARE = 0.5  # of ranges and cost that belong to one of two sampled batch sizes
MIN_EXAMPLES = 3  # at a batch size, for it to need no sample
MAX_RANGES, MAX_RANGES_RUN = 24, 12
"""Ranges near one batch size, if the budget allows them; fewer on a real device that takes more than `QUICK_S`."""
QUICK_S = 0.1
MAX_STAGES = 16  # a range has at least 1 / 16 of the layers, about as a stage of 16 devices
N_DRAWS = 4  # ranges of one length, of which the one is chosen whose operators differ most from earlier ranges


def sample(
    graph: LayerGraph,
    target: CompilingTarget,
    device: Device,
    profile: ModelProfile,
    share: float,
    progress: Progress | None = None,
) -> list[WholeRange]:
    """A few ranges compiled whole at the batch size of a profile, without those that do not fit.

    A real device takes seconds for a range of a large model, so it compiles fewer.

    `share` is that of all ranges, and of their cost, for this one of several sampled batch sizes.
    """
    options = profile.options
    assert options is not None
    cycles = [layer.forward_cycles + layer.backward_cycles for layer in profile.layers]
    quick = not traits_of(target).runs_plans or sum(cycles) <= QUICK_S * device.clock_hz
    most = round((MAX_RANGES if quick else MAX_RANGES_RUN) * share)
    operators = [layer.op for layer in graph.layers]
    chosen = choose(operators, cycles, SHARE * N_BISECTION_COMPILES * share, most, seed=options.batch_size)
    wholes = []
    for done, layers in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        with suppress(DoesNotFit):
            compiled = target.compile(graph, layers, device, options)
            # What a subgraph for equal layers saves is no part of an example.
            memory_bytes = {name: n_bytes for name, n_bytes in compiled_bytes(compiled).items() if name != OUTLINED}
            wholes.append(WholeRange(layers, compiled.forward_cycles, compiled.backward_cycles, memory_bytes))
    if progress is not None:
        progress(len(chosen), len(chosen))
    return wholes


def sample_batch_sizes(batch_size: int) -> tuple[int, ...]:
    """The batch sizes to sample at: the largest power of 4 that is not above, and the one before it.

    So samples at a few batch sizes are enough for all.

    >>> [sample_batch_sizes(n) for n in (1, 3, 4, 63, 128)]
    [(1,), (1,), (1, 4), (4, 16), (16, 64)]
    """
    power = (batch_size.bit_length() - 1) // 2
    return tuple(4**n for n in range(max(power - 1, 0), power + 1))


def is_sampled(batch_size: int, sampled: Iterable[int]) -> bool:
    """True if a sampled batch size is within a factor of 4.

    >>> is_sampled(100, [16, 64]), is_sampled(3, [16, 64]), is_sampled(1, [])
    (True, False, False)
    """
    return any(batch_size <= 4 * near and near <= 4 * batch_size for near in sampled)


def well_known(n_examples: Mapping[int, int]) -> list[int]:
    """The batch sizes with enough examples; a few measured stages are not enough.

    >>> well_known({1: 12, 8: 1})
    [1]
    """
    return [batch_size for batch_size, n in n_examples.items() if n >= MIN_EXAMPLES]


def choose(
    operators: Sequence[str], cycles: Sequence[int], budget: float, most: int, seed: int = 0
) -> list[LayerRange]:
    """Different ranges of two layers or more, spread over length, position and mix of operators.

    There are at most `most` ranges, which together cost at most `budget` times the whole model by `cycles`; but a third
    of `most` if possible, whatever they cost. The logarithms of their lengths are spread evenly, from a sixteenth of
    the model; so are those of the first few. Equal arguments choose equal ranges.
    """
    n_layers = len(operators)
    if n_layers < 2:
        return []
    random = Random(seed)
    all_cycles = max(sum(cycles), 1)
    chosen: dict[LayerRange, dict[str, float]] = {}  # with the mix of operators of each

    def nearest(mix: dict[str, float]) -> float:
        """The distance of a mix from the most similar one of the chosen ranges."""
        return min((_distance(mix, other) for other in chosen.values()), default=0.0)

    spent = 0.0
    for index in range(1, 4 * most):
        length = _length(n_layers, _spread(index))
        drawn: dict[LayerRange, dict[str, float]] = {}
        for _ in range(N_DRAWS):
            start = _start(n_layers - length, random)
            layers = LayerRange(start, start + length)
            if layers not in chosen:
                drawn[layers] = _mix(operators, cycles, layers)
        if not drawn:
            continue
        layers = max(drawn, key=lambda layers: nearest(drawn[layers]))
        spent += sum(cycles[slice(*layers)]) / all_cycles
        if len(chosen) == most or (spent > budget and 3 * len(chosen) >= most):
            break
        chosen[layers] = drawn[layers]
    return list(chosen)


def _start(last: int, random: Random) -> int:
    """A random first layer from 0 to `last`; 0 and `last` more often, since few ranges reach the ends otherwise."""
    margin = last // 5 + 1
    return min(max(random.randrange(-margin, last + margin + 1), 0), last)


def _length(n_layers: int, share: float) -> int:
    shortest = max(2, n_layers // MAX_STAGES)
    return round(shortest * pow(n_layers / shortest, share))


def _spread(index: int) -> float:
    """Van der Corput's sequence, 1/2, 1/4, 3/4, 1/8, ...: its first n numbers are spread over 0 to 1, for every n.

    >>> [_spread(index) for index in (1, 2, 3, 4, 5)]
    [0.5, 0.25, 0.75, 0.125, 0.625]
    """
    digits = f"{index:b}"[::-1]
    return int(digits, 2) / (1 << len(digits))


def _mix(operators: Sequence[str], cycles: Sequence[int], layers: LayerRange) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for name, n_cycles in zip(operators[slice(*layers)], cycles[slice(*layers)], strict=True):
        totals[name] += n_cycles
    whole = max(totals.total(), 1)
    return {name: total / whole for name, total in totals.items()}


def _distance(left: dict[str, float], right: dict[str, float]) -> float:
    """The distance of two mixes; by `fsum`: a set has another order in every process, and rounding may break ties."""
    return fsum(abs(left.get(name, 0.0) - right.get(name, 0.0)) for name in {*left, *right})
