import json

import pytest

from autoauto.records.installation import builtin_models
from tests.cli.conftest import RunCli


def test_the_built_in_models(run_cli: RunCli) -> None:
    models = {row["name"]: row for row in json.loads(run_cli("models", "--json").out)["models"]}
    assert {"resnet50", "bert-base-128", "bert-large-128", "gpt2-small", "vit-b16"} <= set(models)
    millions = {name: row["weight_bytes"] / 2e6 for name, row in models.items()}
    assert 25 < millions["resnet50"] < 26  # 25.6 million parameters
    assert 330 < millions["bert-large-128"] < 340
    assert all(row["n_kinds"] <= row["n_layers"] for row in models.values())


def test_the_table_lists_the_models(run_cli: RunCli) -> None:
    table = run_cli("models").out
    assert all(name in table for name in builtin_models())


def test_decoders_have_a_size_or_a_reason(run_cli: RunCli) -> None:
    pytest.importorskip("aiconfigurator_core")
    models = {row["name"]: row for row in json.loads(run_cli("models", "--target", "gpu", "--json").out)["models"]}
    assert 32e9 < models["Qwen/Qwen3-32B"]["n_weights"] < 33.5e9
    assert all(bool(row["reason"]) is (row["n_weights"] is None) for row in models.values())
    assert "32.8 billion" in run_cli("models", "--target", "gpu").out


def test_systems_have_names_that_are_clusters(run_cli: RunCli) -> None:
    pytest.importorskip("aiconfigurator_core")
    systems = json.loads(run_cli("clusters", "--target", "gpu", "--json").out)["systems"]
    assert {"h100_sxm", "h200_sxm"} <= {system["name"] for system in systems}
    assert "h100_sxm" in run_cli("clusters", "--target", "gpu").out
