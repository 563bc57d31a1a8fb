"""Tiles that exchange with the host as a knob: priced as on devices that all have them, searched beside none."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import autoauto
from autoauto.evaluate.export import deployment
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.schedule import Order
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.space import SearchSpace
from autoauto.space.table import numbers
from autoauto.study.defaults import default_space
from autoauto.study.store.study import load_study
from autoauto.study.store.table import trials_dataframe
from autoauto.targets.ipu.session import IpuSession, with_io_tiles
from tests.drawn import daily

TRAINING = {"schedule": Order.ONE_F_ONE_B, "n_micro_batches": 32, "recompute": True}
# Samples/s estimated and measured, the cost in cycles, and those of the host, on clusters all of whose devices had io
# tiles, an option of the target before it was a knob. Rates of training replicas are those of rings of all-reduces.
RECORDED: list[tuple[str, str, dict[str, Any], tuple[float, float, int, int]]] = [
    ("resnet50", "c600", {"batch_size": 64}, (15030.464873490457, 15111.342258679735, 6387028, 3970758)),
    (
        "resnet50",
        "c600",
        {"batch_size": 16, "memory_proportion": 0.3},
        (11350.533806146124, 11357.581138086418, 2114438, 1067689),
    ),
    (
        "resnet50",
        "bow-pod16",
        {"n_ipu": 4, "replicas": 2, "batch_size": 16, "memory_proportion": 0.3},
        (45767.89953946051, 45767.89953946051, 1293483, 1293483),
    ),
    (
        "resnet50",
        "bow-pod16",
        {"n_ipu": 3, "batch_size": 32, "memory_proportion": "0.1:0.6:0.3"},
        (23545.807732570534, 23707.03550328795, 2514248, 2486967),
    ),
    (
        "bert-base-128",
        "bow-2000",
        {"n_ipu": 2, "replicas": 2, "batch_size": 8},
        (19252.383132831037, 19371.664359737042, 1537472, 104032),
    ),
    (
        "resnet50-train",
        "bow-pod16",
        {"n_ipu": 4, "batch_size": 4, **TRAINING},
        (3302.0213488230115, 3374.346991539523, 2051153, 396406),
    ),
    (
        "bert-large-128-mlm",
        "bow-pod16",
        {"n_ipu": 4, "replicas": 4, "batch_size": 2, **TRAINING},
        (2039.3371427427746, 2031.0564048851247, 3959863, 100834),
    ),
]


@pytest.fixture(scope="module")
def resnet() -> Flow:
    return load_flow("resnet50", "bow-pod16")


@pytest.mark.parametrize(("model", "cluster", "values", "recorded"), daily(RECORDED, len(RECORDED) - 1, several=True))
def test_a_configuration_costs_what_it_did_on_devices_with_io_tiles(
    model: str, cluster: str, values: dict[str, Any], recorded: tuple[float, float, int, int]
) -> None:
    flow, knobs = load_flow(model, cluster), Knobs(io_tiles=32, **values)
    expected, measured = flow.expect(knobs), flow.evaluate(knobs)
    plan = flow.predict(knobs)
    assert (expected.samples_per_s, measured.samples_per_s, plan.cost_cycles, plan.host_cycles) == recorded
    assert flow.fits(knobs)


@pytest.mark.parametrize("values", [{}, TRAINING])
def test_all_prices_are_those_of_a_cluster_whose_devices_have_io_tiles(resnet: Flow, values: dict[str, Any]) -> None:
    on_cluster = resnet.with_setting(cluster=with_io_tiles(resnet.cluster, 48))
    of_knob, of_cluster = (Knobs(n_ipu=3, batch_size=16, io_tiles=n, **values) for n in (48, 0))
    for ask in (Flow.predict, Flow.step_bounds, Flow.fits, lambda flow, knobs: flow.pipelines.plan_to_measure(knobs)):
        assert ask(resnet, of_knob) == ask(on_cluster, of_cluster), ask
    plan = resnet.predict(of_knob)
    assert resnet.measure(of_knob, plan).plan == on_cluster.measure(of_cluster, plan).plan
    assert resnet.expect(of_knob).result == on_cluster.expect(of_cluster).result
    timelines = resnet.timeline(of_knob, plan), on_cluster.timeline(of_cluster, plan)
    assert timelines[0].period_cycles == timelines[1].period_cycles
    limits = {stage.limit_bytes for stage in resnet.measure(of_knob, plan).plan.stages}
    assert limits == {int(on_cluster.cluster.devices[0].memory_bytes)} != {int(resnet.cluster.devices[0].memory_bytes)}


def test_the_plan_is_the_cheapest_of_all(resnet: Flow) -> None:
    knobs = Knobs(n_ipu=3, batch_size=32, io_tiles=32)
    table, best = resnet.plans.costs.pipeline_table(knobs), resnet.plans.best(knobs)
    allowed = [cut for cut in range(1, len(resnet.graph), 6) if table.cut_allowed[cut]]
    for inner in combinations(allowed, 2):
        plan = resnet.plans.cut_at(knobs, (0, *inner, len(resnet.graph)))
        assert plan.host_cycles == best.host_cycles > 0
        assert plan.excess_bytes > 0 or plan.cost_cycles >= best.cost_cycles


def test_layers_that_cost_as_much_are_equal_on_equal_devices_only(resnet: Flow) -> None:
    costs = resnet.plans.costs
    in_turn, overlapped = (Knobs(batch_size=1, io_tiles=n, memory_proportion=0.9) for n in (0, 32))
    assert costs.with_equal_costs(in_turn).session == IpuSession(0.9)
    assert costs.with_equal_costs(overlapped).session == IpuSession(0.9, 32)
    again = overlapped.with_values(memory_proportion=0.95)
    assert costs.with_equal_costs(again).session == IpuSession(0.9, 32)


@pytest.mark.parametrize("method", daily(["guided", "grid-bisect", "tpe", "random"]))
def test_a_search_of_both_finds_the_better_of_two_searches(method: str, tmp_path: Path) -> None:
    def best(*io_tiles: int) -> tuple[float, int]:
        winner = autoauto.search(
            "resnet50",
            "c600",
            space=SearchSpace((1,), (0.6,), (1, 8, 48), io_tiles=io_tiles),
            method=method,
            n_measurements=6,
            storage=f"sqlite:///{tmp_path}/{io_tiles}.db",
        )
        return winner.samples_per_s, winner.knobs.session.values["io_tiles"]

    assert best(0, 32) == max(best(0), best(32))


def test_studies_hold_them_and_are_continued(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/trials.db"

    def search(*io_tiles: int) -> autoauto.Trial:
        space = SearchSpace((1,), (0.6,), (8,), io_tiles=io_tiles)
        return autoauto.search(
            "resnet50", "c600", space=space, storage=storage, study_name="both", method="grid-bisect"
        )

    first, second = search(0), search(0, 32)
    assert (first.knobs, second.knobs) == tuple(Knobs(batch_size=8, io_tiles=n) for n in (0, 32))
    trials = trials_dataframe("both", storage)
    assert trials["io_tiles"].tolist() == [0, 32]
    assert trials["host_cycles"].fillna(0).gt(0).tolist() == [False, True]
    in_turn, overlapped = load_study(storage, "both").get_trials()
    assert ("io_tiles" in in_turn.params, overlapped.params["io_tiles"]) == (False, 32)
    again = search(0, 32)
    assert (again.knobs, again.result) == (second.knobs, second.result)
    assert len(trials_dataframe("both", storage)) == 2


def test_constraints_may_name_them() -> None:
    space = SearchSpace((1,), (0.6,), (8,), io_tiles=(0, 32, 64), constraints=(Constraint("io_tiles <= 32"),))
    assert [knobs.session for cell in space.cells for knobs in cell] == [IpuSession(0.6, n) for n in (0, 32)]
    assert numbers(Knobs(io_tiles=16))["io_tiles"] == 16


def test_phases_have_none_so_that_a_space_has_phases_in_turn_only(resnet: Flow) -> None:
    space = SearchSpace((1,), (0.6,), (1,), io_tiles=(0, 32), strategy=tuple(Strategy))
    sessions = {(knobs.is_phased, knobs.session.values["io_tiles"]) for cell in space.cells for knobs in cell}
    assert sessions == {(False, 0), (False, 32), (True, 0)}
    with pytest.raises(Mismatch, match="phases exchange with the host in turn, got io_tiles 32; try --io-tiles 0"):
        Knobs(io_tiles=32, strategy=Strategy.PHASED)
    assert default_space(resnet)["strategy"] == tuple(Strategy)
    assert default_space(resnet, {"io_tiles": (0, 32)})["strategy"] == tuple(Strategy)
    assert default_space(resnet, {"io_tiles": (32,)})["strategy"] == (Strategy.PIPELINE,)
    assert default_space(resnet, {"n_ipu": (2,), "memory_proportion": ("0.3:0.6",)})["strategy"] == (Strategy.PIPELINE,)


@pytest.mark.parametrize(
    ("cluster", "options", "io_tiles", "message"),
    [
        ("bow-mk2", {}, 32, "io_tiles 32 needs devices in a given order, bow-mk2 has kinds of them; try --io-tiles 0"),
        ("bow-2000", {"synthetic_data": True}, 32, "io_tiles 32 exchange with the host, got synthetic data; leave one"),
        ("bow-2000", {}, 1472, "io_tiles must be below 1472, the tiles of a bow, got 1472"),
    ],
)
def test_devices_that_cannot_have_them_refuse_a_space_before_it_is_searched(
    cluster: str, options: dict[str, object], io_tiles: int, message: str
) -> None:
    flow = load_flow("resnet50", cluster, options=options)
    with pytest.raises(BadInput, match=message):
        flow.checked(SearchSpace((1,), (0.6,), (1,), io_tiles=(0, io_tiles)))
    with pytest.raises(BadInput, match=message):
        flow.expect(Knobs(io_tiles=io_tiles))


def test_what_is_exported_has_the_devices_of_the_plan(resnet: Flow) -> None:
    trial = resnet.expect(Knobs(n_ipu=2, batch_size=2, io_tiles=32))
    assert deployment(resnet, "resnet50", trial).cluster == with_io_tiles(resnet.cluster, 32)
