import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Door = Callable[..., Any]


def test_the_seeds_format_can_be_planned_again(door: Door, tmp_path: Path) -> None:
    """A profile written in the seed's form plans to the partition that the model itself plans to."""
    assert door("profile", "resnet50", "--batch-size", "4", "--output", "info.json", "--format", "upstream").code == 0
    arguments = ("--cluster", "seed-2-ipu", "--n-ipu", "2", "--batch-size", "4", "--estimator", "sum", "--json")
    direct = json.loads(door("predict", "resnet50", *arguments).out)
    connection = [
        {"recvGBps": 7, "recvIdleCycle": 50000, "sendGBps": 70, "sendIdleCycle": 3000},
        {"recvGBps": 70, "recvIdleCycle": 3000, "sendGBps": 7, "sendIdleCycle": 50000},
    ]
    cluster = {"clock": 1850000000, "memory": 894, "connection": connection}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    again = json.loads(door("plan", "--model-info", "info.json", "--cluster-info", "cluster.json", "--json").out)
    assert {key: again[key] for key in ("partition", "cost_cycles")} == {
        key: direct[key] for key in ("partition", "cost_cycles")
    }


def test_our_own_format_can_be_planned_too(door: Door, tmp_path: Path) -> None:
    assert door("profile", "resnet50", "--output", "profile.json").code == 0
    connection = [{"recvGBps": 7, "recvIdleCycle": 0, "sendGBps": 7, "sendIdleCycle": 0}]
    (tmp_path / "cluster.json").write_text(json.dumps({"clock": 1e9, "memory": 894, "connection": connection}))
    planned = door("plan", "--model-info", "profile.json", "--cluster-info", "cluster.json", "--json")
    assert json.loads(planned.out)["partition"][0] == 0


def test_json_has_a_record_for_every_layer(door: Door) -> None:
    profile = json.loads(door("profile", "resnet50", "--batch-size", "2", "--json").out)
    assert profile["options"] == {"batch_size": 2, "memory_proportion": 0.6, "precision": "fp16", "training": False}
    assert len(profile["layers"]) == len(profile["names"]) == len(profile["kinds"])
    assert all(layer["forward_cycles"] > 0 for layer in profile["layers"])


def test_people_get_a_table(door: Door) -> None:
    assert "Layers compiled alone" in door("profile", "resnet50").out


def test_a_place_that_cannot_be_written_is_one_line(door: Door) -> None:
    code, _, err = door("profile", "resnet50", "--output", "no/such/folder/profile.json")
    assert code == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--layer", "conv"), "--layer is for --sweep memory-proportion, got 'conv' without it"),
        (("--format", "upstream"), "--format is that of --output FILE, got upstream without a file"),
        (("--sweep", "memory-proportion", "--output", "x.json"), "of which a sweep makes none, got x.json"),
    ],
)
def test_options_that_would_do_nothing_are_refused(door: Door, options: tuple[str, ...], told: str) -> None:
    code, out, err = door("profile", "resnet50", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
