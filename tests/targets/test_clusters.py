"""Cluster files: the built-in ones, the long form, and what is refused."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device, DeviceKind, Link, Machine, StreamingMemory, Topology
from autoauto.records.units import MIB, bytes_per_s
from autoauto.targets.clusters import builtin_clusters, load_cluster

SMALL = """
name = "pair"
target = "ipu"
n_devices = 2
[device]
name = "small"
clock_hz = 1e9
memory_bytes = 1000
n_tiles = 10
tile_memory_bytes = 100
[host_link]
bytes_per_s = 7_000
idle_cycles = 50
[device_link]
bytes_per_s = 70_000
idle_cycles = 0
"""

UNEQUAL = """
name = "uneven"
target = "ipu"
devices = [
    {name = "big", clock_hz = 2e9, memory_bytes = 2000, n_tiles = 20, tile_memory_bytes = 100},
    {name = "small", clock_hz = 1e9, memory_bytes = 1000, n_tiles = 10, tile_memory_bytes = 100},
]
[[receive_links]]
bytes_per_s = 1_000
idle_cycles = 10
[[receive_links]]
bytes_per_s = 2_000
idle_cycles = 20
[[send_links]]
bytes_per_s = 3_000
idle_cycles = 30
[[send_links]]
bytes_per_s = 4_000
idle_cycles = 40
"""

KINDS = """
name = "mixed"
target = "ipu"
[[kinds]]
n_devices = 2
[kinds.device]
name = "big"
clock_hz = 2e9
memory_bytes = 2000
n_tiles = 20
tile_memory_bytes = 100
[kinds.device_link]
bytes_per_s = 70_000
idle_cycles = 3
[kinds.host_link]
bytes_per_s = 7_000
idle_cycles = 50
[[kinds]]
n_devices = 1
[kinds.device]
name = "small"
clock_hz = 1e9
memory_bytes = 1000
n_tiles = 10
tile_memory_bytes = 100
[kinds.device_link]
bytes_per_s = 60_000
idle_cycles = 4
[kinds.host_link]
bytes_per_s = 6_000
idle_cycles = 40
"""

STREAMING = "[streaming_memory]\nbytes_per_s = 5_000\nidle_cycles = 6\ncapacity_bytes = 7\n"


def written(folder: Path, text: str) -> str:
    path = folder / "cluster.toml"
    path.write_text(text)
    return str(path)


def refusal(name_or_path: str) -> str:
    with pytest.raises(BadInput) as caught:
        load_cluster(name_or_path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "n_devices", "device", "clock_hz"),
    [
        ("c600", 1, "c600", 1.5e9),
        ("m2000", 4, "mk2", 1.33e9),
        ("bow-2000", 4, "bow", 1.85e9),
        ("bow-pod16", 16, "bow", 1.85e9),
        ("bow-pod64", 64, "bow", 1.85e9),
        ("seed-2-ipu", 2, "bow", 1.85e9),
    ],
)
def test_builtin_clusters_have_the_published_figures(name: str, n_devices: int, device: str, clock_hz: float) -> None:
    cluster = load_cluster(name)
    assert (cluster.name, cluster.target, len(cluster)) == (name, "ipu", n_devices)
    assert {(d.name, d.clock_hz, d.n_tiles, d.tile_memory_bytes) for d in cluster.devices} == {
        (device, clock_hz, 1472, 638_976)
    }


def test_there_are_no_other_builtin_clusters() -> None:
    names = {"c600", "m2000", "bow-2000", "bow-mk2", "bow-pod16", "bow-pod64", "seed-2-ipu"}
    assert set(builtin_clusters()) == names


def test_devices_hold_at_most_what_their_tiles_hold() -> None:
    for name in builtin_clusters():
        for device in load_cluster(name).devices:
            assert 0.99 < device.memory_bytes / (device.n_tiles * device.tile_memory_bytes) <= 1


@pytest.mark.parametrize(
    ("name", "key"),
    [("c600", "C600 (ipu21, FP8)"), ("m2000", "GC200 (Mk2, ipu2, M2000)"), ("bow-2000", "Bow (Mk2 die")],
)
def test_devices_multiply_as_fast_as_published(name: str, key: str, vectors: Callable[[str], Any]) -> None:
    """128 floating-point operations a cycle and tile in fp16; only the C600 has fp8."""
    published = next(row for device, row in vectors("ipu_hardware")["devices"].items() if device.startswith(key))
    device = load_cluster(name).devices[0]
    assert device.clock_hz == published["clock_hz"][0]
    assert device.n_tiles == published["tiles"][0]
    teraflops = published.get("fp16_tflops") or published["peak_fp16_tflops"]
    assert device.clock_hz * device.n_tiles * 128 / 1e12 == pytest.approx(teraflops[0], rel=0.01)
    assert device.fp8 == ("fp8_tflops" in published)


@pytest.mark.parametrize("name", ["c600", "bow-2000", "m2000", "bow-pod16", "bow-pod64"])
def test_links_are_those_of_auto_pipeline_unless_others_are_published(name: str, vectors: Callable[[str], Any]) -> None:
    """Only [auto-pipeline] publishes idle cycles; the host link of an M2000 was measured through its gateway."""
    cluster, (host, within) = load_cluster(name), load_cluster("seed-2-ipu").receive_links
    if name == "m2000":
        measured = vectors("ipu_hardware")["links_and_sync"]["host_via_gateway_GBps"][0]
        host = Link(measured * 1e9, host.idle_cycles)
    assert cluster.receive_links[0] == cluster.send_links[-1] == host
    assert cluster.receive_links[1:] == cluster.send_links[:-1]
    between = Link(512e9 / 8, within.idle_cycles)  # datasheet of the Bow-2000
    expected = [between if "pod" in name and d % 4 == 0 else within for d in range(1, len(cluster))]
    assert list(cluster.receive_links[1:]) == expected


def test_the_cluster_of_two_ipus_has_the_figures_of_auto_pipeline(vectors: Callable[[str], Any]) -> None:
    published = vectors("ipu_hardware")["links_and_sync"]["seed_cluster_info"]
    cluster = load_cluster("seed-2-ipu")
    host = Link(bytes_per_s(published["host_GBps"]), published["host_idle_cycles"])
    between = Link(bytes_per_s(published["ipu_to_ipu_GBps"]), published["ipu_to_ipu_idle_cycles"])
    assert cluster.receive_links == (host, between)
    assert cluster.send_links == (between, host)
    assert {(d.clock_hz, d.memory_bytes) for d in cluster.devices} == {
        (published["clock"], published["memory_MB"] * MIB)
    }


def test_every_builtin_file_names_its_source_and_itself() -> None:
    for name, path in builtin_clusters().items():
        table = tomllib.loads(path.read_text())
        assert (table["name"], table["schema"]) == (name, 1)
        assert len(table["source"]) > 20


def test_equal_devices_are_written_once(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, SMALL))
    assert cluster.devices == (Device("small", 1e9, 1000, 10, 100),) * 2
    assert cluster.receive_links == (Link(7_000, 50), Link(70_000, 0))
    assert cluster.send_links == (Link(70_000, 0), Link(7_000, 50))


@pytest.mark.parametrize(("n_devices", "drawn"), [(2, "="), (3, "=-"), (6, "=-=-="), (7, "=-=-=-")])
def test_every_so_many_devices_are_a_machine(tmp_path: Path, n_devices: int, drawn: str) -> None:
    text = SMALL.replace("n_devices = 2", f"n_devices = {n_devices}")
    cluster = load_cluster(
        written(tmp_path, text + "[machine_link]\nevery = 2\nbytes_per_s = 6_000\nidle_cycles = 1\n")
    )
    assert "".join("=" if link == Link(70_000, 0) else "-" for link in cluster.send_links[:-1]) == drawn
    assert set(cluster.send_links[:-1]) <= {Link(70_000, 0), Link(6_000, 1)}


def test_whole_machines_are_a_pod(tmp_path: Path) -> None:
    machines = SMALL.replace("n_devices = 2", "n_devices = 9")
    machines += "[machine_link]\nevery = 2\nbytes_per_s = 6_000\nidle_cycles = 1\n"
    pods = "[pod_link]\nevery = {}\nbytes_per_s = 5_000\nidle_cycles = 2\n"
    links = load_cluster(written(tmp_path, machines + pods.format(4))).receive_links
    drawn = {Link(7_000, 50): "host ", Link(70_000, 0): "=", Link(6_000, 1): "-", Link(5_000, 2): " "}
    assert "".join(drawn[link] for link in links) == "host =-= =-= "
    assert "every must be whole machines of 2 devices, got 3" in refusal(written(tmp_path, machines + pods.format(3)))


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    """The cluster is part of the fingerprint of a study."""
    cluster = load_cluster(written(tmp_path, SMALL))
    assert repr(cluster.receive_links[0]) == "Link(bytes_per_s=7000, idle_cycles=50)"
    assert repr(cluster.devices[0].clock_hz) == "1000000000.0"


def test_a_file_may_have_a_schema_number(tmp_path: Path) -> None:
    assert load_cluster(written(tmp_path, "schema = 1" + SMALL)) == load_cluster(written(tmp_path, SMALL))


def test_unequal_devices_are_listed(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, UNEQUAL))
    assert [device.name for device in cluster.devices] == ["big", "small"]
    assert cluster.receive_links == (Link(1_000, 10), Link(2_000, 20))
    assert cluster.send_links == (Link(3_000, 30), Link(4_000, 40))


def test_fp8_is_true_or_false(tmp_path: Path) -> None:
    assert not load_cluster(written(tmp_path, SMALL)).devices[0].fp8
    assert load_cluster(written(tmp_path, SMALL.replace("n_tiles = 10", "n_tiles = 10\nfp8 = true"))).devices[0].fp8
    assert "fp8 must be true or false, got 1" in refusal(
        written(tmp_path, SMALL.replace("n_tiles = 10", "n_tiles = 10\nfp8 = 1"))
    )


def test_one_device_needs_no_device_link(tmp_path: Path) -> None:
    alone = SMALL.replace("n_devices = 2", "n_devices = 1").partition("[device_link]")[0]
    assert load_cluster(written(tmp_path, alone)).send_links == (Link(7_000, 50),)


def test_an_unknown_name_lists_the_known_ones() -> None:
    message = refusal("bow-3000")
    assert "'bow-3000'" in message
    assert all(name in message for name in builtin_clusters())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "No such file" in refusal(str(tmp_path / "none.toml"))


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    assert "directory" in refusal(str(tmp_path / "folder.toml"))


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    assert "line 3" in refusal(written(tmp_path, '\nname = "x"\ntarget = \n'))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_bytes(b'name = "\xff\xfe"')
    assert "line 1: a TOML file is UTF-8 text" in refusal(str(tmp_path / "cluster.toml"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "pair"\n', "", "line 1: the top level must have the field name, got an object with target, "),
        ("n_tiles = 10\n", "", "line 5: device must have the field n_tiles"),
        ("clock_hz", "clock", "line 7: device must have only the fields name, clock_hz, "),
        ("clock_hz", "clock", "got clock; did you mean 'clock_hz'?"),
        ("n_devices = 2", "n_devices = 1000000000", "line 4: n_devices must be a whole number from 1 to 65536, got 10"),
        ("n_devices = 2", "n_devices = 0", "line 4: n_devices must be a whole number from 1 to 65536, got 0"),
        ("n_devices = 2", "n_devices = true", "n_devices must be a whole number from 1 to 65536, got True"),
        ("n_devices = 2", "n_devices = 2.0", "n_devices must be a whole number from 1 to 65536, got 2.0"),
        ("clock_hz = 1e9", "clock_hz = -1e9", "line 7: device.clock_hz must be a number from 1e+06 to"),
        ("clock_hz = 1e9", "clock_hz = 1_400", "clock_hz must be a number from 1e+06 to 1e+18, got 1400"),
        (
            "bytes_per_s = 7_000",
            "bytes_per_s = 25",
            "host_link.bytes_per_s must be a number from 1000 to 1e+18, got 25",
        ),
        ("clock_hz = 1e9", "clock_hz = nan", "clock_hz must be a number from 1e+06 to 1e+18, got nan"),
        ("clock_hz = 1e9", "clock_hz = 5e-324", "clock_hz must be a number from 1e+06 to 1e+18, got 5e-324"),
        ("clock_hz = 1e9", "clock_hz = 1e300", "clock_hz must be a number from 1e+06 to 1e+18, got 1e+300"),
        ("clock_hz = 1e9", "clock_hz = inf", "clock_hz must be a number from 1e+06 to 1e+18, got inf"),
        ("clock_hz = 1e9", 'clock_hz = "fast"', "clock_hz must be a number from 1e+06 to 1e+18, got 'fast'"),
        ("memory_bytes = 1000", "memory_bytes = 0.5", "memory_bytes must be a whole number"),
        ("idle_cycles = 50", "idle_cycles = -1", "line 13: host_link.idle_cycles must be a whole number from 0"),
        ("[device_link]", "[device_links]", "got device_links; did you mean 'device_link'?"),
        (SMALL[SMALL.index("[device_link]") :], "", "2 devices must have a [device_link] between them"),
        ("[device_link]", "[machine_link]\nevery = 0\n[device_link]", "line 15: machine_link.every must be"),
        ("[device_link]", "[machine_link]\nevery = 1\n[device_link]", "machine_link must have the field bytes_per_s"),
        ('target = "ipu"', 'target = ""', "target must be a text that is not empty, got ''"),
        ('target = "ipu"', "target = 7", "target must be a text that is not empty, got 7"),
        ("n_devices = 2", "n_devices = 2\nmemory = 3", "line 5: the top level must have only the fields"),
        ("n_devices = 2", "n_devices = 2\ndevices = []", "got n_devices; did you mean 'devices'?"),
        ("n_devices = 2", "n_devices = 2\nschema = 9", "line 5: schema must be 1, got 9"),
    ],
)
def test_the_message_names_what_is_wrong_with_a_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    assert message in refusal(written(tmp_path, SMALL.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[send_links]]\nbytes_per_s = 4_000\nidle_cycles = 40\n", "", "2 devices, 2 receive_links, 1 send_links"),
        (
            "idle_cycles = 20",
            "idle = 20",
            "line 13: receive_links[1] must have only the fields bytes_per_s",
        ),
        ("n_tiles = 20, ", "", "line 4: devices[0] must have the field n_tiles"),
    ],
)
def test_the_message_names_what_is_wrong_with_a_list(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in UNEQUAL
    assert message in refusal(written(tmp_path, UNEQUAL.replace(old, new, 1)))


def test_a_list_of_something_else_is_refused(tmp_path: Path) -> None:
    text = 'name = "x"\ntarget = "ipu"\ndevices = [1]\nreceive_links = [1]\nsend_links = [1]\n'
    assert "line 3: devices[0] must be an object with the fields name, clock_hz, " in refusal(written(tmp_path, text))


@pytest.mark.parametrize("text", [SMALL, UNEQUAL])
def test_a_cluster_may_have_a_streaming_memory(tmp_path: Path, text: str) -> None:
    assert load_cluster(written(tmp_path, text)).streaming_memory is None
    assert load_cluster(written(tmp_path, text + STREAMING)).streaming_memory == StreamingMemory(5_000, 6, 7)
    message = refusal(written(tmp_path, text + STREAMING.replace("capacity_bytes = 7", "capacity_bytes = 0")))
    assert "streaming_memory.capacity_bytes must be a whole number from 1 to 2**53, got 0" in message


@pytest.mark.parametrize("text", [SMALL, UNEQUAL])
def test_a_cluster_may_have_a_topology(tmp_path: Path, text: str) -> None:
    assert load_cluster(written(tmp_path, text)).topology is Topology.LINE
    assert load_cluster(written(tmp_path, 'topology = "all-to-all"\n' + text)).topology is Topology.ALL_TO_ALL
    message = refusal(written(tmp_path, 'topology = "ring"\n' + text))
    assert "line 1: topology must be one of line, all-to-all, got 'ring'" in message


def test_machines_with_streaming_memory_share_256_gb_among_four() -> None:
    memories = {name: load_cluster(name).streaming_memory for name in builtin_clusters()}
    assert {name for name, memory in memories.items() if memory} == {"m2000", "bow-2000", "bow-pod16", "bow-pod64"}
    assert {memory.capacity_bytes for memory in memories.values() if memory} == {64 * 10**9}


MACHINE = "[machine]\nn_devices = 2\nhost_bytes_per_s = 9_000\n"
MACHINE_LINK = "[machine_link]\nbytes_per_s = 3_000\nidle_cycles = 1\n"


@pytest.mark.parametrize("form", [SMALL, UNEQUAL])
def test_devices_of_a_machine_share_a_connection_to_the_host(tmp_path: Path, form: str) -> None:
    assert load_cluster(written(tmp_path, form)).machine is None
    assert load_cluster(written(tmp_path, form + MACHINE)).machine == Machine(2, 9_000)


def test_a_machine_says_where_the_links_between_machines_are(tmp_path: Path) -> None:
    four = SMALL.replace("n_devices = 2", "n_devices = 4")
    new = load_cluster(written(tmp_path, four + MACHINE + MACHINE_LINK))
    assert new.receive_links[2] == Link(3_000, 1) != new.receive_links[1]
    old = load_cluster(written(tmp_path, four + MACHINE_LINK.replace("[machine_link]", "[machine_link]\nevery = 2")))
    assert (new.receive_links, new.send_links) == (old.receive_links, old.send_links)


def test_a_machine_and_its_links_do_not_contradict_each_other(tmp_path: Path) -> None:
    four = SMALL.replace("n_devices = 2", "n_devices = 4")
    other = MACHINE_LINK.replace("[machine_link]", "[machine_link]\nevery = 3")
    assert "every must be the n_devices of [machine], 2, got 3" in refusal(written(tmp_path, four + MACHINE + other))
    assert "must have every" in refusal(written(tmp_path, four + MACHINE_LINK))
    assert "host_bytes_per_s" in refusal(written(tmp_path, SMALL + MACHINE.replace("= 9_000", "= 0")))


@pytest.mark.parametrize("name", ["m2000", "bow-2000", "bow-pod16", "bow-pod64"])
def test_a_built_in_machine_has_two_ports_for_four_devices(name: str) -> None:
    assert load_cluster(name).machine == Machine(4, 25e9)


BIG, LITTLE = Device("big", 2e9, 2000, 20, 100), Device("small", 1e9, 1000, 10, 100)


def test_devices_of_several_kinds_are_listed_kind_by_kind(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, KINDS))
    assert cluster.kinds == (
        DeviceKind(BIG, 2, Link(70_000, 3), Link(7_000, 50)),
        DeviceKind(LITTLE, 1, Link(60_000, 4), Link(6_000, 40)),
    )
    assert cluster.devices == (BIG, BIG, LITTLE)
    assert cluster.receive_links == (Link(7_000, 50), Link(70_000, 3), Link(60_000, 4))
    assert cluster.send_links == (Link(70_000, 3), Link(70_000, 3), Link(6_000, 40))
    assert (cluster.topology, cluster.machine, cluster.streaming_memory) == (Topology.LINE, None, None)
    all_to_all = load_cluster(written(tmp_path, 'topology = "all-to-all"\nsource = "mine"\n' + KINDS))
    assert (all_to_all.topology, all_to_all.kinds) == (Topology.ALL_TO_ALL, cluster.kinds)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'name = "small"',
            'name = "big"',
            "line 4: kinds must be one or more with devices of different names, got big",
        ),
        (KINDS[KINDS.index("[[kinds]]") :], "kinds = []\n", "with devices of different names, got none"),
        ("n_devices = 1", "n_devices = 0", "kinds[1].n_devices must be a whole number from 1 to 65536, got 0"),
        ("[kinds.host_link]\nbytes_per_s = 6_000\nidle_cycles = 40\n", "", "kinds[1] must have the field host_link"),
        ('name = "mixed"', 'name = "mixed"\nn_devices = 3', "must have only the fields name, target, kinds, topology"),
        ("[[kinds]]\nn_devices = 2", MACHINE + "[[kinds]]\nn_devices = 2", "[[kinds]] has no [machine]; leave it out"),
        ("[[kinds]]\nn_devices = 2", STREAMING + "[[kinds]]\nn_devices = 2", "has no [streaming_memory]; leave it"),
    ],
)
def test_the_message_names_what_is_wrong_with_kinds(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in KINDS
    assert message in refusal(written(tmp_path, KINDS.replace(old, new, 1)))


@pytest.mark.parametrize("target", ["gpu", "profile"])
@pytest.mark.parametrize("text", [SMALL, UNEQUAL, KINDS])
def test_devices_whose_times_are_in_seconds_need_no_clock_and_no_tiles(tmp_path: Path, text: str, target: str) -> None:
    for key in ("clock_hz", "n_tiles", "tile_memory_bytes"):
        text = re.sub(rf"(, )?{key} = [0-9e]+", "", text)
    devices = load_cluster(written(tmp_path, text.replace('"ipu"', f'"{target}"'))).devices
    assert {(device.clock_hz, device.n_tiles) for device in devices} == {(1e9, 1)}
    assert "must have the field" in refusal(written(tmp_path, text))


def test_kinds_of_gpus_have_no_groups_of_their_own(tmp_path: Path) -> None:
    text = KINDS.replace('"ipu"', '"gpu"').replace("n_devices = 2", "n_devices = 2\ntensor_parallel = 2")
    message = refusal(written(tmp_path, text))
    assert "line 6: groups of one size in all stages and replicas, since vllm, sglang, trtllm are each told" in message


def test_the_built_in_kinds_are_those_of_their_own_machines(vectors: Callable[[str], Any]) -> None:
    bow, mk2 = load_cluster("bow-mk2").kinds
    for kind, name in ((bow, "bow-2000"), (mk2, "m2000")):
        machine = load_cluster(name)
        assert (kind.n_devices, kind.device, kind.host_link) == (2, machine.devices[0], machine.receive_links[0])
        assert kind.device_link == load_cluster("bow-pod16").receive_links[4]


def test_a_file_for_an_unknown_target_lists_the_targets_before_anything_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "tpu.toml"
    path.write_text('name = "pod"\ntarget = "tpu"\nn_devices = 4\n', encoding="utf-8")
    with pytest.raises(BadInput, match=r"tpu\.toml, line 2: target must be one of ipu, host, profile, got 'tpu'"):
        load_cluster(str(path), ("ipu", "host"))
