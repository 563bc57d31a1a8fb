import json

import pytest

from autoauto.graph import load
from tests.cli.conftest import RunCli


@pytest.mark.slow
def test_the_built_in_models(run_cli: RunCli) -> None:
    models = {row["name"]: row for row in json.loads(run_cli("models", "--json").out)["models"]}
    assert {"resnet50", "bert-base-128", "bert-large-128", "gpt2-small", "vit-b16"} <= set(models)
    millions = {name: row["weight_bytes"] / 2e6 for name, row in models.items()}
    assert 25 < millions["resnet50"] < 26  # 25.6 million parameters
    assert 330 < millions["bert-large-128"] < 340
    assert all(row["n_kinds"] <= row["n_layers"] for row in models.values())


def test_the_table_lists_the_models(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    only = {"resnet50": load.builtin_models()["resnet50"]}
    monkeypatch.setattr(load, "builtin_models", lambda: only)
    table = run_cli("models").out
    assert "resnet50" in table
    assert "bert" not in table
