"""Names of knobs, configurations and timelines in words: `shown_knobs`, `configuration`, `label`, `timeline_title`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autoauto.records.interval import Interval
from autoauto.records.plans.plan import Stage
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Action, Schedule
from autoauto.records.target import Origin, studied_origin
from autoauto.report.style import assumed_text
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method
from autoauto.space.study_summary import CLOCK, Comparison, StudySummary
from autoauto.space.table import COLUMNS, flat, flat_value, of_every, shown, varying
from autoauto.space.trial import Trial

CELL_KNOBS = tuple(knob for knob in COLUMNS if knob.name != "batch_size")
"""The knobs of a cell, in the order in which they are shown."""
_BATCH = tuple(knob for knob in COLUMNS if knob.name == "batch_size")
_SHORT_MS, _LONG_MS = 0.01, 100.0
_HOST_HZ = 1e9  # a cycle of the host is a nanosecond
MAX_HEAD = 9
"""The most characters of a head in one line: a table of all knobs is then no wider than 80."""
ALL = "all"
"""The label of a cell when all cells have the same knobs."""


def shown_knobs(summary: StudySummary) -> list[str]:
    """The knobs that have a column in tables of cells: the two that every study has, and those that vary."""
    names = {*of_every([cell.knobs for cell in summary.cells]), *varying_knobs(summary)}
    return [knob.name for knob in CELL_KNOBS if knob.name in names]


def varying_knobs(summary: StudySummary) -> list[str]:
    """The knobs in which the cells of a study differ."""
    return [name for name in varying(cell.knobs for cell in summary.cells) if name != "batch_size"]


def knob_value(knobs: Knobs, name: str) -> str:
    """A knob's value as it is shown.

    >>> knob_value(Knobs(2, 8), "recompute"), knob_value(Knobs(2, 8), "memory_proportion")
    ('off', '0.6')
    """
    value = flat_value(knobs, name)
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def compared_name(comparison: Comparison) -> str:
    """The name of what the winner is compared with, for people; JSON has auto_pipeline by its method, grid-bisect."""
    return "auto_pipeline" if comparison.name == Method.GRID_BISECT else comparison.name


def label(knobs: Knobs, names: Sequence[str]) -> str:
    """A short name of a cell, made of the knobs that distinguish cells.

    >>> label(Knobs(2, 8), ["memory_proportion"]), label(Knobs(2, 8), [])
    ('memory 0.6', 'all')
    """
    labels = {knob.name: knob.label or knob.name for knob in CELL_KNOBS}
    values = (f"{labels[name]} {knob_value(knobs, name)}" for name in names if name != "schedule")
    schedule = [str(knobs.mode.order)] if "schedule" in names else []
    return ", ".join([*schedule, *values]) or ALL


def head(name: str) -> str:
    """The head of a knob's column; long names have two lines in the terminal."""
    first, _, rest = name.rpartition("_")
    return f"{first}\n{rest}" if len(name) > MAX_HEAD else name


def configuration(knobs: Knobs) -> str:
    """A configuration in words: the knobs that matter, for example the schedule only in training; the batch size last.

    >>> configuration(Knobs(2, 8))
    'n_ipu 2, memory_proportion 0.6, batch_size 8'
    """
    names = [knob.name for knob in shown(knobs) if knob in CELL_KNOBS]
    return ", ".join(f"{name} {knob_value(knobs, name)}" for name in (*names, "batch_size"))


def duration(cycles: float, clock_hz: float | None = None) -> str:
    """A number of cycles, or with their clock the time that they take.

    >>> duration(395_876_074), duration(395_876_074, 1e9), duration(1_234_567, 1e9), duration(40, 1e9)
    ('395,876,074 cycles', '395.9 ms', '1.235 ms', '0.040 µs')
    """
    if clock_hz is None:
        return f"{cycles:,.0f} cycles"
    ms = 1e3 * cycles / clock_hz
    if 0 < ms < _SHORT_MS:
        return f"{1e3 * ms:.3f} µs"
    return f"{ms:,.1f} ms" if ms >= _LONG_MS else f"{ms:,.3f} ms"


def difference(knobs: Knobs, winner: Knobs) -> str:
    """The knobs in which a configuration differs from the winner, in words.

    >>> difference(Knobs(2, 8), Knobs(1, 8, replicas=2)), difference(Knobs(2, 8), Knobs(2, 8))
    ('n_ipu 2, replicas 1', 'the same configuration')
    """
    own, other = flat(knobs), flat(winner)
    names = [knob.name for knob in (*CELL_KNOBS, *_BATCH) if own[knob.name] != other[knob.name]]
    return ", ".join(f"{name} {knob_value(knobs, name)}" for name in names) or "the same configuration"


def usage(knobs: Knobs) -> str:
    """How a configuration uses its devices, in words.

    >>> usage(Knobs(1, 8, replicas=4)), usage(Knobs(4, 8)), usage(Knobs(1, 8, cores_per_device=2))
    ('4 replicas of 1 device', 'one pipeline of 4 devices', 'one session of 2 cores')
    """
    if knobs.is_phased:
        return "in phases" if knobs.n_ipu == 1 else "the same phases on each"
    devices = "1 device" if knobs.n_ipu == 1 else f"{knobs.n_ipu} devices"
    n_cores = knobs.session.cores_per_device
    cores = f" of {knobs.session.group.partition(' of ')[2].format(n_cores)}" if n_cores > 1 else ""
    if knobs.replicas > 1:
        return f"{knobs.replicas} replicas of {devices}{cores}"
    if knobs.n_ipu > 1:
        return f"one pipeline of {devices}{cores}"
    return f"one {knobs.session.group.format(n_cores)}" if cores else ""


