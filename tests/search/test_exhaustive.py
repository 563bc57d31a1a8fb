"""Everything, in order."""

from collections.abc import Callable
from typing import Any

from autoauto.records.trial import Knobs, SearchSpace
from autoauto.search.exhaustive import exhaustive


def test_every_configuration_in_the_order_of_the_grid(world: Callable[..., Any]) -> None:
    for seed in range(20):
        some = world(seed)
        assert list(some.run(exhaustive(some.space))) == [knobs for cell in some.space.cells for knobs in cell]
        assert some.asked == []


def test_progress_counts_configurations() -> None:
    steps = exhaustive(SearchSpace((1, 2), (0.6,), (4, 8)))
    assert [(step.knobs, step.done, step.total) for step in steps] == [
        (Knobs(1, 0.6, 4), 0, 4),
        (Knobs(1, 0.6, 8), 1, 4),
        (Knobs(2, 0.6, 4), 2, 4),
        (Knobs(2, 0.6, 8), 3, 4),
    ]
