"""`autoauto search --repeats`: the verification of the winner, and how a study that had other values says so."""

import json
import shutil
from pathlib import Path

import pytest

from autoauto.cli.main import build_parser
from autoauto.cli.options.model import open_flow
from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.records.installation import builtin_models
from autoauto.study.analysis.verification import verifications
from autoauto.study.store.study import load_study
from tests.cli.conftest import Prepare, RunCli

SMALL = (
    "search",
    "resnet50",
    "--n-ipu",
    "1,2",
    "--replicas",
    "1",
    "--strategy",
    "pipeline",
    "--batch-size",
    "1:12",
    "--memory-proportion",
    "0.6,1.0",
)


def test_on_a_cost_model_winner_and_runner_up_have_the_numbers_of_the_search(run_cli: RunCli) -> None:
    code, searched, _ = run_cli(*SMALL, "--study-name", "small")
    assert code == 0
    assert "auto_pipeline" not in searched, "a report asks for it"
    [verification] = verifications(load_study(DEFAULT_STORAGE, "small"))
    assert verification.n_repeats == 1
    assert [row.name for row in verification.repeated] == ["winner", "runner-up"]
    assert all(row.speed is not None and row.speed.error is None for row in verification.repeated)
    assert verification.auto_pipeline is None
    for command in ("explain", "report"):
        out = " ".join(run_cli(command, "small").out.split())
        assert "the best of the other simple uses" in out
        assert "winner's estimate" in out
        assert "auto_pipeline" in out
    [verification] = verifications(load_study(DEFAULT_STORAGE, "small"))
    assert verification.auto_pipeline is not None
    report = json.loads(run_cli("report", "small", "--json").out)
    compared = {comparison["name"]: comparison for comparison in report["compared"]}
    assert compared["one device"]["gain_percent"] > 0
    assert compared["grid-bisect"]["estimated"]


def test_where_the_model_is_gone_a_report_says_what_it_cannot_ask(run_cli: RunCli, tmp_path: Path) -> None:
    model = tmp_path / "moved.onnx"
    shutil.copy(builtin_models()["resnet50"], model)
    assert run_cli("search", str(model), *SMALL[2:], "--study-name", "small").code == 0
    model.unlink()
    code, out, err = run_cli("explain", "small")
    assert (code, err.count("\n")) == (0, 1)
    assert "what auto_pipeline would choose is not known" in err
    assert "runner-up" in out
    assert "auto_pipeline" not in out


def test_several_turns_have_confidence_intervals(run_cli: RunCli) -> None:
    result = json.loads(run_cli(*SMALL, "--study-name", "small", "--repeats", "2", "--json").out)
    assert result["n_repeats"] == 2
    assert [row["speed"]["error"] for row in result["repeated"]] == [0.0, 0.0]
    assert "means of 2 turns" in run_cli("explain", "small").out


def test_without_turns_nothing_is_verified(run_cli: RunCli) -> None:
    assert run_cli(*SMALL, "--study-name", "small", "--repeats", "0").code == 0
    assert verifications(load_study(DEFAULT_STORAGE, "small")) == []
    assert "one session" not in run_cli("explain", "small").out
    code, out, err = run_cli(*SMALL, "--repeats", "-1")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_study_that_continues_in_another_space_says_so(run_cli: RunCli, prepare: Prepare) -> None:
    prepare(*SMALL, "--study-name", "small")
    err = run_cli("search", "resnet50", "--n-ipu", "1,2", "--batch-size", "1:6", "--study-name", "small").err
    changes = "memory_proportion was 0.6,1.0, is 0.3,0.6,1.0; batch_size was 1:12, is 1:6"
    assert "was last searched with other values: replicas was 1, is 1,2,4; " in err
    assert changes in err


@pytest.mark.slow
def test_headroom_stays_free_and_is_part_of_the_reproducing_command(run_cli: RunCli) -> None:
    roomy = ("--study-name", "roomy", "--headroom", "0.5")
    best = json.loads(run_cli("search", "resnet50", "--n-ipu", "1", *roomy, "--json").out)["best"]
    limit = 0.5 * open_flow(build_parser().parse_args(["search"])).cluster.devices[0].memory_bytes
    assert all(stage["total_bytes"] <= limit for stage in best["stages"])
    command = json.loads(run_cli("explain", "roomy", "--json").out)["commands"][0]["command"]
    assert "--headroom 0.5" in command
    again = json.loads(run_cli(*command.split()[1:], "--json").out)
    assert again["samples_per_s"] == best["samples_per_s"]
    refused = run_cli("search", "resnet50", "--n-ipu", "1", "--study-name", "roomy")
    assert refused.code == 2
    assert "was made with headroom '0.5', this search has '0.0'" in refused.err
