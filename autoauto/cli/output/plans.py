"""The output of commands for one configuration: its plan and throughput (`show_plan`), or why it does not fit."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autoauto.cli.output.busy import describe_busy, print_busy
from autoauto.cli.output.generation import (
    describe_devices,
    describe_generation,
    describe_load,
    generation_line,
    show_traffic,
)
from autoauto.cli.output.lines import print_assumed, print_json, print_line, show, warn
from autoauto.records.errors import DoesNotFit, Infeasible, Unsupported
from autoauto.records.layers import LayerRange
from autoauto.records.plans.phased import PhasedPlan
from autoauto.records.target import Origin
from autoauto.records.units import format_number
from autoauto.report.wording import duration, energy_text, headline, price_text, unit_of
from autoauto.space.modes.generation import Generation
from autoauto.space.numbers import Result
from autoauto.space.table import flat
from autoauto.space.trial import Status, Trial, with_devices

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.plans.plan import Plan
    from autoauto.records.plans.timeline import Run, Timeline
    from autoauto.space.knobs import Knobs


def show_plan(
    args: argparse.Namespace, flow: Flow, knobs: Knobs, plan: Plan, origin: Origin, run: Run | None = None
) -> int:
    """Print a plan and its throughput; when devices ran it, also what they measured.

    Args:
        origin: of the numbers.
        run: the measurement of the plan; None when it was not measured.

    Returns:
        0, or what `show_infeasible` does where requests that arrive cannot be served.
    """
    device_run = run if run is not None and run.origin is Origin.MEASURED else None
    timeline = flow.timeline(knobs, plan) if knobs.training else None
    generated = flow.expect(knobs) if isinstance(knobs.mode, Generation) else None
    if generated is not None and (failure := _failure_of(generated)) is not None:
        return show_infeasible(args, failure)
    if generated is not None:
        samples_per_s, origin = generated.samples_per_s, flow.traits.origin
        if origin is Origin.MEASURED and generated.origin is not None:  # this is a forecast by servers that were
            origin = generated.origin
    elif device_run is None:
        samples_per_s = flow.samples_per_s(knobs, plan, None if timeline is None else timeline.makespan_cycles)
    else:
        samples_per_s = flow.pipelines.measured_samples_per_s(knobs, device_run)
    result = with_devices(Result(samples_per_s), knobs, plan, flow.cluster)
    if args.json:
        record = _describe(flow, knobs, plan, samples_per_s, timeline) | {"source": origin} | describe_devices(result)
        if generated is not None:
            record |= describe_generation(generated, plan) | describe_load(generated)
        if device_run is not None:
            record |= _describe_run(device_run)
        print_json(record | describe_busy(flow))
        return 0
    _show_stages(flow, knobs, plan, origin, timeline)
    if device_run is not None:
        _show_run(flow, device_run, origin)
    _show_speed(flow, knobs, result, origin, generated)
    print_assumed(flow.setting.notes_of([knobs]))
    return 0


def _show_stages(flow: Flow, knobs: Knobs, plan: Plan, origin: Origin, timeline: Timeline | None) -> None:
    from autoauto.report.tables.plans import parts_tables, step_parts_text

    clock_hz = flow.setting.shown_clock_hz
    print_busy(flow)
    show(*parts_tables(plan, flow.setting.names, origin, clock_hz, knobs))
    if timeline is not None:
        step = f"a step of {knobs.mode.n_micro_batches} micro-batches, {knobs.mode.order}"
        makespan = duration(timeline.makespan_cycles, clock_hz)
        show(f"{step}: {makespan}, simulated", step_parts_text(timeline, clock_hz).rstrip())


def _show_run(flow: Flow, run: Run, origin: Origin) -> None:
    from autoauto.report.tables.compare import run_table

    show("", run_table(run, origin))
    latency_s = run.latency_cycles / flow.cluster.clock_hz
    period_ms = 1e3 * run.period_cycles / flow.cluster.clock_hz
    show(f"a micro-batch every {format_number(period_ms, 3)} ms, after {latency_s:.4f} s, {origin}")
    if run.output_error is not None:
        show(f"outputs differ from those in fp32 by {run.output_error:.1e} of the largest value, {origin}")


def _show_speed(flow: Flow, knobs: Knobs, result: Result, origin: Origin, generated: Trial | None) -> None:
    """Print the throughput, latencies where text is generated, and what the devices cost."""
    speed = f"throughput: {format_number(result.samples_per_s)} {unit_of([knobs])}, {origin}"
    if generated is not None:
        speed = headline(generated, origin)
    print_line("; ".join(filter(None, (speed, flow.setting.needs(knobs.session)))))
    if generated is not None:
        print_line(generation_line(generated))
        show_traffic(generated)
    show_price(result, knobs)


def show_price(result: Result, knobs: Knobs) -> None:
    """Print the cost of samples and their energy, if prices are known."""
    if cost := price_text(result, knobs.mode.sample):
        print_line("; ".join(filter(None, (cost, energy_text(result, knobs.mode.sample)))))


def _failure_of(generated: Trial) -> DoesNotFit | None:
    """Why requests cannot be served, which only the simulation of their arrivals finds; None where they can."""
    if generated.status is Status.UNSUPPORTED:
        return Unsupported(generated.reason)
    if generated.status is Status.INFEASIBLE:
        return Infeasible(generated.reason, generated.excess_bytes)
    return None


def show_infeasible(args: argparse.Namespace, failure: DoesNotFit) -> int:
    """Print that nothing fits, on stdout as JSON and on stderr as a line, and return the exit code of that."""
    if args.json:
        print_json(
            {
                "fits": False,
                "excess_bytes": failure.excess_bytes,
                "layers": failure.layers,
                "memory_bytes": failure.memory_bytes,
                "reason": str(failure),
            }
        )
    warn(str(failure))
    return failure.exit_code


def warn_unbounded(flow: Flow, knobs: Knobs) -> None:
    """Warn on stderr of layers that no plan within the memory proportion exists for; Poplar has such a warning too."""
    from autoauto.targets.ipu.target import IpuTarget, operator_costs

    if not isinstance(flow.target, IpuTarget):
        return
    names: dict[str, None] = {}
    for kind in flow.plans.kinds:
        options, layers = flow.options(knobs), LayerRange(0, len(flow.graph))
        costs = operator_costs(flow.graph, layers, kind.setting.device(options), options, flow.target.settings)
        named = zip(flow.setting.names, costs, strict=True)
        names |= dict.fromkeys(name for name, cost in named if not cost.within_bound)
    if names:
        first, *others = names
        more = f" and {len(others)} more" if others else ""
        warn(
            f"no plan of {first}{more} meets memory proportion {knobs.session.values['memory_proportion']}, so the "
            "bound was dropped there; try a larger --memory-proportion or a smaller --batch-size"
        )


def _describe(flow: Flow, knobs: Knobs, plan: Plan, samples_per_s: float, timeline: Timeline | None) -> dict[str, Any]:
    """A plan of one configuration as plain values, named like the fields; `timeline` is that of training."""
    return {
        **describe_configuration(flow, knobs),
        "samples_per_s": samples_per_s,
        "makespan_cycles": timeline and timeline.makespan_cycles,
        "step_parts": timeline and timeline.step_parts,
        **describe_plan(plan),
    }


def describe_configuration(flow: Flow, knobs: Knobs) -> dict[str, Any]:
    """One configuration of a model on a cluster as plain values."""
    names = {"model": flow.graph.name, "cluster": flow.cluster.name, "precision": str(flow.setting.precision)}
    values = {name: value for name, value in flat(knobs).items() if value is not None}
    return {**names, **values, "assumed": list(flow.setting.notes_of([knobs]))}


def describe_plan(plan: Plan | PhasedPlan) -> dict[str, Any]:
    """A plan as plain values."""
    if isinstance(plan, PhasedPlan):
        return describe_phases(plan)
    return {
        "fits": True,
        "period": plan.period,
        "partition": list(plan.partition),
        "compute_cycles": plan.compute_cycles,
        "transfer_cycles": plan.transfer_cycles,
        "host_cycles": plan.host_cycles,
        "shared_cycles": plan.shared_cycles,
        "cost_cycles": plan.cost_cycles,
        "stages": [asdict(stage) | {"total_bytes": stage.total_bytes} for stage in plan.stages],
        "placement": [[device._asdict() for device in replica] for replica in plan.placement],
        "other_plans": list(map(describe_plan, plan.other_plans)),
    }


def describe_phases(plan: PhasedPlan) -> dict[str, Any]:
    """Phases and their buffers as plain values."""
    return {
        "fits": True,
        "io_mode": str(plan.io_mode),
        "steps": plan.steps,
        "n_replicas": plan.n_replicas,
        "partition": list(plan.partition),
        "cost_cycles": plan.cost_cycles,
        "naive_cycles": plan.naive_cycles,
        "phases": [
            asdict(phase) | {"total_bytes": phase.total_bytes, "cycles": cycles}
            for phase, cycles in zip(plan.phases, plan.phase_cycles, strict=True)
        ],
        "buffers": [
            asdict(buffer) | {"n_entries": buffer.n_entries, "n_bytes": buffer.n_bytes} for buffer in plan.buffers
        ],
    }


def _describe_run(run: Run) -> dict[str, Any]:
    described: dict[str, Any] = {
        "period_cycles": run.period_cycles,
        "latency_cycles": run.latency_cycles,
        "core_fraction": run.core_fraction,
    }
    if run.output_error is not None:
        described["output_error"] = run.output_error
    described["pipelines"] = [
        {
            "n_micro_batches": timeline.schedule.n_micro_batches,
            "busy_cycles": timeline.busy_cycles,
            "exchange_cycles": timeline.exchange_cycles,
            "bubble_cycles": timeline.bubble_cycles,
        }
        for timeline in run.timelines
    ]
    return described
