"""Names of knobs, configurations and timelines in words: `shown_knobs`, `configuration`, `label`, `timeline_title`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf

from autoauto.records.costs.decoder import DecoderFile
from autoauto.records.costs.options import TargetWords
from autoauto.records.interval import Interval
from autoauto.records.plans.plan import Stage
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Action, Schedule
from autoauto.records.target import Origin, studied_origin
from autoauto.records.units import format_bytes, format_number, three_digits
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import MAX_JOULES, USD_PER_MILLION, Result
from autoauto.space.objectives import Method, Objective
from autoauto.space.sessions import words_of_target
from autoauto.space.study_summary import CLOCK, Comparison, KnobChoice, StudySummary
from autoauto.space.table import COLUMNS, flat, flat_value, of_every, shown, varying
from autoauto.space.trial import Trial

CELL_KNOBS = tuple(knob for knob in COLUMNS if knob.name != "batch_size")
"""The knobs of a cell, in the order in which they are shown."""
_SHORT_MS, _LONG_MS = 0.01, 100.0
MAX_HEAD = 9
"""The most characters of a head in one line: a table of all knobs is then no wider than 80."""
ALL = "all"
"""The label of a cell when all cells have the same knobs."""


def shown_knobs(summary: StudySummary) -> list[str]:
    """The knobs that have a column in tables of cells: the ones that every study shows, and all that vary."""
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
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def compared_name(comparison: Comparison) -> str:
    """The name of what the winner is compared with, for people; JSON has auto_pipeline by its method, grid-bisect."""
    return "auto_pipeline" if comparison.name == Method.GRID_BISECT else comparison.name


def label(knobs: Knobs, names: Sequence[str]) -> str:
    """A short name of a cell, made of the knobs that distinguish cells; the schedule comes first, without its name."""
    labels = {knob.name: knob.label for knob in CELL_KNOBS}
    texts = [str(knobs.mode.order)] if "schedule" in names else []
    for name in names:
        if name != "schedule":
            texts.append(f"{labels[name] or knobs.session.words.name(name)} {knob_value(knobs, name)}")
    return ", ".join(texts) or ALL


def head(name: str) -> str:
    """The head of a knob's column; long names have two lines in the terminal.

    >>> head("memory_proportion"), head("KV cache"), head("tensor parallel")
    ('memory\\nproportion', 'KV cache', 'tensor\\nparallel')
    """
    split = max(name.rfind("_"), name.rfind(" "))
    if len(name) <= MAX_HEAD or split <= 0:
        return name
    return f"{name[:split]}\n{name[split + 1 :]}"


def configuration(knobs: Knobs) -> str:
    """A configuration in words: the knobs that matter, so the schedule only in training; the batch size last."""
    return _named_values(knobs, [*(knob.name for knob in shown(knobs) if knob in CELL_KNOBS), "batch_size"])


def _named_values(knobs: Knobs, names: Iterable[str]) -> str:
    called = knobs.session.words.name
    return ", ".join(f"{called(name)} {knob_value(knobs, name)}" for name in names)


def duration(cycles: float, clock_hz: float | None = None) -> str:
    """A number of cycles, or with their clock the time that they take.

    >>> duration(395_876_074), duration(395_876_074, 1e9), duration(1_234_567, 1e9), duration(40, 1e9)
    ('395,876,074 cycles', '395.9 ms', '1.235 ms', '0.040 µs')
    """
    if clock_hz is None:
        return f"{cycles:,.0f} cycles"
    ms = 1e3 * cycles / clock_hz
    if 0 < ms < _SHORT_MS:
        return f"{format_number(1e3 * ms, 3)} µs"
    return f"{format_number(ms)} ms" if ms >= _LONG_MS else f"{format_number(ms, 3)} ms"


def differing(knobs: Knobs, winner: Knobs, besides: str = "") -> str:
    """The knobs in which a configuration differs from the winner, without one of them; empty where all others agree.

    >>> differing(Knobs(2, 8), Knobs(1, 8, replicas=2), "n_ipu"), differing(Knobs(2, 8), Knobs(1, 8), "n_ipu")
    ('replicas 1', '')
    """
    own, other = flat(knobs), flat(winner)
    names = [*(knob.name for knob in CELL_KNOBS), "batch_size"]
    return _named_values(knobs, [name for name in names if own[name] != other[name] and name != besides])


def usage(knobs: Knobs) -> str:
    """A few words on how replicas and pipelines use the devices; empty for one session on one device.

    >>> usage(Knobs(1, 8, replicas=4)), usage(Knobs(4, 8)), usage(Knobs(1, 8, replicas=4, cores_per_device=2))
    ('4 replicas of 1 device', 'one pipeline of 4 devices', '4 sessions of 2 cores')
    """
    if knobs.is_phased:
        return "in phases" if knobs.n_ipu == 1 else "the same phases on each"
    words, is_alone = knobs.session.words, knobs.replicas == 1
    size = words.size(knobs.session.group_size)
    devices = f"{counted(knobs.n_ipu, words.device)}{size}"
    if knobs.n_ipu > 1 and is_alone:
        return f"one pipeline of {devices}"
    if knobs.n_ipu == 1 and size:
        return f"one {words.device}{size}" if is_alone else f"{knobs.replicas} {words.device}s{size}"
    return "" if is_alone else f"{knobs.replicas} replicas of {devices}"


def price_text(result: Result, sample: str) -> str:
    """The cost of samples by the prices of devices; empty if no price is known.

    >>> from autoauto.space.numbers import DeviceTotals
    >>> price_text(Result(1000.0, devices=DeviceTotals(2.5)), "token"), price_text(Result(1000.0), "token")
    ('$0.6944 a million tokens, $2.5 an hour', '')
    """
    usd = result.derived.get(USD_PER_MILLION)
    if usd is None:
        return ""
    return f"${usd:,.4g} a million {sample}s, ${result.devices.usd_per_hour:,.4g} an hour"


def energy_text(result: Result, sample: str) -> str:
    """An upper bound of the energy of a sample; empty where no power limit is known.

    >>> from autoauto.space.numbers import DeviceTotals
    >>> energy_text(Result(1000.0, devices=DeviceTotals(power_limit_w=700.0)), "token")
    'at most 0.7 J a token, at a limit of 700 W'
    """
    joules = result.derived.get(MAX_JOULES)
    if joules is None:
        return ""
    return f"at most {joules:,.4g} J a {sample}, at a limit of {result.devices.power_limit_w:,.4g} W"


def stage_devices(stage: Stage) -> str:
    """The devices of a stage, as in "2", or "2 to 4" where several run it in turn."""
    return f"{stage.device} to {stage.devices[-1]}" if stage.n_replicas > 1 else str(stage.device)


def headline(trial: Trial, origin: Origin | None, error: float | None = None) -> str:
    """Throughput of the cluster, how many of its devices are used and how, and the throughput of a part.

    Args:
        origin: of the throughput; it is left out where it is None.
        error: half the width of the confidence interval of several measurements. Without it the ends of the interval
            of the run are shown, where it has one.
    """
    knobs = trial.knobs
    texts: list[str] = []
    if has_groups(knobs):
        # Tokens a second with the ends of an interval: of our error, or of measurements.
        ends = trial.tokens.tokens_per_s_ends
        if error is not None:
            ends = trial.samples_per_s - error, trial.samples_per_s + error
        texts += [f"{speed_of(trial.samples_per_s)} {trial.unit}{interval_text(ends)}", groups_text(knobs)]
    else:
        noun, speeds = knobs.session.words.unit, []
        if trial.replica_samples_per_s not in (trial.samples_per_s, trial.device_samples_per_s):
            speeds.append(f"{format_number(trial.replica_samples_per_s)} a replica")
        if knobs.n_devices > 1:
            speeds.append(f"{format_number(trial.device_samples_per_s)} a {noun}")
        how = "; ".join(filter(None, [usage(knobs), ", ".join(speeds)]))
        speed = f"{speed_text(Interval(trial.samples_per_s, error))} {trial.unit}"
        if not error:
            speed += run_interval(trial)
        devices = f"{speed} on {counted(knobs.n_devices, noun)}"
        texts.append(f"{devices} ({how})" if how else devices)
    if origin is not None:
        texts.append(origin)
    return ", ".join(texts)


def run_interval(trial: Trial) -> str:
    """The ends of the interval of a measured throughput in brackets; empty without one.

    >>> from autoauto.space.trial import Status
    >>> run_interval(Trial(Knobs(1, 8), Status.OK, samples_per_s=80.0, low_samples_per_s=76.0, high_samples_per_s=84.5))
    ' (76.0 to 84.5)'
    >>> run_interval(Trial(Knobs(1, 8), Status.OK, samples_per_s=80.0, low_samples_per_s=76.0))
    ' (76.0 or more)'
    """
    ends = trial.result.ends
    if ends is None:
        return ""
    low, high = ends.low_per_s, ends.high_per_s
    return f" ({format_number(low)} or more)" if high == inf else f" ({format_number(low)} to {format_number(high)})"


def interval_text(ends: tuple[float, float] | None) -> str:
    """The ends of an interval in brackets; empty without one.

    >>> interval_text((6603.1, 10312)), interval_text(None)
    (' (6,600 to 10,300)', '')
    """
    if ends is None:
        return ""
    low, high = ends
    return f" ({three_digits(low)} to {three_digits(high)})"


def answer_line(summary: StudySummary) -> str:
    """The answer of a study in a line: what its winner gives, measured where engines were."""
    assert summary.winner is not None
    record = summary.engine_measurements
    if record is None or record.best is None:
        return headline(summary.winner, origin_of(summary), error_of(summary))
    row = record.best
    middle, share = row.tokens_per_s, row.turns[-1].half_width
    ends = None
    if share < 1:  # else the interval would reach down to 0
        ends = middle * (1 - share), middle * (1 + share)
    measured = f"{speed_of(middle)} tokens/s{interval_text(ends)}, {groups_text(row.knobs)}, {Origin.MEASURED}"
    return f"{measured} (forecast {speed_of(row.forecast.tokens_per_s.middle)})"


def serving_text(knobs: Knobs) -> str:
    """A configuration of engines in the abbreviations of the field: groups, stages, replicas, batch."""
    own = knobs.values
    words = [str(own["engine"])]
    if own["precision"]:
        words.append(str(own["precision"]))
    words.append(f"TP{own['tensor_parallel']}")
    if own["expert_parallel"] > 1:
        words.append(f"EP{own['expert_parallel']}")
    words += [f"PP{knobs.n_ipu}", f"x{knobs.replicas}", f"b{knobs.batch_size}"]
    if own["prefill_workers"]:
        words.append(f"+{own['prefill_workers']}xTP{own['prefill_tensor_parallel']}")
    return " ".join(words)


def time_text(seconds: float) -> str:
    """A duration to three digits: milliseconds below a second.

    >>> time_text(0.0229), time_text(1042.0)
    ('22.9 ms', '1,040 s')
    """
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{three_digits(seconds)} s"


def time_between_text(seconds: float, low_s: float | None, high_s: float | None) -> str:
    """A duration, and in brackets the ends of the interval in which it lies, where they are known.

    >>> time_between_text(0.05, 0.04, 0.0625), time_between_text(0.05, None, None)
    ('50 ms (40 ms to 62.5 ms)', '50 ms')
    """
    if not low_s or not high_s:
        return time_text(seconds)
    return f"{time_text(seconds)} ({time_text(low_s)} to {time_text(high_s)})"


def has_groups(knobs: Knobs) -> bool:
    """True if the configuration is one of serving engines on groups of GPUs."""
    return "tensor_parallel" in knobs.values


def groups_text(knobs: Knobs) -> str:
    """The layout of engines on GPUs: GPUs of a group, groups of a pipeline, and pipelines side by side."""
    stages, workers = counted(knobs.n_ipu, "stage"), knobs.values["prefill_workers"]
    replicas = f"{_group_text(knobs, '')} x {stages} x {counted(knobs.replicas, 'replica')}"
    if not workers:
        return replicas
    return f"{replicas}, and {_group_text(knobs, 'prefill_')} x {counted(workers, 'prefill worker')}"


def _group_text(knobs: Knobs, pool: str) -> str:
    """The ways in which GPUs of a group share a model; `pool` is the prefix of the knobs of a pool."""
    session = knobs.values
    group = f"tensor parallel {session[f'{pool}tensor_parallel']}"
    for name in ("attention_data_parallel", "expert_parallel"):
        if session[f"{pool}{name}"] > 1:
            group += f", {name.replace('_', ' ')} {session[f'{pool}{name}']}"
    return group


def prefill_text(trial: Trial) -> str:
    """Batch and load of the prefill workers, and the time in which keys and values move to a replica."""
    own, tokens = trial.knobs.values, trial.tokens
    prompts = counted(own["prefill_batch_size"], "prompt")
    moved = time_text(tokens.kv_transfer_s or 0.0)
    return f"{prompts} at a time, {tokens.prefill_busy_share or 0.0:.0%} of the time; KV cache moves in {moved}"


def measured_ratio(summary: StudySummary, choice: KnobChoice) -> float | None:
    """Tokens/s with another value of a knob, divided by the answer's; None unless engines measured both."""
    record = summary.engine_measurements
    if record is None or record.best is None:
        return None
    for row in record.rows:
        if row.knobs == choice.knobs and row.is_measured:
            return row.tokens_per_s / record.best.tokens_per_s
    return None


