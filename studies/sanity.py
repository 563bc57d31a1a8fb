"""Forecasts against what no device can exceed: `python studies/sanity.py [--quick] [--models NAME ...]`.

Every cluster of IPUs in `data/clusters` runs the built-in models in all its formats, in inference and in training, on
one pipeline of 1 device and of 4 and on as many replicas as the cluster has room for. What autoauto gives for such a
configuration, with its stages compiled whole, is compared with three bounds:

    compute    the products of all layers at the rate of the matrix units, on all devices of a pipeline at once;
               in training twice, since gradients of weights or of inputs are as many products
    memory     all weights read once a micro-batch at 24 bytes a cycle and tile
    exchange   inputs and outputs over the host's links, of all replicas over the link of their machine, and in a
               pipeline the fewest bytes that any cut parts over the links between devices, in training both ways

A line is a cluster with a format: how many configurations fit, and the largest share of each bound that any reaches,
which must be below 100 %. These must hold, too, and are counted: where a forecast lacks memory, none of a larger batch
fits (`TargetTraits.memory_never_falls`); in training with the same cuts recomputation is never faster than none, `auto`
is no slower than either with their own cuts, and states of the optimizer that are sharded, or in streaming memory,
never take more of a device. Devices of several kinds run inference only. The exit code is 1 if anything does not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.modes.training_table import default_orders
from autoauto.evaluate.open import load_flow
from autoauto.graph.load import load_graph
from autoauto.records.costs.profile import Optimizer, OptimizerState
from autoauto.records.errors import AutoautoError, DoesNotFit
from autoauto.records.hardware import Cluster, Device
from autoauto.records.installation import builtin_models, data_dir
from autoauto.records.plans.plan import Plan
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Recompute
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.entry import IPU
from studies.operator_bounds import MEMORY_BYTES_PER_CYCLE
from studies.operator_table import rows_of

QUICK = ("resnet50", "bert-base-128-mlm")
BATCH_SIZES = (1, 16)
GROWING = (1, 2, 3, 4, 8, 15, 16, 32, 48, 63, 64, 65, 96, 128)  # the estimate is fitted anew at 4, 16 and 64
TRAINED_BATCH_SIZE, N_MICRO_BATCHES = 4, 16
ROUNDING = 1e-3  # a plan by estimates may be so much slower than another one, compiled
BOUNDS = ("compute", "memory", "exchange")


@dataclass(slots=True)
class Tally:
    """What the configurations of a cluster and a format show."""

    n_settings: int = 0
    n_that_fit: int = 0
    n_compared: int = 0
    shares: dict[str, float] = field(default_factory=lambda: dict.fromkeys(BOUNDS, 0.0))
    wrong: list[str] = field(default_factory=list)

    def add(self, name: str, per_s: float, limits: dict[str, float]) -> None:
        """Compare a throughput with its bounds."""
        for bound, limit in limits.items():
            share = per_s / limit
            self.shares[bound] = max(self.shares[bound], share)
            if share > 1:
                self.wrong.append(f"{name}: {per_s:,.1f} samples/s, {bound} allows {limit:,.1f}")

    def expect(self, holds: bool, what: str) -> None:
        """Count a comparison, and note it if it does not hold."""
        self.n_compared += 1
        if not holds:
            self.wrong.append(what)


def limits_of(flow: Flow, knobs: Knobs) -> dict[str, float]:
    """Samples a second that no plan exceeds, by bound."""
    device, graph, options = _fastest(flow.cluster), flow.graph, flow.options(knobs)
    products = (row.bound.arithmetic_cycles for row in rows_of(graph, device, options) if row.class_name == "product")
    weights = {index for layer in graph.layers for index in layer.weights}
    weight_bytes = sum(graph.tensors[index].n_bytes(1, options.precision) for index in weights)
    read_cycles = weight_bytes / device.n_tiles / MEMORY_BYTES_PER_CYCLE
    seconds = {
        "compute": (1 + knobs.training) * sum(products) / knobs.n_ipu / device.clock_hz,
        "memory": read_cycles / knobs.n_ipu / device.clock_hz,
        "exchange": max(_host_s(flow, knobs), _cut_s(flow, knobs)),
    }
    n_samples = knobs.replicas * knobs.batch_size
    return {bound: n_samples / value if value else np.inf for bound, value in seconds.items()}


def _fastest(cluster: Cluster) -> Device:
    return max(cluster.devices, key=lambda device: device.clock_hz * device.n_tiles)


def _host_s(flow: Flow, knobs: Knobs) -> float:
    """Seconds in which the inputs, or the outputs, of a micro-batch of every replica pass the host's link."""
    cluster, ends = flow.cluster, flow.plans.costs.ends(flow.options(knobs))
    if cluster.kinds:
        links = tuple(max((kind.host_link for kind in cluster.kinds), key=lambda link: link.bytes_per_s) for _ in ends)
    else:
        links = cluster.receive_links[0], cluster.send_links[-1]
    own = max(n_bytes / link.bytes_per_s for n_bytes, link in zip(ends, links, strict=True))
    if cluster.machine is None:
        return own
    n_machines = -(-len(cluster) // cluster.machine_size)
    return max(own, max(ends) * knobs.replicas / n_machines / cluster.machine.host_bytes_per_s)


def _cut_s(flow: Flow, knobs: Knobs) -> float:
    """Seconds in which the fewest bytes that a cut parts pass the fastest link between devices in a line."""
    if knobs.n_ipu == 1 or flow.cluster.kinds:
        return 0.0
    table, profile = flow.table(knobs), flow.profile(flow.options(knobs))
    n_bytes = np.array([layer.input_bytes for layer in profile.layers])[table.cut_allowed[:-1]][1:]
    links = (*flow.cluster.receive_links[1:], *flow.cluster.send_links[:-1])
    fastest = max(link.bytes_per_s for link in links)
    return (1 + knobs.training) * float(n_bytes.min(initial=0)) / fastest


def check_inference(flow: Flow, name: str, tally: Tally) -> None:
    """Pipelines of one device and of four, alone and as many as there is room for."""
    for n_ipu, batch_size in product((1, 4), BATCH_SIZES):
        most = len(flow.cluster) // n_ipu
        for replicas in dict.fromkeys((1, most)) if most else ():
            knobs = Knobs(n_ipu, batch_size, replicas=replicas)
            if per_s := _speed(flow, knobs, tally):
                tally.add(f"{name} {n_ipu} x {replicas}, batch {batch_size}", per_s, limits_of(flow, knobs))
    for n_ipu in (1, 4):
        if n_ipu <= len(flow.cluster):
            check_memory(flow, f"{name} {n_ipu}", Knobs(n_ipu), tally)


def check_memory(flow: Flow, name: str, knobs: Knobs, tally: Tally) -> None:
    """Forecasts of growing batches: none fits above one that lacks memory."""
    lacking = 0
    for batch_size in GROWING:
        forecast = flow.forecast(replace(knobs, batch_size=batch_size))
        if lacking:
            tally.expect(not forecast.runs, f"{name}: batch {batch_size} fits, and {lacking} lacks memory")
        elif not forecast.runs and forecast.excess > 0:
            lacking = batch_size


def check_training(flow: Flow, name: str, tally: Tally) -> None:
    """Pipelines of four devices, by whether they recompute; and where the optimizer's states are."""
    n_ipu = min(4, len(flow.cluster))
    replicas = len(flow.cluster) // n_ipu
    order = default_orders(flow.setting, n_ipu)[0]
    base = Knobs(n_ipu, TRAINED_BATCH_SIZE, replicas=replicas, schedule=order, n_micro_batches=N_MICRO_BATCHES)
    speeds = {}
    for recompute in (False, True, Recompute.AUTO):
        knobs = base.with_values(recompute=recompute)
        check_memory(flow, f"{name} training, {recompute}", knobs, tally)
        speeds[recompute] = per_s = _speed(flow, knobs, tally)
        if per_s:
            tally.add(f"{name} training, {n_ipu} x {replicas}, {recompute}", per_s, limits_of(flow, knobs))
    if speeds[True]:
        partition = flow.predict(base.with_values(recompute=True)).partition
        alike = (base.with_values(recompute=recompute) for recompute in (False, True))
        off, on = (flow.samples_per_s(knobs, flow.plans.cut_at(knobs, partition)) for knobs in alike)
        tally.expect(on <= off, f"{name}: recomputation is faster than none, {on:,.1f} and {off:,.1f} samples/s")
    if any(speeds.values()):
        best = max(speeds[False], speeds[True])
        tally.expect(speeds[Recompute.AUTO] >= best * (1 - ROUNDING), f"{name}: auto is slower than off or on")
    if replicas > 1:
        check_states(flow, name, base.with_values(batch_size=1, recompute=True), tally)


def check_states(flow: Flow, name: str, knobs: Knobs, tally: Tally) -> None:
    """Bytes of every device with the states of LAMB on the chip, sharded, streamed, and streamed and sharded."""
    try:
        partition = flow.predict(knobs).partition
    except DoesNotFit:
        return
    on_chip, sharded, streamed, both = (
        _bytes_by_device(flow.plans.cut_at(_with_states(knobs, *where), partition))
        for where in (
            (OptimizerState.ON_CHIP, False),
            (OptimizerState.ON_CHIP, True),
            (OptimizerState.STREAMING, False),
            (OptimizerState.STREAMING_SHARDED, False),
        )
    )
    for what, less, more in (
        ("sharded", sharded, on_chip),
        ("streamed", streamed, on_chip),
        ("streamed and sharded", both, sharded),
    ):
        tally.expect(all(map(int.__le__, less, more)), f"{name}: states that are {what} take more memory")


def _bytes_by_device(plan: Plan) -> list[int]:
    """The bytes of the stages of every device."""
    return [sum(stage.total_bytes for stage in plan.stages if stage.device == n) for n in range(plan.n_devices)]


def _with_states(knobs: Knobs, state: OptimizerState, shard: bool) -> Knobs:
    return knobs.with_values(optimizer=Optimizer.LAMB, optimizer_state=state, shard_optimizer=shard)


def _speed(flow: Flow, knobs: Knobs, tally: Tally) -> float:
    """Samples a second, 0 where it does not fit."""
    tally.n_settings += 1
    try:
        per_s = flow.evaluate(knobs).samples_per_s or 0.0
    except DoesNotFit:
        return 0.0
    tally.n_that_fit += per_s > 0
    return per_s


def clusters() -> Iterator[str]:
    """The built-in clusters of IPUs."""
    for path in sorted((data_dir() / "clusters").glob("*.toml")):
        if load_cluster(path.stem).target == "ipu":
            yield path.stem


def formats(cluster: str) -> list[Precision]:
    """What the devices of a cluster compute in."""
    has_fp8 = all(device.fp8 for device in load_cluster(cluster).devices)
    return [precision for precision in IPU.precisions if precision is not Precision.FP8 or has_fp8]


def tally_of(cluster: str, precision: Precision, models: Sequence[str]) -> Tally:
    """What all configurations of a cluster and a format show."""
    tally = Tally()
    for model in models:
        graph = load_graph(model)
        flow = load_flow(graph, cluster, precision=precision)
        if not graph.tensors[graph.layers[-1].outputs[0]].name.startswith("loss"):
            check_inference(flow, model, tally)
        if precision is not Precision.FP8 and not flow.cluster.kinds:
            check_training(flow, model, tally)
    return tally


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for every cluster and format, and what does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two models on two clusters")
    parser.add_argument("--models", nargs="+", metavar="NAME", default=list(builtin_models()))
    args = parser.parse_args(argv)
    models, names = (QUICK, ("c600", "bow-2000")) if args.quick else (args.models, tuple(clusters()))
    print(
        f"{'cluster':14}{'format':8}{'settings':>9}{'fit':>6}{'compute':>9}{'memory':>8}{'exchange':>10}{'compared':>10}"
    )
    wrong = []
    for cluster, precision in ((name, each) for name in names for each in formats(name)):
        try:
            tally = tally_of(cluster, precision, models)
        except AutoautoError as error:
            wrong.append(f"{cluster} {precision}: {error}")
            continue
        shares = "".join(f"{share:{width}.1%}" for share, width in zip(tally.shares.values(), (9, 8, 10), strict=True))
        print(
            f"{cluster:14}{precision:8}{tally.n_settings:9}{tally.n_that_fit:6}{shares}{tally.n_compared:10}",
            flush=True,
        )
        wrong += [f"{cluster} {precision}: {what}" for what in tally.wrong]
    print("\n".join((*wrong, f"{len(wrong)} do not hold")))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
