"""What holds of an engine besides its kernels: costs of a step, nodes, stand-ins, contradictions, and drafts."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import yaml

from autoauto.engines.command import Launch, Placing
from autoauto.engines.engine import EngineMemory, HostCosts, NodePart
from autoauto.engines.registry import ENGINES, engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.engines.stand_in import AttentionStandIn, Contradiction, StandIn
from autoauto.records.costs.blocks import Attention, BlockKind, Dense
from autoauto.records.costs.decoder import (
    BlockPart,
    Checkpoint,
    Decoder,
    Experts,
    PartFormat,
    Speculation,
    WeightFormat,
    Workload,
)
from autoauto.records.errors import BadInput

FP8, INT4, BF16 = WeightFormat.FP8_BLOCK, WeightFormat.INT4, WeightFormat.BF16
DENSE = Decoder("dense", "Qwen3ForCausalLM", 4096, 36, 32, 8, 128, 9728, 151936, is_tied=False)
MIXTURE = replace(DENSE, name="mixture", experts=Experts(128, 8, 768))


def test_a_step_takes_its_own_seconds_and_those_of_its_sequences_and_stages() -> None:
    costs = HostCosts(step_s=0.5, sequence_s=0.01, first_token_s=0.0, together=0.0, stage_sequence_s=0.001)
    assert costs.of_step(np.array([0.0, 10.0]), 1).tolist() == pytest.approx([0.5, 0.6])
    assert costs.of_step(np.array([0.0, 10.0]), 2).tolist() == pytest.approx([0.5, 0.61])


def test_memory_is_that_of_the_release_and_of_the_smaller_group() -> None:
    memory = EngineMemory(lambda *_: 0.9, {1: 10.0, 4: 6.0}, 0)
    assert [memory.activation_factor(n) for n in (1, 2, 3, 4, 8)] == [10.0, 10.0, 10.0, 6.0, 6.0]
    assert [
        memory._replace(is_of_free=free, counts_activations=all_of_it).is_of_all
        for free, all_of_it in ((False, True), (True, True), (False, False))
    ] == [True, False, False]


def test_errors_of_doublings_are_independent() -> None:
    rows = ENGINES["vllm"].measured
    assert [rows.stages_error(n) for n in (1, 2, 16)] == pytest.approx(
        [0.0, rows.stage_error, sqrt(4) * rows.stage_error]
    )


def test_an_engine_is_named_or_refused_with_the_closest() -> None:
    assert engine_named("sglang") is ENGINES["sglang"]
    with pytest.raises(BadInput, match=r"an engine is .*vllm.*, got 'vlm'; did you mean 'vllm'"):
        engine_named("vlm")


@pytest.mark.parametrize(
    ("nodes", "allowed"),
    [
        ([(0, 8)], True),
        ([(0, 4), (1, 4)], True),
        ([(0, 4), (1, 2)], False),  # not as many in each
        ([(0, 4), (0, 4)], False),  # one node twice
    ],
)
def test_a_replica_has_one_node_or_as_many_gpus_of_each(nodes: list[tuple[int, int]], allowed: bool) -> None:
    parts = [NodePart(*node) for node in nodes]
    engine = ENGINES["vllm"]
    assert engine.launcher.placing.spans_machines
    conflict = engine.nodes_conflict(parts, GroupSplit(2))
    assert (conflict == "") == allowed
    assert allowed or conflict.startswith("vllm has the stages of a replica in one node, or as many in each of several")
    alone = replace(engine, launcher=replace(engine.launcher, placing=Placing(spans_machines=False)))
    said = alone.nodes_conflict(parts, GroupSplit(2))
    assert said == ("" if len(parts) == 1 else "vllm has the stages of a replica in one node")


def test_an_engine_makes_its_formats_of_bf16_alone() -> None:
    engine = ENGINES["vllm"]
    made = next(iter(engine.launcher.makes))
    assert engine.makes_conflict(BF16, made) == engine.makes_conflict(INT4, INT4) == ""
    assert f"makes nothing else of a checkpoint in {INT4} when it loads it" in engine.makes_conflict(INT4, made)
    refused = next(each for each in WeightFormat if each not in engine.launcher.makes and each is not BF16)
    assert f"makes {made} " in engine.makes_conflict(BF16, refused)


def test_only_an_engine_with_a_share_of_all_memory_leaves_some_free() -> None:
    for engine in ENGINES.values():
        assert engine.headroom_conflict(1.0, "H200") == ""
        said = engine.headroom_conflict(0.9, "H200")
        assert bool(said) == (not engine.memory.is_of_all)
        assert not said or "all memory of H200, got 90.0% of it" in said


def test_times_stand_for_those_of_a_format_on_some_gpus() -> None:
    products = StandIn(INT4, ("h200",), BF16, "few were measured")
    experts = StandIn(INT4, (), None, "few were measured")
    assert [products.is_of(*each) for each in (("h200", INT4), ("b200", INT4), ("h200", BF16))] == [True, False, False]
    assert experts.is_of("b200", INT4)
    stored = replace(DENSE, checkpoint=Checkpoint(INT4))
    unlike = ((BlockPart.DOWN, PartFormat(INT4)),)
    in_part = DENSE.of_kinds((BlockKind(Attention(32, 8, 128), Dense(9728), unlike),) * 36)
    assert [products.is_asked(each, "h200") for each in (DENSE, stored, in_part)] == [False, True, True]
    assert not products.is_asked(stored, "b200")
    assert not experts.is_asked(stored, "h200")  # it has no experts
    assert experts.is_asked(replace(MIXTURE, checkpoint=Checkpoint(INT4)), "h200")
    assert products.note("vllm") == (
        "for products in int4 by vllm on h200 times of products in bf16 are taken: few were measured"
    )
    assert experts.note("vllm") == (
        "for experts in int4 that are split by vllm times of experts that are dealt whole are taken: few were measured"
    )
    attention = AttentionStandIn(("h200",), "sglang", "none were")
    plain = replace(DENSE, n_kv_heads=32)
    assert [attention.is_of(*each) for each in ((plain, "h200"), (plain, "b200"), (DENSE, "h200"))] == [
        True,
        False,
        False,
    ]


def test_rows_contradict_forecasts_of_their_kind_of_models() -> None:
    of_experts = Contradiction("h200", FP8, True, 12, (1.4, 1.625, 2.0), "nobody knows why")
    assert [of_experts.is_of(each) for each in (MIXTURE, DENSE)] == [True, False]
    assert [of_experts._replace(has_experts=False).is_of(each) for each in (MIXTURE, DENSE)] == [False, True]
    assert of_experts.note("vllm") == (
        "forecasts of mixtures of experts by vllm in fp8-block on h200 are not trusted: 12 measured rows have "
        "1.6 times their TPOT (1.4 to 2); nobody knows why"
    )


def started(name: str, drafts: Speculation) -> tuple[dict[str, str], str]:
    """The options of a command that drafts so, by name, and the file that it reads."""
    launch = Launch("m", GroupSplit(2), (3,), 8, 8192, 4096, 0.9, requests=Workload(1024, 1024, speculation=drafts))
    command = ENGINES[name].launcher.command(launch, 8000)
    words = list(command.words)
    options = {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}
    return options, "".join(command.files.values())


BY_LAYERS, BY_HEAD = Speculation(2.0, 3), Speculation(2.0, 3, draft_model="a/head")


def test_drafts_are_options_only_where_there_are_some() -> None:
    """Three tokens by the checkpoint's own layers, or by an EAGLE-3 head."""
    assert "--speculative-config" not in started("vllm", Speculation())[0]
    layers, head = (json.loads(started("vllm", each)[0]["--speculative-config"]) for each in (BY_LAYERS, BY_HEAD))
    assert layers == {"method": "mtp", "num_speculative_tokens": 3}
    assert head == {"method": "eagle3", "num_speculative_tokens": 3, "model": "a/head"}
    assert not [option for option in started("sglang", Speculation())[0] if "speculative" in option]
    layers, head = (started("sglang", each)[0] for each in (BY_LAYERS, BY_HEAD))
    assert (layers["--speculative-algorithm"], head["--speculative-algorithm"]) == ("EAGLE", "EAGLE3")
    for options in (layers, head):  # the model's own token is verified, too
        assert (options["--speculative-num-steps"], options["--speculative-num-draft-tokens"]) == ("3", "4")
    assert head["--speculative-draft-model-path"] == "a/head"
    assert "--speculative-draft-model-path" not in layers
    assert "speculative" not in started("trtllm", Speculation())[1]
    layers, head = (yaml.safe_load(started("trtllm", each)[1])["speculative_config"] for each in (BY_LAYERS, BY_HEAD))
    assert layers == {"decoding_type": "MTP", "max_draft_len": 3}
    assert head == {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "a/head"}