def speed_of(tokens_per_s: float) -> str:
    """Tokens a second: whole from 1,000 on."""
    return format_number(tokens_per_s, 0 if tokens_per_s >= 1000 else 1)


def choice_text(choice: KnobChoice) -> str:
    """A knob with another value, as people who serve text call it.

    >>> choice_text(KnobChoice("n_ipu", 2, Knobs(2, 8, tensor_parallel=4), 1.0, 0.5))
    'stages 2'
    """
    return f"{choice.knobs.session.words.name(choice.name)} {choice.value}"


def tie_text(choices: Iterable[KnobChoice]) -> str:
    """A line with the choices that tie with the winner, other batch sizes aside; empty without any."""
    ties = [each for each in choices if each.is_tie and each.is_searched and each.name != "batch_size"]
    texts = [f"{choice_text(each)} (x {each.ratio:.2f})" for each in ties]
    return f"not told apart from it: {', '.join(texts)}" if texts else ""


def unit_of(configurations: Iterable[Knobs]) -> str:
    """The unit of their throughput: samples/s, or tokens/s where text is generated.

    >>> unit_of([Knobs(2, 8)]), unit_of([])
    ('samples/s', 'samples/s')
    """
    first = next(iter(configurations), None)
    return "samples/s" if first is None else f"{first.mode.sample}s/s"


