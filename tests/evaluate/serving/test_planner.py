"""The exact planner as the oracle of cuts and kinds: layers of small models on like and unlike GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoauto.engines.registry import engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.estimate.table import cost_table, with_cuts_at
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.evaluate.serving.costs import ServingCosts, StagePosition
from autoauto.evaluate.serving.nodes import Nodes
from autoauto.evaluate.serving.pipelines import EnginePipelines, across_kinds
from autoauto.plan.pipeline.range_plans import anywhere, best_in_any_order
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Cluster, DeviceKind, Link, Period
from autoauto.records.plans.plan import Plan
from autoauto.records.target import ServesDecoder
from autoauto.space.knobs import Knobs
from autoauto.targets.gpu.nodes import NodeGpus
from tests.decoders import decoder_folder
from tests.drawn import daily

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
FREE = Link(1e18, 0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder_folder(tmp_path_factory.mktemp("models") / "small")


def serving(n_ipu: int, batch_size: int, **values: object) -> Knobs:
    given: dict[str, Any] = {"engine": "vllm", "input_tokens": 512, "output_tokens": 128, **values}
    return Knobs(n_ipu, batch_size, **given)


def table_of(flow: Flow, knobs: Knobs, number: int, kind: DeviceKind) -> CostTable:
    """One GPU of a kind that may stand anywhere, layer by layer."""
    costs, n_layers = ServingCosts(flow.setting), len(flow.graph)
    only = costs.stage(knobs, StagePosition(number, True, True, kind.device_link), (knobs.batch_size,))
    layers = costs.layers(kind.device, knobs, (knobs.batch_size,))
    n_prompts = knobs.batch_size / knobs.mode.values["output_tokens"]

    def layer(index: int) -> LayerProfile:
        is_block = 0 < index < n_layers - 2
        held = int(only.block_bytes[layers.order[index - 1], 0]) if is_block else round(layers.weight_bytes[index])
        return LayerProfile(
            round((layers.decode_s[index, 0] + n_prompts * layers.prompt_s[index, 0]) * 1e9),
            0,
            {},
            {"held": held},
            int(only.rule.fixed_bytes[0]),
            carried_bytes=0,
            input_bytes=round(layers.send_bytes[0]) if index else 0,
            output_bytes=round(layers.send_bytes[0]) if index < n_layers - 1 else 0,
            activation_bytes=0,
        )

    names = tuple(each.name for each in flow.graph.layers)
    kinds, every = tuple(each.kind for each in flow.graph.layers), tuple(map(layer, range(n_layers)))
    profile = ModelProfile("small", "oracle", flow.setting.options(knobs), names, kinds, (None,) * n_layers, every)
    line = Cluster(
        "line",
        "gpu",
        (replace(kind.device, memory_bytes=only.limit_bytes),) * 3,
        receive_links=(FREE,) * 3,
        send_links=(kind.device_link, kind.device_link, FREE),
    )
    table = with_cuts_at(
        cost_table(profile, line, 1.0, Period.SERIAL), [block.layers.start for block in flow.graph.blocks[1:]]
    )
    return anywhere(table)


def pipelines_of(flow: Flow, knobs: Knobs) -> EnginePipelines:
    """All pipelines of GPUs that stand alone in their nodes, so that any order is one."""
    able = range(len(flow.cluster.kinds))
    alone = [NodeGpus(number, device.name, (0,)) for number, device in enumerate(flow.cluster.devices)]
    nodes = Nodes(alone, engine_named("vllm"), GroupSplit(1))
    return across_kinds(ServingCosts(flow.setting), knobs, (knobs.batch_size,), able, nodes)


def planned(flow: Flow, knobs: Knobs) -> Plan:
    """The plan of the exact planner on all GPUs, in any order."""
    kinds = flow.setting.devices(knobs).kinds
    tables = [table_of(flow, knobs, number, kind) for number, kind in enumerate(kinds)]
    return best_in_any_order(tables, [kind.n_devices for kind in kinds], n_in_use=knobs.n_ipu).plan


@pytest.mark.parametrize("cluster", daily(["h100_sxm-3+l40s-2", "h200_sxm-2+l40s-4"]))
@pytest.mark.parametrize("n_ipu", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 16, 200])
def test_no_plan_of_unlike_gpus_has_a_shorter_period(model: Path, cluster: str, n_ipu: int, batch_size: int) -> None:
    flow, knobs = load_flow(model, cluster, "gpu"), serving(n_ipu, batch_size)
    pipelines = pipelines_of(flow, knobs)
    plans = [pipelines.plan(row, 0) for row in range(len(pipelines.rows))]
    assert min(plan.cost_cycles for plan in plans) == pytest.approx(planned(flow, knobs).cost_cycles, rel=1e-6)


@pytest.mark.parametrize("n_ipu", [1, 2, 4])
def test_ends_that_are_stored_otherwise_are_cut_as_the_planner_does(tmp_path: Path, n_ipu: int) -> None:
    entry = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0", "model.layers.5.mlp"]}
    flow = load_flow(decoder_folder(tmp_path / "ends", quantization_config=entry), "h100_sxm-3+l40s-2", "gpu")
    knobs = serving(n_ipu, 16)
    pipelines = pipelines_of(flow, knobs)
    plans = [pipelines.plan(row, 0) for row in range(len(pipelines.rows))]
    assert min(plan.cost_cycles for plan in plans) == pytest.approx(planned(flow, knobs).cost_cycles, rel=1e-6)


@pytest.mark.parametrize("n_ipu", [2, 3])
def test_blocks_with_and_without_a_window_are_cut_as_the_planner_does(tmp_path: Path, n_ipu: int) -> None:
    """Every third block attends to all of a long prompt, the others to its end."""
    kinds = ["full_attention", "sliding_attention", "sliding_attention"] * 2
    folder = decoder_folder(tmp_path / "mixed", layer_types=kinds, sliding_window=512, max_position_embeddings=65_536)
    flow, knobs = load_flow(folder, "h100_sxm-3+l40s-2", "gpu"), serving(n_ipu, 8, input_tokens=30_000)
    pipelines = pipelines_of(flow, knobs)
    plans = [pipelines.plan(row, 0) for row in range(len(pipelines.rows))]
    assert min(plan.cost_cycles for plan in plans) == pytest.approx(planned(flow, knobs).cost_cycles, rel=1e-6)
    assert isinstance(flow.target, ServesDecoder)
    assert len(set(flow.target.decoder.order)) == 2


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Flow:
    """16 blocks, whose keys and values fill the smaller GPUs."""
    large = decoder_folder(tmp_path_factory.mktemp("models") / "large", num_hidden_layers=16)
    return load_flow(large, "h100_sxm-2+l40s-2", "gpu")


@pytest.mark.parametrize(("n_ipu", "batch_size"), [(2, 300), (3, 280), (4, 260)])
def test_where_little_fits_the_cuts_are_those_of_the_planner(filled: Flow, n_ipu: int, batch_size: int) -> None:
    knobs = serving(n_ipu, batch_size, input_tokens=4096, output_tokens=1024)
    pipelines = pipelines_of(filled, knobs)
    assert pipelines.period_s.min() == pytest.approx(planned(filled, knobs).cost_cycles / 1e9, rel=1e-6)


def test_what_does_not_fit_lacks_as_much_as_the_planner_says(filled: Flow) -> None:
    knobs = serving(4, 512, input_tokens=4096, output_tokens=1024)
    pipelines = pipelines_of(filled, knobs)
    smallest = min(pipelines.why_unfit(row, 0).excess_bytes for row in range(len(pipelines.rows)))
    kinds = enumerate(filled.cluster.kinds)
    tables = [table_of(filled, knobs, number, kind) for number, kind in kinds]
    with pytest.raises(Infeasible) as theirs:
        best_in_any_order(tables, [2, 2], n_in_use=4)
    assert smallest == theirs.value.excess_bytes
