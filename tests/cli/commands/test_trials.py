import io
import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

Door = Callable[..., Any]


def test_trials_go_to_pandas(door: Door) -> None:
    name = json.loads(
        door("search", "resnet50", "--n-ipu", "1", "--batch-size", "1:4", "--method", "grid-bisect", "--json").out
    )["study_name"]
    table = pd.read_csv(io.StringIO(door("trials", name, "--csv").out))
    assert {"n_ipu", "memory_proportion", "batch_size", "state", "samples_per_s"} <= set(table.columns)
    assert len(table) == len(table.drop_duplicates(["n_ipu", "memory_proportion", "batch_size"])) > 3
    assert "Trials by throughput" in door("trials", name).out


def test_an_unknown_study_names_those_there_are(door: Door) -> None:
    name = json.loads(door("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--json").out)["study_name"]
    code, _, err = door("trials", "nope")
    assert code == 2
    assert name in err


def test_no_database_is_made_by_looking(door: Door) -> None:
    for _ in range(2):
        code, _, err = door("trials", "nope")
        assert (code, err.count("\n")) == (2, 1)


@pytest.mark.slow
def test_json_says_what_csv_says(door: Door) -> None:
    door("search", "resnet50", "--n-ipu", "1", "--batch-size", "1:256", "--study-name", "small")
    told = json.loads(door("trials", "small", "--json").out)
    table = pd.read_csv(io.StringIO(door("trials", "small", "--csv").out))
    assert told["study_name"] == "small"
    assert [row["number"] for row in told["trials"]] == table["number"].tolist()
    speeds = [row["samples_per_s"] or float("nan") for row in told["trials"]]
    assert speeds == pytest.approx(table["samples_per_s"].tolist(), nan_ok=True)
    assert {row["state"] for row in told["trials"]} == {"COMPLETE", "PRUNED"}


def test_parquet_says_what_csv_says(door: Door) -> None:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    door("search", "resnet50", "--n-ipu", "1", "--batch-size", "1:256", "--study-name", "small")
    assert door("trials", "small", "--parquet", "small.parquet").code == 0
    table = pd.read_csv(io.StringIO(door("trials", "small", "--csv").out))
    assert pd.read_parquet("small.parquet")["samples_per_s"].tolist() == pytest.approx(
        table["samples_per_s"].tolist(), nan_ok=True
    )


def test_without_the_extra_its_name_is_told(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_engine(*args: object, **options: object) -> None:
        raise ImportError("Unable to find a usable engine; tried using: 'pyarrow', 'fastparquet'.")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", no_engine)
    door("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--study-name", "small")
    code, out, err = door("trials", "small", "--parquet", "small.parquet")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert '"parquet"' in err


def test_one_form_at_a_time(door: Door) -> None:
    code, out, err = door("trials", "small", "--csv", "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)
