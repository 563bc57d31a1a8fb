"""The cost of a range by prefix sums."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import SharedMemory
from tests.cost_tables import make_table, with_memory


def table(
    shared: tuple[tuple[int, ...], ...] = ((0,), (0, 1), ()), exclusive: Mapping[str, list[int]] | None = None
) -> CostTable:
    prefixes = exclusive or {"parameter": [0, 10, 30, 60]}
    return make_table(
        np.array([0, 5, 7, 12]),
        backward_prefix_cycles=np.array([0, 1, 1, 2]),
        exclusive_prefix_bytes={name: np.array(values) for name, values in prefixes.items()},
        shared=SharedMemory(shared, (100, 1000), ("vertexCode", "parameter")),
        peak_bytes=np.array([3, 9, 4]),
        activation_prefix_bytes=np.array([0, 2, 5, 5]),
        receive_cycles=np.array([[1, 2, 3]]),
        send_cycles=np.array([[0, 10, 20, 30]]),
        memory_limit_bytes=[10_000],
    )


def test_a_range_costs_the_difference_of_its_ends() -> None:
    assert [table().compute_cycles(*ends) for ends in ((0, 3), (1, 2), (2, 3))] == [12, 2, 5]
    assert table().transfer_cycles(0, 1, 3) == 32


def test_a_shared_key_counts_once_and_joins_its_category() -> None:
    memory = table().memory_bytes(0, 2)
    assert memory["vertexCode"] == 100
    assert memory["parameter"] == 30 + 1000


def test_what_a_range_saves_by_subgraphs_counts_only_where_it_does_not_fit() -> None:
    plain = table()
    once = SharedMemory(((2, 3), (2, 3), (3,)), (100, 1000, 12, 4), ("vertexCode", "parameter", "control", "outlined"))
    outlined = replace(plain.memory, exclusive_prefix_bytes={"parameter": np.array([0, 1, 2, 3])}, shared=once)
    both = with_memory(plain, outlined=outlined)
    whole = sum(plain.memory_bytes(0, 3).values())
    assert both.memory_bytes(0, 3) == plain.memory_bytes(0, 3)
    small = replace(both, memory_limit_bytes=np.array([whole - 1]))
    assert small.memory_bytes(0, 3) == {**plain.memory_bytes(0, 3), "outlined": 3 + 12 + 4 + 11 - whole}
    assert small.plain.memory_bytes(0, 3) == plain.memory_bytes(0, 3)
    costlier = with_memory(small, outlined=replace(outlined, peak_bytes=np.array([9999, 0, 0])))
    assert costlier.memory_bytes(0, 3) == plain.memory_bytes(0, 3), "it would save nothing"


def test_the_peak_includes_activations_of_earlier_layers_of_the_range() -> None:
    assert table().memory_bytes(0, 3)["temporary"] == 9 + 2
    assert table().memory_bytes(1, 3)["temporary"] == 9
    assert table().memory_bytes(2, 3)["temporary"] == 4


def test_exclusive_temporary_bytes_are_added_to_the_peak() -> None:
    assert table(exclusive={"temporary": [0, 1, 1, 1]}).memory_bytes(0, 1)["temporary"] == 1 + 3


def test_the_table_has_its_numbers_of_layers_and_devices() -> None:
    assert (table().n_layers, table().n_devices) == (3, 1)


def test_a_device_stashes_activations_of_other_micro_batches() -> None:
    training = replace(with_memory(table(), stashed_input_bytes=np.array([0, 1, 2])), stash_entries=(3,))
    assert training.memory.stash_entry.between(0, 3) == 5
    assert training.memory.stash_entry.between(1, 3) == 1 + 3
    assert training.memory_bytes(1, 3)["stash"] == 3 * 4
    assert training.memory_bytes(1, 3)["temporary"] == 1 + 9
    assert "stash" not in table().memory_bytes(1, 3)


def test_with_recomputation_only_inputs_are_stashed_however_large_later_ones_are() -> None:
    training = replace(with_memory(table(), input_bytes=np.array([7, 1, 2]), recompute=True), stash_entries=(3,))
    assert [training.memory.stash_entry.between(*ends) for ends in ((0, 3), (1, 3), (1, 2))] == [7, 1, 1]
    assert training.memory_bytes(1, 3)["stash"] == 3 * 1
    assert training.memory_bytes(2, 3)["stash"] == 3 * 2
    assert training.memory_bytes(1, 3)["temporary"] == 9


def test_every_device_has_its_own_number_of_stash_entries() -> None:
    both = replace(table(), memory_limit_bytes=np.array([1, 1]), stash_entries=(2, 1), speeds=(Fraction(1),) * 2)
    assert [both.memory_bytes(0, 2, device)["stash"] for device in (0, 1)] == [10, 5]
    assert both.part(1, 2).stash_entries == (1,)


def test_weight_cycles_are_a_part_of_the_backward_ones() -> None:
    training = replace(table(), weight_prefix_cycles=np.array([0, 1, 1, 2]), speeds=(Fraction(1, 2),))
    assert [training.weight_cycles(*ends) for ends in ((0, 3), (1, 2))] == [4, 0]
    assert table().weight_cycles(0, 3) == 0
