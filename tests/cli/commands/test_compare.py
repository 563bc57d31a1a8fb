import json

from tests.cli.conftest import RunCli


def test_every_stage_and_category_is_compared(run_cli: RunCli) -> None:
    printed = json.loads(run_cli("compare", "resnet50", "--n-ipu", "2", "--batch-size", "4", "--json").out)
    quantities = {(row["stage"], row["quantity"]) for row in printed["rows"]}
    for stage in (0, 1):
        assert {
            (stage, "forward_cycles"),
            (stage, "memory_bytes.parameter"),
            (stage, "memory_bytes.temporary"),
        } <= quantities
    assert (None, "samples_per_s") in quantities
    for row in printed["rows"]:
        if row["measured"]:
            predicted = row["simulated"] if row["estimated"] is None else row["estimated"]
            expected = 100 * (predicted - row["measured"]) / row["measured"]
            assert abs(row["difference_percent"] - expected) < 1e-9


def test_the_table_says_where_numbers_come_from(run_cli: RunCli) -> None:
    out = run_cli("compare", "resnet50").out
    assert "estimated" in out
    assert "modelled" in out


def test_a_configuration_that_does_not_fit_exits_with_3(run_cli: RunCli) -> None:
    assert run_cli("compare", "bert-large-128", "--batch-size", "128").code == 3
