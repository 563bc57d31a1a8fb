import json
from pathlib import Path
from typing import NoReturn

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.units import GIB
from autoauto.targets.clusters import load_cluster
from autoauto.targets.host import detect
from autoauto.targets.host.detect import host_cluster
from autoauto.targets.host.gpu.gpus import Gpu
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


def test_this_machine_as_a_file_is_this_machine(run_cli: RunCli, tmp_path: Path) -> None:
    code, out, _ = run_cli("clusters", "--detect")
    (tmp_path / "machine.toml").write_text(out, encoding="utf-8")
    assert code == 0
    assert load_cluster(str(tmp_path / "machine.toml")) == host_cluster()
    assert out.startswith("# ")
    assert " usable cores" in out.splitlines()[0]


def test_gpus_are_named_in_comments(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [Gpu(n, f"GPU-{n}", "NVIDIA H100 80GB HBM3", 80 * GIB, 1.98e9, (9, 0), "580.1") for n in range(2)]
    monkeypatch.setattr(detect, "gpus", lambda: here)
    monkeypatch.setattr(detect, "gpu_links", lambda: {(0, 1): "NV18", (1, 0): "NV18"})
    comments = [line for line in run_cli("clusters", "--detect").out.splitlines() if line.startswith("#")]
    assert comments[1:] == [
        "# cuda:0: NVIDIA H100 80GB HBM3 at 1.98 GHz, 80.0 GiB of memory, driver 580.1",
        "# cuda:1: NVIDIA H100 80GB HBM3 at 1.98 GHz, 80.0 GiB of memory, driver 580.1",
        "# GPU 0 and GPU 1 of nvidia-smi: NV18",
    ]


def test_a_driver_that_does_not_answer_is_a_comment(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> NoReturn:
        raise BadInput("nvidia-smi must list the GPUs, it says: no")

    monkeypatch.setattr(detect, "gpus", fails)
    code, out, _ = run_cli("clusters", "--detect")
    assert code == 0
    assert out.splitlines()[1] == "# GPUs: nvidia-smi must list the GPUs, it says: no"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cuda:0"], "--device is for --detect here"),
        (["--detect", "--json"], "--detect prints TOML, got --json"),
        (["--detect", "--upstream", "host"], "not allowed with argument"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], message: str, run_cli: RunCli) -> None:
    code, out, err = run_cli("clusters", *arguments)
    assert (code, out) == (2, "")
    assert message in err
