"""Which activations a stage that recomputes stashes."""

from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.graph.load import load_graph
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.stash import ActivationStash, _fewest_bytes, checkpoints, stash_of
from autoauto.records.layers import Derivative, LayerGraph, LayerRange, Tensor
from autoauto.records.units import Precision


def test_a_transformer_has_one_a_block_and_resnet_at_outputs_of_blocks() -> None:
    bert = load_graph("bert-base-128-mlm")
    assert len(checkpoints(bert)) == len(bert.blocks) == 12
    assert all(
        sum(block.layers.start < c <= block.layers.stop for c in checkpoints(bert)) == 1 for block in bert.blocks
    )
    resnet = load_graph("resnet50-train")
    assert {resnet.layers[c - 1].op for c in checkpoints(resnet)} <= {"MaxPool", "Add", "Relu"}


def stash(checkpoints: tuple[int, ...], *ends: tuple[int, int]) -> ActivationStash:
    """Tensors by producer and last use, in a model without layers."""
    tensors = tuple(Tensor("x", (2,), 0, "float", *each) for each in ends)
    return ActivationStash(Derivative(LayerGraph("net", (), tensors, None, ""), frozenset()), checkpoints)


def test_a_tensor_is_stashed_at_the_first_checkpoint_behind_its_layer() -> None:
    ends = ((2, 3), (3, 5), (-1, 9), (3, 4), (8, 9))
    assert [stash((3, 5, 8), *ends).boundary(i) for i in range(5)] == [3, 5, 3, None, None]
    assert [stash((3, 5, 8), *ends).within(LayerRange(5, 8)).boundary(i) for i in range(5)] == [None, 5, 5, None, None]


def test_without_training_nothing_is_stashed() -> None:
    graph = load_graph("resnet50-train")
    for training in (False, True):
        whole = stash_of(graph, CompileOptions(1, Precision.FP16, training))
        assert bool(whole.checkpoints) == any(map(whole.of_layer, range(len(graph)))) == training


sizes = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7)


@given(sizes=sizes, limit=st.integers(0, 40))
@settings(deadline=None)
def test_the_fewest_bytes_within_a_limit(sizes: Sequence[tuple[int, int]], limit: int) -> None:
    """Against all subsets: candidate i has a weight, and a segment before it."""
    weights, sums = [0, *(w for w, _ in sizes[:-1]), 0], list(accumulate((n for _, n in sizes), initial=0))
    inner = range(1, len(sizes))
    within = [
        sum(weights[i] for i in chosen)
        for n in range(len(inner) + 1)
        for chosen in combinations(inner, n)
        if max(sums[b] - sums[a] for a, b in pairwise((0, *chosen, len(sizes)))) <= limit
    ]
    choice = _fewest_bytes(weights, sums, limit)
    assert (choice is None) == (not within)
    if choice is not None:
        ends = (0, *choice.positions, len(sizes))
        assert choice.stored_bytes == min(within) == sum(weights[i] for i in choice.positions)
        assert choice.largest_bytes == max(sums[b] - sums[a] for a, b in pairwise(ends)) <= limit
