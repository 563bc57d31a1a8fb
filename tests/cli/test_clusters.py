import json
from collections.abc import Callable
from typing import Any


def test_the_built_in_clusters(door: Callable[..., Any]) -> None:
    clusters = {row["name"]: row for row in json.loads(door("clusters", "--json").out)["clusters"]}
    n_devices = {name: len(row["devices"]) for name, row in clusters.items()}
    assert n_devices == {"c600": 1, "m2000": 4, "bow-2000": 4, "bow-pod16": 16, "seed-2-ipu": 2}


def test_people_get_a_table(door: Callable[..., Any]) -> None:
    assert "bow-pod16" in door("clusters").out
