"""What is said of a format that a search was not asked for, by scripted runs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.lower_precision import LowerPrecision, lower_precisions
from autoauto.evaluate.setting import Setting
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import WorkerLost
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.target import TargetTraits
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.targets.host.runtimes.registry import SESSIONS
from autoauto.targets.host.target import HostTarget

FP32, BF16, FP16 = Precision.FP32, Precision.BF16, Precision.FP16
SPACE = SearchSpace((1, 2), (1.0,), (8,), runtime=("onnxruntime",), precision=(FP32,))
DEVICE = Device("core", 1e9, 1 << 30, 1, 1 << 30)
CLUSTER = Cluster("host", "host", (DEVICE,) * 4, (Link(1e9, 1),) * 4, (Link(1e9, 1),) * 4)


class Scripted(HostTarget):
    """Runs that take three times as long in fp32, or end with an error; others have the `output_error`."""

    def __init__(self, formats: tuple[Precision, ...], *, fails: bool = False, output_error: float = 0.006) -> None:
        super().__init__(SimpleNamespace())
        self.formats, self.fails, self.asked = formats, fails, list[tuple[Plan, CompileOptions]]()
        self.output_error = output_error

    def precisions(self) -> tuple[Precision, ...]:
        return self.formats

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Any:
        self.asked.append((plan, options))
        if self.fails and options.session.computes_in is BF16:
            raise WorkerLost("killed")
        is_short = options.session.computes_in is not FP32
        return SimpleNamespace(
            period_cycles=100.0 if is_short else 300.0, output_error=self.output_error if is_short else None
        )


def winner(graph: LayerGraph) -> Trial:
    ranges = LayerRange(0, 1), LayerRange(1, len(graph))
    plan = Plan(tuple(Stage(layers, index, 9, 0, 0, 0, {}, 1) for index, layers in enumerate(ranges)))
    knobs = Knobs(n_ipu=2, memory_proportion=1.0, batch_size=8, replicas=2, runtime="onnxruntime", precision=FP32)
    return Trial(knobs, Status.OK, measured=plan, samples_per_s=1.0)


@pytest.fixture
def said(chain: Callable[..., LayerGraph]) -> Callable[..., list[LowerPrecision]]:
    """What is said with a target, of a search of a space."""

    def lower(target: HostTarget, space: SearchSpace = SPACE) -> list[LowerPrecision]:
        graph = chain("abcd")
        return list(lower_precisions(Flow(Setting(graph, CLUSTER, target, Precision.FP32)), space, winner(graph)))

    return lower


def test_one_session_in_each_format_is_measured_with_the_cores_and_the_batch_of_the_winner(
    said: Callable[..., list[LowerPrecision]],
) -> None:
    target = Scripted((FP32, BF16))
    assert said(target) == [LowerPrecision(BF16, 3.0, 0.006)]
    sessions = [(options.session.runtime, options.session.computes_in) for _, options in target.asked]
    assert sessions == [("onnxruntime", FP32), ("openvino", BF16)]
    assert {(options.batch_size, options.group_size) for _, options in target.asked} == {(8, 4)}
    assert {plan.partition for plan, _ in target.asked} == {(0, 4)}


@pytest.mark.parametrize("runtimes", [("onnxruntime", "openvino"), ("cuda",)])
def test_a_format_is_measured_by_a_runtime_of_the_devices(
    runtimes: tuple[str, ...],
    said: Callable[..., list[LowerPrecision]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traits = TargetTraits(groups=("cores_per_device",), space={"runtime": runtimes})
    monkeypatch.setattr(Scripted, "traits", traits, raising=False)
    target = Scripted((FP32, FP16))
    [lower] = said(target)
    assert lower.precision is FP16
    session = target.asked[-1][1].session
    assert (session.runtime, session.computes_in) == (runtimes[-1], FP16)


def test_nothing_is_measured_where_nothing_can_be_said(said: Callable[..., list[LowerPrecision]]) -> None:
    without, asked = Scripted((FP32,)), Scripted((FP32, BF16))
    assert said(without) == said(asked, SPACE.with_values(runtime=tuple(SESSIONS), precision=(FP32, BF16))) == []
    assert without.asked == asked.asked == []


def test_a_format_that_does_not_run_is_left_out(said: Callable[..., list[LowerPrecision]]) -> None:
    assert said(Scripted((FP32, BF16), fails=True)) == []


@pytest.mark.parametrize("output_error", [0.9, float("inf")])
def test_a_format_with_wrong_outputs_is_left_out(
    output_error: float, said: Callable[..., list[LowerPrecision]]
) -> None:
    assert said(Scripted((FP32, FP16), output_error=output_error)) == []
