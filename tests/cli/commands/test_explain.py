import json
from collections.abc import Callable
from typing import Any

Door = Callable[..., Any]


def test_a_study_is_explained(door: Door) -> None:
    found = json.loads(
        door("search", "resnet50", "--n-ipu", "1,2", "--batch-size", "1:4", "--method", "grid-bisect", "--json").out
    )
    name, best = found["study_name"], found["best"]
    told = json.loads(door("explain", name, "--json").out)
    assert told["best"]["trial"] == best["trial"]
    assert told["best"]["samples_per_s"] == best["samples_per_s"]
    assert [one["name"] for one in told["compared"]] == ["runner-up", "default configuration", "grid-bisect"]
    assert [fact["name"] for fact in told["binds"]] == ["compute", "transfer", "memory"]
    assert [cell["largest_batch_size"] for cell in told["cells"]] == [4] * 6
    assert sum(cell["why"] == "the winner" for cell in told["cells"]) == 1
    assert all(cell["loss_percent"] >= 0 for cell in told["cells"])
    out = door("explain", name).out
    for said in ("Why this one", "What binds", "Cells", "the winner", "Measure it again: autoauto measure resnet50"):
        assert said in out


def test_where_nothing_fits_the_cells_say_why(door: Door) -> None:
    search = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "128", "--strategy", "pipeline")
    door(*search, "--study-name", "too-large")
    code, out, err = door("explain", "too-large")
    assert (code, err.count("\n")) == (3, 1)
    assert "batch 128 does not fit: layers [0, 635)" in " ".join(out.split())
    assert "Why this one" not in out
    code, out, _ = door("explain", "too-large", "--json")
    assert (code, json.loads(out)["best"]) == (3, None)


def test_an_unknown_study_is_one_line(door: Door) -> None:
    code, out, err = door("explain", "nope")
    assert (code, out, err.count("\n")) == (2, "", 1)
