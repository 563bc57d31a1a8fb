"""Traces of PyTorch: one that release 2.13 wrote, and what a block is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.profile.importers.torch_trace import read_torch_trace
from autoauto.records.errors import BadInput
from tests.profile.importers.conftest import RECORDED

TRACE = RECORDED / "blocks-32.torch.json"
Write = Callable[[list[dict[str, Any]]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def trace(events: list[dict[str, Any]]) -> Path:
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": events}))
        return path

    return trace


def events() -> list[dict[str, Any]]:
    return list(json.loads(TRACE.read_text())["traceEvents"])


def test_the_trace_of_three_blocks() -> None:
    """At batch size 32: Linear(256, 512); two Linear(512, 512); Linear(512, 10)."""
    profile = read_torch_trace(TRACE, None, 32)
    layers = profile.at(32)
    assert [layer.name for layer in layers] == ["stem", "middle", "head"]
    weights = [256 * 512 + 512, 2 * (512 * 512 + 512), 512 * 10 + 10]
    assert [layer.parameter_bytes for layer in layers] == [4 * n for n in weights]
    assert [layer.input_bytes for layer in layers] == [4 * 32 * n for n in (256, 512, 512)]
    assert [layer.output_bytes for layer in layers] == [4 * 32 * n for n in (512, 512, 10)]
    # The middle makes the outputs of two ReLUs, which autograd stashes, and its own; its input is freed, since the
    # first ReLU does not need it.
    assert layers[1].activation_bytes == (3 - 1) * 4 * 32 * 512
    assert all(layer.forward_s > 0 and layer.backward_s > 0 for layer in layers)
    assert profile.trains


def test_backward_times_are_within_that_of_the_whole_pass() -> None:
    layers = read_torch_trace(TRACE, None, 32).at(32)
    evaluated = [e for e in events() if e["name"].startswith("autograd::engine::evaluate_function: ")]
    assert 0 < sum(layer.backward_s for layer in layers) < sum(e["dur"] for e in evaluated) / 1e6


def block(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "tid": 1, "ts": ts, "dur": dur, **more}


def operator(ts: float, size: int, name: str = "aten::mm", **more: Any) -> dict[str, Any]:
    args = {"Input Dims": [[], [size, 2]], "Input type": ["Scalar", "float"]}
    return {"ph": "X", "cat": "cpu_op", "name": name, "tid": 1, "ts": ts, "dur": 1, "args": args, **more}


def test_the_outermost_annotations_are_the_blocks_and_the_first_run_is_left_out(write: Write) -> None:
    read = [
        *(block("ProfilerStep#1", 0, 100), block("a", 0, 9), block("inner", 1, 3), operator(2, 5)),
        *(block("b", 10, 9), operator(11, 7), operator(30, 3)),
        *(block("a", 40, 4), operator(41, 5), block("b", 50, 6), operator(51, 7), operator(60, 3)),
    ]
    profile = read_torch_trace(write(read))
    assert [(layer.name, layer.forward_s) for layer in profile.at(1)] == [("a", 4e-6), ("b", 6e-6)]
    assert [layer.input_bytes for layer in profile.at(1)] == [5 * 2 * 4, 7 * 2 * 4]
    assert profile.at(1)[1].output_bytes == 3 * 2 * 4
    assert not profile.trains
    assert any("says nothing of weights" in note for note in profile.notes)


def test_the_next_run_reads_nothing_that_the_last_block_writes(write: Write) -> None:
    """Without this the input of the first block would be the output of the last one."""
    runs = [*(block("a", 0, 4), operator(1, 5), block("b", 5, 4), operator(6, 7))]
    runs += [{**event, "ts": event["ts"] + 20} for event in runs]
    profile = read_torch_trace(write(runs))
    assert [layer.output_bytes for layer in profile.at(1)] == [7 * 2 * 4, 0]
    assert "trace.json: nothing reads what the last block writes; it counts as 0 bytes" in profile.notes


def test_kernels_of_a_gpu_count_for_the_block_that_launched_them(write: Write) -> None:
    """Written by the format of Kineto: there was no GPU to record one."""
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7}
    read = [
        *(block("a", 0, 5), operator(1, 5), {**launch, "ts": 2, "args": {"correlation": 11}}),
        *(block("b", 6, 5), operator(7, 5), {**launch, "ts": 8, "args": {"correlation": 12}}, operator(20, 5)),
        *({**kernel, "ts": 100, "dur": 70, "args": {"correlation": 11}},),
        *({**kernel, "ts": 170, "dur": 30, "args": {"correlation": 12}},),
    ]
    assert [layer.forward_s for layer in read_torch_trace(write(read), None, 5).at(5)] == pytest.approx([70e-6, 30e-6])


def test_an_annotation_around_all_blocks_is_none(write: Write) -> None:
    read = [
        *(block("forward", 0, 30), block("a", 1, 9), block("inner", 2, 3), operator(2, 5)),
        *(block("b", 11, 9), operator(12, 7), operator(31, 3)),
    ]
    profile = read_torch_trace(write(read))
    assert [layer.name for layer in profile.at(1)] == ["a", "b"]
    assert "trace.json: 'forward' is around all blocks, and is none" in profile.notes
    assert "trace.json: 1 annotations lie in blocks, and are part of them" in profile.notes


def test_runs_of_several_batch_sizes_are_refused(write: Write) -> None:
    read = [*(block("a", 0, 9), operator(2, 5)), *(block("a", 20, 9), operator(21, 7))]
    with pytest.raises(BadInput, match=r"of one batch size, block 'a' reads .*5, 2.* and .*7, 2.*; record a trace for"):
        read_torch_trace(write(read))


@pytest.mark.parametrize("batch_size", [None, 8, 31, 512])
def test_a_batch_size_that_no_block_reads_is_refused(batch_size: int | None) -> None:
    message = rf"must read an axis of the batch size {batch_size or 1}, got \[32, 256\].*--profile B=FILE"
    with pytest.raises(BadInput, match=message):
        read_torch_trace(TRACE, None, batch_size)


def test_a_batch_size_that_the_shapes_leave_open_is_said(write: Write) -> None:
    read = [*(block("a", 0, 9), operator(2, 5)), *(block("b", 20, 9), operator(21, 7))]
    note = "trace.json: batch size 1 is assumed, although 2 of 2 shapes have no axis of it"
    assert note in read_torch_trace(write(read)).notes
    assert note not in read_torch_trace(write(read), None, 5).notes


def test_the_table_of_an_embedding_has_no_batch_size(write: Write) -> None:
    """It is the first tensor that the block reads; its indices are those of 8 samples."""
    args = {"Input Dims": [[30522, 768], [8, 128], []], "Input type": ["float", "long int", "Scalar"]}
    read = [
        *(block("words", 0, 9), operator(2, 0, "aten::embedding", args=args)),
        *(block("a", 20, 9), operator(21, 8), operator(40, 8)),
    ]
    assert len(read_torch_trace(write(read), None, 8).at(8)) == 2
    with pytest.raises(BadInput, match=r"batch size 1, got \[8, 128\]"):
        read_torch_trace(write(read))


@pytest.mark.parametrize(
    ("read", "message"),
    [
        ([], "needs a record_function around every block, got none"),
        ([block("a", 0, 1), block("a", 2, 1), block("b", 4, 1)], "'b' ran 1 times and 'a' 2"),
        ([block("a", 0, 5), operator(1, 5, args={})], "profile with record_shapes=True"),
        ([block("a", 0, -5)], r"traceEvents\[0\].dur must be a .*number from 0"),
        ([block("a", 0, 5), operator(1, -5)], "Input Dims of 'aten::mm'.* must be a whole number from 0"),
    ],
)
def test_what_is_no_trace_of_blocks_is_refused(read: list[dict[str, Any]], message: str, write: Write) -> None:
    with pytest.raises(BadInput, match=message):
        read_torch_trace(write(read))


def test_a_trace_has_no_second_file() -> None:
    with pytest.raises(BadInput, match="is one file, got --profile-details"):
        read_torch_trace(TRACE, TRACE)


@pytest.mark.slow
def test_a_trace_that_is_taken_here(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    first, second = torch.nn.Linear(64, 32), torch.nn.Linear(32, 16)
    with torch.profiler.profile(record_shapes=True, profile_memory=True) as recorded:
        for _ in range(3):
            with torch.profiler.record_function("first"):
                hidden = first(torch.ones(8, 64))
            with torch.profiler.record_function("second"):
                hidden = second(hidden)
            hidden.sum().backward()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    layers = read_torch_trace(tmp_path / "trace.json", None, 8).at(8)
    assert [layer.parameter_bytes for layer in layers] == [4 * (64 * 32 + 32), 4 * (32 * 16 + 16)]
    assert [layer.output_bytes for layer in layers] == [4 * 8 * 32, 4 * 8 * 16]
    assert all(layer.backward_s > 0 for layer in layers)
