"""The forecast of training against published throughput of Bow Pods: `python studies/training_accuracy.py [--quick]`.

Prints for every row of `data/measurements/training.json` the throughput that autoauto forecasts under the published
conditions, modelled | published | error, and how much memory it lacks, then the mean error and that by framework. Where
a row does not fit, its throughput is that of devices with as much memory as it needs. Nothing was fitted to the rows.

Where a row says how many encoder layers each device has, its plan has the published cuts. Graphcore's BERT has its
embedding and its head, which read one weight, on the first device: a stage more than there are devices. It is planned
for a device more, which takes equally long as long as the first device needs less time for its two stages than another
one for its own, because PopART's pipeline moves on with the slowest device.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.records.costs.profile import Optimizer
from autoauto.records.errors import DoesNotFit
from autoauto.records.hardware import Cluster
from autoauto.records.installation import data_dir
from autoauto.records.layers import LayerGraph
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.schedule import Order
from autoauto.records.units import Precision, format_bytes
from autoauto.space.knobs import Knobs

MORE_MEMORY = 4
"""The largest factor by which the memory of the devices is raised."""
PROJECTION = "cls.decoder.weight"
QUICK = ("BERT-base 128 PyTorch", "ResNet-50 PyTorch")


class Result(NamedTuple):
    """A row of the figures: samples a second as modelled and as published, and the bytes that a device lacks."""

    name: str
    modelled: float
    published: float
    excess_bytes: int

    @property
    def error(self) -> float:
        """Relative error of the model."""
        return self.modelled / self.published - 1


def knobs_of(row: dict[str, Any]) -> Knobs:
    """The configuration of a row, with a device more where the head has a stage of its own on the first device.

    PopART's order stands for TensorFlow's, too: the steps of both are those of the slowest device.
    """
    settings = row["settings"]
    knobs = Knobs(**{**settings, "optimizer": Optimizer(settings["optimizer"])}, schedule=Order.POPART)
    return replace(knobs, n_ipu=knobs.n_ipu + row.get("head_on_first", False))


def partition_of(row: dict[str, Any], graph: LayerGraph) -> tuple[int, ...]:
    """The published cuts, before as many encoder layers as each device has; none where the row does not say."""
    counts: Sequence[int] = row.get("layers_per_ipu", ())
    if not counts:
        return ()
    first, last = graph.blocks[0].module, graph.blocks[-1].module
    starts = [block.layers.start for block in graph.blocks]
    starts[0] = next(i for i, layer in enumerate(graph.layers) if layer.name.startswith(f"{first}."))
    head = max(i for i, layer in enumerate(graph.layers) if layer.name.startswith(f"{last}.")) + 1
    cuts = tuple(starts[n_before] for n_before in accumulate(counts[:-1]))
    return (0, *cuts, *((head,) if row.get("head_on_first") else ()), len(graph))


def result_of(row: dict[str, Any]) -> Result:
    """The modelled throughput of a row."""
    knobs = knobs_of(row)
    cluster = row["cluster"] if knobs.n_devices <= 16 else "bow-pod64"
    flow = load_flow(row["model"], cluster)
    partition, excess_bytes = partition_of(row, flow.graph), 0
    for factor in range(1, MORE_MEMORY + 1):
        larger = _with_memory(flow, factor) if factor > 1 else flow
        try:
            plan = larger.plans.cut_at(knobs, partition) if partition else larger.plans.plan_to_measure(knobs)
            run = larger.measure(knobs, plan)
        except DoesNotFit as failure:
            excess_bytes = excess_bytes or failure.excess_bytes
            continue
        if row.get("head_on_first"):
            excess_bytes = max(excess_bytes, _excess_of_first(run.plan, _tied_bytes(flow.graph)))
        modelled = larger.measured_samples_per_s(knobs, run) * row.get("packed", 1.0)
        return Result(row["name"], modelled, row["samples_per_s"], excess_bytes)
    raise ValueError(f"{row['name']} does not fit {MORE_MEMORY} times the memory")


def _tied_bytes(graph: LayerGraph) -> int:
    """Bytes of the head's projection and its gradient, which the first device has for its embedding already."""
    return sum(2 * tensor.n_bytes(1, Precision.FP16) for tensor in graph.tensors if tensor.name == PROJECTION)


def _excess_of_first(plan: Plan, tied_bytes: int) -> int:
    """Bytes that the first device lacks for the first and the last stage together, with one weight for both.

    Raises:
        ValueError: it would be the slowest device, so that a device more is not as fast.
    """
    first, *others, last = plan.stages
    if _cycles(first) + _cycles(last) > max(map(_cycles, others)):
        raise ValueError("the first device is the slowest with the head")
    return max(0, first.total_bytes + last.total_bytes - tied_bytes - first.limit_bytes)


def _cycles(stage: Stage) -> int:
    return stage.forward_cycles + stage.backward_cycles


def _with_memory(flow: Flow, factor: int) -> Flow:
    cluster: Cluster = flow.cluster
    devices = (replace(device, memory_bytes=device.memory_bytes * factor) for device in cluster.devices)
    return flow.with_setting(cluster=replace(cluster, devices=tuple(devices)))


def lines(results: Sequence[Result]) -> Iterator[str]:
    """The table, the mean error, and that of the rows of every framework, by the last word of their names."""
    yield f"{'row':32}{'modelled':>10}{'published':>11}{'error':>9}  lacks"
    for result in results:
        lacks = format_bytes(result.excess_bytes) if result.excess_bytes else "nothing"
        yield f"{result.name:32}{result.modelled:10,.0f}{result.published:11,.0f}{result.error:+9.1%}  {lacks}"
    yield f"mean absolute error: {mean(abs(result.error) for result in results):.1%}"
    for framework in dict.fromkeys(result.name.split()[-1] for result in results):
        errors = [result.error for result in results if result.name.split()[-1] == framework]
        yield f"{framework}: {mean(map(abs, errors)):.1%}, mean {mean(errors):+.1%}"


def main(arguments: Sequence[str]) -> int:
    """Print the table; of two rows with --quick."""
    rows = json.loads(Path(data_dir() / "measurements" / "training.json").read_text(encoding="utf-8"))["rows"]
    if "--quick" in arguments:
        rows = [row for row in rows if row["name"] in QUICK]
    print("\n".join(lines(list(map(result_of, rows)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
