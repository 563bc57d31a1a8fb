import json

from tests.cli.conftest import RunCli


def test_the_built_in_clusters(run_cli: RunCli) -> None:
    clusters = {row["name"]: row for row in json.loads(run_cli("clusters", "--json").out)["clusters"]}
    n_devices = {name: len(row["devices"]) for name, row in clusters.items()}
    assert n_devices.pop("bow-mk2") == 4
    assert n_devices == {"c600": 1, "m2000": 4, "bow-2000": 4, "bow-pod16": 16, "bow-pod64": 64, "seed-2-ipu": 2}
    kinds = {name: [kind["device"]["name"] for kind in row["kinds"]] for name, row in clusters.items() if row["kinds"]}
    assert kinds == {"bow-mk2": ["bow", "mk2"]}


def test_this_machine_is_listed_apart_from_the_built_in_clusters(run_cli: RunCli) -> None:
    (host,) = json.loads(run_cli("clusters", "--json").out)["detected"]
    assert (host["name"], host["target"], host["devices"][0]["clock_hz"]) == ("host", "host", 1e9)
    assert json.loads(run_cli("clusters", "--upstream", "host").out)["clock"] == 1e9


def test_tables_show_the_built_in_clusters_and_this_machine(run_cli: RunCli) -> None:
    builtin, _, detected = run_cli("clusters").out.partition("This machine")
    assert "bow-pod16" in builtin
    assert "host" in detected


def test_a_cluster_is_printed_as_ipu_cluster_info(run_cli: RunCli) -> None:
    """The example of the README of [auto-pipeline]."""
    printed = json.loads(run_cli("clusters", "--upstream", "seed-2-ipu").out)
    assert printed == {
        "clock": 1850000000,
        "memory": 894,
        "connection": [
            {"recvGBps": 7, "recvIdleCycle": 50000, "sendGBps": 70, "sendIdleCycle": 3000},
            {"recvGBps": 70, "recvIdleCycle": 3000, "sendGBps": 7, "sendIdleCycle": 50000},
        ],
    }


def test_an_empty_name_is_no_cluster(run_cli: RunCli) -> None:
    code, out, err = run_cli("clusters", "--upstream", "")
    assert (code, out) == (2, "")
    assert "a cluster is bow-2000" in err
