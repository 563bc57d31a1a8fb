"""`--target host` on the command line: a real model, real processes, a real database."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoauto.graph.cut import onnx_source
from autoauto.records.interval import RunEnds
from autoauto.records.units import Precision
from autoauto.targets.host.machine import cores
from autoauto.targets.host.target import HostTarget
from tests.cli.conftest import RunCli

WIDTH, N_LAYERS = 256, 4
ENDS = ("low_samples_per_s", "high_samples_per_s", "core_share")
QUICK = ("--estimator", "sum", "--repeats", "0")
ONE_RUNTIME = ("--runtime", "onnxruntime")
ONE_CORE = (*ONE_RUNTIME, "--n-ipu", "1", "--replicas", "1", "--cores-per-device", "1")
pytestmark = pytest.mark.slow


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., str]:
    """Save four layers of 256 x 256 weights, each followed by a Relu; the batch is open, a sample has rows.

    Of every layer the outputs are about `gain` times as large as the inputs.
    """
    pytest.importorskip("onnxruntime")

    def make(*rows: int, gain: float = 1.0) -> str:
        rng = np.random.default_rng(3)
        nodes, weights = [], []
        for i in range(N_LAYERS):
            weight = rng.standard_normal((WIDTH, WIDTH), np.float32) * np.float32(gain / WIDTH**0.5)
            weights.append(numpy_helper.from_array(weight, f"w{i}"))
            nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"z{i}"], f"matmul{i}"))
            nodes.append(helper.make_node("Relu", [f"z{i}"], [f"h{i + 1}"], f"relu{i}"))
        names = ("h0", f"h{N_LAYERS}")
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *rows, WIDTH]) for name in names]
        graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
        path = tmp_path / "chain.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return str(path)

    return make


@pytest.fixture
def model(save: Callable[..., str]) -> str:
    """A sample is one row."""
    return save()


def test_a_model_runs_on_this_machine(run_cli: RunCli, model: str) -> None:
    record = json.loads(run_cli("measure", model, "--target", "host", "--batch-size", "8", "--json").out)
    assert record["source"] == "measured"
    assert record["samples_per_s"] == pytest.approx(8 * 1e9 / record["period_cycles"])
    assert record["stages"][0]["memory_bytes"]["parameter"] >= 4 * N_LAYERS * WIDTH**2
    assert record["pipelines"][0]["n_micro_batches"] >= 4


def test_estimated_simulated_and_measured_costs_are_compared(run_cli: RunCli, model: str) -> None:
    out = run_cli("compare", model, "--target", "host", "--batch-size", "8").out
    assert "Estimated, simulated and measured" in out
    rows = json.loads(run_cli("compare", model, "--target", "host", "--batch-size", "8", "--json").out)["rows"]
    (period,) = [row for row in rows if row["quantity"] == "period_cycles"]
    assert min(period["estimated"], period["simulated"], period["measured"]) > 0


@pytest.mark.skipif(len(cores()) < 2, reason="two devices need two cores")
@pytest.mark.timeout(300)  # it starts processes for a dozen measurements
def test_two_devices_run_one_stage_in_turn(run_cli: RunCli, save: Callable[..., str]) -> None:
    """A stage of all layers on both devices halves the period; one cut between layers that differ would not."""
    options = (save(512), "--target", "host", "--n-ipu", "2", "--estimator", "sum", "--stage-replicas")
    for command in ("plan", "predict"):
        [stage] = json.loads(run_cli(command, *options, "--json").out)["stages"]
        assert (stage["device"], stage["n_replicas"]) == (0, 2)
    record = json.loads(run_cli("measure", *options, "--json").out)
    assert [stage["n_replicas"] for stage in record["stages"]] == [2]
    assert len(record["pipelines"][0]["busy_cycles"]) == 2
    assert "0 on 0 to 1" in run_cli("measure", *options).out
    assert "busy_fraction" in run_cli("compare", *options).out
    code, _, error = run_cli("plan", *options, "--explain")
    assert (code, error) == (2, "autoauto: stage replicas have the best plan only; leave the other query out\n")
    space = (*ONE_RUNTIME, "--replicas", "1", "--cores-per-device", "1", "--batch-size", "1", "--study-name", "shared")
    printed = run_cli("search", *options, "off,on", *space, "--repeats", "0", "--method", "exhaustive")
    assert printed.code == 0
    trials = json.loads(run_cli("trials", "shared", "--json").out)["trials"]
    assert [trial["stage_replicas"] for trial in trials] == [False, True]
    assert run_cli("trials", "shared").code == run_cli("explain", "shared").code == 0
    assert run_cli("report", "shared", "--html", "page.html").code == 0


def test_every_runtime_and_format_is_searched_and_outputs_are_compared(run_cli: RunCli, model: str) -> None:
    formats = HostTarget(onnx_source(model)).precisions()
    if Precision.BF16 not in formats:
        pytest.skip("no runtime computes in bf16 here")
    search = ("search", model, "--target", "host", *QUICK, *ONE_CORE[len(ONE_RUNTIME) :], "--batch-size", "4")
    bound = ("--constraint", "output_error <= 0.05", "--method", "exhaustive", "--study-name", "formats")
    assert run_cli(*search, *bound, "--precision", "fp32,bf16").code == 0
    trials = json.loads(run_cli("trials", "formats", "--json").out)["trials"]
    sessions = {(trial["runtime"], trial["precision"]): trial["output_error"] for trial in trials}
    assert sorted(sessions) == [("onnxruntime", "fp32"), ("openvino", "bf16"), ("openvino", "fp32")]
    assert 1e-4 < sessions["openvino", "bf16"] < 0.05
    assert sessions["openvino", "fp32"] is sessions["onnxruntime", "fp32"] is None
    assert " --runtime " in run_cli("explain", "formats").out
    printed = run_cli(*search, *ONE_RUNTIME)
    assert printed.code == 0
    line = r"^(\w+): [\d.]+x, outputs differ by [\d.]+ % \(--precision fp32,\1\)$"
    said = re.findall(line, printed.out, re.MULTILINE)
    assert said == list(formats[1:])  # fp32 first


@pytest.mark.timeout(300)  # it starts processes for a dozen measurements
def test_a_search_says_its_first_number_and_leaves_out_what_is_slower(
    run_cli: RunCli, save: Callable[..., str]
) -> None:
    """Which runs end early depends on the machine; that they are slower than the best does not."""
    printed = run_cli("search", save(64), "--target", "host", *ONE_RUNTIME, "--study-name", "raced", "--json")
    assert printed.code == 0
    assert "autoauto: measured so far: " in printed.err
    result, trials = json.loads(printed.out), json.loads(run_cli("trials", "raced", "--json").out)["trials"]
    first, every = trials[0], len(cores())
    assert (first["number"], first["n_ipu"], first["cores_per_device"], first["batch_size"]) == (0, 1, every, 8)
    assert first["status"] == "ok"
    assert all(trial["low_samples_per_s"] <= trial["samples_per_s"] for trial in trials)
    early = [trial for trial in trials if trial["status"] == "ended early"]
    assert [trial["state"] for trial in early] == ["PRUNED"] * len(early)
    ends = [RunEnds(*(trial[name] for name in ENDS)) for trial in trials if trial["status"] == "ok"]
    for trial in early:
        assert RunEnds(*(trial[name] for name in ENDS)).is_below(max(ends))
    assert result["best"]["trial"] in [trial["number"] for trial in trials if trial["status"] == "ok"]


def test_a_quick_search_measures_the_whole_model_in_a_few_ways(run_cli: RunCli, model: str) -> None:
    printed = run_cli("search", model, "--target", "host", *ONE_RUNTIME, "--quick", "--study-name", "quick", "--json")
    assert (printed.code, json.loads(printed.out)["n_repeats"]) == (0, 0)
    for trial in json.loads(run_cli("trials", "quick", "--json").out)["trials"]:
        assert (trial["n_ipu"], trial["replicas"] * trial["cores_per_device"]) == (1, len(cores()))
        assert trial["batch_size"] in (1, 8)
    narrow = run_cli("search", model, "--target", "host", "--quick", *ONE_CORE, "--batch-size", "4", "--json")
    assert (narrow.code, json.loads(narrow.out)["n_configurations"]) == (0, 1)


def test_a_format_that_overflows_is_no_answer(run_cli: RunCli, save: Callable[..., str]) -> None:
    model = save(gain=32.0)
    if Precision.FP16 not in HostTarget(onnx_source(model)).precisions():
        pytest.skip("no runtime computes in fp16 here")
    search = ("search", model, "--target", "host", *QUICK, *ONE_CORE[len(ONE_RUNTIME) :], "--batch-size", "4")
    code, _, error = run_cli(*search, "--precision", "fp16")
    assert (code, "output_error <= 0.5 does not hold" in error) == (3, True)


def test_a_study_is_of_the_inputs_that_were_given(run_cli: RunCli, model: str) -> None:
    rng = np.random.default_rng(1)
    for name in ("real", "other"):
        np.savez(f"{name}.npz", h0=rng.standard_normal((3, WIDTH), np.float32))
    search = ("search", model, "--target", "host", *QUICK, *ONE_CORE, "--batch-size", "4", "--study-name", "given")
    assert run_cli(*search, "--inputs", "real.npz").code == 0
    assert run_cli(*search, "--inputs", "real.npz").code == 0
    assert "real.npz" in run_cli("explain", "given").out
    assert run_cli("report", "given", "--html", "page.html").code == 0
    assert "inputs are those of real.npz" in Path("page.html").read_text(encoding="utf-8")
    for inputs in (("--inputs", "other.npz"), ()):
        code, _, error = run_cli(*search, *inputs)
        assert code == 2
        assert error.splitlines()[-1].startswith("autoauto: study 'given' was made with target ")
    assert run_cli("measure", model, "--target", "host", "--inputs", "no.npz")[::2] == (
        2,
        "autoauto: the inputs are an npz file, no.npz cannot be read: No such file or directory; check the path\n",
    )


def test_a_device_with_too_little_memory_exits_with_3(run_cli: RunCli, model: str) -> None:
    code, out, err = run_cli("measure", model, "--target", "host", "--device-memory-gib", "0.001", "--json")
    assert code == 3
    assert json.loads(out)["excess_bytes"] > 0
    assert "MiB" in err


def test_a_search_continues_after_a_trial_out_of_memory(run_cli: RunCli, model: str) -> None:
    space = (*ONE_CORE, "--batch-size", "1,8,32768", "--device-memory-gib", "0.0234375")
    storage = ("--storage", "sqlite:///host.db", "--study-name", "host")
    printed = run_cli("search", model, "--target", "host", *space, *storage, *QUICK, "--method", "exhaustive")
    assert printed.code == 0
    assert "modelled" not in printed.out
    trials = json.loads(run_cli("trials", "host", "--storage", "sqlite:///host.db", "--json").out)["trials"]
    states = {trial["batch_size"]: trial["state"] for trial in trials}
    assert states[32768] == "PRUNED"
    assert states[8] == "COMPLETE"


@pytest.mark.timeout(300)  # it starts processes for a dozen measurements
def test_the_largest_batch_of_a_search_runs_and_one_more_sample_fails(
    run_cli: RunCli, save: Callable[..., str]
) -> None:
    model, options = save(512), ("--target", "host", "--device-memory-gib", "0.0234375")  # 512 KiB a sample and tensor
    space = (*ONE_CORE, "--batch-size", "1:64")
    assert (
        run_cli("search", model, *options, *space, *QUICK, "--study-name", "edge", "--method", "grid-bisect").code == 0
    )
    trials = json.loads(run_cli("trials", "edge", "--json").out)["trials"]
    fits = {trial["batch_size"]: trial["state"] == "COMPLETE" for trial in trials}
    largest = max(size for size, does in fits.items() if does)
    assert 8 < largest < 48
    assert fits[largest + 1] is False
    for batch_size, code in ((largest, 0), (largest + 1, 3)):
        assert run_cli("measure", model, *options, *QUICK[:2], "--batch-size", str(batch_size)).code == code
