"""`plan`, `predict` and `search` with profiles that other tools recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.main import main
from autoauto.records.installation import data_dir

RECORDED = data_dir() / "profiles" / "recorded"
BLOCKS = ["--profile", str(RECORDED / "blocks.csv"), "--profile-format", "csv"]
DEVICES = ["--devices", "4", "--device-memory-gib", "16", "--link-gb-per-s", "25"]
CLUSTER = """
name = "four"
target = "profile"
n_devices = 4
device = { name = "gpu", memory_bytes = 17_179_869_184 }
device_link = { bytes_per_s = 25e9, idle_cycles = 0 }
host_link = { bytes_per_s = 25e9, idle_cycles = 0 }
"""


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert main([*argv]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_of_a_table_is_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    plan = printed(capsys, "plan", *BLOCKS, *DEVICES, "--n-ipu", "2", "--json")
    assert plan["source"] == "estimated"
    assert plan["partition"] == [0, 2, 4]
    assert main(["plan", *BLOCKS, *DEVICES, "--n-ipu", "2"]) == 0
    assert "batch size 1, 8; between them it is interpolated" in capsys.readouterr().out


def test_devices_in_six_lines_are_those_of_the_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cluster = tmp_path / "four.toml"
    cluster.write_text(CLUSTER)
    by_option = printed(capsys, "plan", *BLOCKS, *DEVICES, "--n-ipu", "3", "--json")
    by_file = printed(capsys, "plan", *BLOCKS, "--cluster", str(cluster), "--n-ipu", "3", "--json")
    differs = {key for key in by_option if by_option[key] != by_file[key]}
    assert differs <= {"cluster"}
    assert main(["plan", "--cluster", str(cluster)]) == 2
    assert "is for 'profile'; try --profile FILE" in capsys.readouterr().err


@pytest.mark.parametrize("query", ["--explain", "--per-device-count", "--pareto-front"])
def test_all_queries_of_a_plan_are_answered(query: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *BLOCKS, *DEVICES, "--n-ipu", "2", query]) == 0


def test_an_order_that_splits_the_backward_pass_says_that_the_profile_does_not(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its number is that of 1f1b, since all of the backward pass makes gradients of inputs by the profile."""
    training = ["--n-ipu", "4", "--batch-size", "8", "--mode", "training", "--schedule"]
    said = "the costs do not say which part of the backward pass makes gradients of weights: zb1p moves none of it"
    split, plain = (
        printed(capsys, "predict", *BLOCKS, *DEVICES, *training, order, "--json") for order in ("zb1p", "1f1b")
    )
    assert split["samples_per_s"] == plain["samples_per_s"]
    assert [said in " ".join(each["assumed"]) for each in (split, plain)] == [True, False]
    assert main(["predict", *BLOCKS, *DEVICES, *training, "zb1p"]) == 0
    assert said in capsys.readouterr().out
    storage = f"sqlite:///{tmp_path / 'trials.db'}"
    searched = printed(capsys, "search", *BLOCKS, *DEVICES, *training, "1f1b,zb1p", "--storage", storage, "--json")
    assert said in " ".join(searched["assumed"])


def test_several_files_are_several_batch_sizes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    header, *rows = (RECORDED / "blocks.csv").read_text().splitlines()
    files = []
    for size in (1, 8):
        path = tmp_path / f"{size}.csv"
        lines = [row.rpartition(",")[0] for row in rows if row.endswith(f",{size}")]
        path.write_text("\n".join([header.rpartition(",")[0], *lines]))
        files += ["--profile", f"{size}={path}"]
    arguments = [*DEVICES, "--n-ipu", "2", "--batch-size", "4", "--json"]
    several = printed(capsys, "plan", *files, "--profile-format", "csv", *arguments)
    assert several["cost_cycles"] == printed(capsys, "plan", *BLOCKS, *arguments)["cost_cycles"]


