"""What one would run without a search, as parts of the space of a search."""

import pytest

from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.space import SearchSpace
from autoauto.study.methods.simple_uses import SimpleUse, simple_uses


def space(n_ipu: tuple[int, ...], replicas: tuple[int, ...], cores: tuple[int, ...] = (1,)) -> SearchSpace:
    bound = (Constraint("n_devices <= 4"),)
    return SearchSpace(
        n_ipu, (), (1, 2), replicas=replicas, cores_per_device=cores, runtime=("onnxruntime",), constraints=bound
    )


@pytest.mark.parametrize(
    ("searched", "expected"),
    [
        (space((1, 2, 4), (1, 2, 4)), [(1, 1, 1), (1, 4, 1), (4, 1, 1)]),
        (space((1, 2, 3), (1, 2, 3)), [(1, 1, 1), (1, 3, 1), (3, 1, 1)]),
        (space((1,), (1,)), [(1, 1, 1)]),
        (space((2, 4), (1, 2)), [(4, 1, 1)]),
        (space((1,), (4,)), [(1, 4, 1)]),
        (space((2,), (2,)), []),
        (space((1, 2, 4), (1, 2, 4), (1, 2, 4)), [(1, 1, 1), (1, 4, 1), (4, 1, 1), (1, 1, 4)]),
    ],
)
def test_each_way_alone_is_a_use(searched: SearchSpace, expected: list[tuple[int, int, int]]) -> None:
    assert [use[:3] for use in simple_uses(searched)] == expected


def test_phases_are_no_use() -> None:
    phased = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1, n_micro_batches=4, strategy=Strategy.PHASED)
    assert not SimpleUse(1, 1, 1).has(phased)
    assert SimpleUse(1, 1, 1).has(Knobs(n_ipu=1, memory_proportion=0.3, batch_size=7))
    assert simple_uses(SearchSpace((1,), (0.6,), (8,), strategy=(Strategy.PHASED,))) == ()