def stage_devices(stage: Stage) -> str:
    """The devices of a stage, as in "2", or "2 to 4" where several run it in turn."""
    return f"{stage.device} to {stage.devices[-1]}" if stage.n_replicas > 1 else str(stage.device)


def headline(trial: Trial, origin: Origin | None, error: float | None = None) -> str:
    """Throughput of the cluster, how many of its devices are used and how, and the throughput of a part.

    With half the width of its confidence interval where it was measured several times.

    >>> from autoauto.space.trial import Status
    >>> headline(Trial(Knobs(2, 8, replicas=4), Status.OK, samples_per_s=800.0), Origin.ESTIMATED)
    '800.0 samples/s on 8 devices (4 replicas of 2 devices; 200.0 a replica, 100.0 a device), estimated'
    """
    knobs = trial.knobs
    noun = knobs.session.group.rpartition(" ")[2].removesuffix("s") if knobs.session.cores_per_device > 1 else "device"
    parts = []
    if trial.replica_samples_per_s not in (trial.samples_per_s, trial.device_samples_per_s):
        parts.append(f"{trial.replica_samples_per_s:,.1f} a replica")
    if knobs.n_devices > 1:
        parts.append(f"{trial.device_samples_per_s:,.1f} a {noun}")
    how = "; ".join(filter(None, [usage(knobs), ", ".join(parts)]))
    devices = f"{knobs.n_devices} {noun}{'s' if knobs.n_devices > 1 else ''}"
    speed = f"{speed_text(Interval(trial.samples_per_s, error))} {trial.unit} on {devices}{f' ({how})' if how else ''}"
    return speed if origin is None else f"{speed}, {origin}"


def unit_of(configurations: Iterable[Knobs]) -> str:
    """The unit of their throughput: samples/s, or tokens/s where text is generated.

    >>> unit_of([Knobs(2, 8)]), unit_of([])
    ('samples/s', 'samples/s')
    """
    first = next(iter(configurations), None)
    return "samples/s" if first is None else f"{first.mode.sample}s/s"


def error_of(summary: StudySummary) -> float | None:
    """Half the width of the confidence interval of the winner's throughput; None for a single measurement."""
    speed = summary.verification and summary.verification.winner.speed
    return speed.error if speed else None


def origin_of(summary: StudySummary) -> Origin:
    """The origin of the numbers of the study's trials, for example "measured"."""
    return studied_origin(summary.attributes)


def ran_on_devices(summary: StudySummary) -> bool:
    """True if periods were measured on devices; False if they are sums of cycles."""
    return origin_of(summary) is Origin.MEASURED


def shown_clock(summary: StudySummary) -> float | None:
    """The clock in Hz with which the cycles of a study are shown as time; None where they are shown as cycles."""
    stored = summary.attributes.get(CLOCK)
    if stored is not None:
        return float(stored)
    return clock_of_trial(summary.winner) if summary.winner else None


def clock_of_trial(trial: Trial) -> float | None:
    """The clock in Hz with which a trial's cycles are shown as time: the host's if a runtime ran it, else None."""
    return None if trial.knobs.session.runtime is None else _HOST_HZ


def clock_of(summary: StudySummary, finalist: Trial) -> float | None:
    """The clock in Hz that turns the plan's cycles into time.

    None when devices ran the plan and it has cycles: its throughput was measured and does not follow from these.
    """
    shown_hz = shown_clock(summary)
    if shown_hz is not None or ran_on_devices(summary):
        return shown_hz
    knobs, plan = finalist.knobs, finalist.plan
    steps = knobs.mode.n_micro_batches if knobs.training else 1
    host_cycles = steps * plan.host_bound_cycles
    cycles = max(finalist.step.makespan_cycles or plan.mean_cost_cycles, host_cycles)
    return finalist.samples_per_s * cycles / knobs.n_samples


def speed_text(speed: Interval) -> str:
    """Samples per second, with the confidence interval where there is one.

    >>> speed_text(Interval(1234.56, 7.89)), speed_text(Interval(1234.56, None))
    ('1,234.6 ± 7.9', '1,234.6')
    """
    return f"{speed.mean:,.1f}" + ("" if speed.error is None else f" ± {speed.error:,.1f}")


def timeline_title(timeline: Timeline) -> str:
    """Order, number of micro-batches and origin of a timeline, as in "1f1b, 4 micro-batches, simulated"."""
    schedule = timeline.schedule
    return f"{schedule.order_name}, {counted(schedule.n_micro_batches, 'micro-batch', 'es')}, {timeline.origin}"


def counted(n: int, what: str, plural: str = "s") -> str:
    """A number of things.

    >>> counted(1, "device"), counted(1000, "micro-batch", "es")
    ('1 device', '1,000 micro-batches')
    """
    return f"{n:,} {what}{plural if n > 1 else ''}"


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


def notes_text(summary: StudySummary) -> str:
    """What was assumed of the model and the numbers of a study, one line; nothing when there is nothing."""
    return assumed_text(summary.notes)


def outside_text(summary: StudySummary) -> str:
    """How many trials of a study its answer leaves out, and why, one line; nothing when there are none."""
    n_outside, n_foreign = summary.left_out
    which = "1 further trial of the study lies" if n_outside == 1 else f"{n_outside:,} further trials of the study lie"
    others = "1 trial is" if n_foreign == 1 else f"{n_foreign:,} trials are"
    said = [f"{which} outside the space of its last search"] if n_outside else []
    said += [f"{others} left out: of another program, or edited"] if n_foreign else []
    return "; ".join(said)
