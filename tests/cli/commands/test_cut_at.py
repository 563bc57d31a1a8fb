"""`--cut-at blocks` of the commands that plan, and the artifacts of such plans."""

from __future__ import annotations

import json

import pytest

from autoauto.graph.load import load_graph
from tests.cli.conftest import RunCli

MODEL = ("bert-base-128", "--n-ipu", "3", "--batch-size", "2", "--estimator", "sum")
STARTS = {block.layers.start for block in load_graph("bert-base-128").blocks} | {323}


@pytest.mark.parametrize("command", [("plan",), ("predict",), ("measure",), ("plan", "--k-best", "2")], ids=" ".join)
def test_every_command_that_plans_has_it(run_cli: RunCli, command: tuple[str, ...]) -> None:
    printed = json.loads(run_cli(command[0], *MODEL, *command[1:], "--cut-at", "blocks", "--json").out)
    plans = printed.get("plans", [printed])
    assert all(set(plan["partition"]) <= STARTS for plan in plans)
    free = json.loads(run_cli(command[0], *MODEL, *command[1:], "--json").out)
    assert not all(set(plan["partition"]) <= STARTS for plan in free.get("plans", [free]))


def test_a_profile_of_a_file_has_no_blocks(run_cli: RunCli) -> None:
    printed = run_cli("plan", "--cut-at", "blocks", "--model-info", "a.json", "--cluster-info", "b.json")
    assert (printed.code, printed.err) == (
        2,
        "autoauto: a profile comes with its model and options, got cut_at too; leave them out\n",
    )


def test_an_artifact_of_whole_blocks_is_written_and_one_with_a_cut_block_is_refused(run_cli: RunCli) -> None:
    export = ("export", *MODEL, "--to", "deepspeed", "--check")
    printed = run_cli(*export, "--output", "artifact", "--cut-at", "blocks", "--json")
    assert printed.code == 0
    assert [check["passed"] for check in json.loads(printed.out)["checks"]] == [True, True, None]
    refused = run_cli(*export, "--output", "other")
    assert refused.code == 2
    assert "lies inside block bert.encoder.layer." in refused.err
    assert refused.err.endswith("; try --cut-at blocks\n")


@pytest.mark.slow
def test_a_study_at_blocks_is_another_and_is_exported(run_cli: RunCli) -> None:
    search = ("search", "bert-base-128", "--n-ipu", "2", "--replicas", "1", "--batch-size", "1:4")
    name = ("--study-name", "blocks")
    printed = run_cli(*search, *name, "--cut-at", "blocks", "--json")
    best = json.loads(printed.out)["best"]
    assert set(best["partition"]) <= STARTS
    command = json.loads(run_cli("explain", "blocks", "--json").out)["commands"][0]["command"]
    assert "--cut-at blocks" in command
    assert run_cli("export", "blocks", "--to", "megatron", "--output", "artifact", "--check").code == 0
    refused = run_cli(*search, *name)
    assert refused.code == 2
    assert "cut_at" in refused.err
