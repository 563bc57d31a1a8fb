"""The target gpu on the command line: what predict and search print, and bad input in a line each."""

import io
import json
import shlex
import sys
from pathlib import Path

import pytest

from autoauto.cli.main import main
from tests.cli.conftest import RunCli
from tests.decoders import decoder_folder

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
pytestmark = pytest.mark.usefixtures("brief_loads")
REQUESTS = ("--input-tokens", "512", "--output-tokens", "128")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(decoder_folder(tmp_path_factory.mktemp("models") / "small"))


def test_predict_prints_rates_latencies_and_the_memory_of_every_stage(run_cli: RunCli, model: str) -> None:
    shape = ("--engine", "vllm", "--tensor-parallel", "2", "--n-ipu", "2", "--replicas", "2", "--batch-size", "16")
    command = ("predict", model, "--target", "gpu", "--cluster", "h100_sxm-8", *shape, *REQUESTS, "--json")
    code, out, _ = run_cli(*command)
    printed = json.loads(out)
    assert (code, printed["fits"], printed["source"]) == (0, True, "modelled")
    assert printed["tokens_per_s"] == printed["samples_per_s"] == pytest.approx(128 * printed["requests_per_s"])
    assert printed["tokens_per_s"] == pytest.approx(8 * printed["tokens_per_s_per_device"])
    assert printed["request_latency_s"] == pytest.approx(printed["ttft_s"] + 127 * printed["tpot_s"])
    assert len(printed["memory_bytes"]) == len(printed["partition"]) - 1 == 2
    assert printed["kv_cache_bytes"] < max(printed["memory_bytes"]) < 80e9


def test_other_words_for_options_mean_the_same(run_cli: RunCli, model: str) -> None:
    command = ("predict", model, "--target", "gpu", "--json")
    ours, theirs = (
        run_cli(*command, *words).out
        for words in (
            ("--n-ipu", "2", "--input-tokens", "100", "--output-tokens", "50"),
            ("--pipeline-parallel", "2", "--isl", "100", "--osl", "50"),
        )
    )
    assert ours == theirs


def test_what_does_not_fit_names_the_missing_bytes(run_cli: RunCli, model: str) -> None:
    code, out, _ = run_cli("predict", model, "--target", "gpu", "--batch-size", "20000", *REQUESTS, "--json")
    printed = json.loads(out)
    assert (code, printed["fits"]) == (3, False)
    assert printed["excess_bytes"] > 0


def test_a_trace_with_a_request_that_is_too_long_is_refused(run_cli: RunCli, tmp_path: Path) -> None:
    model = str(decoder_folder(tmp_path / "short", max_position_embeddings=1024))
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,input_tokens,output_tokens\n" + "".join(f"{i},100,10\n" for i in range(9)) + "9,2000,10\n")
    code, _, err = run_cli("predict", model, "--target", "gpu", "--cluster", "h100_sxm-1", "--trace", str(trace))
    assert code == 2
    assert "short has 1,024 positions, got 2,000 input tokens and 10 output tokens" in err


@pytest.mark.parametrize("option", ["--tensor-parallel", "--attention-data-parallel"])
def test_a_group_of_no_gpus_is_refused(run_cli: RunCli, model: str, option: str) -> None:
    code, _, err = run_cli("search", model, "--target", "gpu", "--cluster", "h100_sxm-2", option, "0", "--dry-run")
    assert (code, f"{option.strip('-').replace('-', '_')} must be at least 1, got 0" in err) == (2, True)


def test_search_prints_the_best_with_its_engine_and_latencies(run_cli: RunCli, model: str, tmp_path: Path) -> None:
    storage = ("--storage", f"sqlite:///{tmp_path}/trials.db")
    command = ("search", model, "--target", "gpu", "--cluster", "l40s-3", *REQUESTS, *storage, "--json")
    best = json.loads(run_cli(*command).out)["best"]
    assert {"n_ipu", "tensor_parallel", "replicas", "batch_size", "engine"} < best.keys()
    assert best["tokens_per_s"] > 0
    assert best["n_ipu"] * best["tensor_parallel"] * best["replicas"] <= 3
    flat = json.loads(run_cli(*command, "--n-ipu", "1").out)["best"]
    assert flat["tokens_per_s"] <= best["tokens_per_s"]


