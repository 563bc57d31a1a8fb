"""Measured rows from files: both forms, rows of other models, and what is wrong with a file in a line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.engines.rules import GroupSplit
from autoauto.evaluate.serving.measured import (
    calibration_of,
    forecast_of,
    n_clients_of,
    notes_of,
    pools_of,
    ratio_of,
    replicas_of,
)
from autoauto.evaluate.serving.rows import Row, measured_of, read_rows
from autoauto.records.costs.decoder import Checkpoint, Decoder, Experts, WeightFormat, Workload
from autoauto.records.errors import BadInput, UnreadableModel, Unsupported
from autoauto.targets.gpu.calibration import Group

COLUMNS = (
    "model,engine,system,precision,tensor_parallel,n_ipu,batch_size,input_tokens,output_tokens,tpot_s,tokens_per_s"
)
OF_PACKAGE = (
    "id,model_path,backend,system,gemm_quant_mode,tp_size,pp_size,attention_dp_size,moe_ep_size,batch_size,isl,osl,mode,"
    "silicon_tpot_ms,silicon_ttft_ms"
)
QWEN_8B = Decoder("Qwen3-8B", "Qwen3ForCausalLM", 4096, 36, 32, 8, 128, 12288, 151936, is_tied=False)
GROUP = Group("Qwen3-8B", "vllm", "h100_sxm", "bf16")


def written(path: Path, *lines: str, columns: str = COLUMNS) -> Path:
    path.write_text("\n".join((columns, *lines)) + "\n")
    return path


def read(name: str) -> Decoder:
    """A model that a file names: ours under another name, a larger one, or none that is modelled."""
    known = {
        "org/Qwen3-8B": replace(QWEN_8B, checkpoint=Checkpoint(WeightFormat.FP8)),
        "larger": replace(QWEN_8B, n_layers=40),
    }
    if name not in known:
        raise UnreadableModel(f"{name} is no model")
    return known[name]


@pytest.fixture
def package() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")


def row(path: Path, line: str, columns: str = COLUMNS) -> Row:
    (only,) = read_rows(written(path, line, columns=columns))
    return only


@pytest.mark.usefixtures("package")
def test_both_forms_say_the_same(tmp_path: Path) -> None:
    plain = row(tmp_path / "plain.csv", "Qwen3-8B,vllm,h100_sxm,bf16,2,1,32,1024,256,0.012,")
    ours = row(tmp_path / "ours.csv", "a,Qwen3-8B,vllm,h100_sxm,,2.0,1.0,,0,32,1024,256,agg,12,150", OF_PACKAGE)
    assert replicas_of(plain, QWEN_8B) == replicas_of(ours, QWEN_8B)
    assert forecast_of(plain, QWEN_8B) == forecast_of(ours, QWEN_8B)
    assert measured_of(plain) == (0.012, None, None)
    assert measured_of(ours) == (0.012, 0.15, None)


@pytest.mark.usefixtures("package")
def test_a_batch_is_of_a_micro_batch_and_stages_are_even(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    columns = COLUMNS + ",replicas,kv_cache_precision"
    single = row(path, "Qwen3-8B,vllm,h100_sxm,fp8,1,1,16,512,128,1,,,", columns)
    double = row(path, "Qwen3-8B,vllm,h100_sxm,fp8,1,5,16,512,128,1,,2,fp8", columns)
    replicas = replicas_of(double, QWEN_8B)
    assert replicas.n_blocks == (8, 7, 7, 7, 7)
    assert (replicas.n_replicas, replicas.n_gpus, replicas.requests) == (2, 10, Workload(512, 128))
    assert (replicas.serving.weights, replicas.serving.kv_cache) == (WeightFormat.FP8, WeightFormat.FP8)
    assert replicas_of(single, QWEN_8B).serving.kv_cache is WeightFormat.BF16, "that of the checkpoint"
    assert forecast_of(double, QWEN_8B).tokens_per_s > 2 * forecast_of(single, QWEN_8B).tokens_per_s


@pytest.mark.usefixtures("package")
def test_factors_are_those_of_the_rows_of_the_model_whatever_it_is_called(tmp_path: Path) -> None:
    line = "{},vllm,h100_sxm,bf16,1,1,16,512,128,{},"
    forecast_s = forecast_of(row(tmp_path / "one.csv", line.format("Qwen3-8B", 1)), QWEN_8B).tpot_s.item()
    lines = [line.format(name, 1.2 * forecast_s) for name in ("Qwen3-8B", "org/Qwen3-8B")]
    others = [line.format(name, 9.0) for name in ("larger", "unknown")]
    calibration = calibration_of(written(tmp_path / "rows.csv", *lines, *others), QWEN_8B, read).calibration
    assert list(calibration.factors) == [GROUP]
    assert calibration.of(GROUP).tpot.n_rows == 2
    assert 1.05 < calibration.of(GROUP).tpot.factor < 1.2
    assert calibration.of(GROUP).ttft.n_rows == 0


@pytest.mark.usefixtures("package")
def test_throughput_gives_the_time_between_tokens_where_that_was_not_measured(tmp_path: Path) -> None:
    line = "Qwen3-8B,vllm,h100_sxm,bf16,1,1,16,512,128,{},{}"
    rates = forecast_of(row(tmp_path / "one.csv", line.format(1, "")), QWEN_8B)
    by_time = written(tmp_path / "a.csv", line.format(rates.tpot_s.item() * 1.25, ""))
    by_tokens = written(tmp_path / "b.csv", line.format("", rates.tokens_per_s.item() / 1.25))
    factors = [calibration_of(path, QWEN_8B, read).calibration.of(GROUP).tpot.factor for path in (by_time, by_tokens)]
    assert factors[0] == pytest.approx(factors[1])
    assert factors[0] > 1.05


@pytest.mark.usefixtures("package")
def test_rows_without_a_forecast_are_counted_with_the_first_reason(tmp_path: Path) -> None:
    good, bad = (f"Qwen3-8B,vllm,h100_sxm,bf16,{n},1,16,512,128,0.01," for n in (1, 3))
    calibrated = calibration_of(written(tmp_path / "rows.csv", good, bad, bad), QWEN_8B, read)
    notes = notes_of(calibrated, ["h100_sxm"])
    assert notes[0].startswith("TPOT times ")
    assert "from 1 measured row of Qwen3-8B in bf16 by vllm on h100_sxm" in notes[0]
    assert notes[1].startswith("2 measured rows have no forecast, the first because tensor_parallel must divide the 32")
    assert any(note.endswith("such waits are in TTFT and latency, not in tokens/s") for note in notes)
    with pytest.raises(BadInput, match="must have a forecast, got 1 without: tensor_parallel must divide the 32 heads"):
        calibration_of(written(tmp_path / "rows.csv", bad), QWEN_8B, read)


@pytest.mark.usefixtures("package")
def test_rows_of_two_pools_say_how_many_servers_there_are(tmp_path: Path) -> None:
    line = row(tmp_path / "rows.csv", "a,Qwen3-8B,vllm,h100_sxm,,2.0,1.0,,0,32,1024,256,disagg,12,150", OF_PACKAGE)
    of_pools = {f"{pool}_{name}": "2" for pool in ("prefill", "decode") for name in ("tp_size", "batch_size")}
    with pytest.raises(Unsupported, match="must say how many servers each has"):
        forecast_of(replace(line, cells={**line.cells, **of_pools}), QWEN_8B)
    counts = {"prefill_num_workers": "1", "decode_num_workers": "3"}
    pools = replace(line, cells={**line.cells, **of_pools, **counts})
    assert pools_of(pools, QWEN_8B).n_gpus == 8
    assert n_clients_of(pools) == 6
    whole = replace(line, cells={**line.cells, "mode": "agg", "batch_size": "2"})
    assert forecast_of(pools, QWEN_8B).tpot_s < forecast_of(whole, QWEN_8B).tpot_s


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"attention_dp_size": "2"}, "is data-parallel in replicas"),
        ({"gemm_quant_mode": "odd"}, "weights must be .*, got odd"),
    ],
)
def test_rows_of_kinds_that_are_not_modelled_say_so(tmp_path: Path, cells: dict[str, str], reason: str) -> None:
    line = row(tmp_path / "rows.csv", "a,Qwen3-8B,vllm,h100_sxm,,2.0,1.0,,0,32,1024,256,agg,12,150", OF_PACKAGE)
    with pytest.raises(Unsupported, match=reason):
        replicas_of(replace(line, cells={**line.cells, **cells}), QWEN_8B)


@pytest.mark.usefixtures("package")
def test_experts_are_on_the_gpus_that_attend(tmp_path: Path) -> None:
    mixture = replace(QWEN_8B, architecture="Qwen3MoeForCausalLM", experts=Experts(8, 2, 768))
    line = row(tmp_path / "rows.csv", "a,Qwen3-8B,vllm,h100_sxm,,2.0,1.0,,0,32,1024,256,agg,12,150", OF_PACKAGE)
    dealt = replace(line, cells={**line.cells, "moe_tp_size": "1", "moe_ep_size": "2"})
    assert replicas_of(dealt, mixture).serving.expert_parallel == 2
    ranks = replace(line, cells={**line.cells, "attention_dp_size": "4", "moe_tp_size": "1", "moe_ep_size": "8"})
    assert replicas_of(ranks, mixture).serving.split == GroupSplit(2, 8, 4)
    contradicts = replace(line, cells={**line.cells, "moe_tp_size": "4", "moe_ep_size": "1"})
    with pytest.raises(BadInput, match=r"column moe_tp_size: .* got 4 GPUs for experts and 2 for attention"):
        replicas_of(contradicts, mixture)
    assert replicas_of(contradicts, QWEN_8B).serving.tensor_parallel == 2, "a dense model has no experts"


@pytest.mark.usefixtures("package")
def test_fp8_of_a_checkpoint_of_blocks_is_of_blocks(tmp_path: Path) -> None:
    """The checkpoint is that of the row, also where another of the same shape is served."""
    blocks = replace(QWEN_8B, checkpoint=Checkpoint(WeightFormat.FP8_BLOCK))
    of_package = "a,Qwen3-8B,vllm,h100_sxm,fp8,2.0,1.0,,0,32,1024,256,agg,12,150"
    for name, line, columns in (
        ("a", of_package, OF_PACKAGE),
        ("b", "Qwen3-8B,vllm,h100_sxm,fp8,2,1,32,1024,256,0.012,", COLUMNS),
    ):
        given = row(tmp_path / f"{name}.csv", line, columns)
        assert replicas_of(given, blocks).serving.weights is WeightFormat.FP8_BLOCK
        assert replicas_of(given, QWEN_8B).serving.weights is WeightFormat.FP8
    path = written(tmp_path / "rows.csv", "org/blocks,vllm,h100_sxm,,1,1,16,512,128,0.01,")
    calibration = calibration_of(path, QWEN_8B, lambda _: replace(blocks, name="org/blocks")).calibration
    assert list(calibration.factors) == [GROUP._replace(precision="fp8-block")]


@pytest.mark.usefixtures("package")
def test_an_answer_of_one_token_is_measured_by_its_first(tmp_path: Path) -> None:
    line = "Qwen3-8B,vllm,h100_sxm,bf16,1,1,8,1024,1,{},{}"
    path, columns = tmp_path / "rows.csv", COLUMNS.replace("tpot_s", "ttft_s")
    first_s = forecast_of(row(path, line.format(1, ""), columns), QWEN_8B).ttft_s.item()
    ratio = ratio_of(row(path, line.format(1.5 * first_s, ""), columns), QWEN_8B)
    assert ratio.tpot is None
    assert ratio.ttft == pytest.approx(1.5)
    with pytest.raises(BadInput, match=r"column tpot_s: must be empty where output_tokens is 1, got '0.01'"):
        ratio_of(row(path, line.format(0.01, "")), QWEN_8B)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(("n_rows", "times"), [(1, 1000), (50, 1000)])
def test_milliseconds_in_a_column_of_seconds_ask_for_the_unit(tmp_path: Path, n_rows: int, times: float) -> None:
    line = "Qwen3-8B,vllm,h100_sxm,bf16,1,1,16,512,128,{},"
    forecast_s = forecast_of(row(tmp_path / "one.csv", line.format(1)), QWEN_8B).tpot_s.item()
    path = written(tmp_path / "rows.csv", *[line.format(times * forecast_s)] * n_rows)
    with pytest.raises(BadInput, match=r"line 2, column tpot_s: must be in seconds, got .*; which unit is it in"):
        calibration_of(path, QWEN_8B, read)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Qwen3-8B,vlm,h100_sxm,bf16,1,1,16,512,128,1,", "line 2, column engine: an engine is .*, got 'vlm'"),
        ("Qwen3-8B,vllm,h100,bf16,1,1,16,512,128,1,", "line 2, column system: GPUs are .*, got 'h100'"),
        ("Qwen3-8B,vllm,h100_sxm,fp9,1,1,16,512,128,1,", "line 2, column precision: must be one of .*, got 'fp9'"),
        (
            "Qwen3-8B,vllm,h100_sxm,,1.5,1,16,512,128,1,",
            "column tensor_parallel: must be a whole number from 1, got '1.5'",
        ),
        ("Qwen3-8B,vllm,h100_sxm,,1,0,16,512,128,1,", "column n_ipu: must be a number above 0, got '0'"),
        ("Qwen3-8B,vllm,h100_sxm,,1,1,,512,128,1,", "column batch_size: must be a whole number from 1, got ''"),
        ("Qwen3-8B,vllm,h100_sxm,,1,1,16,512,128,ten,", "column tpot_s: must be a number above 0, got 'ten'"),
        (
            "Qwen3-8B,vllm,h100_sxm,,1,1,16,512,128,6.1,",
            "column tpot_s: must be in seconds, got '6.1' where the forecast is 0.0.*; which unit is it in?",
        ),
        ("Qwen3-8B,vllm,h100_sxm,,1,1,16,512,128,inf,", "column tpot_s: must be a number above 0, got 'inf'"),
        (
            "Qwen3-8B,vllm,h100_sxm,,1,1,16,512,128,,",
            "column tpot_s: a row must have one of tpot_s, ttft_s, .*, got none",
        ),
        ("other,vllm,h100_sxm,,1,1,16,512,128,1,", "must be of Qwen3-8B, got other; try another --measured"),
        ("Qwen3-8B,vllm,h100_sxm,,1,1,16,512,128,1,,7", "line 2: a row must have a cell for every column, got more"),
    ],
)
def test_a_bad_row_is_refused_in_a_line_that_names_it(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as refusal:
        calibration_of(written(tmp_path / "rows.csv", line), QWEN_8B, read)
    assert "rows.csv" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "line 1: measured rows must have the columns model, engine, system"),
        (b"model,engine\n", "line 1: measured rows must have the columns system, precision"),
        (
            COLUMNS.replace(",tpot_s,tokens_per_s", "").encode(),
            "line 1: measured rows must have one of the columns tpot_s",
        ),
        (f"{COLUMNS},tpot_s".encode(), "line 1: columns must have names of their own, got 'tpot_s' twice"),
        (COLUMNS.encode(), "must have a row below its columns, got none"),
        (b"\xff\xfe\x00", "must be a CSV file in UTF-8"),
        (None, "must be in a file that can be read, got .*: No such file"),
    ],
)
def test_a_file_that_is_no_table_of_rows_is_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=problem):
        read_rows(path)


def test_other_words_for_options_name_columns(tmp_path: Path) -> None:
    line = "Qwen3-8B,vllm,h100_sxm,bf16,2,1,16,512,128,0.01,"
    words = "model,engine,system,precision,tp,pp,batch_size,isl,osl,tpot_s,tokens_per_s"
    path = tmp_path / "rows.csv"
    assert row(path, line, words) == row(path, line)
    with pytest.raises(BadInput, match="line 1: columns must have names of their own, got 'n_ipu' twice"):
        row(path, f"{line},1", f"{COLUMNS},pp")


@pytest.mark.parametrize(
    ("column", "meant"),
    [("ttft_ms", "ttft_s"), ("n_replicas", "replicas"), ("kv_cache_dtype", "kv_cache_precision")],
)
def test_a_column_that_would_be_left_out_is_refused(tmp_path: Path, column: str, meant: str) -> None:
    line = "Qwen3-8B,vllm,h100_sxm,bf16,1,1,16,512,128,0.01,,2"
    with pytest.raises(BadInput, match=f"got '{column}', which is not read; did you mean '{meant}'"):
        row(tmp_path / "rows.csv", line, f"{COLUMNS},{column}")
    both = row(tmp_path / "rows.csv", f"{line},2", f"{COLUMNS},{column},{meant}")
    assert both.text(meant) == "2"


@pytest.mark.usefixtures("package")
def test_ranks_of_one_gpu_may_be_counted_as_tensor_parallel(tmp_path: Path) -> None:
    """TensorRT-LLM's size of tensor parallelism is all GPUs of a group; without ranks it splits the attention."""
    mixture = replace(QWEN_8B, n_layers=4, experts=Experts(128, 8, 768))
    columns = COLUMNS.replace("n_ipu", "expert_parallel,attention_dp")
    splits = []
    for engine, sizes in (("trtllm", "4,4,4"), ("trtllm", "1,4,4"), ("sglang", "4,4,4")):
        line = f"Qwen3-8B,{engine},h200_sxm,bf16,{sizes},16,512,128,0.01,"
        splits.append(replicas_of(row(tmp_path / "rows.csv", line, columns), mixture).serving.split)
    assert splits == [GroupSplit(1, 4, 4), GroupSplit(1, 4, 4), GroupSplit(4, 4, 4)]


