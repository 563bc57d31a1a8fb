"""Names of knobs, configurations and timelines in words: `shown_knobs`, `configuration`, `label`, `timeline_title`."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.knobs import Knobs, Strategy
from autoauto.records.schedule import Action, Schedule
from autoauto.records.study_summary import Finalist, Interval, StudySummary
from autoauto.records.timeline import Timeline
from autoauto.report.style import MEASURED_BY_DEVICES, measured_by

GRID = ("n_ipu", "replicas", "memory_proportion", "schedule", "recompute", "n_micro_batches", "strategy")
"""The knobs of a cell, in the order in which they are shown."""
ALL = "all"
"""The label of a cell when all cells have the same knobs."""
_ALWAYS_SHOWN = ("n_ipu", "memory_proportion")
_SHORT = {"memory_proportion": "memory", "n_micro_batches": "micro-batches"}


def shown_knobs(summary: StudySummary) -> list[str]:
    """The knobs that have a column in tables of cells: the two that every study has, and those that vary."""
    varying = varying_knobs(summary)
    return [name for name in GRID if name in _ALWAYS_SHOWN or name in varying]


def varying_knobs(summary: StudySummary) -> list[str]:
    """The knobs in which the cells of a study differ."""
    cells = [cell.knobs for cell in summary.cells]
    return [name for name in GRID if len({getattr(knobs, name) for knobs in cells}) > 1]


def relevant_knobs(knobs: Knobs) -> list[str]:
    """The knobs that matter for a configuration beside its batch size, for example the schedule only in training."""
    names = set(_ALWAYS_SHOWN)
    if knobs.training:
        names |= {"schedule", "recompute", "n_micro_batches"}
    if knobs.strategy is Strategy.PHASED:
        names |= {"strategy", "n_micro_batches"}
    if knobs.replicas > 1:
        names.add("replicas")
    return [name for name in GRID if name in names]


def knob_value(knobs: Knobs, name: str) -> str:
    """A knob's value as it is shown.

    >>> knob_value(Knobs(2, 0.6, 8), "recompute"), knob_value(Knobs(2, 0.6, 8), "memory_proportion")
    ('off', '0.6')
    """
    value = getattr(knobs, name)
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def label(knobs: Knobs, names: Sequence[str]) -> str:
    """A short name of a cell, made of the knobs that distinguish cells.

    >>> label(Knobs(2, 0.6, 8), ["memory_proportion"]), label(Knobs(2, 0.6, 8), [])
    ('memory 0.6', 'all')
    """
    values = (f"{_SHORT.get(name, name)} {knob_value(knobs, name)}" for name in names if name != "schedule")
    schedule = [str(knobs.schedule)] if "schedule" in names else []
    return ", ".join([*schedule, *values]) or ALL


def configuration(knobs: Knobs, names: Sequence[str]) -> str:
    """A configuration in words: the knobs in `names`, then the batch size.

    >>> configuration(Knobs(2, 0.6, 8), ["n_ipu"])
    'n_ipu 2, batch_size 8'
    """
    return ", ".join([*(f"{name} {knob_value(knobs, name)}" for name in names), f"batch_size {knobs.batch_size}"])


def origin_of(summary: StudySummary) -> str:
    """The origin of the study's measured numbers, for example "measured"."""
    return measured_by(summary.attributes.get("target", "ipu"))


def ran_on_devices(summary: StudySummary) -> bool:
    """Whether devices ran the plans, so that their periods were measured and are not sums of cycles."""
    return origin_of(summary) == MEASURED_BY_DEVICES


def clock_of(summary: StudySummary, finalist: Finalist) -> float | None:
    """The clock in Hz that turns the plan's cycles into time.

    None when devices ran the plan: its throughput was measured and does not follow from its cycles.
    """
    return None if ran_on_devices(summary) else finalist.clock_hz


def period_text(summary: StudySummary, finalist: Finalist) -> str:
    """How long a micro-batch takes once the pipeline is full; of a phased plan, how long all phases take."""
    trial = finalist.trial
    if ran_on_devices(summary):
        return f"{1e3 * trial.knobs.n_samples / trial.samples_per_s:,.3f} ms, {origin_of(summary)}"
    return f"{finalist.measured.cost_cycles:,} cycles, {origin_of(summary)}"


def speed_text(speed: Interval) -> str:
    """Samples per second, with the confidence interval where there is one.

    >>> speed_text(Interval(1234.56, 7.89)), speed_text(Interval(1234.56, None))
    ('1,234.6 ± 7.9', '1,234.6')
    """
    return f"{speed.mean:,.1f}" + ("" if speed.error is None else f" ± {speed.error:,.1f}")


def timeline_title(timeline: Timeline) -> str:
    """Order, number of micro-batches and origin of a timeline, as in "1f1b, 4 micro-batches, simulated"."""
    schedule = timeline.schedule
    plural = "es" if schedule.n_micro_batches > 1 else ""
    return f"{schedule.order}, {schedule.n_micro_batches:,} micro-batch{plural}, {timeline.source}"


def shows_stage(schedule: Schedule) -> bool:
    """Whether names of actions need the stage, as in "2F0", because a device runs stages other than its own number."""
    stages = map(schedule.codes.stages, schedule.programs)
    return any(bool((of_device != device).any()) for device, of_device in enumerate(stages))


def action_name(action: Action, with_stage: bool) -> str:
    """The name of an action in a picture.

    >>> action_name(Action.parse("2F0"), True), action_name(Action.parse("2F0"), False)
    ('2F0', 'F0')
    """
    return str(action) if with_stage else f"{action.kind}{action.micro_batch}"
