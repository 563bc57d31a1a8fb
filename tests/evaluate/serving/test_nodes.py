"""Where replicas stand: inside nodes where they can, else as an engine can be told."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.engines.registry import ENGINES, engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.evaluate.serving.nodes import Nodes
from autoauto.targets.gpu.nodes import NodeGpus, groups_of, parts_of

pytest.importorskip("aiconfigurator_core", reason="the figures of GPUs are of extra gpu")


def groups(*sizes: int, n_each: int = 1, kind: str = "a") -> list[NodeGpus]:
    """Groups of GPUs in nodes of so many groups."""
    return [
        NodeGpus(machine, kind, tuple(range(first * n_each, (first + 1) * n_each)))
        for machine, size in enumerate(sizes)
        for first in range(size)
    ]


def placed(engine: str, sizes: tuple[int, ...], n_stages: int, replicas: int) -> list[tuple[int, ...]] | None:
    return Nodes(groups(*sizes), engine_named(engine), GroupSplit()).all_placed(("a",) * n_stages, replicas)


def test_replicas_lie_inside_nodes_where_they_can() -> None:
    assert placed("vllm", (8, 4), 2, 6) == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]
    assert placed("trtllm", (4, 4), 3, 2) == [(0, 1, 2), (4, 5, 6)]


def test_others_have_as_many_stages_in_each_of_several_nodes() -> None:
    assert placed("vllm", (6, 6), 12, 1) == [tuple(range(12))]
    assert placed("sglang", (4, 4, 4), 6, 1) == [(0, 1, 2, 4, 5, 6)]
    assert placed("sglang", (4, 4, 4), 6, 2) is None
    assert placed("vllm", (8, 4), 12, 1) is None
    assert placed("vllm", (8, 4), 8, 1) == [tuple(range(8))]
    assert placed("trtllm", (6, 6), 12, 1) is None


def test_what_whole_replicas_leave_is_used_across_nodes() -> None:
    assert placed("vllm", (3, 3), 2, 3) == [(0, 1), (3, 4), (2, 5)]
    assert placed("trtllm", (3, 3), 2, 3) is None


@given(
    st.sampled_from(list(ENGINES)), st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 12), st.data()
)
def test_like_replicas_are_placed_one_after_the_other(
    engine: str, sizes: list[int], n_stages: int, data: st.DataObject
) -> None:
    """In whatever order numbers of replicas are asked for, and of each number the first ones of more."""
    nodes, kinds = Nodes(groups(*sizes), engine_named(engine), GroupSplit()), ("a",) * n_stages
    every, free = [], nodes.full
    while (chosen := nodes.groups_for(free, kinds)) is not None:
        every.append(chosen)
        free = nodes.without(free, chosen)
    for replicas in data.draw(st.permutations(range(1, len(every) + 2))):
        expected = every[:replicas] if replicas <= len(every) else None
        assert nodes.all_placed(kinds, replicas) == expected


def test_thousands_of_nodes_are_filled_from_the_first_on() -> None:
    nodes = Nodes(groups(*[8] * 4096), engine_named("vllm"), GroupSplit())
    every = nodes.all_placed(("a",), 8 * 4096)
    assert every == [(number,) for number in range(8 * 4096)]
    assert nodes.all_placed(("a", "a"), 8 * 4096) is None


def test_a_node_of_a_pipeline_has_gpus_of_one_kind() -> None:
    unlike = [*groups(2), *(NodeGpus(1, "b", (number,)) for number in range(2))]
    nodes = Nodes(unlike, engine_named("vllm"), GroupSplit())
    assert nodes.groups_for(nodes.full, ("a", "a", "b", "b")) == (0, 1, 2, 3)
    assert nodes.groups_for(nodes.full, ("b", "b", "a", "a")) == (2, 3, 0, 1)
    assert nodes.groups_for(nodes.full, ("a", "b", "b", "a")) is None
    assert nodes.groups_for(nodes.full, ("a", "b", "b")) is None


def test_a_reason_says_the_nodes() -> None:
    nodes = Nodes(groups(4, 2, n_each=2), engine_named("sglang"), GroupSplit(2))
    assert nodes.why_no_room(6, 1) == (
        "sglang has the stages of a replica in one node, or as many in each of several nodes, got 1 x 6 stages of 2 "
        "GPUs on nodes with groups for 8 + 4 GPUs; try another n_ipu, or fewer replicas"
    )


@given(
    st.sampled_from(sorted(ENGINES)),
    st.lists(st.integers(1, 8), min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(1, 6),
)
def test_groups_are_taken_once_and_the_engine_takes_the_nodes(
    engine: str, sizes: list[int], n_stages: int, replicas: int
) -> None:
    every = placed(engine, tuple(sizes), n_stages, replicas)
    inside = sum(size // n_stages for size in sizes)
    if every is None:
        assert replicas > inside
        return
    taken = Counter(group for each in every for group in each)
    assert set(taken.values()) == {1}
    assert len(taken) == n_stages * replicas
    all_groups = groups(*sizes)
    n_parts = [len(parts_of([all_groups[group] for group in each])) for each in every]
    assert sum(n == 1 for n in n_parts) >= min(inside, replicas)


@pytest.mark.parametrize(
    ("name", "n_each", "expected"),
    [
        ("h100_sxm-12", 4, [(0, 0), (0, 4), (1, 0)]),
        ("h100_sxm-6+6", 4, [(0, 0), (1, 0)]),
        ("h100_sxm-8", 3, [(0, 0), (0, 3)]),
        ("h100_sxm-6+4+l40s-3", 2, [(0, 0), (0, 2), (0, 4), (1, 0), (1, 2), (2, 0)]),
    ],
)
def test_groups_lie_in_nodes(name: str, n_each: int, expected: list[tuple[int, int]]) -> None:
    from autoauto.targets.gpu.entry import GPU

    assert GPU.cluster_named is not None
    cluster = GPU.cluster_named(name)
    assert cluster is not None
    every = groups_of(cluster, n_each)
    assert [(group.machine, group.gpus[0]) for group in every] == expected
    assert len(every) == len(cluster.grouped(n_each))