def test_a_front_begins_at_the_best_of_its_first_objective(run_cli: RunCli, model: str, tmp_path: Path) -> None:
    storage = ("--storage", f"sqlite:///{tmp_path}/trials.db")
    command = ("search", model, "--target", "gpu", "--cluster", "l40s-3", "--engine", "vllm", *REQUESTS, *storage)
    best = json.loads(run_cli(*command, "--json").out)["best"]
    several = ("--objective", "throughput,latency", "--method", "random", "--n-measurements", "1", "--json")
    front = json.loads(run_cli(*command, *several).out)["front"]
    assert front[0]["tokens_per_s"] == best["tokens_per_s"]
    latencies = [each["latency_s"] for each in front]
    assert len(latencies) > 5
    assert latencies == sorted(latencies, reverse=True)


def test_a_bound_that_nothing_meets_names_the_nearest(run_cli: RunCli, model: str, tmp_path: Path) -> None:
    storage = ("--storage", f"sqlite:///{tmp_path}/trials.db")
    bound = ("--constraint", "tpot_s <= 0.00001")
    command = ("search", model, "--target", "gpu", "--cluster", "l40s-1", "--engine", "vllm", *REQUESTS, *storage)
    code, _, err = run_cli(*command, *bound)
    assert code == 3
    assert "the nearest that was tried is n_ipu 1" in err
    assert "tpot_s <= 1e-05 does not hold: tpot_s is" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cluster", "h1000-8"), "got 'h1000'; did you mean 'h100_s"),
        (("--cluster", "a30-4"), "got 'a30'"),
        (("--cluster", "h100_sxm"), "a cluster of GPUs is SYSTEM-N, for example h100_sxm-8"),
        (("--max-batched-tokens", "0"), "0"),
        (("--cluster", "l40s-2+l40s-3"), "each kind of GPUs stands once in a cluster"),
        (("--engine", "tgi"), "--engine: one or more of vllm, sglang, trtllm, got 'tgi'"),
        (("--mode", "training"), "the gpu target runs inference, got --mode training"),
        (("--precision", "fp16"), "got --precision fp16; leave it out, or try one of those"),
        (("--input-tokens", "0"), "input and output tokens must be 1 or more, got 0 and 1024"),
        (("--input-tokens", "100", "--output-tokens", "0"), "output_tokens must be 1 or more on h100_sxm-8, got 0"),
        (("--cluster", "h100-2", "--gpus", "4"), "as --cluster h100 --gpus 4, got --cluster h100-2; leave one of them"),
        (("--shape", "tokens=4"), "serves a decoder, whose inputs are tokens"),
        (("--streams", "2"), "--streams is for --runtime openvino"),
        (("--constraint", "tpo <= 1"), "there is no tpo; did you mean 'tpot_s'?"),
    ],
)
def test_bad_input_is_a_line(run_cli: RunCli, model: str, words: tuple[str, ...], message: str) -> None:
    code, _, err = run_cli("search", model, "--target", "gpu", *words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert message in err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("resnet50", "a decoder is a folder with config.json or a bundled name, got 'resnet50'"),
        ("nosuch/model", "a decoder is a folder with config.json or a bundled name, got 'nosuch/model'"),
    ],
)
def test_what_is_no_decoder_is_refused(run_cli: RunCli, given: str, message: str) -> None:
    code, _, err = run_cli("predict", given, "--target", "gpu")
    assert (code, len(err.splitlines())) == (2, 1)
    assert message in err


def test_a_group_that_does_not_divide_the_heads_is_refused(run_cli: RunCli, model: str) -> None:
    code, _, err = run_cli("predict", model, "--target", "gpu", "--tensor-parallel", "3")
    assert code == 2
    assert "tensor_parallel must divide the 32 heads" in err


def test_a_format_without_times_is_refused_with_those_that_have_some(run_cli: RunCli, model: str) -> None:
    code, _, err = run_cli("predict", model, "--target", "gpu", "--precision", "int4")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "by vllm with int4 weights" in err
    assert "measured formats are bf16, fp8, fp8-dynamic, fp8-block; try one of them" in err


