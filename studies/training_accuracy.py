"""The forecast of training against published throughput of Bow Pods: `python studies/training_accuracy.py [--quick]`.

Prints for every row of `data/measurements/training.json`, or with `--rows FILE` of another file in its form
(`data/measurements/README.md`), the throughput that autoauto forecasts under the published conditions: modelled |
published | error, and whether it fits; then the mean error and that by framework. Where a row does not fit, its
throughput is that of devices with as much memory as it needs. `--own-cuts` plans every row instead of cutting it as
published, for the same devices and order, and prints what that gains over the published cuts: gain | blocks a stage.

Graphcore's BERT has its embedding and its head, which read one weight, on the first device: the order `popart-ring`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.evaluate.pipelines.plans import block_cuts
from autoauto.graph.load import load_graph
from autoauto.records.costs.profile import Optimizer, OptimizerState
from autoauto.records.errors import AutoautoError, BadInput, DoesNotFit
from autoauto.records.hardware import Cluster
from autoauto.records.installation import data_dir
from autoauto.records.layers import LayerGraph
from autoauto.records.plans.plan import Plan
from autoauto.records.schedule import Order
from autoauto.records.units import format_bytes
from autoauto.space.knobs import Knobs
from autoauto.targets.clusters import load_cluster
from studies.published_rows import Row, as_run, framework_of, read_rows

MORE_MEMORY = 4
"""The largest factor by which the memory of the devices is raised."""
EMBEDDING, PROJECTION = "bert.embeddings.word_embeddings.weight", "cls.decoder.weight"
ATTENTION = re.compile(r"[./](attention|attn)[./]")
NEEDED = ("name", "model", "cluster", "settings", "samples_per_s")
FRAMEWORKS = ("PyTorch", "PopART", "TensorFlow2", "TF1")
QUICK = ("BERT-base 128 PyTorch", "ResNet-50 PyTorch")


class Result(NamedTuple):
    """A row of the figures: samples a second as modelled and as published, and the bytes that a device lacks.

    And how many blocks of the model each stage has, whole ones and parts.
    """

    name: str
    modelled: float
    published: float
    excess_bytes: int
    blocks: tuple[float, ...] = ()

    @property
    def error(self) -> float:
        """Relative error of the model."""
        return self.modelled / self.published - 1


def knobs_of(row: Row) -> Knobs:
    """The configuration of a row, in PopART's order, which stands for TensorFlow's, too.

    The steps of both are those of the slowest device.
    """
    order = Order.POPART_RING if row.get("head_on_first") else Order.POPART
    settings: dict[str, Any] = {"schedule": order, **row["settings"]}
    for name, kind in (("optimizer", Optimizer), ("optimizer_state", OptimizerState)):
        if name in settings:
            settings[name] = kind(settings[name])
    return Knobs(**settings)


def partition_of(row: Row, graph: LayerGraph) -> tuple[int, ...]:
    """The published cuts, before as many blocks, or halves of them, as each device has; none where the row has none.

    Halves are those of the devices 1, 2, ... and at last 0: MLPerf's BERT has the embedding alone on device 0, and the
    last halves with the head again there [graphcore-mlperf].
    """
    starts, counts = block_cuts(graph), row.get("layers_per_ipu", ())
    if "att_ffn" in row:
        counts = [0, *(sum(halves) for halves in row["att_ffn"])]
        halves_of = ((start, _feed_forward(graph, (start, stop))) for start, stop in pairwise(starts))
        starts = [*chain.from_iterable(halves_of), *starts[-1:]]
    if not counts:
        return ()
    before = list(accumulate(counts[:-1]))
    if sum(counts[:-1]) >= len(starts) - 1:
        raise BadInput(f"{row['name']} must leave one of {len(starts) - 1} blocks to the last device, got {counts}")
    cuts = tuple(starts[n_before] for n_before in before)
    head = starts[-1:] if row.get("head_on_first") and "att_ffn" not in row else ()
    return (0, *cuts, *head, len(graph))


def _feed_forward(graph: LayerGraph, block: tuple[int, int]) -> int:
    """The first layer of a block after its attention."""
    of_attention = [i for i in range(*block) if ATTENTION.search(graph.layers[i].name)]
    if not of_attention:
        raise BadInput(
            f"{graph.name} must name its attention for halves of blocks, {graph.layers[block[0]].name} does not"
        )
    return of_attention[-1] + 1


def result_of(row: Row, *, own_cuts: bool = False) -> Result:
    """The modelled throughput of a row, cut as published or by autoauto.

    Raises:
        AutoautoError: it is no configuration that can be evaluated.
    """
    if own_cuts:
        row = {name: value for name, value in row.items() if name not in ("layers_per_ipu", "att_ffn")}
    row = as_run(row)
    knobs, options = knobs_of(row), {"framework": framework_of(row)}
    flow = load_flow(_graph_of(row), load_cluster(row["cluster"]), precision=row.get("precision"), options=options)
    partition, excess_bytes = partition_of(row, flow.graph), 0
    for factor in range(1, MORE_MEMORY + 1):
        larger = _with_memory(flow, factor) if factor > 1 else flow
        try:
            plan = larger.plans.cut_at(knobs, partition) if partition else larger.pipelines.plan_to_measure(knobs)
            run = larger.measure(knobs, plan)
        except DoesNotFit as failure:
            excess_bytes = excess_bytes or failure.excess_bytes
            continue
        modelled = larger.pipelines.measured_samples_per_s(knobs, run) * row.get("packed", 1.0)
        return Result(row["name"], modelled, row["samples_per_s"], excess_bytes, _blocks_of(plan, flow.graph))
    raise BadInput(f"{row['name']} does not fit {MORE_MEMORY} times the memory")


def _blocks_of(plan: Plan, graph: LayerGraph) -> tuple[float, ...]:
    """How many blocks of a model each stage of a plan has."""
    cuts = block_cuts(graph)
    if not cuts:
        return ()
    before = np.interp(range(len(graph) + 1), cuts, range(len(cuts)))
    return tuple(float(before[stage.layers.stop] - before[stage.layers.start]) for stage in plan.stages)


def _graph_of(row: Row) -> LayerGraph:
    graph = load_graph(row["model"])
    graph = with_byte_images(graph) if row["byte_images"] else graph
    return with_tied_head(graph) if row.get("head_on_first") else graph


def with_tied_head(graph: LayerGraph) -> LayerGraph:
    """BERT whose head multiplies by its embedding, as all of Graphcore's scripts train it; other models as they are."""
    index = {tensor.name: number for number, tensor in enumerate(graph.tensors)}
    if not {EMBEDDING, PROJECTION} <= index.keys():
        return graph
    embedding, projection = index[EMBEDDING], index[PROJECTION]
    layers, tensors = list(graph.layers), list(graph.tensors)
    for number, layer in enumerate(layers):
        if {embedding, projection} & {*layer.weights}:
            weights = tuple(embedding if weight == projection else weight for weight in layer.weights)
            layers[number] = replace(layer, weights=weights, tied=EMBEDDING)
            tensors[embedding] = tensors[embedding]._replace(last_use=number)
    return replace(graph, tensors=tuple(tensors), layers=tuple(layers), content=f"{graph.content} tied")


