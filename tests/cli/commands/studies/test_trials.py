import io
import json

import pandas as pd
import pytest

from tests.cli.conftest import Prepare, RunCli

ONE_DEVICE = ("search", "resnet50", "--n-ipu", "1", "--replicas", "1", "--strategy", "pipeline")
SMALL = (
    "search",
    "resnet50",
    "--n-ipu",
    "1",
    "--memory-proportion",
    "0.6",
    "--batch-size",
    "1:256",
    "--study-name",
    "small",
)


def test_trials_as_csv_are_read_by_pandas(run_cli: RunCli) -> None:
    name = json.loads(run_cli(*ONE_DEVICE, "--batch-size", "1:4", "--method", "grid-bisect", "--json").out)[
        "study_name"
    ]
    table = pd.read_csv(io.StringIO(run_cli("trials", name, "--csv").out))
    assert {"n_ipu", "memory_proportion", "batch_size", "state", "samples_per_s"} <= set(table.columns)
    assert len(table) == len(table.drop_duplicates(["n_ipu", "memory_proportion", "batch_size"])) > 3
    assert "Trials by throughput" in run_cli("trials", name).out


@pytest.mark.slow
def test_json_and_csv_have_the_same_trials(run_cli: RunCli, prepare: Prepare) -> None:
    prepare(*SMALL)
    record = json.loads(run_cli("trials", "small", "--json").out)
    table = pd.read_csv(io.StringIO(run_cli("trials", "small", "--csv").out))
    assert record["study_name"] == "small"
    assert [row["number"] for row in record["trials"]] == table["number"].tolist()
    speeds = [row["samples_per_s"] or float("nan") for row in record["trials"]]
    assert speeds == pytest.approx(table["samples_per_s"].tolist(), nan_ok=True)
    assert {row["state"] for row in record["trials"]} == {"COMPLETE", "PRUNED"}


def test_parquet_and_csv_have_the_same_trials(run_cli: RunCli, prepare: Prepare) -> None:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    prepare(*SMALL)
    assert run_cli("trials", "small", "--parquet", "small.parquet").code == 0
    table = pd.read_csv(io.StringIO(run_cli("trials", "small", "--csv").out))
    assert pd.read_parquet("small.parquet")["samples_per_s"].tolist() == pytest.approx(
        table["samples_per_s"].tolist(), nan_ok=True
    )


def test_a_missing_extra_is_named(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_engine(*args: object, **options: object) -> None:
        raise ImportError("Unable to find a usable engine; tried using: 'pyarrow', 'fastparquet'.")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", no_engine)
    run_cli("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--study-name", "small")
    code, out, err = run_cli("trials", "small", "--parquet", "small.parquet")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Parquet needs the extra parquet; try: " in err


def test_formats_exclude_each_other(run_cli: RunCli) -> None:
    code, out, err = run_cli("trials", "small", "--csv", "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)
