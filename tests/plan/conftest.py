"""Random cost tables for the planner's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import SharedMemory
from autoauto.records.hardware import Period
from tests.cost_tables import make_table, with_memory

MakeTable = Callable[[int], CostTable]


@pytest.fixture(scope="session")
def random_table() -> MakeTable:
    """A small table for every random seed: unequal links and devices, shared keys, peaks, stashes, forbidden cuts."""
    return _random_table


@pytest.fixture(scope="session")
def any_table() -> MakeTable:
    """As `random_table`, and devices run at clocks of their own, have any period, or a slow link in their middle."""
    return _any_table


@pytest.fixture(scope="session")
def training_table() -> MakeTable:
    """As `any_table`, and devices stash activations of several micro-batches, or inputs alone, and have more memory."""
    return _training_table


@pytest.fixture(scope="session")
def outlined_table() -> MakeTable:
    """As `any_table`, and layers of one kind may be one subgraph: their state is a shared key then, as is a copy."""
    return _outlined_table


def _outlined_table(seed: int) -> CostTable:
    random, table = Random(f"outlined {seed}"), _any_table(seed)
    memory = table.memory
    state = np.diff(memory.exclusive_prefix_bytes["state"]).tolist()
    kinds = [random.randrange(3) for _ in state]
    first, n_keys = len(memory.shared.n_bytes), 2 * (max(kinds) + 1)
    largest = [max((n for n, kind in zip(state, kinds, strict=True) if kind == key), default=0) for key in range(3)]
    n_bytes = [n for once in largest[: n_keys // 2] for n in (once, random.randint(0, 6))]
    shared = SharedMemory(
        keys=tuple(
            (*keys, first + 2 * kind, first + 2 * kind + 1)
            for keys, kind in zip(memory.shared.keys, kinds, strict=True)
        ),
        n_bytes=(*memory.shared.n_bytes, *n_bytes),
        categories=(*memory.shared.categories, *("state", "outlined") * (n_keys // 2)),
    )
    exclusive = {"parameter": memory.exclusive_prefix_bytes["parameter"]}
    return with_memory(table, outlined=replace(memory, exclusive_prefix_bytes=exclusive, shared=shared))


def _training_table(seed: int) -> CostTable:
    random, table = Random(f"training {seed}"), _any_table(seed)
    stashed_inputs = [0]
    for n_bytes in np.diff(table.memory.activation_prefix_bytes)[:-1].tolist():
        stashed_inputs.append(random.randint(0, stashed_inputs[-1] + n_bytes))
    inputs = [random.randint(0, 9) for _ in range(table.n_layers) if seed % 2] or [0] * table.n_layers
    return replace(
        with_memory(
            table,
            stashed_input_bytes=np.array(stashed_inputs),
            input_bytes=np.array(inputs),
            recompute=bool(seed % 2),
        ),
        memory_limit_bytes=table.memory_limit_bytes + random.choice((0, 30, 80)),
        weight_prefix_cycles=table.backward_prefix_cycles // 2,
        stash_entries=tuple(random.choice((0, 1, 3, 7)) for _ in range(table.n_devices)),
    )


def _any_table(seed: int) -> CostTable:
    random, table = Random(-1 - seed), _random_table(seed)
    if random.random() < 0.5:
        others = (Fraction(random.randint(1, 9), random.randint(1, 9)) for _ in range(1, table.n_devices))
        table = replace(table, speeds=(Fraction(1), *others))
    if random.random() < 0.3 and table.n_devices > 1:
        middle = table.n_devices // 2
        table.send_cycles[middle - 1] *= 10
        table.receive_cycles[middle] *= 10
    return replace(table, period=random.choice(tuple(Period)))


def _random_table(seed: int) -> CostTable:
    random = Random(seed)
    n_layers, n_devices = random.randint(1, 9), random.randint(1, 4)
    scale = random.choice((1, 10**12 + 7))  # cycles of large models must stay exact

    def column(length: int, top: int, share_of_zeros: float = 0.3) -> np.ndarray:
        return np.array([0 if random.random() < share_of_zeros else random.randint(1, top) for _ in range(length)])

    def prefix(values: np.ndarray) -> np.ndarray:
        return np.concatenate(([0], np.cumsum(values)))

    n_keys = random.randint(0, 4)
    limit = random.randint(10, 120)
    n_ties = random.choice((0, 0, 0, 1, 2))
    cut_allowed = np.ones(n_layers + 1, dtype=np.bool_)
    for _ in range(n_ties):
        first = random.randrange(n_layers)
        cut_allowed[first + 1 : random.randint(first, min(first + 3, n_layers - 1)) + 1] = False
    backward = column(n_layers, 9)
    cycles = column(n_layers, 40, 0.1) + backward
    table = make_table(
        prefix(cycles) * scale,
        n_devices,
        backward_prefix_cycles=prefix(backward) * scale,
        exclusive_prefix_bytes={"parameter": prefix(column(n_layers, 20)), "state": prefix(column(n_layers, 5))},
        shared=SharedMemory(
            keys=tuple(tuple(k for k in range(n_keys) if random.random() < 0.4) for _ in range(n_layers)),
            n_bytes=tuple(random.randint(1, 20) for _ in range(n_keys)),
            categories=tuple(random.choice(("code", "state")) for _ in range(n_keys)),
        ),
        peak_bytes=column(n_layers, 30),
        activation_prefix_bytes=prefix(column(n_layers, 8, random.choice((0.5, 1.0)))),
        receive_cycles=np.stack([column(n_layers, 30) for _ in range(n_devices)]) * scale,
        send_cycles=np.stack([column(n_layers + 1, 30) for _ in range(n_devices)]) * scale,
        cut_allowed=cut_allowed,
        memory_limit_bytes=np.array([limit + random.choice((0, 0, random.randint(-10, 20))) for _ in range(n_devices)]),
    )
    return replace(table, entry_cycles=_entry(random, cycles) * scale) if random.random() < 0.4 else table


def _entry(random: Random, cycles: np.ndarray) -> np.ndarray:
    """The entry cycles of every layer; they rise by no more than a layer takes."""
    entry = [0]
    for most in cycles[:-1]:
        entry.append(random.randint(0, entry[-1] + int(most)))
    return np.array(entry)