def objective_unit(objective: Objective, configurations: Iterable[Knobs]) -> str:
    """The unit of an objective's values, in the words of the target and the mode of configurations."""
    some = list(configurations)
    sample = some[0].mode.sample if some else "sample"
    return _unit_in(objective, words_of(some), sample)


def stored_unit(objectives: str, target: str, *, is_text: bool) -> str:
    """The unit of the first objective of a stored study, whose target's name and version is a text."""
    words = words_of_target(re.split(r"\W", target, maxsplit=1)[0])
    sample = "token" if is_text else "sample"
    return _unit_in(Objective(objectives.partition(",")[0]), words, sample)


def _unit_in(objective: Objective, words: TargetWords, sample: str) -> str:
    if objective.is_throughput:
        return f"{sample}s/s"
    if objective is Objective.PER_DEVICE and words.names:  # where cycles are those of a clock of 1 GHz
        return f"{words.unit} ns / {sample}"
    return objective.unit


def words_of(configurations: Iterable[Knobs]) -> TargetWords:
    """The words of the configurations' target; of no configuration, general words.

    >>> words_of([Knobs(1, 8, tensor_parallel=2)]).name("n_ipu"), words_of([]).name("n_ipu")
    ('stages', 'n_ipu')
    """
    first = next(iter(configurations), None)
    return TargetWords() if first is None else first.session.words


