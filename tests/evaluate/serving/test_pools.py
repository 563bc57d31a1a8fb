"""Prefill and decode apart: worker counts against all of them, rates against bounds, and what is refused."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

import autoauto
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.evaluate.serving.flow import ServingFlow
from autoauto.evaluate.serving.pools.fixed import FixedPools
from autoauto.evaluate.serving.pools.rates import queue_s, transfer_s
from autoauto.evaluate.serving.pools.ways import prefill_of
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.decoder import Workload
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import POOLS
from autoauto.space.trial import Status, Trial
from autoauto.study.defaults import default_space
from autoauto.study.store.database import attributes_of
from autoauto.study.store.study import load_study
from autoauto.study.store.table import trials_dataframe
from autoauto.targets.gpu.nodes import NodeGpus, free_groups
from autoauto.targets.gpu.session import GpuSession, PrefillPool
from autoauto.targets.gpu.tables import Serving
from tests.decoders import decoder_folder

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
REQUESTS = {"input_tokens": 2048, "output_tokens": 64}
LENGTHS = Workload(2048, 64)
SIZES = (8, 64, 256)
VALUES: dict[str, Any] = {
    "engine": ("vllm",),
    "tensor_parallel": (1, 2),
    "expert_parallel": (1,),
    "attention_data_parallel": (1,),
    "n_ipu": (1,),
    "batch_size": SIZES,
    "input_tokens": (2048,),
    "output_tokens": (64,),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder_folder(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def flow(model: Path) -> Flow:
    return load_flow(model, "h100_sxm-6", "gpu")


def pooled(batch_size: int = 64, replicas: int = 2, prefill_workers: int = 2, **values: Any) -> Knobs:
    chosen = {"engine": "vllm", **REQUESTS, "prefill_workers": prefill_workers, **values}
    return Knobs(1, batch_size, replicas, **chosen)


def served_alone(model: Path, system: str, tensor_parallel: int, requests: Workload) -> FixedReplicas:
    serving = Serving(system, "vllm", tensor_parallel)
    return FixedReplicas(decoder_of(model), serving, requests, (6,))


class Server(NamedTuple):
    """Requests a second of a server, on so many GPUs of a system."""

    system: str
    n_gpus: int
    per_s: float


def workers_and_replicas(model: Path, systems: list[str]) -> tuple[list[Server], list[Server]]:
    """Every prefill worker and every replica, one by one, without the search."""
    workers, replicas = list[Server](), list[Server]()
    for system, tensor_parallel in product(systems, (1, 2)):
        of_prompts = served_alone(model, system, tensor_parallel, Workload(2048, 1))
        of_answers = served_alone(model, system, tensor_parallel, Workload(2048, 64, cached_share=1.0))
        for n in (1, 2, 4):
            workers.append(Server(system, tensor_parallel, of_prompts.rates(n).requests_per_s.item()))
        for n in SIZES:
            replicas.append(Server(system, tensor_parallel, of_answers.rates(n).requests_per_s.item()))
    return workers, replicas


def exhaustive(model: Path, n_gpus: dict[str, int]) -> float:
    """The most requests a second over all pairs of servers and all of their numbers; each system is one node."""
    best = 0.0
    for worker, replica in product(*workers_and_replicas(model, list(n_gpus))):
        for n_workers, n_replicas in product(range(1, 9), range(1, 9)):
            used = dict.fromkeys(n_gpus, 0)
            used[worker.system] += n_workers * worker.n_gpus
            used[replica.system] += n_replicas * replica.n_gpus
            if all(used[system] <= most for system, most in n_gpus.items()):
                best = max(best, min(n_workers * worker.per_s, n_replicas * replica.per_s))
    return best


def best_of(flow: Flow, **changes: Any) -> Trial:
    assert isinstance(flow.serving, ServingFlow)
    best = flow.serving.best_pools({**VALUES, **changes})
    assert best is not None
    return best


@pytest.mark.parametrize(
    ("cluster", "n_gpus"),
    [
        ("h100_sxm-3", {"h100_sxm": 3}),
        ("h100_sxm-6", {"h100_sxm": 6}),
        ("h100_sxm-2+l40s-4", {"h100_sxm": 2, "l40s": 4}),
        ("h100_sxm-4+l40s-2", {"h100_sxm": 4, "l40s": 2}),
    ],
)
def test_no_numbers_of_servers_give_more(model: Path, cluster: str, n_gpus: dict[str, int]) -> None:
    best = best_of(load_flow(model, cluster, "gpu"))
    assert best.samples_per_s / 64 == pytest.approx(exhaustive(model, n_gpus))


def test_numbers_of_replicas_may_be_given(flow: Flow) -> None:
    assert isinstance(flow.serving, ServingFlow)
    best = flow.serving.best_pools(VALUES, (1,))
    assert best is not None
    assert best.knobs.replicas == 1


def test_the_slower_pool_gives_the_rate(flow: Flow, model: Path) -> None:
    workers = served_alone(model, "h100_sxm", 1, Workload(2048, 1)).rates(1).requests_per_s.item()
    replicas = served_alone(model, "h100_sxm", 1, Workload(2048, 64, cached_share=1.0)).rates(64)
    for n_workers, n_replicas in ((1, 4), (2, 2), (4, 1)):
        tokens = flow.forecast(pooled(replicas=n_replicas, prefill_workers=n_workers)).tokens
        per_s = min(n_workers * workers, n_replicas * replicas.requests_per_s.item())
        assert tokens.tokens_per_s == pytest.approx(64 * per_s)
        assert tokens.tpot_s == pytest.approx(replicas.tpot_s.item())
        assert tokens.prefill_busy_share == pytest.approx(per_s / (n_workers * workers))


def test_steps_without_prompts_are_faster_and_more_workers_shorten_the_wait(flow: Flow) -> None:
    single = flow.forecast(pooled(prefill_workers=0)).tokens
    few, many = (flow.forecast(pooled(replicas=1, prefill_workers=n)).tokens for n in (2, 5))
    assert few.tpot_s < single.tpot_s
    assert many.ttft_s < few.ttft_s


def test_the_cache_moves_over_the_network_where_one_node_has_no_room(model: Path) -> None:
    near, far = (load_flow(model, name, "gpu").forecast(pooled()).tokens for name in ("h100_sxm-4", "h100_sxm-2+2"))
    assert near.kv_transfer_s is not None
    assert far.kv_transfer_s is not None
    assert near.kv_transfer_s < far.kv_transfer_s
    assert far.ttft_s - near.ttft_s == pytest.approx((far.kv_transfer_s - near.kv_transfer_s), rel=0.01)


def test_a_transfer_is_bytes_over_a_link_that_each_gpu_has(model: Path) -> None:
    decoder, link = decoder_of(model), Link(1e9, 1000)
    alone, group = (Serving("h100_sxm", "vllm", n) for n in (1, 2))
    n_bytes = 2 * 8 * 64 * 2 * 6 * 2048  # keys and values of 8 heads of 64, in 2 bytes, of 6 blocks
    assert transfer_s(decoder, alone, group, 1, 2048, link) == pytest.approx(1e-6 + n_bytes / 1e9)
    assert transfer_s(decoder, group, group, 1, 2048, link) == pytest.approx(1e-6 + n_bytes / 2 / 1e9)


def test_requests_wait_as_long_as_in_a_queue_that_is_simulated() -> None:
    """Random arrivals, and services that all take a second."""
    for n_servers, busy in ((1, 0.7), (3, 0.8)):
        random, now, waited = Random(1), 0.0, 0.0
        free = [0.0] * n_servers
        for _ in range(200_000):
            now += random.expovariate(busy * n_servers)
            first = min(range(n_servers), key=free.__getitem__)
            start = max(now, free[first])
            waited += start - now
            free[first] = start + 1.0
        assert queue_s(1.0, n_servers, np.array(busy)).item() == pytest.approx(waited / 200_000, rel=0.1)


def test_clients_are_conserved(model: Path) -> None:
    """By Little's law those that wait and those that are answered are all, and more do not exceed the workers."""
    replicas = served_alone(model, "h100_sxm", 1, LENGTHS)
    pools = FixedPools.of(replicas, replicas, 1)
    n_waves, most = replicas.arrivals.n_waves, pools.prefill_rates().requests_per_s
    for n_clients in (1, 8, 64, 512):
        rates = pools.closed_loop(n_clients)
        per_s = rates.requests_per_s.item()
        first_s = rates.ttft_s.item() - n_clients / most / 2 / n_waves
        assert per_s * (first_s + 63 * rates.tpot_s.item()) == pytest.approx(n_clients, rel=1e-3)
        assert per_s <= most * (1 + 1e-6)
    assert per_s == pytest.approx(most, rel=0.01)