def test_json_has_no_knobs_of_other_targets(run_cli: RunCli, model: str) -> None:
    words = ("--cluster", "h100_sxm-2", "--engine", "vllm", "--tp", "1", "--batch-size", "4", *REQUESTS, "--json")
    _, out, _ = run_cli("search", model, "--target", "gpu", *words)
    searched = json.loads(out)
    foreign = {"runtime", "io_tiles", "memory_proportion", "optimizer", "recompute", "schedule", "spinning"}
    assert not foreign & searched["best"].keys()
    assert not any(foreign & cell.keys() for cell in searched["cells"])
    assert searched["best"]["tensor_parallel"] == 1


def test_what_does_not_fit_says_from_how_many_gpus_on_it_would(run_cli: RunCli) -> None:
    words = ("--target", "gpu", "--cluster", "h100_sxm-1", "--engine", "vllm", *REQUESTS)
    code, _, err = run_cli("predict", "meta-llama/Meta-Llama-3.1-70B", *words)
    assert code == 3
    assert err.endswith("it fits from 2 GPUs of h100_sxm on (tensor_parallel 2), or in fp8 on 1 GPU\n")


def test_answers_of_one_token_have_no_time_between_tokens(run_cli: RunCli, model: str) -> None:
    """Prompts alone: by Little's law 8 requests in flight take 8 / (requests a second)."""
    words = ("--target", "gpu", "--engine", "vllm", "--batch-size", "8", "--isl", "512", "--osl", "1")
    _, out, _ = run_cli("predict", model, *words, "--json")
    said = json.loads(out)
    assert said["tpot_s"] == 0
    assert said["ttft_s"] == pytest.approx(8 / said["tokens_per_s"] + 0.05), "0.05 s are of the host"
    low, high = said["tokens_per_s_error_interval"]
    assert 0 < low < said["tokens_per_s"] < high
    assert "which is the only one" in " ".join(run_cli("predict", model, *words)[1].split())


def test_forecasts_that_measured_rows_contradict_say_so_and_have_a_wider_interval(run_cli: RunCli) -> None:
    words = ("predict", "Qwen/Qwen3-32B", "--target", "gpu", "--engine", "trtllm", "--tp", "2", *REQUESTS, "--json")
    b200, gb200 = (json.loads(run_cli(*words, "--cluster", cluster)[1]) for cluster in ("b200_sxm-2", "gb200-2"))
    assert any("by trtllm in bf16 on gb200 are not trusted" in note for note in gb200["assumed"])
    assert not any("not trusted" in note for note in b200["assumed"])
    widths = [each["tpot_s_error_interval"][1] / each["tpot_s"] for each in (b200, gb200)]
    assert widths[0] < 1.5
    assert widths[1] == pytest.approx(11.1, rel=0.01)


def test_a_format_alone_is_a_knob_of_the_target(run_cli: RunCli, model: str) -> None:
    code, out, _ = run_cli("predict", model, "--target", "gpu", "--precision", "fp8", *REQUESTS, "--json")
    assert (code, json.loads(out)["precision"]) == (0, "fp8")


def test_architectures_are_listed_once(run_cli: RunCli) -> None:
    listed = " ".join(run_cli("models", "--target", "gpu").out.split())
    assert listed.count("LlamaForCausalLM,") == 1
    assert "not modelled" in listed


