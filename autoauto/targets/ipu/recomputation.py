"""The memory of a range that computes its forward pass again, from checkpoint to checkpoint: `recomputation`.

The forward pass stashes what is alive at the checkpoints of the model that lie in the range (`records/checkpoints.py`).
The backward pass then takes one segment between two checkpoints after the other, from the last one: it computes the
segment's activations, which stay until it has used them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from autoauto.records.checkpoints import checkpoints, first_checkpoint
from autoauto.records.hardware import Device
from autoauto.records.layers import Derivative, LayerRange
from autoauto.records.profile import CompileOptions
from autoauto.targets.ipu.liveness import live_bytes
from autoauto.targets.ipu.memory import working_bytes
from autoauto.targets.ipu.operator_cost import OperatorCost


class Recomputation(NamedTuple):
    """What a range needs that computes its forward pass again.

    Attributes:
        checkpoint_bytes: what a micro-batch stashes at checkpoints, besides the inputs of the range.
        temporary_bytes: the peak over both passes, the checkpoints of this micro-batch included.
    """

    checkpoint_bytes: int = 0
    temporary_bytes: int = 0


NOTHING_AGAIN = Recomputation()


def recomputation(
    passes: Derivative,
    layers: LayerRange,
    costs: Sequence[OperatorCost],
    backward_bytes: Sequence[int],
    device: Device,
    options: CompileOptions,
) -> Recomputation:
    """The memory of a range whose forward pass has these `costs`.

    `backward_bytes` are in use while each layer runs backward, besides stashed activations.
    """
    graph = passes.graph
    chosen = [boundary for boundary in checkpoints(graph) if layers.start <= boundary < layers.stop]
    inside = {index for layer in graph.layers[slice(*layers)] for index in (*layer.inputs, *layer.outputs)}
    stored = {index for index in inside if first_checkpoint(graph.tensors[index], chosen) is not None}
    stashed_until, backward_peak_bytes = dict[int, int](), 0
    for segment in _segments(layers, chosen):
        for index in range(*segment):
            stashed_until.update(dict.fromkeys(passes.stashed(index), segment.stop))
        held_bytes = _n_bytes(passes, (i for i in stored if graph.tensors[i].last_use < segment.start), options)
        part = slice(segment.start - layers.start, segment.stop - layers.start)
        stash = accumulate(stash_bytes(passes, segment, options))
        backward_peak_bytes = max(
            backward_peak_bytes, held_bytes + max(map(sum, zip(stash, backward_bytes[part], strict=True)))
        )
    stashed_until.update(dict.fromkeys(stored, layers.stop))
    alive = live_bytes(graph, layers, costs, options, stashed_until)
    forward = (n_bytes + working_bytes(cost, device.n_tiles) for n_bytes, cost in zip(alive, costs, strict=True))
    made = (index for index in stored if graph.tensors[index].producer >= layers.start)
    return Recomputation(_n_bytes(passes, made, options), max(backward_peak_bytes, *forward))


def stash_bytes(passes: Derivative, layers: LayerRange, options: CompileOptions) -> list[int]:
    """Bytes of the activations that each layer stashes and no earlier layer of the range has stashed."""
    seen: set[int] = set()
    n_bytes = []
    for index in range(*layers):
        new = passes.stashed(index) - seen
        seen |= new
        n_bytes.append(_n_bytes(passes, new, options))
    return n_bytes


def _segments(layers: LayerRange, chosen: Sequence[int]) -> list[LayerRange]:
    """The parts of a range between checkpoints, of which the first may be its start."""
    return [LayerRange(*ends) for ends in pairwise(sorted({layers.start, *chosen, layers.stop}))]


def _n_bytes(passes: Derivative, tensors: Iterable[int], options: CompileOptions) -> int:
    return sum(passes.graph.tensors[index].n_bytes(options.batch_size, options.precision) for index in tensors)
