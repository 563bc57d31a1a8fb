"""Clusters of GPUs by name, and what is refused in a line."""

from __future__ import annotations

import re

import pytest

from autoauto.engines.registry import engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.records.errors import BadInput, MissingExtra, Unsupported
from autoauto.targets.gpu import systems
from autoauto.targets.gpu.systems import GpuSystem, check_group, cluster_named, cluster_of, system_named, system_names


def test_gpus_stand_in_nodes(system: GpuSystem) -> None:
    cluster = cluster_of(system, 6, "hand-6")
    assert (len(cluster), cluster.machine_size, cluster.target) == (6, 4, "gpu")
    assert [link.bytes_per_s for link in cluster.send_links] == [1e9, 1e9, 1e9, 1e8, 1e9, 1e7]
    assert cluster.send_links[0].idle_cycles == 10_000


@pytest.mark.parametrize(("n_gpus", "each", "n_groups"), [(6, 2, 3), (6, 4, 1), (8, 4, 2), (6, 3, 1), (7, 1, 7)])
def test_groups_lie_inside_nodes(system: GpuSystem, n_gpus: int, each: int, n_groups: int) -> None:
    """4 GPUs a node: of 6, a group of 4 leaves the two of the second node unused."""
    groups = cluster_of(system, n_gpus, "hand").grouped(each)
    assert len(groups) == n_groups
    assert groups.devices[0].memory_bytes == each * system.memory_bytes


def test_stages_of_another_node_are_behind_its_link(system: GpuSystem) -> None:
    """Two groups of 2 a node: the second link of three leaves it."""
    assert [link.bytes_per_s for link in system.links_between(4, 2)] == [1e9, 1e8, 1e9]
    assert [link.bytes_per_s for link in system.links_between(3, 4)] == [1e8, 1e8]
    assert system.links_between(1, 2) == ()


@pytest.mark.parametrize(
    ("engine", "n_gpus", "problem"),
    [
        ("sglang", 1, "hand has measured times of vllm, trtllm, got sglang"),
        ("vllm", 8, "a group lies inside a node, which has 4 GPUs in hand; got tensor_parallel 8"),
        ("vllm", 0, "a group lies inside a node, which has 4 GPUs in hand; got tensor_parallel 0"),
    ],
)
def test_groups_without_times_or_node_are_refused(system: GpuSystem, engine: str, n_gpus: int, problem: str) -> None:
    with pytest.raises(Unsupported, match=f"^{re.escape(problem)}$"):
        check_group(system, engine_named(engine), GroupSplit(n_gpus))


def test_ranks_of_the_attention_may_be_on_whole_nodes(system: GpuSystem) -> None:
    check_group(system, engine_named("vllm"), GroupSplit(2, 8, 4))
    for split in (GroupSplit(8), GroupSplit(1, 1, 6), GroupSplit(8, 1, 2)):
        with pytest.raises(Unsupported, match="a group lies inside a node, which has 4 GPUs in hand"):
            check_group(system, engine_named("vllm"), split)


def test_an_unknown_engine_is_refused_with_the_closest() -> None:
    with pytest.raises(BadInput, match=r"an engine is vllm, sglang, trtllm, got 'vlm'; did you mean 'vllm'\?"):
        engine_named("vlm")


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "gpu_tables_dir", lambda: None)
    system_named.cache_clear()
    with pytest.raises(MissingExtra, match="the target gpu needs the extra gpu; try: "):
        cluster_named("l40s-8")


@pytest.mark.parametrize("name", ["h100_sxm", "h100_sxm-0", "-8", "h100_sxm-100000", "H100-8"])
def test_a_name_that_is_no_system_and_number_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="a cluster of GPUs is SYSTEM-N, for example h100_sxm-8, of "):
        cluster_named(name)


def test_an_unknown_system_is_refused_with_the_closest() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it describes the systems")
    with pytest.raises(BadInput, match=r"got 'h100_smx'; did you mean 'h100_sxm'\?"):
        cluster_named("h100_smx-8")


def test_every_system_of_the_package_makes_a_cluster() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it describes the systems")
    names = system_names()
    assert {"h100_sxm", "l40s", "gb200", "rtx_pro_6000_server"} <= set(names)
    for name in names:
        cluster = cluster_named(f"{name}-3")
        assert (len(cluster), cluster.devices[0].name) == (3, name)
    assert 79 * 1024**3 < system_named("h100_sxm").memory_bytes < 79.3 * 1024**3, "less than it is sold with"


def test_a_name_says_the_gpus_of_every_node() -> None:
    assert [cluster_named(name).machine_size for name in ("h100_sxm-12", "h100_sxm-6+6", "h100_sxm-4+6")] == [8, 6, 6]
    assert len(cluster_named("h100_sxm-6+6")) == 12
    for name, n in (("h100_sxm-9+9", 18), ("h100_sxm-6+4+4", 14)):
        with pytest.raises(BadInput, match=f"nodes of h100_sxm have up to 8 GPUs.*try h100_sxm-{n}"):
            cluster_named(name)
