"""What cuts by the simulated step gain over cuts by the period in training: `python studies/step_cuts.py`.

A line is a model on some devices in one order; interleaved and V shapes have two stages a device. `gain`: how much
longer the estimated step is with the cuts of least period, for two stages a device of least period if every stage had a
device of its own. `gap`: the share of the step that any other cuts could still save; 0 where the plan is proved
optimal. The last columns are CPU milliseconds of both planners, from estimated costs; the second begins with the first.
"random" is 128 layers, 24 with --quick, that take 10,000 to 400,000 cycles each, with twice as many for their backward
pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from time import process_time
from typing import NamedTuple

from autoauto.estimate.table import cost_table
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.modes.training_steps import PLANNING_EFFORT, best_by_simulated_step
from autoauto.evaluate.modes.training_table import stage_tables
from autoauto.evaluate.setting import Setting
from autoauto.graph.load import load_graph
from autoauto.plan.pipeline.optimal import optimal
from autoauto.plan.pipeline.stage_table import StageTable
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.hardware import Cluster, Period
from autoauto.records.schedule import Order
from autoauto.schedule.orders.registry import spec_of
from autoauto.schedule.times import timeline_of
from autoauto.space.knobs import Knobs
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.target import IpuTarget

ORDERS = (
    Order.GPIPE,
    Order.ONE_F_ONE_B,
    Order.POPART,
    Order.INTERLEAVED,
    Order.ZB1P,
    Order.ZB2P,
    Order.ZBV,
    Order.V_HALF,
)
PERIODS = (Period.BARRIER, Period.OVERLAP)
COLUMNS = ("model", "devices", "batches", "order", "period", "gain", "gap", "period ms", "step ms")
WIDTHS = (15, 9, 9, 13, 9, 9, 8, 11, 9)


class StepCase(NamedTuple):
    """A model, "random" or built-in, with a number of devices and of micro-batches."""

    model: str
    n_devices: int
    n_micro_batches: int


SETTINGS = (
    StepCase("bert-base-128", 4, 16),
    StepCase("bert-large-128", 8, 64),
    StepCase("resnet50", 4, 16),
    StepCase("resnet50", 8, 64),
    StepCase("random", 16, 64),
)
QUICK = (StepCase("random", 4, 8),)


def random_profile(n_layers: int) -> ModelProfile:
    """Layers of random cycles that need nearly no memory."""
    random, n_bytes = Random(0), 2**16
    cycles = [random.randint(10_000, 400_000) for _ in range(n_layers)]
    layers = tuple(LayerProfile(c, 2 * c, {}, {}, n_bytes, 0, n_bytes, n_bytes, n_bytes) for c in cycles)
    names = tuple(map(str, range(n_layers)))
    return ModelProfile("random", "none", None, names, names, (None,) * n_layers, layers)


def tables(setting: StepCase, cluster: Cluster, n_layers: int) -> Iterator[tuple[Knobs, StageTable]]:
    """The costs in every order with every period; with recomputation, so that all orders fit."""
    flows = (
        {}
        if setting.model == "random"
        else {
            period: Flow(Setting(load_graph(setting.model), cluster, IpuTarget(), period=period)) for period in PERIODS
        }
    )
    for period, order in product(PERIODS, ORDERS):
        knobs = Knobs(
            n_ipu=setting.n_devices,
            memory_proportion=0.6,
            batch_size=1,
            schedule=order,
            n_micro_batches=setting.n_micro_batches,
            recompute=True,
            stages_per_device=(spec_of(order).stages_per_device or (1, 1))[0],
        )
        if flows:
            yield knobs, stage_tables(flows[period].costs, knobs)[0]
        elif knobs.mode.stages_per_device == 1:
            devices = cluster.first(setting.n_devices)
            table = cost_table(random_profile(n_layers), devices, 0.9, period)
            yield knobs, StageTable.of(table)


def row(setting: StepCase, knobs: Knobs, stages: StageTable) -> tuple[str, ...]:
    """One line of the table."""
    started = process_time()
    partition = optimal(stages.rows).partition
    planned = process_time()
    bounded = best_by_simulated_step(stages, knobs)
    done = process_time()
    assert bounded.step_cycles is not None
    first = stages.evaluate(partition, [stages.recompute] * stages.n_stages)
    gain = timeline_of(knobs.step, first, PLANNING_EFFORT).makespan_cycles / bounded.step_cycles - 1
    times = (1000 * (planned - started), 1000 * (done - planned))
    shares = (f"{100 * gain:.2f} %", f"{100 * bounded.gap:.2f} %")
    names = (setting.model, str(setting.n_devices), str(setting.n_micro_batches), knobs.mode.order, stages.rows.period)
    return (*names, *shares, *(f"{ms:.0f}" for ms in times))


def print_row(cells: Sequence[str]) -> None:
    """Print cells under each other."""
    print("".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True)), flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Plan every setting both ways, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="random layers on 4 devices: a few seconds")
    parser.add_argument("--model", help="only this one of the models")
    args = parser.parse_args(argv)
    quick = args.quick
    print_row(COLUMNS)
    for setting in QUICK if quick else SETTINGS:
        if args.model not in (None, setting.model):
            continue
        for knobs, table in tables(setting, load_cluster("bow-pod16"), 24 if quick else 128):
            print_row(row(setting, knobs, table))


if __name__ == "__main__":
    main()