@pytest.mark.usefixtures("package")
def test_rows_that_disagree_with_each_other_are_said(tmp_path: Path) -> None:
    """The median of 2 and 20 ms is 6.3, which neither of them is near."""
    start = "Qwen3-8B,vllm,h100_sxm,bf16,1,1,16,512,128"
    path = written(tmp_path / "rows.csv", f"{start},0.004,", f"{start},0.04,")
    (said,) = [each for each in notes_of(calibration_of(path, QWEN_8B, read), ["h100_sxm"]) if "outside" in each]
    assert said.startswith("2 of 2 rows of Qwen3-8B by vllm on h100_sxm lie outside of that interval: they measured ")
    path = written(tmp_path / "rows.csv", f"{start},0.01,", f"{start},0.0101,")
    assert not any("outside" in each for each in notes_of(calibration_of(path, QWEN_8B, read), ["h100_sxm"]))


@pytest.mark.parametrize(("separator", "point"), [(";", "."), (";", ","), ("\t", "."), ("\t", ",")])
def test_rows_may_be_separated_as_spreadsheets_do(separator: str, point: str, tmp_path: Path) -> None:
    columns = "model,engine,system,precision,tensor_parallel,batch_size,input_tokens,output_tokens,tpot_s"
    line = "a.b/c,vllm,h100_sxm,fp8,1,8,512,128,0.0125"
    (expected,) = read_rows(written(tmp_path / "rows.csv", line, columns=columns))
    text = line.replace(",", separator).replace("0.0125", f"0{point}0125")
    (other,) = read_rows(written(tmp_path / "rows.csv", text, columns=columns.replace(",", separator)))
    assert other == expected
    assert measured_of(other).tpot_s == 0.0125


OF_ALL = f"{COLUMNS},ttft_s,n_requests"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ("16,512,128,0.01,,", None),
        ("16,512,128,0.01,1500,0.1,", None),
        ("16,512,128,0.01,5000,,", "column tokens_per_s: .*: 16 requests in flight get at most 1,613 tokens/s by them"),
        (
            "16,512,128,0.01,100,0.1,",
            "column tokens_per_s: .* 16 requests in flight get 1,495 tokens/s by them, got 100",
        ),
        ("16,512,128,0.1,,0.01,", "column ttft_s: the first token must take .*, got 0.01 s and a TPOT of 0.1 s"),
        ("16,512,128,0.01,,,400", "column n_requests: must be empty where batch_size is given"),
    ],
)
def test_columns_of_a_row_must_not_contradict_each_other(tmp_path: Path, cells: str, problem: str | None) -> None:
    given = row(tmp_path / "rows.csv", f"Qwen3-8B,vllm,h100_sxm,bf16,1,1,{cells}", columns=OF_ALL)
    if problem is None:
        assert ratio_of(given, QWEN_8B).tpot
        return
    with pytest.raises(BadInput, match=problem):
        ratio_of(given, QWEN_8B)