def error_of(summary: StudySummary) -> float | None:
    """Half the width of the confidence interval of the winner's throughput; None for a single measurement."""
    if summary.verification is None or summary.verification.winner.speed is None:
        return None
    return summary.verification.winner.speed.error


def origin_of(summary: StudySummary) -> Origin:
    """The origin of the winner's numbers, for example "measured"; without a winner, of all trials."""
    if summary.winner is not None and summary.winner.origin is not None:
        return summary.winner.origin
    return studied_origin(summary.attributes)


def trials_origin(summary: StudySummary) -> str:
    """The origins of all trials' numbers in words; there are two if engines measured some of the modelled trials."""
    studied = studied_origin(summary.attributes)
    others = [trial.origin for trial in summary.trials if trial.origin is not None]
    return " and ".join(dict.fromkeys([studied, *others]))


def ran_on_devices(summary: StudySummary) -> bool:
    """True if periods were measured on devices; False if they are sums of cycles."""
    return studied_origin(summary.attributes) is Origin.MEASURED


def shown_clock(summary: StudySummary) -> float | None:
    """The clock in Hz with which the cycles of a study are shown as time; None where they are shown as cycles."""
    stored = summary.attributes.get(CLOCK)
    if stored is not None:
        return float(stored)
    return clock_of_trial(summary.winner) if summary.winner else None


