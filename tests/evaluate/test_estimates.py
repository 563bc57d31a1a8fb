"""Estimates: corrections that are fitted to ranges, limits of memory, and profiles that are made once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.plan.pipeline.problem import evaluate
from autoauto.profile.cache import ProfileCache
from autoauto.records.costs.correction import PLAIN_SUM, Estimator
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import CompiledRange, ProgramStep
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Device, Link, Topology
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.targets.ipu.session import memory_proportion
from tests.evaluate.linear import DEVICE, MIB, LinearTarget


def test_fp8_needs_devices_that_have_it(flow: Flow) -> None:
    with pytest.raises(BadInput, match="fp8 needs devices that multiply in it, pair has small; try --cluster c600"):
        flow.with_setting(precision=Precision.FP8)
    devices = (replace(DEVICE, fp8=True),) * 2
    narrow = flow.with_setting(precision=Precision.FP8, cluster=replace(flow.cluster, devices=devices))
    assert [layer.attribute("precision") for layer in narrow.graph.layers] == ["fp8"] * 7 + [None]
    assert narrow.graph == narrow.with_setting(planning_proportion=0.5).graph


def test_synthetic_data_frees_the_host_links_only(flow: Flow) -> None:
    host = Link(1e6, 500)
    slow = replace(flow.cluster, receive_links=(host, Link(1e9, 7)), send_links=(Link(1e9, 7), host))
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1)
    free = flow.with_setting(cluster=slow.with_synthetic_data()).predict(knobs)
    paid = flow.with_setting(cluster=slow).predict(knobs)
    assert 7 <= free.transfer_cycles < 500 < paid.transfer_cycles


def test_where_any_device_reaches_any_other_tensors_skip_the_stages_between(flow: Flow) -> None:
    """The first layer's output is read by the last one, too; in a line, the middle stage passes it on."""
    first, *_, last = flow.graph.layers
    [skipped] = first.outputs
    tensors = list(flow.graph.tensors)
    tensors[skipped] = tensors[skipped]._replace(last_use=len(flow.graph) - 1)
    layers = (*flow.graph.layers[:-1], replace(last, inputs=(*last.inputs, skipped)))
    graph = replace(flow.graph, layers=layers, tensors=tuple(tensors))
    link = Link(1e6, 7)  # a byte a cycle
    cluster = replace(flow.cluster, devices=(DEVICE,) * 3, receive_links=(link,) * 3, send_links=(link,) * 3)
    line = flow.with_setting(graph=graph, cluster=cluster)
    spread = line.with_setting(cluster=replace(cluster, topology=Topology.ALL_TO_ALL))
    knobs = Knobs(n_ipu=3, memory_proportion=0.6, batch_size=1)
    cuts = (0, 3, 6, 8)
    passed_on, direct = (evaluate(subject.table(knobs), cuts).stages for subject in (line, spread))
    n_bytes = tensors[skipped].n_bytes(1, line.setting.precision)
    assert passed_on[1].transfer_cycles - direct[1].transfer_cycles == 2 * n_bytes
    assert [passed_on[i].transfer_cycles - direct[i].transfer_cycles for i in (0, 2)] == [0, 0]
    assert spread.predict(knobs).cost_cycles <= line.predict(knobs).cost_cycles
    assert spread.evaluate(knobs).samples_per_s >= line.evaluate(knobs).samples_per_s > 0


class FusingTarget(LinearTarget):
    """A Relu after a Conv costs nothing in the same range, a range takes 5 % less memory; cycles vary by 2 %."""

    version = "fusing 1"

    def __init__(self) -> None:
        super().__init__(surplus=0.95)
        self.n_compiled = 0

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        self.n_compiled += 1
        plain = super().compile(graph, layers, device, options)
        operators = [layer.op for layer in graph.layers[slice(*layers)]]
        n_fused = sum(pair == ("Conv", "Relu") for pair in pairwise(operators))
        seed = str((layers, options.batch_size, memory_proportion(options)))
        noise = 1.0 if len(operators) == 1 else Random(seed).uniform(0.98, 1.02)
        cycles = round(1000 * (len(operators) - n_fused) * options.batch_size * noise)
        return replace(plain, steps=(ProgramStep("all", cycles, 0),))


@pytest.fixture
def fusing(flow: Flow, chain: Callable[..., LayerGraph]) -> Flow:
    operators = ["Conv", "Relu", "Conv", "Add", "Relu", "MatMul"] * 8
    graph = chain(kinds=operators)
    layers = tuple(replace(layer, op=op) for layer, op in zip(graph.layers, operators, strict=True))
    graph = replace(graph, layers=layers, content="fused")
    device = replace(DEVICE, memory_bytes=1000 * MIB)
    cluster = replace(flow.cluster, devices=(device, device))
    return flow.with_setting(graph=graph, cluster=cluster, target=FusingTarget(), estimator=Estimator.REGRESSION)