def with_byte_images(graph: LayerGraph) -> LayerGraph:
    """The model with images of 8 bits, which its first layers convert at no cost (`eight_bit_io`)."""
    used = {index for layer in graph.layers for index in layer.weights}
    images = {
        index
        for index, tensor in enumerate(graph.tensors)
        if tensor.producer < 0 and index not in used and tensor.is_float and len(tensor.shape) == 4
    }
    tensors = (each._replace(dtype="uint8") if i in images else each for i, each in enumerate(graph.tensors))
    layers = (
        replace(layer, kind=f"{layer.kind}-bytes") if images & {*layer.inputs} else layer for layer in graph.layers
    )
    return replace(graph, tensors=tuple(tensors), layers=tuple(layers), content=f"{graph.content} bytes")


def _with_memory(flow: Flow, factor: int) -> Flow:
    cluster: Cluster = flow.cluster
    devices = (replace(device, memory_bytes=device.memory_bytes * factor) for device in cluster.devices)
    return flow.with_setting(cluster=replace(cluster, devices=tuple(devices)))


def gain_lines(own: Sequence[Result], rows: Sequence[Row]) -> Iterator[str]:
    """What own cuts gain over the published ones of every row that says them."""
    width = max(32, 1 + max(len(result.name) for result in own))
    yield f"{'row':{width}}{'as published':>13}{'own cuts':>10}{'gain':>8}  blocks a stage"
    for result, row in zip(own, rows, strict=True):
        if row.get("layers_per_ipu") or row.get("att_ffn"):
            cut = result_of(row)
            gain, blocks = result.modelled / cut.modelled - 1, " ".join(f"{n:.1f}" for n in result.blocks)
            yield f"{result.name:{width}}{cut.modelled:13,.0f}{result.modelled:10,.0f}{gain:+8.1%}  {blocks}"


