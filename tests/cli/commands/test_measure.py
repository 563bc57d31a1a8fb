import json
from collections.abc import Callable
from typing import Any

Door = Callable[..., Any]
ARGUMENTS = ("bert-base-128", "--n-ipu", "2", "--batch-size", "2", "--json")


def test_stages_compiled_whole_cost_no_more_than_their_layers(door: Door) -> None:
    estimated = json.loads(door("predict", *ARGUMENTS, "--estimator", "sum").out)
    measured = json.loads(door("measure", *ARGUMENTS, "--estimator", "sum").out)
    assert measured["partition"] == estimated["partition"]
    assert measured["transfer_cycles"] == estimated["transfer_cycles"]
    assert 0.5 * estimated["compute_cycles"] < measured["compute_cycles"] < estimated["compute_cycles"]
    assert measured["source"] == "measured (cost model)"
    for ours, theirs in zip(measured["stages"], estimated["stages"], strict=True):
        assert 0.9 * theirs["total_bytes"] < ours["total_bytes"] <= theirs["total_bytes"]


def test_ranges_compiled_whole_make_the_estimate_better(door: Door) -> None:
    def error(*estimator: str) -> float:
        estimated, measured = (
            int(json.loads(door(command, *ARGUMENTS, *estimator).out)["compute_cycles"])
            for command in ("predict", "measure")
        )
        return abs(estimated / measured - 1)

    assert error() < error("--estimator", "sum") / 2


def test_what_cannot_be_planned_is_not_measured(door: Door) -> None:
    code, out, _ = door("measure", "bert-large-128", "--batch-size", "128", "--json")
    assert code == 3
    assert json.loads(out)["fits"] is False
