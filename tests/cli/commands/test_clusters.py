import json
from collections.abc import Callable
from typing import Any


def test_the_built_in_clusters(door: Callable[..., Any]) -> None:
    clusters = {row["name"]: row for row in json.loads(door("clusters", "--json").out)["clusters"]}
    n_devices = {name: len(row["devices"]) for name, row in clusters.items()}
    assert n_devices == {"c600": 1, "m2000": 4, "bow-2000": 4, "bow-pod16": 16, "bow-pod64": 64, "seed-2-ipu": 2}


def test_this_machine_is_told_apart_from_the_built_in_clusters(door: Callable[..., Any]) -> None:
    (host,) = json.loads(door("clusters", "--json").out)["detected"]
    assert (host["name"], host["target"], host["devices"][0]["clock_hz"]) == ("host", "host", 1e9)
    assert json.loads(door("clusters", "--upstream", "host").out)["clock"] == 1e9


def test_people_get_a_table_of_each(door: Callable[..., Any]) -> None:
    builtin, _, detected = door("clusters").out.partition("This machine")
    assert "bow-pod16" in builtin
    assert "host" in detected


def test_a_cluster_in_the_seeds_form_is_the_seeds_own_example(door: Callable[..., Any]) -> None:
    printed = json.loads(door("clusters", "--upstream", "seed-2-ipu").out)
    assert printed == {
        "clock": 1850000000,
        "memory": 894,
        "connection": [
            {"recvGBps": 7, "recvIdleCycle": 50000, "sendGBps": 70, "sendIdleCycle": 3000},
            {"recvGBps": 70, "recvIdleCycle": 3000, "sendGBps": 7, "sendIdleCycle": 50000},
        ],
    }


def test_an_empty_name_is_no_cluster(door: Callable[..., Any]) -> None:
    code, out, err = door("clusters", "--upstream", "")
    assert (code, out) == (2, "")
    assert "a cluster is bow-2000" in err
