import json

from tests.cli.conftest import RunCli

C600 = ("predict", "resnet50", "--cluster", "c600", "--n-ipu", "1", "--precision", "fp16", "--json")


def test_a_configuration_that_fits_has_a_throughput(run_cli: RunCli) -> None:
    printed = json.loads(run_cli(*C600, "--batch-size", "4").out)
    assert printed["fits"] is True
    assert printed["partition"] == [0, printed["stages"][0]["layers"][1]]
    assert printed["samples_per_s"] == 4 * 1.5e9 / printed["cost_cycles"]
    assert printed["source"] == "estimated"


def test_a_configuration_that_does_not_fit_names_the_missing_bytes(run_cli: RunCli) -> None:
    code, out, err = run_cli(*C600, "--batch-size", "4096")
    printed = json.loads(out)
    assert (code, printed["fits"]) == (3, False)
    assert printed["excess_bytes"] > 0
    assert printed["reason"] in err


def test_synthetic_data_needs_no_host_transfers(run_cli: RunCli) -> None:
    real = json.loads(run_cli(*C600, "--batch-size", "4").out)
    synthetic = json.loads(run_cli(*C600, "--batch-size", "4", "--synthetic-data").out)
    assert real["transfer_cycles"] > 100_000  # two host links idle 50,000 cycles each
    assert synthetic["transfer_cycles"] == 0
    assert synthetic["compute_cycles"] == real["compute_cycles"]


def test_fp32_is_slower_and_larger(run_cli: RunCli) -> None:
    half = json.loads(run_cli(*C600, "--batch-size", "4").out)
    single = json.loads(run_cli(*C600[:-3], "--precision", "fp32", "--json", "--batch-size", "4").out)
    assert single["compute_cycles"] > 1.5 * half["compute_cycles"]
    assert single["stages"][0]["memory_bytes"]["parameter"] == 2 * half["stages"][0]["memory_bytes"]["parameter"]


def test_the_table_shows_stages_and_throughput(run_cli: RunCli) -> None:
    out = run_cli("predict", "resnet50", "--n-ipu", "2").out
    assert "estimated" in out
    assert "[0, " in out
    assert "samples/s" in out


def test_stages_on_kinds_of_devices_name_their_kind(run_cli: RunCli) -> None:
    options = ("resnet50", "--cluster", "bow-mk2", "--n-ipu", "3", "--batch-size", "2")
    planned, predicted, measured = (run_cli(command, *options, "--json") for command in ("plan", "predict", "measure"))
    for code, out, _ in (planned, predicted, measured):
        assert code == 0
        plan = json.loads(out)
        [devices] = plan["placement"]
        kinds = [("bow", "mk2")[device["device"] // 2] for device in devices]
        assert [stage["device_kind"] for stage in plan["stages"]] == kinds
    assert json.loads(planned.out)["partition"] == json.loads(predicted.out)["partition"]
    code, out, err = run_cli("plan", *options, "--k-best", "2")
    assert (code, out) == (2, "")
    assert err == (
        "autoauto: this query needs devices in a given order, bow-mk2 has bow, mk2 in any order; "
        "try a --cluster of one kind\n"
    )
