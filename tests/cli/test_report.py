import json
from collections.abc import Callable
from typing import Any

Door = Callable[..., Any]


def test_the_report_repeats_what_the_search_found(door: Door) -> None:
    found = json.loads(door("search", "resnet50", "--n-ipu", "1,2", "--batch-size", "1:4", "--json").out)
    assert json.loads(door("report", found["study_name"], "--json").out)["best"] == found["best"]
    out = door("report", found["study_name"]).out
    assert "Best configuration" in out
    assert "Trials by throughput" in out


def test_a_study_without_a_fit_exits_with_3(door: Door) -> None:
    search = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "128", "--strategy", "pipeline")
    assert door(*search, "--study-name", "too-large").code == 3
    code, out, err = door("report", "too-large")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
