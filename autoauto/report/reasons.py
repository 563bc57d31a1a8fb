"""Why the winner won: what binds it, and why every other cell lost or could not run, in words."""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.knobs import Strategy
from autoauto.records.phased import Phase, PhasedPlan
from autoauto.records.plan import Plan, Stage
from autoauto.records.study_summary import CellFindings, Contender, Findings, Tried, Verdict
from autoauto.records.units import format_bytes


class Fact(NamedTuple):
    """Something that binds a plan.

    Attributes:
        name: "compute", "transfer", "memory" or "bubble".
        headline: the number.
        text: whose it is, and what it is a part of.
        share: what part of the period, the limit or the time it is, from 0 to 1.
    """

    name: str
    headline: str
    text: str
    share: float


def what_binds(contender: Contender, ran: bool = False) -> tuple[Fact, ...]:
    """The slowest compute, the longest transfer, the least memory to spare and, in training, the bubble.

    Args:
        contender: whose plan it is.
        ran: whether devices ran the plan, so that its cycles make no period.
    """
    plan, whole = contender.measured, "both together" if ran else "the period"
    facts = _phase_facts(plan) if isinstance(plan, PhasedPlan) else _stage_facts(plan, whole)
    bubble = contender.tried.bubble_fraction
    if bubble is None:
        return facts
    return (*facts, Fact("bubble", f"{100 * bubble:.1f} %", "of all devices' time, simulated", bubble))


def parts_of(plan: Plan | PhasedPlan) -> tuple[str, tuple[Stage | Phase, ...]]:
    """What the parts of a plan are called, and those that hold memory of their own."""
    return ("phase", plan.phases) if isinstance(plan, PhasedPlan) else ("stage", plan.stages)


def _stage_facts(plan: Plan, whole: str) -> tuple[Fact, ...]:
    computes = max(plan.stages, key=lambda stage: stage.compute_cycles)
    transfers = max(plan.stages, key=lambda stage: stage.transfer_cycles)
    return (
        _cycles("compute", "computes longest", plan, computes, plan.compute_cycles, plan.compute_binds, whole),
        _cycles("transfer", "transfers longest", plan, transfers, plan.transfer_cycles, plan.transfer_binds, whole),
        _memory(plan),
    )


def _cycles(name: str, does: str, plan: Plan, stage: Stage, cycles: int, binds: bool, whole: str) -> Fact:
    share = cycles / max(plan.cost_cycles, 1)
    hidden = "" if binds else ", hidden behind the other" if not plan.host_binds else ", hidden behind the host"
    text = f"{_name(plan, stage)} {does}, {100 * share:.0f} % of {whole}{hidden}"
    return Fact(name, f"{cycles:,} cycles", text, share)


def _phase_facts(plan: PhasedPlan) -> tuple[Fact, ...]:
    slowest = max(zip(plan.phase_cycles, plan.phases, strict=True), key=lambda pair: pair[0])
    share, moved = slowest[0] / max(plan.cost_cycles, 1), plan.transfer_cycles / max(plan.cost_cycles, 1)
    text = f"{_name(plan, slowest[1])} takes longest, {100 * share:.0f} % of all phases"
    loads = "of loads and stores in all phases, variables included"
    return (
        Fact("compute", f"{slowest[0]:,} cycles", text, share),
        Fact("transfer", f"{plan.transfer_cycles:,} cycles", loads, min(moved, 1.0)),
        _memory(plan),
    )


def _memory(plan: Plan | PhasedPlan) -> Fact:
    fullest = max(parts_of(plan)[1], key=lambda part: part.total_bytes - part.limit_bytes)
    share = fullest.total_bytes / max(fullest.limit_bytes, 1)
    held = f"{format_bytes(fullest.total_bytes)} of {format_bytes(fullest.limit_bytes)}"
    spare = format_bytes(fullest.limit_bytes - fullest.total_bytes)
    return Fact("memory", f"{spare} to spare", f"{_name(plan, fullest)} is fullest: {held}", share)


def _name(plan: Plan | PhasedPlan, part: Stage | Phase) -> str:
    name, parts = parts_of(plan)
    return f"{name} {parts.index(part)}, layers {part.layers},"


def why_not(cell: CellFindings, found: Findings) -> str:
    """Why a cell did not win, in one sentence; that it did, when it did."""
    if cell.best is None:
        return _reason(cell.tried[0])
    assert found.winner is not None
    best, winner = cell.best, found.winner.tried
    if best.number == winner.number:
        return "the winner"
    loss_percent = found.loss_percent(best)
    if loss_percent < 0:
        return _not_better(found)
    equal = loss_percent < 0.05  # what is shown as 0.0 %
    causes = ["as good, but found later"] if equal else [*_costs(best, winner), *_bubble(best, winner)]
    return "; ".join([*causes, *_limit(cell)]) or "a little slower in everything"


def _not_better(found: Findings) -> str:
    """Why what was measured to be quicker once is not the winner."""
    told = found.verification
    if told is not None and told.settled and told.verdict is not Verdict.TIE:
        return "slower than the winner when measured again"
    when = " when measured again" if told is not None and told.settled else ""
    return f"as good as the winner within the noise{when}; the winner is simpler"


def reason_of(tried: Tried) -> str:
    """Why a configuration does not fit, as short as can be; empty when it does."""
    if tried.excess_bytes:
        return f"lacks {format_bytes(tried.excess_bytes)}" + (" compiled whole" if tried.compiled else "")
    return tried.reason.partition("; try")[0]


def _reason(smallest: Tried) -> str:
    told = smallest.reason.partition("; try")[0]
    if smallest.constrained:
        return f"batch {smallest.knobs.batch_size}: {told}"
    return f"batch {smallest.knobs.batch_size} does not fit: {told.rpartition(': ')[2] or told}"


def _costs(best: Tried, winner: Tried) -> list[str]:
    """Which part of the period, of a sample, is longer than the winner's; the one that adds most comes first."""
    more = []
    for name in ("compute", "transfer"):
        cycles, least = (getattr(tried, f"{name}_cycles") / _samples(tried) for tried in (best, winner))
        if cycles > 1.01 * least:
            more.append((cycles - least, f"{name} takes {cycles:,.0f} cycles a sample, the winner's {least:,.0f}"))
    return [text for _, text in sorted(more, reverse=True)][:1]


def _samples(tried: Tried) -> int:
    """The samples that its cycles are for: a micro-batch of every replica, or all that goes through the phases."""
    knobs = tried.knobs
    return knobs.n_samples // (1 if knobs.strategy is Strategy.PHASED else knobs.n_micro_batches)


def _bubble(best: Tried, winner: Tried) -> list[str]:
    if best.bubble_fraction is None or winner.bubble_fraction is None:
        return []
    if best.bubble_fraction <= winner.bubble_fraction + 0.005:
        return []
    return [f"{100 * best.bubble_fraction:.0f} % bubble, the winner's {100 * winner.bubble_fraction:.0f} %"]


def _limit(cell: CellFindings) -> list[str]:
    """What keeps the cell from a larger batch size."""
    if cell.first_unfit is None:
        return []
    return [f"batch {cell.first_unfit.knobs.batch_size} {reason_of(cell.first_unfit)}"]
