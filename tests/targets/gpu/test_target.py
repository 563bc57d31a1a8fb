"""The target of GPUs by hand: what a search of a decoder may choose from, where groups stand, and what systems are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoauto.engines.rules import GroupSplit
from autoauto.records.costs.blocks import Experts
from autoauto.records.costs.decoder import Checkpoint, Decoder, WeightFormat
from autoauto.records.costs.traffic.load import Lengths, TrafficLoad
from autoauto.records.errors import BadInput
from autoauto.records.units import MIB
from autoauto.targets.gpu import nodes, systems
from autoauto.targets.gpu.nodes import NodeGpus, free_groups, groups_of, parts_of
from autoauto.targets.gpu.session import GpuSession, PrefillPool
from autoauto.targets.gpu.systems import GpuSystem, cluster_of, is_cluster_name, prices_of
from autoauto.targets.gpu.target import BATCH_SIZES, GROUP_BATCH_SIZES, GpuTarget


def space_of(decoder: Decoder, *gpus: GpuSystem, **facts: Any) -> dict[str, tuple[Any, ...]]:
    return dict(GpuTarget(decoder, gpus, **facts).traits.space)


def test_a_dense_decoder_has_groups_without_experts(small: Decoder, system: GpuSystem) -> None:
    space = space_of(small, system)
    assert space["tensor_parallel"] == (1, 2, 4)  # up to the four GPUs of a node
    assert space["expert_parallel"] == space["attention_data_parallel"] == (1,)
    assert (space["engine"], space["batch_size"]) == (("vllm", "trtllm"), BATCH_SIZES)
    assert (space["precision"], space["kv_cache_precision"]) == ((WeightFormat.BF16,), (WeightFormat.BF16,))
    assert (space["input_tokens"], space["output_tokens"]) == ((1024,), (1024,))
    large = replace(system, n_gpus_per_node=72, engines=("sglang",))
    assert space_of(small, system, large)["tensor_parallel"] == (1, 2, 4, 8)
    assert space_of(small, system, large)["engine"] == ("vllm", "sglang", "trtllm")
    assert space_of(small, replace(system, n_gpus_per_node=1))["tensor_parallel"] == (1,)


def test_a_mixture_of_experts_deals_them_among_groups_with_larger_batches(small: Decoder, system: GpuSystem) -> None:
    space = space_of(replace(small, experts=Experts(8, 2, 32)), system)
    assert space["expert_parallel"] == space["attention_data_parallel"] == (1, 2, 4)
    assert space["batch_size"] == GROUP_BATCH_SIZES


def test_sizes_of_batches_are_few_where_arrivals_are_simulated(small: Decoder, system: GpuSystem) -> None:
    traffic = TrafficLoad(3.0, input_lengths=Lengths.of("100"), output_lengths=Lengths.of("20"))
    space = space_of(small, system, traffic=traffic)
    assert space["batch_size"] == (8, 16, 32, 64, 128, 256, 512)
    assert (space["input_tokens"], space["output_tokens"]) == ((100,), (20,))
    assert (BATCH_SIZES[0], BATCH_SIZES[31:35], BATCH_SIZES[-1]) == (1, (32, 36, 40, 44), 512)
    assert (GROUP_BATCH_SIZES[len(BATCH_SIZES) :][:2], GROUP_BATCH_SIZES[-1]) == ((544, 576), 4096)
    assert list(GROUP_BATCH_SIZES) == sorted(set(GROUP_BATCH_SIZES))


def test_percentiles_ask_for_arrivals_unless_clients_ask_again(small: Decoder, system: GpuSystem) -> None:
    target = GpuTarget(small, (system,), ("a note",))
    arrives = target.with_arrivals()
    assert arrives.traffic == TrafficLoad()
    assert arrives.notes[0] == "a note"
    assert arrives.notes[1].startswith("requests arrive at random (Poisson)")
    assert "no rate is given" in arrives.notes[2]
    assert arrives.with_arrivals() is arrives
    with pytest.raises(BadInput, match=r"percentiles are of requests that arrive .* got --concurrency; try --rate"):
        replace(target, n_in_flight=4).with_arrivals()


def test_a_group_serves_in_the_formats_of_the_checkpoint_or_in_given_ones(small: Decoder, system: GpuSystem) -> None:
    published = Checkpoint(WeightFormat.FP8, WeightFormat.BF16)
    target = GpuTarget(replace(small, checkpoint=published), (system,))
    plain = target.serving(system, GpuSession("trtllm", 2, attention_data_parallel=2))
    assert (plain.system, plain.engine, plain.tensor_parallel, plain.attention_data_parallel) == (
        "hand",
        "trtllm",
        2,
        2,
    )
    assert (plain.weights, plain.kv_cache) == (WeightFormat.FP8, WeightFormat.BF16)
    given = target.serving(system, GpuSession(precision=WeightFormat.BF16, kv_cache_precision=WeightFormat.FP8))
    assert (given.weights, given.kv_cache) == (WeightFormat.BF16, WeightFormat.FP8)


def test_prefill_workers_are_of_a_session_and_take_gpus_beside_replicas(system: GpuSystem) -> None:
    session = GpuSession("vllm", 2, prefill_workers=3, prefill_tensor_parallel=4, prefill_batch_size=2)
    assert session.prefill == PrefillPool(3, 4, batch_size=2)
    assert (session.n_beside, session.group_size, len(session.notes)) == (12, 2, 3)
    assert session.prefill.n_prompts == 2
    assert session.values["prefill_workers"] == 3
    assert session.kind_beside(cluster_of(system, 4, "hand-4")) == ""
    of_prefill = session.of_prefill
    assert (of_prefill.tensor_parallel, of_prefill.prefill) == (4, None)
    alone = GpuSession("vllm", 2, attention_data_parallel=3)
    assert (alone.n_beside, alone.group_size, alone.notes) == (0, 6, ())
    assert (alone.values["prefill_workers"], alone.values["prefill_kind"]) == (0, 1)
    assert alone.split == GroupSplit(2, 1, 3)
    with pytest.raises(BadInput, match="replicas compute prompts themselves, got no prefill_workers"):
        _ = alone.of_prefill


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel must be at least 1, got 0"),
        ({"max_batched_tokens": 0}, "max_batched_tokens must be at least 1, got 0"),
        ({"prefill_workers": 1, "prefill_tensor_parallel": 0}, "prefill_tensor_parallel must be at least 1, got 0"),
        ({"prefill_workers": 1, "prefill_kind": 0}, "prefill_kind must be at least 1, got 0"),
    ],
)
def test_numbers_of_a_session_are_at_least_one(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        GpuSession(**values)


def test_there_is_no_other_knob() -> None:
    with pytest.raises(TypeError, match="a session of GPUs has no colour"):
        GpuSession(colour=1)


@pytest.fixture
def _known(system: GpuSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "system_named", lambda name: replace(system, name=name))


def gpus(name: str, groups: list[NodeGpus]) -> list[tuple[int, tuple[int, ...]]]:
    assert {each.kind for each in groups} <= {name}
    return [(each.machine, each.gpus) for each in groups]


@pytest.mark.usefixtures("_known")
def test_groups_stand_in_nodes_or_on_whole_ones(system: GpuSystem) -> None:
    """Ten GPUs are nodes of 4, 4 and 2."""
    cluster = cluster_of(system, 10, "hand-10")
    assert gpus("hand", list(groups_of(cluster, 3))) == [(0, (0, 1, 2)), (1, (0, 1, 2))]
    assert len(groups_of(cluster, 2)) == 5
    [whole] = groups_of(cluster, 8)
    assert (whole.machine, whole.gpus, whole.n_machines) == (0, tuple(range(8)), 2)
    assert gpus("hand", list(whole.by_machine)) == [(0, (0, 1, 2, 3)), (1, (0, 1, 2, 3))]
    first, second, *_ = groups_of(cluster, 2)
    assert gpus("hand", list(parts_of([first, second]))) == [(0, (0, 1, 2, 3))]
    assert gpus("hand", list(parts_of([second, groups_of(cluster, 2)[2]]))) == [(0, (2, 3)), (1, (0, 1))]
    assert gpus("hand", list(parts_of([whole]))) == [(0, (0, 1, 2, 3)), (1, (0, 1, 2, 3))]


@pytest.mark.usefixtures("_known")
def test_free_groups_are_of_gpus_that_no_other_has(system: GpuSystem) -> None:
    cluster = cluster_of(system, 12, "hand-12")
    taken = [NodeGpus(0, "hand", (0, 1)), NodeGpus(1, "hand", (3,))]
    assert gpus("hand", free_groups(cluster, "hand", 2, 9, taken)) == [
        *((0, (2, 3)), (1, (0, 1)), (2, (0, 1)), (2, (2, 3))),
    ]
    assert gpus("hand", free_groups(cluster, "hand", 2, 3, taken)) == [(0, (2, 3)), (1, (0, 1)), (2, (0, 1))]
    assert free_groups(cluster, "other", 1, 9, taken) == []
    pairs = free_groups(cluster, "hand", 8, 9, ())
    assert [(each.machine, each.n_machines, each.gpus) for each in pairs] == [(0, 2, tuple(range(8)))]
    beside = free_groups(cluster, "hand", 8, 9, [NodeGpus(0, "hand", (0,))])
    assert [(each.machine, each.n_machines) for each in beside] == [(1, 2)]
    assert free_groups(cluster, "hand", 8, 9, [NodeGpus(0, "hand", tuple(range(8)), 2)]) == []


@pytest.mark.parametrize("has_package", [True, False])
def test_names_of_clusters_are_known_without_the_package(has_package: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "gpu_tables_dir", lambda: "here" if has_package else None)
    monkeypatch.setattr(systems, "system_names", lambda: ("h100_sxm", "l40s", "mine"))
    names = ("h100_sxm-8", "8xH100", "h100-6+6", "8xH100+4xL40S", "h100_sxm-8+l40s-8")
    assert all(map(is_cluster_name, names))
    assert not any(map(is_cluster_name, ("bow-2000", "h100_sxm", "h1000-8", "8xH100+4xbow", "", "h100_sxm-0")))
    assert is_cluster_name("mine-2") == has_package


def test_prices_are_numbers_above_0_by_system(monkeypatch: pytest.MonkeyPatch, system: GpuSystem) -> None:
    monkeypatch.setattr(systems, "system_names", lambda: ("h100_sxm", "l40s"))
    monkeypatch.setattr(systems, "system_named", lambda name: replace(system, name=name))
    assert prices_of(" H100 =2.5,l40s=0.9") == {"h100_sxm": 2.5, "l40s": 0.9}
    assert prices_of(None) == prices_of("") == {}
    for text in ("h100", "h100=", "h100=x", "h100=0", "h100=-1", "h100=inf", "h100=nan", "h100=1,h100_sxm=2"):
        with pytest.raises(BadInput, match="--price is GPU=USD with a number above 0, every system once"):
            prices_of(text)


def test_figures_of_a_system_are_those_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of memory that nvidia-smi shows, the driver keeps 0.17 % and 0.4 GiB: of 10,000 MiB 9,573 are left, whole."""
    monkeypatch.setattr(systems, "_engines_measured", lambda name: ("vllm",))
    content: dict[str, Any] = {
        "gpu": {"mem_capacity": 10_000 * MIB, "power": 700},
        "node": {"num_gpus_per_node": 8, "intra_node_bw": 9e11, "inter_node_bw": 5e10, "pcie_bw": 6e10}
        | {"p2p_latency": 1e-5, "num_gpus_per_rack": 72},
    }
    made = systems._system("mine", content)
    assert made == GpuSystem("mine", 9_573 * MIB, 8, 9e11, 5e10, 6e10, 1e-5, ("vllm",), 700.0, 0)
    content["node"]["inter_node_bw"] = 9e11  # links of the rack
    del content["gpu"]["power"]
    rack = systems._system("mine", content)
    assert (rack.n_gpus_per_rack, rack.power_limit_w) == (72, None)
    shown = {name: systems._system(name, content).memory_bytes // MIB for name in systems._SHOWN_MIB}
    assert shown == {
        **{"h100_sxm": 81_010, "h100_pcie": 81_010, "h200_sxm": 143_116, "b200_sxm": 182_637, "l4": 22_585}
    }
