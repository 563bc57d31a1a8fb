import json

from tests.cli.conftest import RunCli

ARGUMENTS = ("bert-base-128", "--n-ipu", "2", "--batch-size", "2", "--json")


def test_stages_compiled_whole_cost_no_more_than_their_layers(run_cli: RunCli) -> None:
    estimated = json.loads(run_cli("predict", *ARGUMENTS, "--estimator", "sum").out)
    measured = json.loads(run_cli("measure", *ARGUMENTS, "--estimator", "sum").out)
    assert measured["partition"] == estimated["partition"]
    assert measured["transfer_cycles"] == estimated["transfer_cycles"]
    assert 0.5 * estimated["compute_cycles"] < measured["compute_cycles"] < estimated["compute_cycles"]
    assert measured["source"] == "modelled"
    for ours, theirs in zip(measured["stages"], estimated["stages"], strict=True):
        assert 0.9 * theirs["total_bytes"] < ours["total_bytes"] <= theirs["total_bytes"]


def test_the_regression_halves_the_error_of_the_estimate(run_cli: RunCli) -> None:
    def error(*estimator: str) -> float:
        estimated, measured = (
            int(json.loads(run_cli(command, *ARGUMENTS, *estimator).out)["compute_cycles"])
            for command in ("predict", "measure")
        )
        return abs(estimated / measured - 1)

    assert error() < error("--estimator", "sum") / 2


def test_a_configuration_without_a_plan_is_not_measured(run_cli: RunCli) -> None:
    code, out, _ = run_cli("measure", "bert-large-128", "--batch-size", "128", "--json")
    assert code == 3
    assert json.loads(out)["fits"] is False


def test_given_cuts_are_measured(run_cli: RunCli) -> None:
    two = ("resnet50", "--n-ipu", "2", "--json")
    measured = json.loads(run_cli("measure", *two, "--partition", "0,50,121").out)
    assert measured["partition"] == [0, 50, 121]
    refused = run_cli("measure", *two, "--partition", "0,50,99")
    assert refused.code == 2
    assert "a partition for 2 devices needs 3 ascending boundaries from 0 to 121, got [0, 50, 99]" in refused.err