def pair_lines(rows: Sequence[Row], results: Sequence[Result]) -> Iterator[str]:
    """Of two rows of one configuration but for their replicas: cycles of a micro-batch and once a step, in ms.

    A step of n samples a replica takes n c + o, as published and as modelled; c is shown for the micro-batch of the
    first row.
    """
    yield f"{'pair: ms':32}{'c':>8}{'published':>11}{'error':>9}{'o':>8}{'published':>11}{'error':>9}"
    named = [(row, result) for row, result in zip(rows, results, strict=True) if row.get("pair")]
    for name in dict.fromkeys(row["pair"] for row, _ in named):
        both = [(row, result) for row, result in named if row["pair"] == name]
        if len(both) == 2:
            modelled, published = (_per_micro_batch_and_step(both, which) for which in ("modelled", "published"))
            values = (
                f"{ours:{8}.2f}{theirs:11.2f}{ours / theirs - 1:+9.1%}"
                for ours, theirs in zip(modelled, published, strict=True)
            )
            yield f"{name:32}" + "".join(values)


def _per_micro_batch_and_step(both: Sequence[tuple[Row, Result]], which: str) -> tuple[float, float]:
    """The ms of a micro-batch, and of a step besides them."""
    samples, times = [], []
    for row, result in both:
        knobs = knobs_of(row)
        samples.append(knobs.batch_size * knobs.mode.n_micro_batches)
        times.append(1000 * knobs.n_samples * row.get("packed", 1.0) / getattr(result, which))
    each = (times[0] - times[1]) / (samples[0] - samples[1])
    return each * knobs_of(both[0][0]).batch_size, times[0] - samples[0] * each


def lines(results: Sequence[Result]) -> Iterator[str]:
    """The table, the mean error, and that of the rows of every framework, by the last word of their names."""
    width = max(32, 1 + max(len(result.name) for result in results))
    yield f"{'row':{width}}{'modelled':>10}{'published':>11}{'error':>9}  fits"
    for result in results:
        fits = f"lacks {format_bytes(result.excess_bytes)}" if result.excess_bytes else "yes"
        yield f"{result.name:{width}}{result.modelled:10,.0f}{result.published:11,.0f}{result.error:+9.1%}  {fits}"
    errors = [abs(result.error) for result in results]
    yield f"mean absolute error: {mean(errors):.1%}, largest {max(errors):.1%}"
    for framework in FRAMEWORKS:
        signed = [result.error for result in results if framework in result.name.split()]
        if signed:
            yield f"{framework}: {mean(map(abs, signed)):.1%}, mean {mean(signed):+.1%}"


def main(arguments: Sequence[str]) -> int:
    """Print the table; of two rows with --quick."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rows only")
    parser.add_argument("--rows", type=Path, metavar="FILE", default=data_dir() / "measurements" / "training.json")
    parser.add_argument("--own-cuts", action="store_true", help="plan every row instead of cutting it as published")
    options = parser.parse_args(arguments)
    results, known, failures = list[Result](), list[Row](), list[str]()
    try:
        rows = read_rows(options.rows, ("rows", "training"), NEEDED)
    except BadInput as error:
        parser.error(str(error))
    for row in rows:
        if row["name"] in QUICK or not options.quick:
            try:
                results.append(result_of(row, own_cuts=options.own_cuts))
                known.append(row)
            except AutoautoError as error:
                failures.append(f"{row['name']}: no number, {error}")
    pairs = pair_lines(known, results) if any("pair" in row for row in known) else ()
    gains = gain_lines(results, known) if options.own_cuts and results else ()
    print("\n".join((*(lines(results) if results else ()), *failures, *pairs, *gains)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
