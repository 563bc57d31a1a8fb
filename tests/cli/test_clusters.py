import json
from collections.abc import Callable
from typing import Any


def test_the_built_in_clusters(door: Callable[..., Any]) -> None:
    clusters = {row["name"]: row for row in json.loads(door("clusters", "--json").out)["clusters"]}
    n_devices = {name: len(row["devices"]) for name, row in clusters.items()}
    assert n_devices == {"c600": 1, "m2000": 4, "bow-2000": 4, "bow-pod16": 16, "bow-pod64": 64, "seed-2-ipu": 2}


def test_people_get_a_table(door: Callable[..., Any]) -> None:
    assert "bow-pod16" in door("clusters").out


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