def test_a_search_of_both_is_never_below_one_pool(model: Path, tmp_path: Path) -> None:
    space = {"engine": ["vllm"], "batch_size": [8, 64, 256], **{name: [n] for name, n in REQUESTS.items()}}
    url = f"sqlite:///{tmp_path}/studies.db"
    answers = {
        pools: autoauto.search(
            model, "h100_sxm-6", space, options={"pools": pools}, storage=url, study_name=f"of {pools}", strict=True
        )
        for pools in ("1", "2", "1,2")
    }
    assert answers["1,2"].samples_per_s == max(answers["1"].samples_per_s, answers["2"].samples_per_s)
    assert answers["1"].knobs.session.values["prefill_workers"] == 0
    assert answers["2"].knobs.session.values["prefill_workers"] > 0
    stored = trials_dataframe("of 2", url)
    best = stored[stored["value"] == stored["value"].max()].iloc[0]
    own = answers["2"].knobs.session.values
    assert all(best[name] == own[name] for name in own if name.startswith("prefill_"))
    text = attributes_of(load_study(url, "of 1,2"))[POOLS]
    assert text.startswith(("one pool: ", "two pools: "))
    autoauto.search(model, "h100_sxm-6", space, options={"pools": "1,2"}, storage=url, study_name="of 1,2", strict=True)
    assert attributes_of(load_study(url, "of 1,2"))[POOLS] == text, "as in the search that made the forecasts"
    assert best["kv_transfer_s"] == answers["2"].tokens.kv_transfer_s


