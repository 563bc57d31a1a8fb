from autoauto.cli.output.search_result import describe_best, describe_result
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.run import SearchResult

STAGE = Stage(LayerRange(0, 3), 0, 90, 0, 4, 6, {"parameter": 70}, 100)
BEST = Trial(
    Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2),
    Status.OK,
    measured=Plan((STAGE,)),
    samples_per_s=20.0,
    latency_s=0.5,
    number=7,
    values=(20.0,),
)


def test_the_best_trial_has_its_knobs_and_costs() -> None:
    record = describe_best(BEST)
    assert (record["n_ipu"], record["memory_proportion"], record["batch_size"]) == (1, 0.6, 2)
    assert (record["partition"], record["cost_cycles"], record["trial"]) == ([0, 3], 100, 7)
    assert (record["samples_per_s"], record["latency_s"], record["value"], record["values"]) == (20, 0.5, 20, (20,))
    assert record["stages"][0]["total_bytes"] == 70


def test_a_search_without_a_best_has_the_reason_of_every_cell() -> None:
    space = SearchSpace((1, 2), (0.6,), (2, 4))
    trials = (
        Trial(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4), Status.INFEASIBLE, "no plan"),
        Trial(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2), Status.OUT_OF_MEMORY, "too large"),
    )
    result = SearchResult(None, "s", {trial.knobs: trial for trial in trials}, space)
    assert describe_result(result, "sqlite:///x.db") == {
        "best": None,
        "n_configurations": 4,
        "n_tried": 2,
        "n_measured": 1,
        "assumed": [],
        "study_name": "s",
        "storage": "sqlite:///x.db",
        "cells": [
            {
                "n_ipu": 1,
                "memory_proportion": 0.6,
                "io_tiles": 0,
                "batch_size": None,
                "schedule": "inference",
                "recompute": False,
                "n_micro_batches": 1,
                "stages_per_device": 1,
                "replicas": 1,
                "cores_per_device": 1,
                "stage_replicas": False,
                "runtime": None,
                "precision": None,
                "streams": 1,
                "spinning": True,
                "graph_optimization": "all",
                "cuda_graph": True,
                "channels_last": False,
                "prompt_threads": 0,
                "n_batch": 2048,
                "n_ubatch": 512,
                "flash_attention": "auto",
                "cache_type": "f16",
                "engine": None,
                "tensor_parallel": 1,
                "expert_parallel": 1,
                "kv_cache_precision": None,
                "max_batched_tokens": 8192,
                "attention_data_parallel": 1,
                "prefill_workers": 0,
                "prefill_tensor_parallel": 1,
                "prefill_expert_parallel": 1,
                "prefill_attention_data_parallel": 1,
                "prefill_batch_size": 1,
                "prefill_kind": 1,
                "input_tokens": 0,
                "output_tokens": 0,
                "optimizer": "sgd",
                "master_weights": False,
                "shard_optimizer": False,
                "optimizer_state": "auto",
                "strategy": "pipeline",
                "samples_per_s": 0.0,
                "reason": "too large",
                "too_large": 2,
            }
        ],
    }


def test_no_password_is_printed() -> None:
    result = SearchResult(None, "s", {}, SearchSpace())
    assert describe_result(result, "postgresql://me:secret@host/trials")["storage"] == "postgresql://me:***@host/trials"