def test_a_search_without_an_answer_says_so_first(
    run_cli: RunCli, model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = io.StringIO()
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    bound = ("--constraint", "tpot < 0.001 ms", "--engine", "vllm", "--n-ipu", "1", "--tensor-parallel", "1")
    storage = ("--storage", f"sqlite:///{tmp_path}/trials.db", "--study-name", "none")
    assert main(["search", model, "--target", "gpu", "--cluster", "h100_sxm-2", *REQUESTS, *bound, *storage]) == 3
    lines = both.getvalue().splitlines()
    assert lines[0].startswith("autoauto: no configuration")
    assert lines[-1].startswith("why: autoauto explain none")


RATE = ("--engine", "vllm", "--batch-size", "64", *REQUESTS, "--rate")
TIMES = ("ttft_s", "tpot_s", "latency_s")


def test_predict_prints_percentiles_of_requests_that_arrive(run_cli: RunCli, model: str) -> None:
    command = ("predict", model, "--target", "gpu", *RATE)
    traffic = json.loads(run_cli(*command, "20", "--json").out)["traffic"]
    assert traffic["rate_per_s"] == 20
    assert all(list(traffic[name]) == ["p50", "p90", "p95", "p99"] for name in TIMES)
    assert all(list(traffic[name].values()) == sorted(traffic[name].values()) for name in TIMES)
    assert (traffic["queue_growth_per_s"], traffic["is_overloaded"]) == (0, False)
    assert 0 < traffic["kv_share"] < traffic["busy_share"] <= 1
    text = " ".join(run_cli(*command, "20").out.split())
    assert "20 requests a second arrive, simulated p50 p90 p95 p99" in text
    assert "too much" not in text
    assert "traffic" not in json.loads(run_cli(*command[:-1], "--json").out)


def test_predict_says_that_a_load_is_too_much(run_cli: RunCli, model: str) -> None:
    command = ("predict", model, "--target", "gpu", *RATE, "100000")
    code, out, _ = run_cli(*command)
    assert (code, "too much: the queue grows by" in out) == (0, True)
    assert json.loads(run_cli(*command, "--json").out)["traffic"]["is_overloaded"]


@pytest.mark.parametrize(("gb_per_s", "is_said"), [(25, True), (400, False)])
def test_links_that_groups_do_not_have_are_said(
    run_cli: RunCli, model: str, tmp_path: Path, gb_per_s: int, is_said: bool
) -> None:
    """Exchanges inside a group have measured times, whatever a file says of the links."""
    (tmp_path / "slow.toml").write_text(
        'name = "slow"\ntarget = "gpu"\n[[kinds]]\nn_devices = 2\n'
        'device = {name = "h100_sxm", memory_bytes = 85_899_345_920}\n'
        f"device_link = {{bytes_per_s = {gb_per_s}e9, idle_cycles = 10_000}}\n"
        "host_link = {bytes_per_s = 50e9, idle_cycles = 0}\n"
    )
    out = run_cli("predict", model, "--cluster", str(tmp_path / "slow.toml"), "--tp", "2", *REQUESTS).out
    said = "times measured on h100_sxm, over links of 450 GB/s; the 25 GB/s of the file are of transfers between stages"
    assert (said in out) == is_said


def test_a_search_in_a_file_has_arrivals_and_bounds_of_percentiles(run_cli: RunCli, model: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("time_s,input_tokens,output_tokens\n0,100,10\n1,200,20\n4,300,30\n")
    for name, line in (("rate", "rate = 5"), ("trace", f'trace = "{tmp_path}/trace.csv"')):
        file = tmp_path / f"{name}.toml"
        file.write_text(
            f'model = "{model}"\ntarget = "gpu"\ncluster = "h100_sxm-1"\n{line}\nconstraints = ["ttft_p99 <= 1s"]\n'
            '[knobs]\nengine = "vllm"\nbatch_size = 16\n'
        )
        best = json.loads(
            run_cli("search", "--config", str(file), "--storage", f"sqlite:///{tmp_path}/t.db", "--json").out
        )
        assert best["best"]["rate_per_s"] == {"rate": 5, "trace": 0.5}[name]
        assert best["best"]["ttft_p99_s"] <= 1
    assert best["best"]["input_tokens"] == 200
    columns = run_cli("trials", best["study_name"], "--storage", f"sqlite:///{tmp_path}/t.db", "--csv").out
    assert {"ttft_p99_s", "latency_p95_s", "queue_growth_per_s"} < set(columns.splitlines()[0].split(","))


def test_a_search_for_a_rate_says_how_few_gpus_and_why_not_fewer(run_cli: RunCli, model: str, tmp_path: Path) -> None:
    words = (*RATE[:-1], "--tp", "1", "--pp", "1", "--constraint", "ttft_p99 <= 1s", "--price", "h100=2,l40s=1")
    stored = ("--storage", f"sqlite:///{tmp_path}/t.db")
    for_rate = ("--for-rate", "20")
    printed = run_cli("search", model, "--target", "gpu", "--cluster", "h100_sxm-4", *for_rate, *words, *stored)
    assert "1 GPU: none of the configurations on fewer suffices (0 simulated, 0 ruled out without)" in printed.out
    (tmp_path / "file.toml").write_text("for_rate = 20\n")
    command = ("search", model, "--target", "gpu", "--cluster", "h100_sxm-4", *words, *stored, "--json")
    answer = json.loads(run_cli(*command, "--config", str(tmp_path / "file.toml")).out)
    assert answer["best"]["n_devices"] == answer["best"]["value"] == 1
    assert answer["sizing"]["is_proven"]
    ranked = run_cli("rank", model, "--target", "gpu", "--cluster", "h100_sxm-2,l40s-2", *for_rate, *words, *stored)
    assert ranked.out.startswith("Clusters by price of the fewest devices, modelled")
    assert ranked.out.index("l40s-2") < ranked.out.index("h100_sxm")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rate", "5", "--dry-run"), "a dry run simulates no arrivals"),
        (("--rate", "5", "--measure", "1"), "--measure is for clients that ask again at once"),
        (("--rate", "0"), "--rate must be requests a second, above 0"),
        (("--input-lengths", "4:9"), "need a rate, or bounds"),
        (("--constraint", "ttft_p98 <= 1s"), "there is no ttft_p98"),
    ],
)
def test_arrivals_that_cannot_be_are_refused_in_a_line(
    run_cli: RunCli, model: str, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    command = ("search", model, "--target", "gpu", "--cluster", "h100_sxm-1", "--engine", "vllm", "--batch-size", "8")
    code, out, error = run_cli(*command, "--storage", f"sqlite:///{tmp_path}/t.db", *words)
    assert (code, out) == (2, "")
    assert message in error
    assert error.count("\n") == 1


def test_the_answer_of_a_bound_says_what_binds_and_is_predicted_again_at_its_rate(run_cli: RunCli, model: str) -> None:
    """The command that `explain` prints gives what the search gave, with its lengths and bursts."""
    shape = ("--engine", "vllm", "--batch-size", "16", "--replicas", "2", "--input-lengths", "100:900", "--isl", "500")
    bursts = ("--osl", "100", "--arrival", "gamma:2", "--cached-share", "0.5", "--constraint", "ttft_p99 <= 200ms")
    where = ("--target", "gpu", "--cluster", "h100_sxm-2")
    best = json.loads(run_cli("search", model, *where, *shape, *bursts, "--study-name", "bursts", "--json").out)
    (binds,) = best["binds"]
    assert binds["headline"] in ("queue", "KV cache", "prefill budget", "step time")
    assert [line["n_replicas"] for line in best["rates"]] == [1, 2]
    rate = best["best"]["rate_per_s"]
    assert best["rates"][1]["highest_requests_per_s"] == rate
    explained = json.loads(run_cli("explain", "bursts", "--json").out)
    assert explained["binds"][-1] == binds
    text = run_cli("explain", "bursts").out
    assert f"beyond {rate:.4g} requests/s" in text
    assert "Highest rate of arrivals, simulated" in text
    (again,) = (each["command"] for each in explained["commands"] if each["name"] == "Predict it again")
    assert f"--rate {rate!r}" in again
    predicted = json.loads(run_cli(*shlex.split(again)[1:], "--json").out)
    assert predicted["traffic"] == best["best"]["traffic"]
    assert predicted["ttft_s"] == best["best"]["ttft_s"]


def test_the_fewest_gpus_are_predicted_again_at_the_rate_that_was_given(run_cli: RunCli, model: str) -> None:
    where = ("--target", "gpu", "--cluster", "h100_sxm-2", "--engine", "vllm", "--batch-size", "16", *REQUESTS)
    best = json.loads(run_cli("search", model, *where, "--for-rate", "5", "--study-name", "fewest", "--json").out)
    explained = json.loads(run_cli("explain", "fewest", "--json").out)
    (again,) = (each["command"] for each in explained["commands"] if each["name"] == "Predict it again")
    predicted = json.loads(run_cli(*shlex.split(again)[1:], "--json").out)
    assert predicted["traffic"] == best["best"]["traffic"]


def test_predict_at_a_rate_says_what_binds(run_cli: RunCli, model: str) -> None:
    shape = ("--target", "gpu", "--cluster", "h100_sxm-1", "--engine", "vllm", "--batch-size", "16", *REQUESTS)
    few, many = (json.loads(run_cli("predict", model, *shape, "--rate", rate, "--json").out) for rate in ("1", "10000"))
    assert [fact["headline"] for fact in few["binds"]] == ["nothing"]
    assert [fact["headline"] for fact in many["binds"]] == ["queue"]
    assert "until one of 16 sequences of a replica ends" in many["binds"][0]["text"]
    assert "queue binds: at 10,000 requests/s" in run_cli("predict", model, *shape, "--rate", "10000").out
    assert "binds" not in json.loads(run_cli("predict", model, *shape, "--json").out)