def test_a_search_finds_what_trying_everything_finds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'trials.db'}"
    searched = printed(capsys, "search", *BLOCKS, *DEVICES, "--storage", storage, "--study-name", "own", "--json")
    best = 0.0
    for n_ipu, replicas in ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)):
        for batch_size in range(1, 9):
            knobs = ["--n-ipu", f"{n_ipu}", "--replicas", f"{replicas}", "--batch-size", f"{batch_size}"]
            best = max(best, printed(capsys, "predict", *BLOCKS, *DEVICES, *knobs, "--json")["samples_per_s"])
    assert searched["best"]["samples_per_s"] == pytest.approx(best)
    assert main(["explain", "own", "--storage", storage]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    assert main(["export", "own", "--storage", storage, "--to", "onnx", "--output", str(tmp_path / "a")]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith("autoauto: an artifact needs the model that was searched, study 'own' is of a profile")
    assert refused.count("\n") == 1
    assert command.startswith("Predict it again: autoauto predict --profile ")
    again = printed(capsys, *command.partition("autoauto ")[2].split(), "--json")
    assert again["samples_per_s"] == pytest.approx(best)
    assert main(["report", "own", "--storage", storage, "--html", str(tmp_path / "own.html")]) == 0
    assert "measured" not in capsys.readouterr().out + (tmp_path / "own.html").read_text()


def test_a_search_config_has_files_as_a_list(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "search.toml"
    config.write_text(
        f'profile = ["{RECORDED / "blocks.csv"}"]\nprofile_format = "csv"\ndevices = 2\ndevice_memory_gib = 1\n'
        "link_gb_per_s = 1.0\n[knobs]\nbatch_size = [1, 8]\n"
    )
    storage = f"sqlite:///{tmp_path / 'trials.db'}"
    assert main(["search", "--config", str(config), "--storage", storage, "--study-name", "own"]) == 0
    assert main(["explain", "own", "--storage", storage]) == 0
    assert "predict --profile" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*BLOCKS], "a profile needs its devices"),
        ([*BLOCKS, *DEVICES[:4]], "--device-memory-gib and --link-gb-per-s go together"),
        ([*BLOCKS, "--devices", "1000000000", *DEVICES[2:]], "--devices: must be a whole number from 1 to 65,536, got"),
        ([*DEVICES], "--profile and --profile-format go together, got --devices"),
        ([*BLOCKS[:2], *DEVICES], "--profile and --profile-format go together"),
        ([*BLOCKS, *DEVICES, "--batch-size", "9"], "the profile has batch size 1, 8, got --batch-size 9"),
        ([*BLOCKS, *DEVICES, "resnet50"], "a profile of csv has no MODEL, got resnet50"),
        ([*BLOCKS, *DEVICES, "--target", "host"], "got --target host; leave it out"),
        ([*BLOCKS, *DEVICES, "--synthetic-data"], "got synthetic_data; leave it out"),
        ([*BLOCKS, *DEVICES, "--mode", "training", "--profile", "1=x"], "x"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 2
    line = capsys.readouterr().err
    assert message in line
    assert line.splitlines()[-1].startswith("autoauto: ")


def test_no_search_recommends_what_a_plan_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # All layers need 1,000 bytes of one device, between what a stage may fill, 85 % of 1,100 bytes, and all of it.
    table, cluster = tmp_path / "layers.csv", tmp_path / "four.toml"
    table.write_text(
        "name,forward_s,backward_s,parameter_bytes,output_bytes\nfirst,0.004,0.008,500,0\nsecond,0.004,0.008,500,0\n"
    )
    cluster.write_text(CLUSTER.replace("17_179_869_184", "1_100"))
    options = ["--profile", str(table), "--profile-format", "csv", "--cluster", str(cluster), "--mode", "training"]
    options += ["--n-ipu", "1"]
    assert main(["plan", *options]) == 3
    storage = ["--storage", f"sqlite:///{tmp_path}/trials.db"]
    for method in ("exhaustive", "guided"):
        assert main(["search", *options, *storage, "--method", method, "--study-name", method]) == 3, method
    assert main(["search", *options, *storage, "--planning-proportion", "1", "--method", "exhaustive"]) == 0
    capsys.readouterr()
