"""Tables of models, clusters and profiles."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.hardware import Cluster, Device, DeviceKind, Link
from autoauto.records.target import Origin
from autoauto.report.tables.listings import (
    clusters_table,
    decoders_table,
    ends_table,
    models_table,
    operators_table,
    profile_table,
    studies_table,
    systems_table,
)

Text = Callable[..., str]
MODELS = """\
Built-in models
name      layers  kinds  weights (fp16)
───────────────────────────────────────
resnet50   1,220     40         2.0 MiB"""
CLUSTERS = """\
Built-in clusters
name  target  devices     clock     memory       host link    device link
─────────────────────────────────────────────────────────────────────────
pair  ipu     2 x bow  1.85 GHz  894.0 MiB       7.0 GiB/s     70.0 GiB/s
                                            +50,000 cycles  +3,000 cycles
one   ipu     1 x bow  1.85 GHz  894.0 MiB       7.0 GiB/s              -
                                            +50,000 cycles
a link waits its idle cycles, then moves so many GiB a second"""
KINDS = """\
Built-in clusters
name   target  devices     clock     memory       host link    device link
──────────────────────────────────────────────────────────────────────────
mixed  ipu     2 x bow  1.85 GHz  894.0 MiB       7.0 GiB/s     70.0 GiB/s
                                             +50,000 cycles  +3,000 cycles
               1 x old  1.33 GHz  894.0 MiB       5.0 GiB/s     60.0 GiB/s
                                             +50,000 cycles  +3,000 cycles
a link waits its idle cycles, then moves so many GiB a second"""
LAYERS = """\
Layers compiled alone, modelled
                     cycles  of all
first layer  layers    each  cycles  always live  temporary
───────────────────────────────────────────────────────────
conv              2     400  80.0 %      3.0 KiB      100 B
pool              1     200  20.0 %      3.0 KiB      100 B
2 of 2 kinds; 3 layers, 1,000 cycles"""


def layer(cycles: int) -> LayerProfile:
    return LayerProfile(cycles, 0, {"vertexCode_k": 1024}, {"parameter": 2048}, 100, 0, 0, 0, 0)


PROFILE = ModelProfile(
    model="small",
    target="ipu bow",
    options=None,
    names=("pool", "conv", "conv2"),
    kinds=("p", "c", "c"),
    tied=(None, None, None),
    layers=(layer(200), layer(400), layer(400)),
)


def test_models_are_drawn(text: Text) -> None:
    rows = [{"name": "resnet50", "n_layers": 1220, "n_kinds": 40, "weight_bytes": 2 * 1024**2}]
    assert text(models_table(rows)) == MODELS


def test_clusters_are_drawn(text: Text) -> None:
    device = Device("bow", 1.85e9, 894 * 1024**2, 1472, 638_976)
    host, between = Link(7 * 1024**3, 50_000), Link(70 * 1024**3, 3_000)
    pair = Cluster("pair", "ipu", (device, device), (host, between), (between, host))
    single = Cluster("one", "ipu", (device,), (host,), (host,))
    assert text(clusters_table([pair, single])) == CLUSTERS


def test_kinds_are_drawn_with_most_cycles_first(text: Text) -> None:
    assert text(profile_table(PROFILE, Origin.MODELLED)) == LAYERS


def test_only_the_kinds_with_most_cycles_are_shown(text: Text) -> None:
    drawn = text(profile_table(PROFILE, Origin.MODELLED, top=1))
    assert "pool" not in drawn
    assert "1 of 2 kinds" in drawn


def test_every_kind_of_devices_has_a_row(text: Text) -> None:
    bow, old = Device("bow", 1.85e9, 894 * 1024**2, 1472, 638_976), Device("old", 1.33e9, 894 * 1024**2, 1216, 262_144)
    kinds = [
        DeviceKind(bow, 2, Link(70 * 1024**3, 3_000), Link(7 * 1024**3, 50_000)),
        DeviceKind(old, 1, Link(60 * 1024**3, 3_000), Link(5 * 1024**3, 50_000)),
    ]
    assert text(clusters_table([Cluster.of_kinds("mixed", "ipu", kinds)])) == KINDS


def test_a_line_of_80_columns_has_room_for_names_of_studies(text: Text) -> None:
    name = "squeezenet-bow-pod16-throughput-latency-f54c84"
    row = {"name": name, "model": "squeezenet", "cluster": "bow-pod16", "objective": "throughput,latency"}
    rows = [
        row
        | {
            "values": [13849.2, 0.004],
            "n_trials": 1234,
            "last_trial": "2026-11-01",
            "state": "finished",
            "unit": "samples/s",
        }
    ]
    rows.append(
        row
        | {"name": "new", "values": [], "n_trials": 0, "last_trial": None, "state": "unfinished", "unit": "samples/s"}
    )
    assert text(studies_table(rows, datetime(2026, 11, 3)), 80).split("\n")[4:8] == [
        f"{name}    13,849.2   1,234  2 d ago",
        "squeezenet on bow-pod16, throughput and latency  samples/s          finished",
        "new                                                      -       0  -",
        "squeezenet on bow-pod16, throughput and latency                     unfinished",
    ]


def test_decoders_that_are_not_read_say_why_and_what_is_read_instead_once() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "a", "n_weights": 1_234_000_000, "weights": "bf16", "reason": ""},
        {"name": "b", "reason": "no rule for Mamba; modelled decoders are x, y"},
        {"name": "c", "reason": "no config"},
    ]
    table = decoders_table(rows)
    assert table.rows == (
        ("a", "1.2 billion", "bf16"),
        ("b", "not read", "no rule for Mamba"),
        ("c", "not read", "no config"),
    )
    assert table.caption == "any other: the folder of its config.json\nmodelled decoders are x, y"
    assert decoders_table(rows[:1]).caption == "any other: the folder of its config.json"


def test_ends_and_operators_of_a_model_and_systems() -> None:
    ends = ends_table([("x", "float", "n x 3")], [("y", "float", "n"), ("z", "int64", "n")])
    assert ends.rows == (("input", "x", "float", "n x 3"), ("output", "y", "float", "n"), ("output", "z", "int64", "n"))
    assert operators_table([("Conv", 3, True), ("Foo", 1, False)]).rows == (
        ("Conv", 3, "priced"),
        ("Foo", 1, "as elementwise"),
    )
    system = {"name": "h100", "n_gpus_per_node": 8, "memory_bytes": 3 * 2**29, "engines": ["vllm", "sglang"]}
    assert systems_table([system]).rows == (("h100", 8, "1.5 GiB", "vllm, sglang"),)
