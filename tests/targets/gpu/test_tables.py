"""Measured tables: costs of layers grow as they must, and what the tables lack is refused in a line."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from autoauto.engines.registry import engine_named
from autoauto.records.costs.decoder import BlockPart, Checkpoint, Decoder, Experts, PartFormat, WeightFormat, Workload
from autoauto.records.errors import MissingExtra, Unsupported
from autoauto.targets.gpu import tables
from autoauto.targets.gpu.configs import config_of
from autoauto.targets.gpu.costs import DecoderCosts, layer_costs
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving, check_installed, delete_left_folders, open_tables

QWEN_8B = Decoder("Qwen3-8B", "Qwen3ForCausalLM", 4096, 36, 32, 8, 128, 12288, 151936, is_tied=False)
MIXTURE = Decoder(
    "Qwen3-30B-A3B", "Qwen3MoeForCausalLM", 2048, 48, 32, 4, 128, 6144, 151936, False, experts=Experts(128, 8, 768)
)
REQUESTS = Workload(1024, 256)
BATCHES = np.array([1, 8, 64, 256])


@pytest.fixture(scope="module", autouse=True)
def package() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")


def costs_of(serving: Serving, decoder: Decoder = QWEN_8B, requests: Workload = REQUESTS) -> DecoderCosts:
    engine = engine_named(serving.engine)
    return layer_costs(decoder, serving, system_named(serving.system), engine, requests, BATCHES, 8192)


def test_there_is_a_row_a_layer_and_a_column_a_batch_size() -> None:
    costs = costs_of(Serving("h100_sxm", "vllm"))
    assert costs.decode_s.shape == costs.prompt_s.shape == (39, 4)
    assert costs.weight_bytes.shape == costs.cache_bytes.shape == (39,)
    assert (costs.decode_s[1:37] == costs.decode_s[1]).all()
    assert (np.diff(costs.decode_s.sum(axis=0)) > 0).all()
    assert costs.decode_s[-1].min() > costs.decode_s[1].min() / 2, "a head of 151,936 tokens costs as much as a block"
    assert costs.cache_bytes[0] == costs.cache_bytes[-1] == 0
    assert costs.weight_bytes.sum() == pytest.approx(2 * 8.19e9, rel=0.01)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_longer_prompt_and_a_longer_answer_cost_more(engine: str) -> None:
    serving = Serving("h100_sxm", engine)
    short, long = costs_of(serving), costs_of(serving, requests=Workload(4096, 256))
    assert (long.prompt_s[1] > 3 * short.prompt_s[1]).all()
    assert (long.decode_s[1] > short.decode_s[1]).all()


def test_larger_groups_are_faster_and_hold_less() -> None:
    alone, of_four = costs_of(Serving("h100_sxm", "vllm")), costs_of(Serving("h100_sxm", "vllm", 4))
    assert (of_four.decode_s[1] < alone.decode_s[1]).all()
    assert of_four.cache_bytes[1] == alone.cache_bytes[1] / 4
    assert of_four.weight_bytes.sum() == pytest.approx(alone.weight_bytes.sum() / 4, rel=0.01)


def test_prompts_in_parts_cost_more_than_whole() -> None:
    """A part of 512 tokens reads all weights again, as the step would that decodes few sequences."""
    engine, system = engine_named("sglang"), system_named("h100_sxm")
    whole, parts = (
        layer_costs(QWEN_8B, Serving("h100_sxm", "sglang"), system, engine, Workload(4096, 256), BATCHES[:1], n)
        for n in (8192, 512)
    )
    assert (parts.prompt_s[1] > whole.prompt_s[1]).all()


def test_experts_are_modelled_split_and_whole() -> None:
    split, whole = (costs_of(Serving("h100_sxm", "vllm", 4, n), MIXTURE) for n in (1, 4))
    assert (split.decode_s[1] != whole.decode_s[1]).any()
    assert split.weight_bytes.tolist() == whole.weight_bytes.tolist()


@pytest.mark.parametrize(
    ("serving", "problem"),
    [
        (Serving("h100_sxm", "vllm", 4, 2), "vllm deals experts among 1 or 4 of 4 GPUs of a group, got 2"),
        (Serving("h100_sxm", "sglang", 4, 3), "sglang deals experts among 1 or 2 or 4 of 4 GPUs of a group, got 3"),
        (Serving("h100_sxm", "trtllm", 8, 8), "expert_parallel must divide the 100 experts of Qwen3-30B-A3B, got 8"),
    ],
)
def test_experts_that_cannot_be_dealt_so_are_refused_in_a_line(serving: Serving, problem: str) -> None:
    with pytest.raises(Unsupported) as refusal:
        costs_of(serving, replace(MIXTURE, experts=Experts(100, 8, 768)))
    assert str(refusal.value) == problem


@pytest.mark.parametrize(
    ("serving", "problem"),
    [
        (Serving("h100_sxm", "vllm", 3), "tensor_parallel must divide the 32 heads of Qwen3-8B, got 3"),
        (Serving("h100_sxm", "vllm", 2, 2), "expert_parallel is for mixtures of experts, Qwen3-8B is dense"),
        (
            Serving("h100_sxm", "trtllm", 2, weights=WeightFormat.NVFP4),
            "h100_sxm must have times of Qwen3-8B by trtllm",
        ),
    ],
)
def test_what_cannot_be_split_or_has_no_times_is_refused_in_a_line(serving: Serving, problem: str) -> None:
    with pytest.raises(Unsupported) as refusal:
        costs_of(serving)
    assert problem in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("version", ["0.10.3", "0.13.0", "1.0"])
def test_another_version_is_refused_with_those_that_are_read(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(tables, "version", lambda _: version)
    with pytest.raises(MissingExtra, match=rf"needs aiconfigurator-core>=0\.11,<0\.13, got {version}; try: "):
        check_installed()


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(tables, "version", missing)
    with pytest.raises(MissingExtra, match="the target gpu needs the extra gpu; try: "):
        check_installed()


def test_products_have_the_times_of_their_formats() -> None:
    """Feed-forward layers in bf16, attention in fp8: a block costs what uniform models say of their products."""
    feed_forward = tuple((part, PartFormat()) for part in (BlockPart.GATE_UP, BlockPart.DOWN))
    mixed = replace(QWEN_8B, checkpoint=Checkpoint(WeightFormat.FP8, unlike=feed_forward))
    serving = Serving("h100_sxm", "vllm", weights=WeightFormat.FP8)
    of_mixed, of_fp8 = (open_tables(each, serving).decode_tokens(BATCHES) for each in (mixed, QWEN_8B))
    of_bf16 = open_tables(QWEN_8B, Serving("h100_sxm", "vllm")).decode_tokens(BATCHES)
    assert (of_fp8.block < of_mixed.block).all()
    assert (of_mixed.block < of_bf16.block).all()
    assert (of_mixed.head == of_bf16.head).all()
    others = replace(
        QWEN_8B, checkpoint=Checkpoint(unlike=tuple((part, PartFormat(WeightFormat.FP8)) for part, _ in feed_forward))
    )
    swapped = open_tables(others, Serving("h100_sxm", "vllm")).decode_tokens(BATCHES)
    assert of_mixed.block + swapped.block == pytest.approx(of_fp8.block + of_bf16.block)


def test_the_first_and_the_last_block_cost_what_theirs_do() -> None:
    """Down of the first block, and gate, up and down of the last, are in bf16: 1 byte more of 1 and 3 matrices."""
    down, gate_up = ((part, PartFormat()) for part in (BlockPart.DOWN, BlockPart.GATE_UP))
    kind = QWEN_8B.kind
    first, last = kind._replace(unlike=(down,)), kind._replace(unlike=(gate_up, down))
    in_fp8 = replace(QWEN_8B, checkpoint=Checkpoint(WeightFormat.FP8))
    unlike = in_fp8.of_kinds((first, *[kind] * 34, last))
    serving, matrix = Serving("h100_sxm", "vllm", weights=WeightFormat.FP8), 4096 * 12288
    costs, alike = costs_of(serving, unlike), costs_of(serving, in_fp8)
    more = costs.weight_bytes - alike.weight_bytes
    assert more[[1, -3]].tolist() == [matrix, 3 * matrix]
    assert not more[[0, *range(2, 36), -2, -1]].any()
    later = costs.decode_s - alike.decode_s
    assert (later[1] > 0).all()
    assert (later[-3] > later[1]).all()
    for given, plain in ((costs.decode_s, alike.decode_s), (costs.prompt_s, alike.prompt_s)):
        assert (given[[0, *range(2, 36), -2, -1]] == plain[[0, *range(2, 36), -2, -1]]).all()
    made = costs_of(Serving("h100_sxm", "vllm"), unlike)
    assert (made.weight_bytes == costs_of(Serving("h100_sxm", "vllm")).weight_bytes).all()


@pytest.mark.parametrize(
    ("decoder", "serving", "reason"),
    [
        (
            QWEN_8B,
            Serving("h100_sxm", "vllm", weights=WeightFormat.INT8),
            "measured formats are bf16, fp8, fp8-dynamic, fp8-block; try one of them, or another engine",
        ),
        (
            QWEN_8B,
            Serving("h100_sxm", "vllm", weights=WeightFormat.NVFP4),
            "h100_sxm computes no products in nvfp4; try another precision",
        ),
        (
            replace(QWEN_8B, n_kv_heads=16),
            Serving("h100_sxm", "vllm"),
            "no attention was measured with 16 heads of keys and values of 128 elements on a GPU; try another "
            "tensor_parallel or engine",
        ),
    ],
)
def test_what_was_not_measured_is_said_in_our_words(decoder: Decoder, serving: Serving, reason: str) -> None:
    with pytest.raises(Unsupported) as refusal:
        costs_of(serving, decoder)
    assert str(refusal.value).endswith(f"GPUs a group; {reason}")


def test_one_table_is_opened_once() -> None:
    serving = Serving("h100_sxm", "vllm")
    assert open_tables(QWEN_8B, serving) is open_tables(QWEN_8B, serving)
    assert config_of(QWEN_8B)["architectures"] == ["Qwen3ForCausalLM"], "its queries are normalised"


def test_a_run_that_compiles_nothing_deletes_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_tables.__wrapped__(QWEN_8B, Serving("h100_sxm", "vllm"))  # so that its specification is stored
    (tmp_path / "autoauto-decoders-left").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    delete_left_folders.cache_clear()
    open_tables.__wrapped__(QWEN_8B, Serving("h100_sxm", "vllm"))
    assert not list(tmp_path.iterdir())