def mean_error(flow: Flow, batch_size: int) -> float:
    """The mean error of predicted cycles of stages, most of which were not sampled."""
    knobs, random = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=batch_size), Random(batch_size)
    table, errors = flow.table(knobs), []
    for _ in range(40):
        start = random.randrange(0, 36)
        layers = LayerRange(start, random.randrange(start + 6, 49))
        whole = flow.setting.compiler.compile(flow.graph, layers, flow.cluster.devices[0], flow.options(knobs))
        errors.append(abs(table.compute_cycles(*layers) / whole.forward_cycles - 1))
    return sum(errors) / len(errors)


def test_the_correction_finds_fusion_by_a_few_ranges(fusing: Flow) -> None:
    fusing.table(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8))
    assert isinstance(fusing.target, FusingTarget)
    assert fusing.target.n_compiled <= 8 + 24  # layers of two batch sizes, ranges
    correction = fusing.costs.correction(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8))
    assert correction.forward["Relu after Conv"] < 0.95 * correction.forward["Relu after Add"]
    for batch_size in (3, 8, 20):
        assert mean_error(fusing, batch_size) < 0.05
        assert mean_error(fusing.with_setting(estimator=Estimator.SUM), batch_size) > 0.15


ASKED = (
    Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1),
    Knobs(n_ipu=2, memory_proportion=0.3, batch_size=3),
    Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8),
    Knobs(n_ipu=1, memory_proportion=1.0, batch_size=12),
    Knobs(n_ipu=2, memory_proportion=0.3, batch_size=20),
    Knobs(n_ipu=2, memory_proportion=0.6, batch_size=33),
)


@pytest.mark.parametrize("order", [ASKED, ASKED[::-1], (*ASKED[3:], *ASKED[:3]), (*ASKED[::2], *ASKED[1::2])])
def test_a_cost_model_estimates_the_same_whatever_was_compiled_before(
    fusing: Flow, order: Sequence[Knobs], tmp_path: Path
) -> None:
    for knobs in order:
        fusing.evaluate(knobs)
    for knobs in order:
        fresh = fusing.with_setting(cache=ProfileCache(tmp_path / f"{knobs.batch_size}.db"))
        assert fresh.costs.correction(knobs) == fusing.costs.correction(knobs)
        assert fresh.expect(knobs).estimated_samples_per_s == fusing.expect(knobs).estimated_samples_per_s


def test_samples_are_compiled_once(fusing: Flow) -> None:
    first = fusing.costs.correction(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8))
    fresh = fusing.with_setting(target=FusingTarget())
    assert fresh.costs.correction(Knobs(n_ipu=4, memory_proportion=0.3, batch_size=15)) == first
    assert isinstance(fresh.target, FusingTarget)
    assert fresh.target.n_compiled == 0


def test_plans_fill_the_memory_up_to_the_upper_end_of_the_interval(fusing: Flow) -> None:
    knobs = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=21)  # 48 x 21 MiB by the sum, 5 % less whole
    with pytest.raises(Infeasible):
        fusing.with_setting(estimator=Estimator.SUM, planning_proportion=1.0).predict(knobs)
    assert fusing.evaluate(knobs).fits
    assert not fusing.evaluate(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=22)).fits
    interval = fusing.costs.correction(knobs).memory_interval
    assert fusing.table(knobs).memory_limit_bytes[0] == int(1000 * MIB / interval.high)
    assert fusing.with_setting(planning_proportion=0.5).table(knobs).memory_limit_bytes[0] == 500 * MIB


def test_plain_sums_have_no_correction_and_plan_with_085_of_the_memory(flow: Flow) -> None:
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4)
    flow.measure(knobs, flow.predict(knobs))
    assert flow.costs.correction(knobs) == PLAIN_SUM
    assert flow.table(knobs).memory_limit_bytes[0] == 85 * MIB


def test_a_profile_is_made_once_for_configurations_that_share_it(flow: Flow) -> None:
    first, second = (flow.profile(flow.options(Knobs(n_ipu=n, memory_proportion=0.6, batch_size=4))) for n in (1, 2))
    assert first is second
    assert (
        flow.with_setting(target=LinearTarget(surplus=2.0)).profile(
            flow.options(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4))
        )
        is not first
    )
