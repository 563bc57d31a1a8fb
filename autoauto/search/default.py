"""What one would run without a search: `default_knobs`."""

from __future__ import annotations

from autoauto.records.schedule import Order
from autoauto.records.trial import Knobs, SearchSpace, Strategy

MEMORY_PROPORTION = 0.6  # Poplar's own default
BATCH_SIZE = 8


def default_knobs(space: SearchSpace, real: bool) -> Knobs:
    """The configuration that a search's winner is compared with.

    One pipeline of as many devices as the search may use, Poplar's default memory proportion, and the largest batch
    size up to 8 that the search may use (its smallest when all are larger); of everything else the first value of the
    space. On real devices, where a pipeline is not what one would begin with, one device that may use all its memory.
    """
    small = [size for size in space.batch_size if size <= BATCH_SIZE]
    batch_size = max(small, default=space.batch_size[0])
    if real:
        return Knobs(1, 1.0, batch_size)
    n_ipu = max(space.n_ipu)
    if Strategy.PIPELINE not in space.strategy:
        order = Order.SEQUENTIAL if space.training else Order.INFERENCE
        rest = (order, space.recompute[0], space.steps[0], Strategy.PHASED)
        return Knobs(n_ipu, MEMORY_PROPORTION, batch_size, *rest)
    rest_of_pipeline = (space.schedule[0], space.recompute[0], space.n_micro_batches[0])
    return Knobs(n_ipu, MEMORY_PROPORTION, batch_size, *rest_of_pipeline)
