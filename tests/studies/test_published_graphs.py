"""Plans of other programs' profiles against what their own solvers and schedules reach."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Link, Period
from autoauto.records.installation import data_dir
from studies.published_graphs.dnn_partitioning import read_dnn_partitioning
from studies.published_graphs.pipedream import read_pipedream
from studies.published_graphs.pipeedge import read_pipeedge
from studies.published_graphs.planner import ImportedPlanner
from tests.drawn import daily

PROFILES = data_dir() / "profiles"
REFERENCE: dict[str, Any] = json.loads((PROFILES / "reference.json").read_text())
FREE = Link(float("inf"), 0)


@pytest.mark.parametrize("name", daily(list(REFERENCE["dnn-partitioning"]), 2))
def test_no_chain_of_dnn_partitioning_is_cheaper(name: str) -> None:
    graph = read_dnn_partitioning(PROFILES / "dnn-partitioning" / f"{name}.json")
    planned = ImportedPlanner().best(graph)
    reference = REFERENCE["dnn-partitioning"][name]
    cost = planned.cost_cycles / planned.profile.cycles_per_unit
    assert cost <= 1.001 * reference["chain_accelerators_only"]
    if "dag_accelerators_only" in reference:  # no chain is cheaper than the best division of the graph
        assert cost >= 0.999 * reference["dag_accelerators_only"]
    assert planned.bounded.gap == 0
    order = planned.order
    assert all(order.index(a) < order.index(b) for a, b in graph.edges)


def test_pipedreams_vgg16_on_four_devices() -> None:
    graph = read_pipedream(PROFILES / "pipedream" / "vgg16.txt", 4, FREE)
    planned = ImportedPlanner().best(graph)
    reference = REFERENCE["pipedream"]["vgg16"]
    assert planned.cost_cycles / 1e6 == reference["optimum_of_max_compute_ms"]["4"]
    layers = planned.profile.kinds[0].profile.layers
    cuts = reference["published_4_stage_split"]
    published = [
        sum(layer.forward_cycles + layer.backward_cycles for layer in layers[start:stop])
        for start, stop in pairwise(cuts)
    ]
    assert planned.cost_cycles <= max(published)


@pytest.mark.parametrize("bytes_per_s", [1e9, 1.25e9, 1e10])
def test_stage_replicas_are_no_worse_than_pipedreams_15_and_1(bytes_per_s: float) -> None:
    """Under its cost model: replicas exchange gradients, and a device moves tensors while it computes."""
    link = Link(bytes_per_s, 0)
    graph = read_pipedream(PROFILES / "pipedream" / "vgg16.txt", 16, link)
    planned = ImportedPlanner(stage_replicas=True).best(graph)
    layers = planned.profile.kinds[0].profile.layers

    def period(start: int, stop: int, m: int) -> float:
        compute = sum(layer.forward_cycles + layer.backward_cycles for layer in layers[start:stop])
        weights = sum(layer.exclusive["parameter"] for layer in layers[start:stop])
        moved = 2 * max(layers[start].input_bytes, layers[stop - 1].output_bytes if stop < len(layers) else 0)
        return max(compute + 4 * (m - 1) / m * weights / bytes_per_s * 1e9, moved / bytes_per_s * 1e9) / m

    published = min(max(period(0, cut, 15), period(cut, len(layers), 1)) for cut in range(1, len(layers)))
    assert planned.cost_cycles <= published + 1
    stages = planned.bounded.plan.stages
    assert sum(stage.n_replicas for stage in stages) <= 16
    assert max(stage.n_replicas for stage in stages) > 1
    assert planned.cost_cycles < ImportedPlanner().best(graph).cost_cycles / 2


def test_pipeedges_schedule_is_bettered() -> None:
    planned = ImportedPlanner().best(read_pipeedge(PROFILES / "pipeedge"))
    reference = REFERENCE["pipeedge"]["google/vit-base-patch16-224"]
    assert planned.cost_cycles / 1e9 == pytest.approx(reference["optimum_s"], abs=5e-5)
    assert reference["optimum_s"] < reference["published_schedule_bottleneck_s"]
    plan = planned.bounded.plan
    assert plan.period is Period.DUPLEX
    assert len({stage.device for stage in plan.stages}) == len(plan.stages) == 8


def test_the_only_device_of_a_kind_has_neighbours(tmp_path: Path) -> None:
    """A layer of 10 s on the fast device and 10 s on the slow one; between them 1 MiB over 8 Mbit/s."""
    times = "model_profiles: {net: [{batch_size: 1, dtype: torch.float32, time_s: [%s]}]}"
    types = [f"{name}: {{bw_Mbps: 8, mem_MB: 99, {times % t}}}" for name, t in (("fast", "10, 90"), ("slow", "90, 10"))]
    (tmp_path / "device_types.yml").write_text("\n".join(types))
    model = "net: {layers: 2, mem_MB: [1, 1], parameters_in: 0, parameters_out: [262144, 0]}"
    (tmp_path / "models.yml").write_text(model)
    (tmp_path / "devices.yml").write_text("fast: [a]\nslow: [b]")
    plan = ImportedPlanner().best(read_pipeedge(tmp_path)).bounded.plan
    assert [(stage.device, stage.compute_cycles) for stage in plan.stages] == [(0, 10**10), (1, 10**10)]
    first, second = plan.stages
    assert (first.receive_cycles, second.send_cycles) == (0, 0)
    assert (first.send_cycles, second.receive_cycles) == pytest.approx((10**9, 10**9), abs=1)


def test_what_fits_in_no_order_is_infeasible(tmp_path: Path) -> None:
    name = next(iter(REFERENCE["dnn-partitioning"]))
    graph = json.loads((PROFILES / "dnn-partitioning" / f"{name}.json").read_text())
    graph["maxSizePerFPGA"] = 1000.0
    (tmp_path / "small.json").write_text(json.dumps(graph))
    with pytest.raises(Infeasible) as raised:
        ImportedPlanner().best(read_dnn_partitioning(tmp_path / "small.json"))
    assert raised.value.excess_bytes > 0