def test_of_pools_with_one_rate_the_workers_that_wait_most_are_chosen(flow: Flow) -> None:
    best = best_of(flow, batch_size=(8,))
    prefill = prefill_of(best.knobs)
    others = [
        best.knobs.with_values(
            prefill_workers=prefill.n_gpus // n_gpus, prefill_tensor_parallel=n_gpus, prefill_batch_size=n_prompts
        )
        for n_gpus, n_prompts in product((1, 2), (1, 2, 4))
        if prefill.n_gpus % n_gpus == 0
    ]
    alike = [trial for trial in map(flow.forecast, others) if trial.samples_per_s == best.samples_per_s]
    assert len(alike) > 1
    assert best.tokens.prefill_busy_share == min(trial.tokens.prefill_busy_share or 1.0 for trial in alike)


def test_bounds_hold_of_both_pools(model: Path) -> None:
    bounds = (Constraint("tpot_s <= 0.004"), Constraint("ttft_s <= 0.15"))
    free, bound = (best_of(load_flow(model, "h100_sxm-6", "gpu", constraints=each)) for each in ((), bounds))
    assert bound.fits
    assert bound.tokens.tpot_s <= 0.004
    assert bound.tokens.ttft_s <= 0.15
    assert bound.samples_per_s <= free.samples_per_s


def test_workers_stand_beside_replicas(model: Path) -> None:
    cluster = load_flow(model, "h100_sxm-6+6", "gpu").cluster
    taken = [NodeGpus(0, "h100_sxm", (0, 1)), NodeGpus(0, "h100_sxm", (2, 3)), NodeGpus(1, "h100_sxm", (0, 1))]
    groups = free_groups(cluster, "h100_sxm", 2, 2, taken)
    assert groups == [NodeGpus(0, "h100_sxm", (4, 5)), NodeGpus(1, "h100_sxm", (2, 3))]


def test_gpus_and_values_are_those_of_both_pools() -> None:
    knobs = pooled(replicas=3, prefill_workers=2, prefill_tensor_parallel=4, tensor_parallel=2)
    assert knobs.n_devices == 3 * 2 + 2 * 4
    assert GpuSession(**{k: v for k, v in knobs.session.values.items() if v is not None}) == knobs.session
    assert knobs.with_values(prefill_workers=0).session == GpuSession("vllm", 2)
    assert PrefillPool(2, 4).values == {k: v for k, v in knobs.values.items() if k.startswith("prefill_")}


def test_too_few_gpus_or_nodes_are_said(flow: Flow, model: Path) -> None:
    too_many = flow.forecast(pooled(replicas=4, prefill_workers=3))
    assert "4 devices of replicas and 3 beside them are 7, h100_sxm-6 has 6" in too_many.reason
    apart = load_flow(model, "h100_sxm-3+3", "gpu").forecast(
        pooled(replicas=2, prefill_workers=1, prefill_tensor_parallel=4)
    )
    assert apart.status is Status.INFEASIBLE
    shared = load_flow(model, "h100_sxm-6+6", "gpu")
    no_room = shared.forecast(pooled(replicas=3, tensor_parallel=2, prefill_workers=2, prefill_tensor_parallel=3))
    assert no_room.status is not Status.OK


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        ({"prefill_tensor_parallel": (2,)}, {}, "--prefill-tensor-parallel is of prefill workers, got none"),
        ({"prefill_workers": (1,), "prefill_kind": (2,)}, {}, "--prefill-kind counts the kinds of GPUs"),
        ({"prefill_workers": (1,)}, {"pools": "2"}, "--pools chooses prefill workers"),
        ({"tensor_parallel": (4,)}, {"pools": "2"}, "two pools need room"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    model: Path, space: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    given = {"engine": ("vllm",), "batch_size": (8,), **{name: (n,) for name, n in REQUESTS.items()}, **space}
    with pytest.raises(BadInput, match=message) as error:
        default_space(load_flow(model, "h100_sxm-4", "gpu", options=options), given)
    assert "\n" not in str(error.value)


def test_arrivals_at_two_pools_are_of_one_kind_of_gpus(model: Path) -> None:
    trial = load_flow(model, "h100_sxm-4+l40s-4", "gpu", options={"rate": 2.0}).evaluate(pooled())
    assert trial.status is Status.UNSUPPORTED
    assert "two pools on one kind of GPUs" in trial.reason


def test_two_pools_are_in_a_space_of_numbers() -> None:
    space = SearchSpace(prefill_workers=(0, 2), prefill_tensor_parallel=(2,), input_tokens=(9,), output_tokens=(9,))
    assert {cell[0].session for cell in space.cells} == {GpuSession(), GpuSession(prefill=PrefillPool(2, 2))}
    assert json.dumps(space.cells[-1][0].values)
