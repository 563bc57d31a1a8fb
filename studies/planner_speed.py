"""How long planning takes, from prepared costs to a plan, and how that grows: `python studies/planner_speed.py`.

The baseline is the seed's dynamic programme over devices, ends and transfer caps (seed 001), O(P n^2) for every cap, as
plain Python in the same run, on the sizes that it finishes in seconds. Both must find the same cost. All times are the
median CPU time of a few runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from statistics import median
from time import process_time
from typing import TypeVar

from autoauto.estimate import cost_table
from autoauto.plan import optimal
from autoauto.plan.blocks import Blocks, contract
from autoauto.plan.reach import earliest_starts_by_device
from autoauto.records.cost import CostTable
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.profile import LayerProfile, ModelProfile
from autoauto.records.units import MIB, bytes_per_s

SIZES = ((107, 16), (200, 16), (1000, 64), (10_000, 64), (10_000, 256))
BASELINE_UP_TO = 200  # layers
PERIOD = 12  # layers of one block of the model, as in a transformer

Result = TypeVar("Result")


def model(n_layers: int, n_devices: int) -> ModelProfile:
    """A model of repeated blocks, with cycles that vary by 5 % and parameters that fill most of the memory."""
    random = Random(0)
    cycles = [random.randint(10_000, 400_000) for _ in range(PERIOD)]
    sizes = [random.choice((1, 2, 4, 8)) * MIB // 2 for _ in range(PERIOD)]
    code = [random.randint(1, 6) * MIB for _ in range(PERIOD)]
    parameter_bytes = 500 * MIB * n_devices // n_layers
    layers = tuple(
        LayerProfile(
            forward_cycles=int(cycles[i % PERIOD] * random.uniform(0.95, 1.05)),
            backward_cycles=0,
            shared={f"vertexCode_{i % PERIOD}": code[i % PERIOD]},
            exclusive={"parameter": int(parameter_bytes * random.uniform(0.8, 1.2))},
            temporary_bytes=random.randint(1, 40) * MIB,
            carried_bytes=0,
            input_bytes=sizes[(i - 1) % PERIOD],
            output_bytes=sizes[i % PERIOD],
            activation_bytes=0,
        )
        for i in range(n_layers)
    )
    names = tuple(str(i) for i in range(n_layers))
    return ModelProfile("repeated", "none", None, names, names, (None,) * n_layers, layers)


def cluster(n_devices: int) -> Cluster:
    """The seed's example cluster, with more devices."""
    device = Device("bow", 1.85e9, 894 * MIB, 1472, 638_976)
    host, between = Link(bytes_per_s(7), 50_000), (Link(bytes_per_s(70), 3_000),) * (n_devices - 1)
    return Cluster("bow", "ipu", (device,) * n_devices, (host, *between), (*between, host))


def three_axes(table: CostTable) -> int:
    """The least cost by the seed's programme."""
    blocks = contract(table)
    earliest = earliest_starts_by_device(blocks, table.memory_limit_bytes.tolist())
    n_blocks = len(blocks)
    caps = {
        blocks.receive_cycles[device][start] + blocks.send_cycles[device][stop]
        for device in range(table.n_devices)
        for stop in range(1, n_blocks + 1)
        for start in range(earliest[device][stop], stop)
    }
    return min(cap + _compute_within(blocks, earliest, cap) for cap in caps)


def _compute_within(blocks: Blocks, earliest: list[list[int]], cap: int) -> int:
    """The least max compute of plans that transfer in at most `cap`; a huge number when there are none."""
    prefix, n_blocks = blocks.compute_prefix_cycles, len(blocks)
    least = [0] + [2**62] * n_blocks
    for device, first in enumerate(earliest):
        receive, send = blocks.receive_cycles[device], blocks.send_cycles[device]
        after = [2**62] * (n_blocks + 1)
        for stop in range(1, n_blocks + 1):
            for start in range(first[stop], stop):
                if receive[start] + send[stop] <= cap:
                    after[stop] = min(after[stop], max(least[start], prefix[stop] - prefix[start]))
        least = after
    return least[n_blocks]


def timed(work: Callable[[CostTable], Result], table: CostTable, n_runs: int) -> tuple[Result, float]:
    """What `work` returns and its median CPU time in ms."""
    times_ms = []
    for _ in range(n_runs):
        begin = process_time()
        result = work(table)
        times_ms.append(1e3 * (process_time() - begin))
    return result, median(times_ms)


def main() -> None:
    """Print one line a size, and how the time grows."""
    print(f"Python {sys.version.split()[0]}, median CPU time from prepared costs to the plan")
    print(f"{'layers':>7} {'devices':>7} {'optimal ms':>11} {'three axes ms':>14} {'ratio':>7}  cost / ideal compute")
    times_ms = {}
    for n_layers, n_devices in SIZES:
        table = cost_table(model(n_layers, n_devices), cluster(n_devices), 0.85)
        plan, optimal_ms = timed(optimal, table, n_runs=5)
        times_ms[n_layers, n_devices] = optimal_ms
        baseline = ratio = "-"
        if n_layers <= BASELINE_UP_TO:
            cost, three_axes_ms = timed(three_axes, table, n_runs=1)
            assert cost == plan.cost_cycles
            baseline, ratio = f"{three_axes_ms:.0f}", f"{three_axes_ms / optimal_ms:.0f}x"
        share = plan.cost_cycles * n_devices / table.compute_prefix_cycles[-1]
        print(f"{n_layers:>7} {n_devices:>7} {optimal_ms:>11.1f} {baseline:>14} {ratio:>7}  {share:.3f}")
    growth = times_ms[10_000, 64] / times_ms[1000, 64]
    print(f"10 times the layers on 64 devices take {growth:.1f} times as long")


if __name__ == "__main__":
    main()
