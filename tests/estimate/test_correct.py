"""Corrected profiles: no range costs less than a shorter one inside it."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from autoauto.estimate.correct import corrected
from autoauto.estimate.table import cost_table, with_entry_overhead
from autoauto.records.costs.correction import PLAIN_SUM, Correction, RangeFeature
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerGraph
from autoauto.records.units import Precision

LINK = Link(1e9, 0)
CLUSTER = Cluster("one", "ipu", (Device("small", 1e6, 10**8, 1, 10**8),), (LINK,), (LINK,))
amount = st.integers(0, 10**6)
layers = st.lists(
    st.builds(
        LayerProfile,
        amount,
        amount,
        st.fixed_dictionaries({"code_a": st.just(77), "code_b": st.just(5)}),
        st.fixed_dictionaries({"parameter": amount}),
        amount,
        st.just(0),
        amount,
        amount,
        st.just(0),
    ),
    min_size=2,
    max_size=8,
)
weight = st.floats(0, 3)
by_class = st.fixed_dictionaries({"": weight, "MatMul": weight, "MatMul after MatMul": weight})
corrections = st.builds(
    Correction,
    by_class,
    by_class,
    st.dictionaries(st.sampled_from(RangeFeature), weight),
    st.fixed_dictionaries({"code": weight, "parameter": weight, "temporary": weight}),
    st.just(((1, 0.7), (4, 1.2))),
    n_examples=st.just(9),
)


def profile_of(profiles: list[LayerProfile]) -> ModelProfile:
    n = len(profiles)
    options = CompileOptions(1, Precision.FP16)
    return ModelProfile("chain", "fake", options, ("layer",) * n, ("a",) * n, (None,) * n, tuple(profiles))


@given(profiles=layers, correction=corrections)
def test_costs_are_monotone_under_inclusion(
    chain: Callable[..., LayerGraph], profiles: list[LayerProfile], correction: Correction
) -> None:
    n = len(profiles)
    profile = corrected(profile_of(profiles), chain(kinds=["a"] * n), correction)
    table = with_entry_overhead(cost_table(profile, CLUSTER, 1.0), profile, correction)
    for start in range(n):
        for stop in range(start + 1, n + 1):
            whole = table.compute_cycles(start, stop), sum(table.memory_bytes(start, stop).values())
            assert min(whole) >= 0
            for shorter in ((start + 1, stop), (start, stop - 1)):
                if shorter[0] < shorter[1]:
                    assert table.compute_cycles(*shorter) <= whole[0]
                    assert sum(table.memory_bytes(*shorter).values()) <= whole[1]


def test_every_quantity_has_its_factor(chain: Callable[..., LayerGraph]) -> None:
    layer = LayerProfile(100, 200, {"code_a": 50}, {"parameter": 30, "stack": 8}, 70, 10, 11, 12, 13, 40)
    correction = Correction({"": 0.5}, {"": 2.0}, {}, {"code": 0.1, "parameter": 3.0, "temporary": 0.9}, n_examples=5)
    (first, _) = corrected(profile_of([layer, layer]), chain(kinds=["a", "a"]), correction).layers
    assert (first.forward_cycles, first.backward_cycles, first.weight_cycles) == (50, 400, 80)
    assert (first.shared, first.exclusive) == ({"code_a": 5}, {"parameter": 90, "stack": 8})
    assert (first.temporary_bytes, first.carried_bytes) == (63, 9)
    assert (first.input_bytes, first.output_bytes, first.activation_bytes) == (11, 12, 13)


def test_weights_and_the_batch_size_have_factors(chain: Callable[..., LayerGraph]) -> None:
    graph, layer = chain(kinds=["a", "a"]), LayerProfile(100, 0, {}, {}, 0, 0, 0, 0, 0)
    n_bytes = sum(graph.tensors[index].n_bytes(1, Precision.FP16) for index in graph.layers[0].weights)
    correction = Correction(
        {"": 1.0}, features={RangeFeature.WEIGHTS: 30.0}, batch_sizes=((1, 0.5), (4, 1.0)), n_examples=5
    )
    (first, _) = corrected(profile_of([layer, layer]), graph, correction).layers
    assert first.forward_cycles == round(0.5 * (100 + 30 * (n_bytes // 10)))


def test_moved_tensors_have_their_own_factor(chain: Callable[..., LayerGraph]) -> None:
    graph = chain(kinds=["a", "a"])
    layer = LayerProfile(100, 0, {}, {}, 0, 5, 65, 35, 0)  # moves 60 + 30 bytes in 30 cycles
    correction = Correction(
        {"": 2.0}, features={RangeFeature.MOVED: 0.4}, batch_sizes=((1, 0.5), (4, 1.0)), n_examples=5
    )
    (first, _) = corrected(profile_of([layer, layer]), graph, correction).layers
    assert first.forward_cycles == 0.5 * (70 * 2 + 30 * 0.4)


def test_plain_sums_do_not_change_a_profile(chain: Callable[..., LayerGraph]) -> None:
    profile = profile_of([LayerProfile(1, 0, {}, {}, 0, 0, 0, 0, 0)] * 2)
    assert corrected(profile, chain(kinds=["a", "a"]), PLAIN_SUM) is profile
