"""Speed and output error of a model in other formats than that of its file: `lower_precisions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from autoauto.evaluate.flow import Flow
from autoauto.records.errors import BadInput, DoesNotFit, WorkerLost
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import FileRunner, Run
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.space.sessions import session_of
from autoauto.space.space import SearchSpace
from autoauto.space.trial import USABLE, Trial
from autoauto.targets.host.runtimes.registry import runtime_for


class LowerPrecision(NamedTuple):
    """The gain and the error of a format that a search was not asked for.

    Attributes:
        precision: the format.
        speedup: throughput of one session in it, relative to one in fp32, both with the cores and the batch size of the
            winner.
        output_error: as in `Trial`.
    """

    precision: Precision
    speedup: float
    output_error: float


def lower_precisions(flow: Flow, space: SearchSpace, winner: Trial) -> Iterator[LowerPrecision]:
    """Measure one session in fp32, and one in every other format of the machine, unless the space has one.

    Formats that do not run, or whose outputs are not `USABLE`, are left out.
    """
    if not isinstance(flow.target, FileRunner) or space["precision"] != (Precision.FP32,):
        return
    plan = winner.plan
    others = [each for each in flow.target.precisions() if each is not Precision.FP32]
    assert isinstance(plan, Plan)
    n_cores = winner.knobs.n_devices if flow.traits.groups else 1
    session = winner.knobs.session
    knobs = Knobs(1, winner.knobs.batch_size, session=session).with_values(cores_per_device=n_cores)
    in_fp32 = _one_session(flow.target, flow, knobs, plan) if others else None
    if in_fp32 is None:
        return
    for precision in others:
        runtime = runtime_for(precision, flow.traits.space["runtime"])
        values = {"runtime": runtime, "precision": precision, "cores_per_device": n_cores}
        lower = replace(knobs, session=session_of(values))
        run = _one_session(flow.target, flow, lower, plan)
        if run is None or run.output_error is None:
            continue
        if USABLE.violation({"output_error": run.output_error}) <= 0:
            yield LowerPrecision(precision, in_fp32.period_cycles / run.period_cycles, run.output_error)


def _one_session(target: FileRunner, flow: Flow, knobs: Knobs, plan: Plan) -> Run | None:
    """A run of the whole model as one stage; None where it does not run."""
    stage = replace(plan.stages[0], layers=LayerRange(0, len(flow.graph)), n_replicas=1)
    whole = replace(plan, stages=(stage,), placement=(), other_plans=(), shared_cycles=0)
    try:
        return target.run(flow.graph, whole, flow.setting.devices(knobs), flow.options(knobs), 1)
    except (DoesNotFit, WorkerLost, BadInput):
        return None
