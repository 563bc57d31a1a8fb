"""Text that decoders generate on groups of GPUs: plans against all cuts, memory by hand, and what is refused."""

from __future__ import annotations

import pickle
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.decoder import Workload
from autoauto.records.errors import BadInput, Unsupported
from autoauto.records.plans.plan import Plan
from autoauto.records.target import Origin
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status
from autoauto.study.defaults import default_space
from autoauto.targets.gpu.calibration import HELD, Group, unmeasured
from autoauto.targets.gpu.family_errors import DENSE, ErrorKey
from autoauto.targets.gpu.tables import Serving
from autoauto.targets.gpu.target import GpuTarget
from tests.decoders import decoder_folder
from tests.drawn import daily

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
UNMEASURED = unmeasured(ErrorKey(DENSE))
REQUESTS = {"input_tokens": 512, "output_tokens": 128}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder_folder(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def flow(model: Path) -> Flow:
    return load_flow(model, "h100_sxm-4", "gpu")


def serving(n_ipu: int, batch_size: int, replicas: int = 1, tensor_parallel: int = 1, **values: object) -> Knobs:
    chosen: dict[str, Any] = {"engine": "vllm", "tensor_parallel": tensor_parallel, **REQUESTS, **values}
    return Knobs(n_ipu, batch_size, replicas, **chosen)


@pytest.mark.parametrize("n_stages", [2, 3, 4])
@pytest.mark.parametrize("batch_size", [1, 64])
def test_no_cuts_give_more_than_the_plan(flow: Flow, model: Path, n_stages: int, batch_size: int) -> None:
    best = flow.forecast(serving(n_stages, batch_size))
    decoder, requests, rates = decoder_of(model), Workload(512, 128), {}
    for cuts in combinations(range(1, 6), n_stages - 1):
        n_blocks = tuple(stop - start for start, stop in pairwise((0, *cuts, 6)))
        partition = (0, *(cut + 1 for cut in cuts), 9)  # the embedding is with the first, norm and head with the last
        rates[partition] = FixedReplicas(decoder, Serving("h100_sxm", "vllm"), requests, n_blocks).rates(batch_size)
    assert isinstance(best.plan, Plan)
    assert best.samples_per_s == rates[best.plan.partition].tokens_per_s.item()
    assert best.samples_per_s == max(each.tokens_per_s.item() for each in rates.values())


def test_the_stage_with_the_head_has_fewer_blocks(flow: Flow) -> None:
    first, last = flow.predict(serving(2, 64)).stages
    assert len(range(*first.layers)) - 1 > len(range(*last.layers)) - 2


def test_a_pipeline_of_one_has_no_cut_and_replicas_add_up(flow: Flow) -> None:
    single, four = flow.forecast(serving(1, 32)), flow.forecast(serving(1, 32, replicas=4))
    assert isinstance(single.estimate, Plan)
    assert single.estimate.partition == (0, 9)
    assert four.tokens.tokens_per_s == pytest.approx(4 * (single.tokens.tokens_per_s or 0))
    assert (four.tokens.tpot_s, four.tokens.ttft_s) == (single.tokens.tpot_s, single.tokens.ttft_s)
    assert single.samples_per_s == single.tokens.tokens_per_s
    assert single.latency_s == pytest.approx((single.tokens.ttft_s or 0) + 127 * (single.tokens.tpot_s or 0))


def test_memory_is_weights_and_keys_and_values_of_all_micro_batches_in_flight(flow: Flow, model: Path) -> None:
    decoder, knobs = decoder_of(model), serving(2, 16)
    first, last = flow.predict(knobs).stages
    n_first, n_last = len(range(*first.layers)) - 1, len(range(*last.layers)) - 2
    cache = 2 * 8 * 64 * 2 * (512 + 128) * 16 * 2  # keys and values of 8 heads in bf16, of two micro-batches
    assert (first.memory_bytes["KV cache"], last.memory_bytes["KV cache"]) == (n_first * cache, n_last * cache)
    block = 2 * (sum(decoder.part_weights(1).values())) + 2 * 2 * 2048
    table = 2 * 128256 * 2048
    assert first.memory_bytes["weights"] == n_first * block + table
    assert last.memory_bytes["weights"] == n_last * block + table


def test_one_stage_holds_a_tied_table_once_and_two_stages_hold_it_each(flow: Flow, tmp_path: Path) -> None:
    tied = load_flow(decoder_folder(tmp_path / "tied", tie_word_embeddings=True), "h100_sxm-4", "gpu")
    table = 2 * 128256 * 2048
    for n_ipu, n_saved in ((1, 1), (2, 0)):
        knobs = serving(n_ipu, 8)
        held, untied = (sum(s.memory_bytes["weights"] for s in each.predict(knobs).stages) for each in (tied, flow))
        assert untied - held == n_saved * table


def test_a_cache_that_does_not_fit_is_a_trial_with_its_missing_bytes(flow: Flow) -> None:
    trial = flow.evaluate(serving(1, 16384))
    assert trial.status is Status.INFEASIBLE
    assert trial.excess_bytes > 0
    assert flow.evaluate(serving(1, 64)).origin is Origin.MODELLED


def test_more_gpus_a_group_hold_larger_batches(flow: Flow) -> None:
    def largest(tensor_parallel: int) -> int:
        sizes = (1024 * i for i in range(1, 50))
        values = {"tensor_parallel": tensor_parallel, "max_batched_tokens": 2**17}
        return max(b for b in sizes if flow.forecast(serving(1, b, **values)).runs)

    assert largest(4) > largest(2) > largest(1)


def test_what_a_group_cannot_do_is_a_trial_that_says_so(flow: Flow) -> None:
    trial = flow.forecast(serving(1, 8, tensor_parallel=3))
    assert trial.status is Status.UNSUPPORTED
    assert "must divide the 32 heads" in trial.reason


def test_a_bound_on_the_time_of_a_token_is_a_constraint(flow: Flow) -> None:
    free = flow.forecast(serving(1, 64))
    assert free.tokens.tpot_s is not None
    bound = Constraint(f"tpot_s <= {free.tokens.tpot_s / 2}")
    trial = flow.with_setting(constraints=(bound,)).forecast(serving(1, 64))
    assert trial.status is Status.CONSTRAINED
    assert trial.violation == pytest.approx(2 * UNMEASURED.tpot.held - 1)


def test_an_answer_says_how_likely_its_bounds_hold(flow: Flow) -> None:
    free = flow.evaluate(serving(1, 64))
    assert free.tokens.bounds_probability is None
    for share in (0.3, HELD, 0.9):
        bounds = [f"tpot_s <= {UNMEASURED.tpot.at(share) * free.tokens.tpot_s}", "kv_cache_bytes <= 1e15"]
        trial = flow.with_setting(constraints=tuple(map(Constraint, bounds))).evaluate(serving(1, 64))
        assert trial.tokens.bounds_probability == pytest.approx(share, abs=0.005)
        assert (trial.status is Status.OK) is (share >= HELD - 0.01)


def test_with_measured_rows_it_must_hold_at_the_end_of_the_interval_that_enough_rows_keep(
    model: Path, tmp_path: Path
) -> None:
    options = {"measured": str(rows(tmp_path / "rows.csv", model, 0.02))}
    calibrated = load_flow(model, "h100_sxm-4", "gpu", options=options)
    free = calibrated.forecast(serving(1, 64))
    assert free.tokens.tpot_s is not None
    assert free.tokens.tpot_high_s is not None
    for times, status in ((1.001, Status.CONSTRAINED), (free.tokens.tpot_high_s / free.tokens.tpot_s, Status.OK)):
        bound = Constraint(f"tpot_s <= {times * free.tokens.tpot_s}")
        trial = calibrated.with_setting(constraints=(bound,)).forecast(serving(1, 64))
        assert trial.status is status
        assert trial.tokens.tpot_s == free.tokens.tpot_s, "what is shown is the forecast"
        if status is Status.CONSTRAINED:
            assert trial.reason.endswith("at the end of the interval that 65 % of measured rows keep")


def test_a_bound_on_a_request_holds_at_the_ends_of_both_latencies(flow: Flow) -> None:
    free = flow.forecast(serving(1, 64))
    assert free.tokens.tpot_s is not None
    assert free.tokens.ttft_s is not None
    latency_s = free.tokens.ttft_s * UNMEASURED.ttft.held + 127 * free.tokens.tpot_s * UNMEASURED.tpot.held
    for name in ("request_latency_s", "latency_s"):
        for times, status in ((0.999, Status.CONSTRAINED), (1.001, Status.OK)):
            bound = Constraint(f"{name} <= {times * latency_s}")
            assert flow.with_setting(constraints=(bound,)).forecast(serving(1, 64)).status is status


def test_a_bound_on_throughput_holds_at_its_lower_end(flow: Flow) -> None:
    free = flow.forecast(serving(1, 64))
    assert free.tokens.tokens_per_s is not None
    for share, status in ((0.999, Status.OK), (1.001, Status.CONSTRAINED)):
        bound = Constraint(f"tokens_per_s >= {share * free.tokens.tokens_per_s / UNMEASURED.tpot.held}")
        assert flow.with_setting(constraints=(bound,)).forecast(serving(1, 64)).status is status


def rows(path: Path, model: Path, tpot_s: float, system: str = "h100_sxm") -> Path:
    columns = "model,engine,system,precision,tensor_parallel,n_ipu,batch_size,input_tokens,output_tokens,tpot_s\n"
    path.write_text(columns + f"{model},vllm,{system},bf16,1,1,64,512,128,{tpot_s}\n" * 3)
    return path


def calibrated(path: Path, model: Path, cluster: str = "h100_sxm-4") -> Flow:
    return load_flow(model, cluster, "gpu", options={"measured": str(path)})


def test_measured_rows_multiply_forecasts_and_narrow_their_intervals(flow: Flow, model: Path, tmp_path: Path) -> None:
    plain = flow.forecast(serving(1, 64))
    slow = calibrated(rows(tmp_path / "rows.csv", model, 2 * (plain.tokens.tpot_s or 0)), model)
    target = slow.target
    assert isinstance(target, GpuTarget)
    factor = target.calibration.of(Group("small", "vllm", "h100_sxm", "bf16")).tpot.factor
    assert 1.7 < factor < 2.0
    for knobs in (serving(1, 64), serving(2, 8, 2)):
        before, after = flow.forecast(knobs), slow.forecast(knobs)
        assert after.tokens.tpot_s == pytest.approx(factor * (before.tokens.tpot_s or 0))
        assert after.tokens.tokens_per_s == pytest.approx((before.tokens.tokens_per_s or 0) / factor)
        assert after.samples_per_s == slow.evaluate(knobs).samples_per_s == after.tokens.tokens_per_s
        assert after.tokens.ttft_s == before.tokens.ttft_s, "no first word was measured"
        assert (after.tokens.tpot_low_s or 0) < (after.tokens.tpot_s or 0) < (after.tokens.tpot_high_s or 0)
        widths = [(each.tokens.tpot_high_s or 0) / (each.tokens.tpot_low_s or 1) for each in (after, before)]
        assert widths[0] < widths[1]
    other = serving(1, 64, engine="trtllm")
    assert slow.forecast(other).tokens.tpot_s == flow.forecast(other).tokens.tpot_s


def test_a_study_of_other_measured_rows_is_another_one(flow: Flow, model: Path, tmp_path: Path) -> None:
    first, second = (calibrated(rows(tmp_path / f"{t}.csv", model, t), model) for t in (0.01, 0.02))
    versions = [each.setting.fingerprint()["target"] for each in (flow, first, second)]
    assert len(set(versions)) == 3


def test_what_was_fitted_and_at_which_end_bounds_hold_is_said(flow: Flow, model: Path, tmp_path: Path) -> None:
    said = flow.setting.notes
    assert "bounds on latency are kept by an end of the interval that 65 % keep" in said
    first, *others = calibrated(rows(tmp_path / "rows.csv", model, 0.01), model).setting.notes
    assert " from 3 measured rows of small in bf16 by vllm on h100_sxm" in first
    assert tuple(others) == said
    elsewhere = calibrated(rows(tmp_path / "rows.csv", model, 0.01, "l40s"), model).setting.notes
    assert elsewhere[0] == "no measured row is of h100_sxm, so forecasts are as without"


def test_unlike_gpus_have_the_factor_of_the_slowest_stage(model: Path, tmp_path: Path) -> None:
    """Stages of two systems; all rows are of one of them, so a factor is 1 or that of the rows."""
    cluster, knobs = "h100_sxm-2+l40s-2", serving(4, 32)
    plain = load_flow(model, cluster, "gpu").forecast(knobs)
    ratios = []
    for system in ("h100_sxm", "l40s"):
        flow = calibrated(rows(tmp_path / f"{system}.csv", model, 0.1, system), model, cluster)
        ratios.append((flow.forecast(knobs).tokens.tpot_s or 0) / (plain.tokens.tpot_s or 1))
    assert min(ratios) == pytest.approx(1.0)
    assert max(ratios) > 2.0


@pytest.mark.parametrize("name", ["tpot_s", "ttft_s", "tokens_per_s", "kv_cache_bytes", "request_latency_s"])
def test_bounds_on_text_are_refused_where_none_is_generated(name: str) -> None:
    with pytest.raises(BadInput, match=f"^{name} is of text that is generated, got .*; try --target gpu$"):
        load_flow("resnet50", constraints=(Constraint(f"{name} <= 1"),))


def test_a_pipeline_of_unlike_gpus_is_no_slower_than_its_best_part(model: Path) -> None:
    """Two H100 and two L40S: of both kinds together never less than of one alone."""
    mixed = load_flow(model, "h100_sxm-2+l40s-2", "gpu")
    alone = load_flow(model, "h100_sxm-2", "gpu")
    assert mixed.cluster.kinds
    four, two = mixed.forecast(serving(4, 32)), alone.forecast(serving(2, 32))
    assert isinstance(four.estimate, Plan)
    assert sorted(stage.device_kind for stage in four.estimate.stages) == ["h100_sxm"] * 2 + ["l40s"] * 2
    parts = [mixed.forecast(serving(2, 32)), mixed.forecast(serving(1, 32, replicas=2))]
    assert max(each.samples_per_s for each in parts) >= two.samples_per_s


@pytest.mark.parametrize("bounds", [(), ("ttft_s <= 0.02",), ("tpot_s <= 0.006",)])
def test_unlike_gpus_give_no_less_than_those_of_one_kind_with_the_same_knobs(
    model: Path, bounds: tuple[str, ...]
) -> None:
    constraints = tuple(map(Constraint, bounds))
    mixed, *parts = (
        load_flow(model, cluster, "gpu", constraints=constraints)
        for cluster in ("h100_sxm-3+l40s-4", "h100_sxm-3", "l40s-4")
    )
    for part, (n_ipu, replicas, n_gpus) in product(parts, [(3, 1, 1), (1, 3, 1), (2, 1, 1), (1, 1, 2)]):
        for batch_size in (1, 16, 128):
            knobs = serving(n_ipu, batch_size, replicas, n_gpus)
            alone, together = part.forecast(knobs), mixed.forecast(knobs)
            (of_cell,) = mixed.forecasts([knobs])
            if alone.status is Status.OK:
                assert together.status is of_cell.status is Status.OK
                assert min(together.samples_per_s, of_cell.samples_per_s) >= alone.samples_per_s * (1 - 1e-6)


def test_pipelines_of_one_kind_stand_on_its_gpus(model: Path) -> None:
    mixed = load_flow(model, "h100_sxm-2+l40s-4", "gpu", constraints=(Constraint("ttft_s <= 1"),))
    trial = mixed.forecast(serving(4, 32))
    assert isinstance(trial.estimate, Plan)
    for plan in trial.estimate.plans:
        for devices in plan.placement:
            names = [mixed.cluster.devices[mixed.cluster.index(devices[stage.device])].name for stage in plan.stages]
            assert names == [stage.device_kind for stage in plan.stages]


def test_what_engines_do_not_do_with_unlike_gpus_is_said(model: Path, flow: Flow) -> None:
    said = "groups of one size in all stages and replicas, since vllm, sglang, trtllm are each told one size"
    assert said in load_flow(model, "h100_sxm-2+l40s-2", "gpu").setting.notes
    assert said not in flow.setting.notes


def test_sequences_are_no_longer_than_the_positions_of_the_model(tmp_path: Path) -> None:
    short = load_flow(decoder_folder(tmp_path / "short", max_position_embeddings=640), "h100_sxm-4", "gpu")
    assert short.forecast(serving(1, 8)).runs
    refused = short.forecast(serving(1, 8, output_tokens=129))
    assert refused.status is Status.UNSUPPORTED
    assert "short has 640 positions, got 512 input tokens and 129 output tokens" in refused.reason


def test_groups_of_unlike_gpus_are_of_one_kind_each(model: Path) -> None:
    mixed = load_flow(model, "h100_sxm-3+l40s-2", "gpu")
    plan = mixed.predict(serving(2, 8, tensor_parallel=2))
    assert sorted(stage.device_kind for stage in plan.stages) == ["h100_sxm", "l40s"]
    assert not mixed.forecast(serving(1, 8, tensor_parallel=4)).runs


def test_the_default_space_uses_groups_of_gpus_and_no_knobs_of_other_targets(flow: Flow) -> None:
    space = default_space(flow)
    assert space["tensor_parallel"] == (1, 2, 4, 8)
    assert {knobs.n_devices for cell in space.cells for knobs in cell} == {1, 2, 3, 4}
    assert space["n_ipu"] == (1, 2, 3, 4)
    assert {type(knobs.mode).__name__ for cell in space.cells for knobs in cell} == {"Generation"}
    assert space["memory_proportion"] == ()


def test_experts_are_dealt_as_engines_can() -> None:
    flow = load_flow("Qwen/Qwen3-30B-A3B", "h100_sxm-4", "gpu")
    sessions = [cell[0].session.values for cell in default_space(flow).cells]
    names = ("attention_data_parallel", "tensor_parallel", "expert_parallel")
    splits = {
        engine: {tuple(each[name] for name in names) for each in sessions if each["engine"] == engine}
        for engine in ("vllm", "sglang", "trtllm")
    }
    dealt = {engine: {each[1:] for each in of_engine if each[0] == 1} for engine, of_engine in splits.items()}
    assert dealt["vllm"] == {(1, 1), (2, 1), (2, 2), (4, 1), (4, 4)}
    assert dealt["sglang"] == dealt["trtllm"] == dealt["vllm"] | {(4, 2)}
    ranks = {engine: {each for each in of_engine if each[0] > 1} for engine, of_engine in splits.items()}
    assert ranks["vllm"] == {(2, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 4), (4, 1, 1), (4, 1, 4)}
    assert ranks["sglang"] == ranks["vllm"] | {(2, 2, 2), (4, 1, 2)}
    assert ranks["trtllm"] == {each for each in ranks["sglang"] if each[1] == 1}
    with pytest.raises(BadInput, match=r"vllm deals experts among 1 or 4 of 4 GPUs of a group, got 3"):
        default_space(flow).with_values(engine=("vllm",), tensor_parallel=(4,), expert_parallel=(3,))


def test_knobs_of_other_targets_and_modes_are_refused(flow: Flow) -> None:
    for values, message in (
        ({"streams": (2,)}, "--streams is for --runtime openvino, got none"),
        ({"memory_proportion": (0.6,)}, "--target gpu has no --memory-proportion"),
        ({"schedule": ("gpipe",)}, "the gpu target runs inference, got --mode training"),
    ):
        with pytest.raises(BadInput, match=message):
            flow.checked(SearchSpace((1,), batch_size=(1,), **values))
    with pytest.raises(BadInput, match="--target ipu generates no text, got --input-tokens; leave it out"):
        load_flow("resnet50").checked(SearchSpace((1,), batch_size=(1,), input_tokens=(8,), output_tokens=(8,)))


def test_a_graph_is_no_decoder(flow: Flow) -> None:
    with pytest.raises(BadInput, match="--target gpu serves a decoder, whose inputs are tokens"):
        load_flow(flow.graph, "h100_sxm-4", "gpu")


def test_a_group_larger_than_a_machine_is_a_trial_that_says_so(model: Path, tmp_path: Path) -> None:
    trial = load_flow(model, "h100_sxm-16", "gpu").forecast(serving(1, 8, tensor_parallel=16))
    assert not trial.runs
    assert "a group lies inside a node, which has 8 GPUs in h100_sxm" in trial.reason


@pytest.mark.parametrize(("engine", "runs"), [("vllm", False), ("trtllm", True)])
def test_steps_have_room_for_the_sequences_that_an_engine_counts(flow: Flow, engine: str, runs: bool) -> None:
    """vLLM counts those of both micro-batches, TensorRT-LLM those of one."""
    trial = flow.forecast(serving(2, 200, engine=engine, max_batched_tokens=300))
    assert trial.runs is runs
    assert runs or "needs max_batched_tokens of at least its 400 sequences, got 300" in trial.reason


def test_plans_of_unlike_gpus_have_room_for_the_sequences_too(model: Path) -> None:
    mixed = load_flow(model, "h100_sxm-2+l40s-2", "gpu")
    with pytest.raises(Unsupported, match="needs max_batched_tokens of at least its 400 sequences, got 300"):
        mixed.predict(serving(2, 200, max_batched_tokens=300))


@pytest.mark.parametrize("cluster", daily(["h100_sxm-3+l40s-2", "l40s-3", "h100_sxm-12", "b60-2+h100_sxm-2"], 2))
def test_forecasts_of_a_whole_cell_are_those_of_its_configurations(model: Path, cluster: str) -> None:
    flow, sizes = load_flow(model, cluster, "gpu"), (1, 16, 200, 512)
    shapes = ((1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 3, 1), (3, 1, 1), (2, 1, 2), (1, 1, 8))
    for (n_ipu, replicas, group), engine in product(shapes, ("vllm", "sglang")):
        cell = [serving(n_ipu, b, replicas, group, engine=engine) for b in sizes]
        for quick in flow.forecasts(cell):
            plain = flow.forecast(quick.knobs)
            assert (quick.runs, quick.excess_bytes) == (plain.runs, plain.excess_bytes), plain.reason
            for name in ("tokens_per_s", "tpot_s", "ttft_s", "kv_cache_bytes"):
                assert getattr(quick.tokens, name) == pytest.approx(getattr(plain.tokens, name), rel=1e-12)


def test_forecasts_of_a_cell_keep_constraints_at_the_same_end(model: Path, tmp_path: Path) -> None:
    options = {"measured": str(rows(tmp_path / "rows.csv", model, 0.02))}
    bounds = (Constraint("tpot_s <= 0.03 and request_latency_s < 9"), Constraint("batch_size * replicas > 16"))
    flow = load_flow(model, "h100_sxm-4", "gpu", options=options, constraints=bounds)
    cell = [serving(2, b, 2) for b in (4, 16, 100, 300)]
    for quick in flow.forecasts(cell):
        plain = flow.forecast(quick.knobs)
        assert quick.status is plain.status
        assert quick.violation == pytest.approx(plain.violation, rel=1e-6)


def test_a_configuration_without_an_engine_or_requests_is_refused(flow: Flow) -> None:
    with pytest.raises(BadInput, match="has an engine, got none"):
        flow.forecast(Knobs(1, 1, **REQUESTS))  # type: ignore[arg-type]


def test_a_flow_is_pickled_for_processes_that_measure(flow: Flow) -> None:
    again = pickle.loads(pickle.dumps(flow))
    assert again.evaluate(serving(2, 8)).tokens_per_s == flow.evaluate(serving(2, 8)).tokens.tokens_per_s
