"""Drafts and cached prompts: what they cost by hand, what their options may say, and what is assumed of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoauto.engines.registry import engine_named
from autoauto.evaluate.open import load_flow
from autoauto.records.costs.decoder import NO_SPECULATION, Decoder, Speculation, Workload
from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Trial
from autoauto.targets.gpu.costs import DecoderCosts, layer_costs
from autoauto.targets.gpu.entry import GPU
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving, open_tables
from autoauto.targets.gpu.workload import drafts_of, workload_errors
from tests.decoders import decoder_folder

pytest.importorskip("aiconfigurator_core", reason="it has the measured times")

QWEN_8B = Decoder("Qwen3-8B", "Qwen3ForCausalLM", 4096, 36, 32, 8, 128, 12288, 151936, is_tied=False)
DRAFTS = Speculation(2.5, 3)
LONG = Workload(16_000, 256)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder_folder(tmp_path_factory.mktemp("models") / "small")


def costs_of(requests: Workload, batch_size: int = 8, tensor_parallel: int = 1) -> DecoderCosts:
    serving = Serving("h100_sxm", "vllm", tensor_parallel)
    system, engine = system_named("h100_sxm"), engine_named("vllm")
    return layer_costs(QWEN_8B, serving, system, engine, requests, np.array([batch_size]), 8192)


def trial(model: Path, n_ipu: int = 1, batch_size: int = 8, **options: object) -> Trial:
    flow = load_flow(model, "h100_sxm-4", "gpu", options=options)
    return flow.evaluate(Knobs(n_ipu, batch_size=batch_size, engine="vllm", input_tokens=2000, output_tokens=501))


def test_without_drafts_and_cache_a_workload_is_its_lengths() -> None:
    plain = Workload(1000, 100)
    assert (plain.computed_tokens, plain.n_steps, plain.speculation.step_tokens) == (1000, 100.0, 1)
    assert plain == Workload(1000, 100, NO_SPECULATION, 0.0)


def test_a_prompt_is_computed_but_for_its_cached_share_and_always_its_last_token() -> None:
    assert Workload(2000, 1, cached_share=0.75).computed_tokens == 500
    assert Workload(3, 1, cached_share=0.99).computed_tokens == 1


def test_a_verifying_step_costs_as_one_of_more_sequences_whose_keys_are_read_once() -> None:
    """4 tokens of 8 sequences are 32 tokens; 4 heads a key head and 4 tokens are 16 rows of the 64 of a read."""
    plain, drafted = costs_of(LONG), costs_of(LONG._replace(speculation=DRAFTS))
    tables = open_tables(QWEN_8B, Serving("h100_sxm", "vllm"))
    attention, more = (
        tables.decode_attention(np.array([8]), LONG.mean_length),
        tables.decode_tokens(np.array([32])).block - tables.decode_tokens(np.array([8])).block,
    )
    assert drafted.decode_s[1] == pytest.approx(plain.decode_s[1] + more)
    assert plain.decode_s[1] > attention
    assert drafted.cache_bytes.tolist() == plain.cache_bytes.tolist()


def test_a_step_of_prompts_alone_has_their_tokens_and_no_decode_step() -> None:
    """Two prompts of 4,000 tokens have room in a step of 8,192, whose weights are read once."""
    costs, tables = costs_of(Workload(4000, 1), 2), open_tables(QWEN_8B, Serving("h100_sxm", "vllm"))
    both = tables.prompt_tokens(np.array([8000])).block + 2 * tables.prompt_attention(4000)
    assert 2 * costs.prompt_s[1] == pytest.approx(both)
    assert not costs.decode_s.any()


def test_more_rows_than_a_read_has_read_keys_again() -> None:
    """31 drafts with 4 heads of queries a head of keys are 128 rows: keys are read twice."""
    plain, drafted = costs_of(LONG), costs_of(LONG._replace(speculation=Speculation(2.0, 31)))
    tables = open_tables(QWEN_8B, Serving("h100_sxm", "vllm"))
    attention = tables.decode_attention(np.array([8]), LONG.mean_length)
    more = tables.decode_tokens(np.array([8 * 32])).block - tables.decode_tokens(np.array([8])).block
    assert drafted.decode_s[1] == pytest.approx(plain.decode_s[1] + attention + more)


def test_a_draft_takes_its_share_of_a_step() -> None:
    free, costly = (costs_of(LONG._replace(speculation=Speculation(2.5, 3, cost))) for cost in (0.0, 0.5))
    assert costly.decode_s == pytest.approx(1.5 * free.decode_s)
    assert costly.prompt_s == pytest.approx(free.prompt_s)


def test_half_of_a_prompt_in_the_cache_halves_products_and_the_rest_attends_to_all_of_it() -> None:
    whole, half, short = (
        costs_of(requests).prompt_s[1].item()
        for requests in (LONG, LONG._replace(cached_share=0.5), Workload(LONG.input_tokens // 2, 256))
    )
    assert 0.5 * whole < half < 0.85 * whole
    assert half > short, "8,000 tokens behind 8,000 attend to more than 8,000 alone"
    assert costs_of(LONG).cache_bytes.tolist() == costs_of(LONG._replace(cached_share=0.5)).cache_bytes.tolist()


def test_accepted_drafts_give_tokens_sooner_and_cached_prompts_answer_sooner(model: Path) -> None:
    plain, drafted, cached = trial(model), trial(model, accept_length=4, draft_tokens=3), trial(model, cached_share=0.5)
    assert drafted.tokens.tpot_s < 0.5 * plain.tokens.tpot_s
    assert drafted.tokens.tokens_per_s > 2 * plain.tokens.tokens_per_s
    assert cached.tokens.ttft_s < plain.tokens.ttft_s
    assert cached.tokens.tokens_per_s > plain.tokens.tokens_per_s
    assert cached.tokens.kv_cache_bytes == plain.tokens.kv_cache_bytes == drafted.tokens.kv_cache_bytes


def test_drafts_of_which_none_is_accepted_only_cost(model: Path) -> None:
    plain, drafted = trial(model, batch_size=128), trial(model, batch_size=128, draft_tokens=3)
    assert drafted.tokens.tpot_s > plain.tokens.tpot_s


def test_what_was_not_measured_widens_intervals_and_is_said(model: Path) -> None:
    def width(of: Trial) -> tuple[float, float]:
        tokens: Any = of.tokens
        return tokens.tpot_high_s / tokens.tpot_low_s, tokens.ttft_high_s / tokens.ttft_low_s

    plain, drafted, cached = trial(model), trial(model, accept_length=4, draft_tokens=3), trial(model, cached_share=0.5)
    assert width(drafted)[0] > width(plain)[0]
    assert width(cached)[1] > width(plain)[1]
    notes = load_flow(model, "h100_sxm-4", "gpu", options={"draft_tokens": 3, "cached_share": 0.5}).setting.notes
    assert sum("nothing of it was measured" in note for note in notes) == 2
    assert not any("not measured" in note for note in load_flow(model, "h100_sxm-4", "gpu").setting.notes)
    assert workload_errors(NO_SPECULATION, 0.0) == (0.0, 0.0)


def test_a_study_of_another_workload_is_another_one(model: Path) -> None:
    options: list[dict[str, object]] = [{}, {"draft_tokens": 1}, {"cached_share": 0.5}, {"cached_share": 0.25}]
    versions = {load_flow(model, "h100_sxm-4", "gpu", options=each).setting.target.version for each in options}
    assert len(versions) == len(options)


def test_a_pipeline_does_not_draft_and_steps_have_room_for_all_drafts(model: Path) -> None:
    assert trial(model, 2, draft_tokens=3).reason.startswith("vllm drafts tokens where a replica has one stage, got 2")
    assert "needs max_batched_tokens of at least its 256 sequences, of 33 tokens each, got 8,192" in (
        trial(model, batch_size=256, draft_tokens=32).reason
    )
    assert trial(model, 2).runs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"accept_length": 2.0}, "say how many --draft-tokens"),
        ({"draft_cost": 0.1}, "say how many --draft-tokens"),
        ({"draft_model": "a/head"}, "say how many --draft-tokens"),
        ({"accept_length": 3.5, "draft_tokens": 2}, "from 1 to 3"),
        ({"accept_length": 0.5, "draft_tokens": 2}, "from 1 to 3"),
        ({"draft_tokens": 65}, "at most 64, got 65"),
        ({"draft_tokens": 2, "draft_cost": 11}, "a share of a step, at most 10, got 11"),
    ],
)
def test_drafts_that_do_not_go_together_are_refused(given: Mapping[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        drafts_of(GPU.read_options(given))


def test_a_share_is_below_one_and_no_number_is_negative(model: Path) -> None:
    with pytest.raises(BadInput, match="from 0 to below 1, since the last token is computed, got 1"):
        load_flow(model, "h100_sxm-4", "gpu", options={"cached_share": 1})
    for value in (-0.5, float("nan"), float("inf"), True, "0.5"):
        with pytest.raises(BadInput, match="--cached-share must be a number from 0, got"):
            GPU.read_options({"cached_share": value})


def test_layers_that_draft_are_read_of_a_config_and_a_draft_that_lacks_is_said(tmp_path: Path) -> None:
    for name, layers in (("with", {"num_nextn_predict_layers": 1}), ("without", {"num_nextn_predict_layers": 0})):
        folder = decoder_folder(tmp_path / name, **layers)
        flow = load_flow(folder, "h100_sxm-1", "gpu", options={"draft_tokens": 1})
        needs = flow.setting.needs(Knobs(1, engine="vllm", input_tokens=8, output_tokens=8).session)
        assert needs == (
            "" if layers["num_nextn_predict_layers"] else "vllm needs an EAGLE-3 head of the model (--draft-model)"
        )
