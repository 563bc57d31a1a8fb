"""Our plans of public profiles against those of the programs that they are of: `python studies/partition_benchmark.py`.

    python studies/partition_benchmark.py [--files FOLDER]

Costs are in the unit of the files. For dnn-partitioning [dnn-partitioning]: ours, the best chain and the best division
of the graph that its own solver finds, and the split of its experts, by its cost: the largest sum of compute and of
every tensor that enters or leaves a device, once each. For PipeDream [pipedream] and PipeEdge [pipeedge]: ours, and
the published one. "CPU s" is that of reading the file and planning. `--files` plans all graphs of dnn-partitioning in
another folder, too; where there is no published value, a dash stands.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from autoauto.records.hardware import Link
from autoauto.records.installation import data_dir
from studies.published_graphs.dnn_partitioning import read_dnn_partitioning
from studies.published_graphs.graph import ImportedGraph, linear_orders
from studies.published_graphs.pipedream import read_pipedream
from studies.published_graphs.pipeedge import read_pipeedge
from studies.published_graphs.planner import ImportedPlanner, PlannedProfile

PROFILES = data_dir() / "profiles"
COLUMNS = ("profile", "ours", "chain", "graph", "expert", "published", "ours / best chain", "CPU s")


class Row(NamedTuple):
    """Our cost beside those of others; None where there is none."""

    name: str
    ours: float
    chain: float | None = None
    graph: float | None = None
    expert: float | None = None
    published: float | None = None
    cpu_s: float = 0.0

    @property
    def cells(self) -> list[str]:
        """As text."""
        costs = (self.ours, self.chain, self.graph, self.expert, self.published)
        best = self.chain or self.published
        ratio = "-" if best is None else f"{self.ours / best:.4f}"
        return [self.name, *("-" if cost is None else f"{cost:.4f}" for cost in costs), ratio, f"{self.cpu_s:.2f}"]


def planned(read: Callable[[], ImportedGraph], planner: ImportedPlanner | None = None) -> tuple[float, float]:
    """The cost of our plan in the unit of the file, and the CPU seconds to read and plan it."""
    start_s = process_time()
    best: PlannedProfile = (planner or ImportedPlanner()).best(read())
    return best.cost_cycles / best.profile.cycles_per_unit, process_time() - start_s


def split_cost(graph: dict[str, Any], split: Sequence[Sequence[int]]) -> float:
    """The cost of a division of a graph of dnn-partitioning into sets of nodes; a backward node is where its colour is.

    >>> nodes = [{"id": i, "fpgaLatency": 5.0} for i in (0, 1)]
    >>> split_cost({"nodes": nodes, "edges": [{"sourceId": 0, "destId": 1, "cost": 0.5}]}, [[0], [1]])
    5.5
    """
    device_of = {node: device for device, nodes in enumerate(split) for node in nodes}
    of_color = {
        node["colorClass"]: device_of[node["id"]]
        for node in graph["nodes"]
        if node["id"] in device_of and "colorClass" in node
    }
    for node in graph["nodes"]:
        device_of.setdefault(node["id"], of_color.get(node.get("colorClass"), -1))
    load = dict.fromkeys(set(device_of.values()), 0.0)
    for node in graph["nodes"]:
        load[device_of[node["id"]]] += node["fpgaLatency"]
    readers: dict[int, set[int]] = {}
    costs = {edge["sourceId"]: edge["cost"] for edge in graph["edges"]}
    for edge in graph["edges"]:
        readers.setdefault(edge["sourceId"], set()).add(device_of[edge["destId"]])
    for node, devices in readers.items():
        others = devices - {device_of[node]}
        for device in others | ({device_of[node]} if others else set()):
            load[device] += costs[node]
    return max(load.values())


def expert_cost(path: Path, name: str) -> float | None:
    """What the split of the experts costs; None where there is none, or it leaves nodes out."""
    split = PROFILES / "dnn-partitioning" / "experts" / f"{name.removeprefix('LayerGraphs-')}_expert.json"
    if not split.exists():
        return None
    devices = [device["nodes"] for device in json.loads(split.read_text())["fpgas"]]
    return split_cost(json.loads(path.read_text()), devices)


def rows(folders: Sequence[Path]) -> Iterator[Row]:
    """All profiles of this project, and the graphs of dnn-partitioning in further folders."""
    reference = json.loads((PROFILES / "reference.json").read_text())
    for path in [path for folder in folders for path in sorted(folder.glob("*.json"))]:
        values = reference["dnn-partitioning"].get(path.stem, {})
        ours, cpu_s = planned(partial(read_dnn_partitioning, path))
        chain, graph = values.get("chain_accelerators_only"), values.get("dag_accelerators_only")
        yield Row(path.stem, ours, chain, graph, expert_cost(path, path.stem), cpu_s=cpu_s)
    vgg16 = PROFILES / "pipedream" / "vgg16.txt"
    best = reference["pipedream"]["vgg16"]["optimum_of_max_compute_ms"]["4"]
    yield Row("pipedream vgg16, 4 devices", *_ordered(planned(lambda: read_pipedream(vgg16, 4, Link(inf, 0))), best))
    for bytes_per_s in (1e9, 1e10):
        link = Link(bytes_per_s, 0)
        replicas = planned(partial(read_pipedream, vgg16, 16, link), ImportedPlanner(stage_replicas=True))
        name = f"pipedream vgg16, 16 devices, replicas, {bytes_per_s / 1e9:g} GB/s"
        yield Row(name, *_ordered(replicas, two_stages(read_pipedream(vgg16, 16, link), bytes_per_s)))
    vit = reference["pipeedge"]["google/vit-base-patch16-224"]["published_schedule_bottleneck_s"]
    yield Row("pipeedge vit-base", *_ordered(planned(lambda: read_pipeedge(PROFILES / "pipeedge")), vit))


def _ordered(ours: tuple[float, float], published: float) -> tuple[float, None, None, None, float, float]:
    return ours[0], None, None, None, published, ours[1]


def two_stages(graph: ImportedGraph, bytes_per_s: float) -> float:
    """The best period in ms of PipeDream's published kind of division: 15 replicas of a first stage and 1 of a second.

    By its cost model: m replicas exchange 4 (m - 1) / m times their weights after every micro-batch.
    """
    order = linear_orders(graph.n_layers, graph.edges)[0]
    layers = graph.in_order(order).kinds[0].profile.layers

    def period(start: int, stop: int, m: int) -> float:
        compute = sum(layer.forward_cycles + layer.backward_cycles for layer in layers[start:stop]) / 1e6
        weights = sum(layer.exclusive["parameter"] for layer in layers[start:stop])
        return (compute + 1e3 * 4 * (m - 1) / m * weights / bytes_per_s) / m

    def boundary(cut: int) -> float:
        return 1e3 * 2 * layers[cut].input_bytes / bytes_per_s

    n = len(layers)
    return min(max(period(0, cut, 15), period(cut, n, 1), boundary(cut)) for cut in range(1, n))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=Path, action="append", default=[], help="a folder with graphs as JSON")
    folders = [PROFILES / "dnn-partitioning", *parser.parse_args(arguments).files]
    table = [list(COLUMNS), *(row.cells for row in rows(folders))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        first, *rest = (
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        )
        print(first, *rest, sep="  ")


if __name__ == "__main__":
    main()
