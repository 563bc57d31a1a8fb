"""Hand-tuned splits and the planner's, by one cost model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.installation import data_dir
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision
from studies import handtuned
from tests.drawn import daily

ROWS = json.loads((data_dir() / "measurements" / "handtuned.json").read_text())["rows"]


@pytest.mark.parametrize("row", daily(ROWS, 4), ids=lambda row: row["id"])
def test_ours_never_costs_more_and_what_ran_fits(row: dict[str, Any]) -> None:
    theirs, ours = handtuned.compare(row)
    assert ours is not None
    assert len(theirs.partition) == len(ours.partition) == row["n_ipu"] + 1
    assert ours.cost_cycles <= theirs.cost_cycles
    assert theirs.fits == ours.fits == row["fits"]


def test_rows_are_those_of_the_published_files(vectors: Callable[[str], Any]) -> None:
    for case in vectors("handtuned_splits")["cases"]:
        (row,) = (row for row in ROWS if case["id"].endswith(row["id"]))
        assert (row["mode"], row["n_ipu"]) == (case["mode"], case["ipus_per_replica"])
        assert row["batch_size"] == case.get("micro_batch_size", 1)
        if row["mode"] == "train":
            samples = row["batch_size"] * row["n_micro_batches"] * case["replicas"]
            assert row["n_micro_batches"] == case.get("gradient_accumulation", row["n_micro_batches"])
            assert samples == case.get("global_batch_size", samples)
            assert row["recompute"] == bool(case.get("recompute") or case["recompute_checkpoint_every_layer"])
            assert ("block" in row) == ("recompute_checkpoint_every_layer" in case)


def row_of(name: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in ROWS if row["id"] == name)
    return row


@pytest.mark.parametrize(
    ("name", "n_parameters", "tied"),
    [
        ("pytorch_gpt2_small_train_gen_pod16", 124_439_808 + 12, ["head.MatMul", "wte.Gather"]),
        ("pretrain_base_128", 110_106_428 - 384 * 768 + 12, ["head.MatMul", "words.Gather"]),
        ("mt5-small [0,8,8,0]", 300_176_768 - 2 * 32 * 6 + 24, ["shared.ids", "shared.labels"]),
    ],
)
def test_models_are_as_large_as_the_published_ones(name: str, n_parameters: int, tied: list[str]) -> None:
    """One number more for every mask; BERT with 128 of 512 positions, mT5 without relative position biases."""
    graph = handtuned.graph_of(row_of(name))
    assert graph.n_weight_bytes(Precision.FP16) == 2 * n_parameters
    assert [layer.name for layer in graph.layers if layer.tied] == tied


def test_the_embedding_and_the_head_of_mt5_are_what_does_not_fit() -> None:
    theirs, _ = handtuned.compare(row_of("mt5-small [0,8,8,0]"))
    assert [n_bytes > theirs.limit_bytes for n_bytes in theirs.stage_bytes] == [True, False, False, True]


def test_a_stage_is_cut_where_blocks_begin() -> None:
    graph = handtuned.graph_of(row_of("pretrain_base_128"))
    h2, h3, h4 = (handtuned.first_layer(graph, f"h.{n}.") for n in (2, 3, 4))
    for start in (h2, h2 + 1):
        assert handtuned.pieces_of(graph, LayerRange(start, h4 + 1), "h.") == [(start, h3), (h3, h4), (h4, h4 + 1)]
    assert handtuned.pieces_of(graph, LayerRange(h2, h4), None) == [(h2, h4)]


@pytest.mark.slow
def test_checkpoints_between_blocks_need_less_memory() -> None:
    """BERT-large was published to fit with them; recomputing a stage as one piece needs more."""
    row = row_of("pretrain_large_128")
    whole = {name: value for name, value in row.items() if name != "block"}
    pieces, piece = handtuned.compare(row).theirs, handtuned.compare(whole).theirs
    assert all(less < more for less, more in zip(pieces.stage_bytes[1:], piece.stage_bytes[1:], strict=True))
    assert pieces.cost_cycles == piece.cost_cycles


def test_a_ring_has_links_between_devices_at_both_ends() -> None:
    ring, line = (handtuned.cluster_of(row_of(name)) for name in ("pretrain_base_128", "mt5-small [0,8,8,0]"))
    assert {*ring.receive_links, *ring.send_links} == {line.receive_links[1]}
    assert line.receive_links[0] != line.receive_links[1]


@pytest.mark.slow
def test_both_splits_of_a_chosen_row_are_printed(run_script: Callable[..., list[str]]) -> None:
    header, first, second = run_script("handtuned", "--rows", "b16_imagenet1k")
    assert header.split()[:3] == ["configuration", "mode", "IPUs"]
    assert "Graphcore 80 75 75 78" in first
    assert first.endswith("on IPU 0; published: fits")
    assert second.lstrip().startswith("ours")
    assert second.endswith("less")


@pytest.mark.slow
def test_an_unknown_row_is_refused_with_the_known_ones(run_script: Callable[..., list[str]]) -> None:
    *_, message = run_script("handtuned", "--rows", "b16", exit_codes=[2])
    assert "b16_imagenet1k" in message
