"""Why configurations won or lost, in words: `what_binds` a plan, `why_not` of a cell, `short_reason` of a trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from autoauto.records.hardware import Period
from autoauto.records.plans.phased import Phase, PhasedPlan
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import digits, format_bytes
from autoauto.report.wording import duration, shown_clock
from autoauto.space.modes.mode import Mode
from autoauto.space.study_summary import StudySummary, Verdict
from autoauto.space.trial import Cell, Status, Trial


class BindingFact(NamedTuple):
    """Something that binds a plan.

    Attributes:
        name: "compute", "transfer", "memory", "bubble" (fill and drain) or "imbalance".
        text: the stage or phase that the number belongs to, and its share.
        share: the share of the period, of the limit or of the time, from 0 to 1.
        cycles: the number, where it is one of cycles.
    """

    name: str
    headline: str
    text: str
    share: float
    cycles: int = 0


def what_binds(
    finalist: Trial,
    ran: bool = False,
    transferred: Sequence[tuple[str, int]] = (),
    clock_hz: float | None = None,
) -> tuple[BindingFact, ...]:
    """The slowest compute, the longest transfer, the fullest memory and, in training, bubble and imbalance.

    Args:
        ran: whether devices ran the plan; the sum of its cycles is then not its period.
        transferred: the largest tensors of the longest transfer, with their bytes, where they are known.
    """
    plan, mode = finalist.plan, finalist.knobs.mode
    if isinstance(plan, PhasedPlan):
        facts = _phase_facts(mode, plan)
    else:
        whole = "both together" if ran else "the period"
        facts = _stage_facts(mode, plan, whole, transferred, clock_hz)
    return (*facts, *_idle_facts(finalist))


def _idle_facts(finalist: Trial) -> Iterator[BindingFact]:
    """The time in which devices wait in training: while the pipeline fills and drains, and for the slowest of them.

    The slowest device waits only while the pipeline fills and drains; any other also as much as it computes less.
    """
    idle, plan = finalist.step.bubble_fraction, finalist.plan
    if idle is None:
        return
    # Devices work for the share 1 - idle of the time in the mean, and the balance is the mean work over that of the
    # slowest device. So the slowest works for the ratio of both, and waits only for the rest.
    bubble = max(0.0, 1.0 - (1.0 - idle) / max(plan.balance, 1e-9))
    yield BindingFact("bubble", f"{100 * bubble:.1f} %", "of all devices' time to fill and drain, simulated", bubble)
    imbalance = idle - bubble
    if imbalance >= 0.0005:  # less is shown as 0.0 %
        text = "of all devices' time, in which they wait for the slowest, simulated"
        yield BindingFact("imbalance", f"{100 * imbalance:.1f} %", text, imbalance)


def part_names(plan: Plan | PhasedPlan) -> list[str]:
    """The names of all stages or phases; where replicas have different plans, with the numbers of the replicas."""
    if isinstance(plan, PhasedPlan) or not plan.other_plans:
        return [f"{plan.part_name} {index}" for index in range(len(plan.parts))]
    names = []
    for each, replicas in zip(plan.plans, plan.replica_numbers, strict=True):
        numbers = ", ".join(map(str, replicas))
        names += [f"stage {index} of replica {numbers}" for index in range(len(each.stages))]
    return names


def _stage_facts(
    mode: Mode, plan: Plan, whole: str, transferred: Sequence[tuple[str, int]], clock_hz: float | None
) -> tuple[BindingFact, ...]:
    facts = []
    for name, does in (("compute", "computes"), ("transfer", "transfers")):
        slowest = max(plan.stages, key=lambda stage: getattr(stage, f"{name}_cycles") / stage.n_replicas)
        cycles: int = getattr(plan, f"{name}_cycles")
        share = cycles / max(plan.cost_cycles, 1)
        text = f"{_name(mode, plan, slowest)} {does} longest, {100 * share:.0f} % of {whole}"
        if not getattr(plan, f"{name}_bottlenecks") and plan.period is not Period.SERIAL:
            text += ", hidden behind the host" if plan.host_binds else ", hidden behind the other"
        if name == "transfer" and transferred:
            largest = ", ".join(f"{tensor} {format_bytes(n_bytes)}" for tensor, n_bytes in transferred)
            text += f"; largest: {largest}"
        facts.append(BindingFact(name, duration(cycles, clock_hz), text, share, cycles))
    return (*facts, _memory(mode, plan))


def _phase_facts(mode: Mode, plan: PhasedPlan) -> tuple[BindingFact, ...]:
    cycles, slowest = max(zip(plan.phase_cycles, plan.phases, strict=True), key=lambda pair: pair[0])
    share = cycles / max(plan.cost_cycles, 1)
    transfer_share = min(plan.transfer_cycles / max(plan.cost_cycles, 1), 1.0)
    text = f"{_name(mode, plan, slowest)} takes longest, {100 * share:.0f} % of all phases"
    transfers = "of loads and stores in all phases, variables included"
    return (
        BindingFact("compute", duration(cycles), text, share),
        BindingFact("transfer", duration(plan.transfer_cycles), transfers, transfer_share),
        _memory(mode, plan),
    )


def _memory(mode: Mode, plan: Plan | PhasedPlan) -> BindingFact:
    parts: tuple[Stage | Phase, ...] = plan.parts
    fullest = max(parts, key=lambda part: part.total_bytes - part.limit_bytes)
    share = fullest.total_bytes / max(fullest.limit_bytes, 1)
    used = f"{format_bytes(fullest.total_bytes)} of {format_bytes(fullest.limit_bytes)}"
    spare = format_bytes(fullest.limit_bytes - fullest.total_bytes)
    return BindingFact("memory", f"{spare} to spare", f"{_name(mode, plan, fullest)} is fullest: {used}", share)


def _name(mode: Mode, plan: Plan | PhasedPlan, part: Stage | Phase) -> str:
    layers = mode.parts_text(part.layers, plan.partition[-1])
    return f"{part_names(plan)[plan.parts.index(part)]}, {layers},"


def why_not(cell: Cell, summary: StudySummary) -> str:
    """One sentence on why a cell lost or could not run; "the winner" for the cell that won."""
    if cell.best is None:
        return _reason_in_full(cell.trials[0])
    assert summary.winner is not None
    best, winner = cell.best, summary.winner
    if best.number == winner.number:
        return "the winner"
    loss_percent = summary.loss_percent(best)
    if loss_percent < 0:
        return _faster_yet_no_winner(summary, best)
    if loss_percent < 0.05:  # what is shown as 0.0 %
        causes = ["as good, but found later"]
    else:
        # The rates of arrivals that keep all bounds, where they were searched and none was given.
        rate, of_winner = best.result.value("rate_per_s"), winner.result.value("rate_per_s")
        if rate is None or of_winner is None or rate == of_winner:
            causes = _longer_part(best, winner, shown_clock(summary))
        else:
            causes = [f"keeps the bounds up to {digits(rate)} requests/s, the winner up to {digits(of_winner)}"]
        idle, of_winner = best.step.bubble_fraction, winner.step.bubble_fraction
        if idle is not None and of_winner is not None and idle > of_winner + 0.005:
            causes.append(f"{100 * idle:.0f} % idle, the winner's {100 * of_winner:.0f} %")
    if cell.first_unfit is not None:  # what keeps the cell from a larger batch size
        causes.append(f"batch {cell.first_unfit.knobs.batch_size} {short_reason(cell.first_unfit)}")
    return "; ".join(causes) or "a little slower in everything"


def _reason_in_full(trial: Trial) -> str:
    reason = trial.reason.partition("; try")[0]
    if trial.status is Status.UNSUPPORTED:
        return reason
    if trial.status in (Status.CONSTRAINED, Status.ENDED_EARLY):
        return f"batch {trial.knobs.batch_size}: {reason}"
    return f"batch {trial.knobs.batch_size} does not fit: {reason.rpartition(': ')[2] or reason}"


def reason_of_choice(reason: str) -> str:
    """The reason why another value of a knob does not fit, without the hints on what would fit.

    >>> reason_of_choice("every stage must fit, but at best one lacks 9: layers need 3; it fits from 4 GPUs on; try 4")
    'layers need 3'
    """
    return reason.partition("; try")[0].partition("; it fits")[0].rpartition(": ")[2]


def _faster_yet_no_winner(summary: StudySummary, best: Trial) -> str:
    """The reason why a configuration that was faster than the winner is not the winner."""
    verification, when = summary.verification, ""
    if verification is not None:
        if best.knobs not in [row.knobs for row in verification.repeated]:
            return "below the best of the search, which were measured again"
        if verification.winner_index:  # the best of the search did not stay the best
            if verification.verdict is not Verdict.TIE:
                return "slower than the winner when measured again"
            when = " when measured again"
    return f"as good as the winner within the noise{when}; the winner is simpler"


def _longer_part(best: Trial, winner: Trial, clock_hz: float | None) -> list[str]:
    """The part of the period that exceeds the winner's by most, for a sample; empty if neither does by 1 %."""
    longer = []
    for name in ("compute", "transfer"):
        cycles = getattr(best, f"{name}_cycles") / _n_samples(best)
        of_winner = getattr(winner, f"{name}_cycles") / _n_samples(winner)
        if cycles > 1.01 * of_winner:
            other = f"{of_winner:,.0f}" if clock_hz is None else duration(of_winner, clock_hz)
            text = f"{name} takes {duration(cycles, clock_hz)} a {best.knobs.mode.sample}, the winner's {other}"
            longer.append((cycles - of_winner, text))
    return [text for _, text in sorted(longer, reverse=True)][:1]


def _n_samples(trial: Trial) -> int:
    """The samples of the trial's cycles: a micro-batch of every replica, or all that pass through the phases."""
    knobs = trial.knobs
    return knobs.n_samples if knobs.is_phased else knobs.n_samples // knobs.mode.n_micro_batches


def short_reason(trial: Trial) -> str:
    """The reason why a configuration does not fit, in a few words; empty if it fits."""
    if not trial.excess_bytes:
        return trial.reason.partition("; try")[0]
    lacks = f"lacks {format_bytes(trial.excess_bytes)}"
    return f"{lacks} compiled whole" if trial.was_measured else lacks
