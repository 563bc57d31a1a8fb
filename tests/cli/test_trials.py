import io
import json
from collections.abc import Callable
from typing import Any

import pandas as pd

Door = Callable[..., Any]


def test_trials_go_to_pandas(door: Door) -> None:
    name = json.loads(door("search", "resnet50", "--n-ipu", "1", "--batch-size", "1:4", "--json").out)["study_name"]
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
