"""What came of a configuration, as constraints speak of it: `latency_s`, `held_to`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoauto.records.constraint import RESULT_NAMES, Constraint
from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.run import Run
from autoauto.records.timeline import Timeline
from autoauto.records.trial import Knobs, Outcome


def latency_s(knobs: Knobs, plan: Plan | PhasedPlan, clock_hz: float, timeline: Timeline | None = None) -> float:
    """Seconds from the entry of a micro-batch to its result, by the cycles of `plan`.

    A pipeline's is `Plan.latency_cycles`. A step of training has its result when all its micro-batches are through:
    that is the makespan of its `timeline`. Phases have theirs after the last phase.
    """
    if isinstance(plan, PhasedPlan):
        return plan.cost_cycles / clock_hz
    if knobs.training:
        assert timeline is not None
        return max(timeline.makespan_cycles, knobs.n_micro_batches * plan.host_cycles) / clock_hz
    return plan.latency_cycles / clock_hz


def run_latency_s(knobs: Knobs, run: Run, clock_hz: float) -> float:
    """The same of a plan that was measured: by the clock where devices ran it, else by the cycles of its stages."""
    if run.timelines[0].source == "simulated":
        return latency_s(knobs, run.plan, clock_hz, run.timelines[0])
    return run.latency_cycles / clock_hz


def held_to(outcome: Outcome, constraints: Sequence[Constraint]) -> Outcome:
    """The same outcome, with how far it is from the constraints, and the first that does not hold as its reason."""
    if outcome.measured is None or not constraints:
        return outcome
    numbers = _numbers(outcome)
    misses = [constraint.miss(numbers) for constraint in constraints]
    broken = next((c for c, miss in zip(constraints, misses, strict=True) if miss > 0), None)
    return replace(outcome, miss=max(misses), reason=broken.reason(numbers) if broken else outcome.reason)


def _numbers(outcome: Outcome) -> dict[str, float]:
    """The knobs and `RESULT_NAMES`."""
    plan = outcome.measured
    assert plan is not None
    parts = plan.stages if isinstance(plan, Plan) else plan.phases
    told = {
        "samples_per_s": outcome.samples_per_s,
        "latency_s": outcome.latency_s,
        "compute_cycles": plan.compute_cycles,
        "transfer_cycles": plan.transfer_cycles,
        "cost_cycles": plan.cost_cycles,
        "peak_memory_bytes": max(part.total_bytes for part in parts),
    }
    assert tuple(told) == RESULT_NAMES
    return {**outcome.knobs.numbers, **told}