def clock_of_trial(trial: Trial) -> float | None:
    """The clock in Hz with which a trial's cycles are shown as time: the host's if a runtime ran it, else None."""
    return None if trial.knobs.session.runtime is None else 1e9  # a cycle of the host is a nanosecond


def clock_of(summary: StudySummary, finalist: Trial) -> float | None:
    """The clock in Hz that turns the plan's cycles into time.

    None when devices ran the plan and it has cycles: its throughput was measured and does not follow from these.
    """
    shown_hz = shown_clock(summary)
    if shown_hz is not None or ran_on_devices(summary):
        return shown_hz
    # The throughput is clock * samples / cycles, so the clock follows from it and the cycles of all these samples.
    knobs, plan = finalist.knobs, finalist.plan
    n_steps = knobs.mode.n_micro_batches if knobs.training else 1
    cycles = finalist.step.makespan_cycles or plan.mean_cost_cycles
    slowest_cycles = max(cycles, n_steps * plan.host_bound_cycles)
    return finalist.samples_per_s * slowest_cycles / knobs.n_samples


def speed_text(speed: Interval, unit: str = "samples/s") -> str:
    """Samples or tokens per second, with the confidence interval where there is one.

    >>> speed_text(Interval(1234.56, 7.89)), speed_text(Interval(1234.56, None))
    ('1,234.6 ± 7.9', '1,234.6')
    >>> speed_text(Interval(1234.56, None), "tokens/s")
    '1,235'
    """
    if speed.error is not None:
        return f"{format_number(speed.mean)} ± {format_number(speed.error)}"
    return speed_of(speed.mean) if unit == "tokens/s" else format_number(speed.mean)


def timeline_title(timeline: Timeline) -> str:
    """Order, number of micro-batches and origin of a timeline, as in "1f1b, 4 micro-batches, simulated"."""
    schedule = timeline.schedule
    return f"{schedule.order_name}, {counted(schedule.n_micro_batches, 'micro-batch', 'es')}, {timeline.origin}"


def counted(n: int, what: str, plural: str = "s") -> str:
    """A number of things."""
    return f"{n:,} {what}{plural if n > 1 else ''}"


def shows_stage(schedule: Schedule) -> bool:
    """True if names of actions need the stage, as in "2F0": a device runs a stage that has not the device's number."""
    stages = map(schedule.codes.stages, schedule.programs)
    return any(bool((of_device != device).any()) for device, of_device in enumerate(stages))


def action_name(action: Action, with_stage: bool) -> str:
    """The name of an action in a picture.

    >>> action_name(Action.parse("2F0"), True), action_name(Action.parse("2F0"), False)
    ('2F0', 'F0')
    """
    return str(action) if with_stage else f"{action.kind}{action.micro_batch}"


def outside_text(summary: StudySummary) -> str:
    """A line on how many trials of a study its answer leaves out, and why; empty if there are none."""
    n_outside, n_foreign = summary.left_out
    texts = []
    if n_outside == 1:
        texts.append("1 further trial of the study lies outside the space of its last search")
    elif n_outside:
        texts.append(f"{n_outside:,} further trials of the study lie outside the space of its last search")
    if n_foreign:
        trials = "1 trial is" if n_foreign == 1 else f"{n_foreign:,} trials are"
        texts.append(f"{trials} left out: of another program, or edited")
    return "; ".join(texts)


def decoder_lines(file: DecoderFile) -> tuple[str, ...]:
    """Lines on a decoder and its file, from the header of the file."""
    decoder, experts = file.decoder, file.decoder.experts
    heads = f"{decoder.n_heads} heads of {decoder.head_size}, {decoder.n_kv_heads} of keys and values"
    wide = f"{decoder.intermediate_size:,} wide between"
    if experts is not None:
        wide = f"{experts.n_experts} experts {experts.intermediate_size:,} wide, {experts.n_chosen} of them for a token"
    tokens = f"tokens: {decoder.vocabulary_size:,} in the vocabulary"
    if decoder.checkpoint.max_length is not None:
        tokens += f", sequences of up to {decoder.checkpoint.max_length:,}"
    if decoder.is_tied:
        tokens += ", one matrix for embedding and head"
    return (
        f"{decoder.name}: a decoder of architecture {decoder.architecture}, most weights in {file.weights}, "
        f"{format_bytes(file.n_bytes)}",
        f"blocks: {decoder.n_layers}, {decoder.hidden_size:,} wide; {heads}; {wide}",
        tokens,
    )
