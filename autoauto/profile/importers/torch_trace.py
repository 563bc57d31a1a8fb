"""Traces of PyTorch, `read_torch_trace`: what `torch.profiler.profile.export_chrome_trace` writes [torch-profiler].

Every `torch.profiler.record_function` is an event of category "user_annotation"; the outermost are the layers here:

    with profile(record_shapes=True, profile_memory=True) as recorded:
        for batch in batches:
            for name, block in model.named_children():
                with record_function(name):
                    batch = block(batch)
            loss(batch).backward()

What is read, times being microseconds [trace-events]:

    forward         the event of the block; where there are kernels of a device, those that were launched in it
    backward        events "autograd::engine::evaluate_function: ..." to which an arrow of category "fwdbwd" leads from
                    the block, and those that follow without an arrow, which add up gradients
    parameters      what "torch::autograd::AccumulateGrad" adds to, in the backward pass of the block
    outputs         the first tensor that an operator after the block reads; inputs those of the first block
    activations     what was allocated in the block and not freed, events `[memory]`; the peak is temporary memory
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, field

from autoauto.profile.importers.batch_axis import batch_note
from autoauto.profile.importers.importer import Importer
from autoauto.profile.importers.recorded import MAX_S, RecordedLayer, RecordedProfile, with_boundaries
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MAX_NUMBER, Whole
from autoauto.records.files.json import from_plain, read_json

_NOT_LAYERS = ("ProfilerStep#", "Optimizer.")
_GRADIENT = "autograd::engine::evaluate_function: "
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
_BYTES = (
    dict.fromkeys(("double", "long int", "long", "c10::complex<float>"), 8)
    | dict.fromkeys(("float", "int"), 4)
    | dict.fromkeys(("c10::Half", "c10::BFloat16", "short", "short int"), 2)
    | dict.fromkeys(("bool", "unsigned char", "signed char", "c10::Float8_e4m3fn", "c10::Float8_e5m2"), 1)
)
"""Bytes of an element by its type, as C++ names it."""
_FEW_S = 1e6 * MAX_S
Microseconds = Annotated[float, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]


class _TorchEvent(Struct):
    name: str = ""
    ph: str = ""
    cat: str | None = ""
    ts: Microseconds = 0.0
    dur: Annotated[float, Meta(ge=0, le=_FEW_S)] = 0.0
    tid: Any = None
    id: Any = None
    args: dict[str, Any] = {}

    @property
    def stop(self) -> float:
        """The end of the event, in microseconds of the trace."""
        return self.ts + self.dur


class _TorchTrace(Struct):
    events: list[_TorchEvent] = field(name="traceEvents")


class _Inputs(Struct):
    """The inputs of an operator, where shapes were recorded; those of lists of tensors are nested."""

    shapes: list[Any] = field(name="Input Dims", default_factory=list)
    kinds: list[str] = field(name="Input type", default_factory=list)


_ReadTensor = tuple[list[int], str]
"""The shape of a tensor that an operator reads, and the type of its elements as C++ names it."""


class _Allocation(Struct):
    n_bytes: Annotated[int, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)] = field(name="Bytes")
    device: int = field(name="Device Type", default=0)


class _BlockRun(NamedTuple):
    """One run of a block; its numbers as in `RecordedLayer`."""

    forward_s: float
    backward_s: float
    parameter_bytes: float
    activation_bytes: float
    temporary_bytes: float
    input_bytes: float
    output_bytes: float


Events = Sequence[_TorchEvent]
_start, _first = attrgetter("ts"), itemgetter(0)


def read_torch_trace(path: Path, details: Path | None = None, batch_size: int | None = None) -> RecordedProfile:
    """The blocks of a trace with the medians of all runs but the first, which warms up.

    Raises:
        BadInput: it is no such trace, has no blocks or shapes, is of another batch size, or not all blocks ran equally
            often.
    """
    if details is not None:
        raise BadInput(f"a trace of PyTorch is one file, got --profile-details {details} too; leave it out")
    plain = read_json(path)
    trace = _Trace.of(path, from_plain(_TorchTrace, plain, str(path)).events)
    blocks_of = _blocks(path, trace.events)
    for name, blocks in blocks_of.items():
        _check_one_size(trace, name, blocks)
    n_runs = len(next(iter(blocks_of.values())))
    batch_notes = batch_note(
        (trace.input_shape(blocks[-1]) for blocks in blocks_of.values()),
        batch_size or 1,
        path,
        "a block must read an axis of the batch size",
        " of the first; give the batch size of the trace: --profile B=FILE",
    )
    # What follows the last block up to the next run of the model is of this run.
    starts = [block.ts for block in next(iter(blocks_of.values()))][1:]
    layers: list[RecordedLayer] = []
    boundaries: list[float] = []
    for name, blocks in blocks_of.items():
        runs = [trace.run(block, end) for block, end in zip(blocks, [*starts, float("inf")], strict=True)]
        counted = runs[1:] or runs  # the first one warms up
        middle = _BlockRun(*map(median, zip(*counted, strict=True)))
        if not boundaries:
            boundaries.append(middle.input_bytes)
        boundaries.append(middle.output_bytes)
        layers.append(
            RecordedLayer(
                name=name,
                forward_s=middle.forward_s,
                backward_s=middle.backward_s,
                parameter_bytes=middle.parameter_bytes,
                activation_bytes=max(middle.activation_bytes, middle.output_bytes),
                temporary_bytes=middle.temporary_bytes,
            )
        )
    if not boundaries[-1]:
        batch_notes += (f"{path.name}: nothing reads what the last block writes; it counts as 0 bytes",)
    notes = (*trace.notes(n_runs), *batch_notes)
    return RecordedProfile(path.stem, {batch_size or 1: with_boundaries(layers, boundaries)}, notes)


class _Level(NamedTuple):
    """Annotations that lie in no other of a list, and those that lie in them."""

    outer: list[_TorchEvent]
    inner: list[_TorchEvent]


def _level(annotations: Events) -> _Level:
    stop: dict[str, float] = {}
    level = _Level([], [])
    for event in annotations:
        if event.ts >= stop.get(str(event.tid), -MAX_NUMBER):
            level.outer.append(event)
            stop[str(event.tid)] = event.stop
        else:
            level.inner.append(event)
    return level


def _levels(events: Events) -> list[_Level]:
    """Annotations from the outermost inwards, until there are several names: one around all blocks is no block."""
    annotations = []
    for event in events:
        if event.cat == "user_annotation" and event.ph == "X" and not event.name.startswith(_NOT_LAYERS):
            annotations.append(event)
    levels = [_level(annotations)]
    while len(_names(levels[-1].outer)) == 1 and len(_names(levels[-1].inner)) > 1:
        levels.append(_level(levels[-1].inner))
    return levels


def _names(events: Events) -> list[str]:
    return list(dict.fromkeys(event.name for event in events))


def _check_one_size(trace: _Trace, name: str, blocks: Events) -> None:
    """Refuse runs of several batch sizes, whose times have no common median; the first operator has others then."""
    shapes: dict[str, str] = {}
    for block in blocks:
        inside = _within(trace.operators.get(str(block.tid), ()), block.ts, block.stop)
        first = next((event for event in inside if event.args.get("Input Dims")), None)
        if first is not None:
            shape = str(first.args["Input Dims"])
            other = shapes.setdefault(first.name, shape)
            if other != shape:
                raise BadInput(
                    f"{trace.path}: all runs must be of one batch size, block {name!r:.80} reads {other:.60} and "
                    f"{shape:.60}; record a trace for each, and give them as --profile B=FILE"
                )


def _blocks(path: Path, events: Events) -> dict[str, list[_TorchEvent]]:
    blocks: dict[str, list[_TorchEvent]] = {}
    for event in _levels(events)[-1].outer:
        blocks.setdefault(event.name, []).append(event)
    if not blocks:
        raise BadInput(f"{path}: a trace needs a record_function around every block, got none; add them to the program")
    first = next(iter(blocks))
    for name, runs in blocks.items():
        if len(runs) != len(blocks[first]):
            raise BadInput(
                f"{path}: every block must run equally often, {name!r:.80} ran {len(runs)} times and {first!r:.80} "
                f"{len(blocks[first])}; give each block a name of its own"
            )
    return blocks


@dataclass(frozen=True, slots=True)
class _Trace:
    """The events of a trace, by what they are and by thread; all ascending by time."""

    path: Path
    events: Events
    operators: Mapping[str, Events]
    gradients: Mapping[str, Events]
    allocations: Mapping[str, Events]
    kernels: Mapping[str, Sequence[tuple[float, float]]]  # times of launches, seconds of what was launched
    arrows: Mapping[str, Sequence[tuple[float, str, float]]]  # times where they begin, threads and times of their ends

    @staticmethod
    def of(path: Path, events: list[_TorchEvent]) -> _Trace:
        """Sort the events."""
        events = sorted(events, key=_start)
        operators = [event for event in events if event.cat == "cpu_op" and event.ph == "X"]
        return _Trace(
            path=path,
            events=events,
            operators=_by_thread(event for event in operators if not event.name.startswith(_GRADIENT)),
            gradients=_by_thread(event for event in operators if event.name.startswith(_GRADIENT)),
            allocations=_by_thread(event for event in events if event.name == "[memory]"),
            kernels=_kernels(events),
            arrows=_arrows(events),
        )

    def notes(self, n_runs: int) -> tuple[str, ...]:
        """Sentences on what the numbers were read from, and what the trace lacks."""
        name = self.path.name
        what = f"the median of {n_runs - 1} runs, without the first, which warms up" if n_runs > 1 else "one run"
        notes = [f"{name}: times are {what}"]
        if not self.gradients:
            notes.append(f"{name}: a trace without backward pass says nothing of weights; they count as 0 bytes")
        if not self.allocations:
            notes.append(f"{name}: profile_memory=True records activations; without it they are the outputs")
        *around, level = _levels(self.events)
        for each in around:
            notes.append(f"{name}: {each.outer[0].name!r:.80} is around all blocks, and is none")
        if level.inner:
            notes.append(f"{name}: {len(_names(level.inner))} annotations lie in blocks, and are part of them")
        return tuple(notes)

    def run(self, block: _TorchEvent, end: float) -> _BlockRun:
        """The numbers of one run of a block; the next run of the model begins at `end`."""
        thread = str(block.tid)
        gradients = self._gradients(block)
        stashed, peak = self._allocated(block)
        operators = self.operators.get(thread, ())
        inside = _within(operators, block.ts, block.stop)
        after = operators[bisect_right(operators, block.stop, key=_start) : bisect_left(operators, end, key=_start)]
        return _BlockRun(
            forward_s=self._seconds(block),
            backward_s=sum(map(self._seconds, gradients)),
            parameter_bytes=sum(map(self._accumulated, gradients)),
            activation_bytes=stashed,
            temporary_bytes=peak,
            input_bytes=self._first_tensor(inside),
            output_bytes=self._first_tensor(after),
        )

    def _seconds(self, event: _TorchEvent) -> float:
        """Seconds of an event; where the trace has kernels, of the kernels that were launched during the event."""
        if not self.kernels:
            return event.dur / 1e6
        launched = self.kernels.get(str(event.tid), ())
        start, stop = bisect_left(launched, event.ts, key=_first), bisect_right(launched, event.stop, key=_first)
        return sum(seconds for _, seconds in launched[start:stop])

    def _gradients(self, block: _TorchEvent) -> list[_TorchEvent]:
        starts = self.arrows.get(str(block.tid), ())
        first, last = bisect_left(starts, block.ts, key=_first), bisect_right(starts, block.stop, key=_first)
        chosen: dict[int, _TorchEvent] = {}
        for _, thread, end in starts[first:last]:
            events = self.gradients.get(thread, ())
            index = bisect_right(events, end, key=_start) - 1  # the last event that begins before the arrow ends
            if index < 0 or end > events[index].stop:
                continue
            # Several arrows may end in one event; what adds up gradients follows it without an arrow.
            chosen[id(events[index])] = events[index]
            for event in events[index + 1 :]:
                if not event.name.startswith(f"{_GRADIENT}{_ACCUMULATES}"):
                    break
                chosen[id(event)] = event
        return list(chosen.values())

    def _accumulated(self, gradient: _TorchEvent) -> int:
        inside = _within(self.operators.get(str(gradient.tid), ()), gradient.ts, gradient.stop)
        return sum(self._first_tensor([event]) for event in inside if event.name == _ACCUMULATES)

    def _allocated(self, block: _TorchEvent) -> tuple[int, int]:
        """Bytes that are allocated in a block and remain, and the most that are at a time."""
        events = _within(self.allocations.get(str(block.tid), ()), block.ts, block.stop)
        allocations = [from_plain(_Allocation, event.args, f"{self.path}: [memory]") for event in events]
        on_device = any(allocation.device for allocation in allocations)  # then those of the host do not count
        remaining = peak = 0
        for allocation in allocations:
            if bool(allocation.device) == on_device:
                remaining += allocation.n_bytes
                peak = max(peak, remaining)
        return max(remaining, 0), peak

    def input_shape(self, block: _TorchEvent) -> list[int]:
        """The shape of the first tensor that a block reads and that is no table of an embedding; empty without one."""
        for event in _within(self.operators.get(str(block.tid), ()), block.ts, block.stop):
            tensors = self._tensors(event)
            # The first tensor of an embedding is its weight, the second has the indices of the samples.
            first = next(islice(tensors, "embedding" in event.name, None), None)
            if first is not None:
                return first[0]
        return []

    def _first_tensor(self, events: Iterable[_TorchEvent]) -> int:
        for event in events:
            for shape, kind in self._tensors(event):
                return min(prod(shape), MAX_NUMBER) * _BYTES[kind]
        return 0

    def _tensors(self, event: _TorchEvent) -> Iterator[_ReadTensor]:
        inputs = from_plain(_Inputs, event.args, f"{self.path}: {event.name!r:.80}")
        if not inputs.kinds:
            raise BadInput(f"{self.path}: sizes need shapes, got none; profile with record_shapes=True")
        for shape, kind in zip(inputs.shapes, inputs.kinds, strict=False):
            if shape and kind in _BYTES:
                yield from_plain(list[Whole], shape, f"{self.path}: Input Dims of {event.name!r:.80}"), kind


def _by_thread(events: Iterable[_TorchEvent]) -> dict[str, Events]:
    threads: dict[str, list[_TorchEvent]] = defaultdict(list)
    for event in events:
        threads[str(event.tid)].append(event)
    return dict(threads)


def _within(events: Events, start: float, stop: float) -> Events:
    return events[bisect_left(events, start, key=_start) : bisect_right(events, stop, key=_start)]


def _kernels(events: Events) -> dict[str, list[tuple[float, float]]]:
    """Seconds of every kernel by the thread and time of its launch, which has the same number."""
    seconds: dict[str, float] = {}
    for event in events:
        if event.cat in _KERNELS and "correlation" in event.args:
            number = str(event.args["correlation"])
            seconds[number] = seconds.get(number, 0.0) + event.dur / 1e6
    launched: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        number = str(event.args.get("correlation"))
        if event.cat in _LAUNCHES and number in seconds:
            launched[str(event.tid)].append((event.ts, seconds[number]))
    return dict(launched)


def _arrows(events: Events) -> dict[str, list[tuple[float, str, float]]]:
    ends = {str(event.id): event for event in events if event.cat == "fwdbwd" and event.ph == "f"}
    arrows: dict[str, list[tuple[float, str, float]]] = defaultdict(list)
    for event in events:
        end = ends.get(str(event.id))
        if event.cat == "fwdbwd" and event.ph == "s" and end is not None:
            arrows[str(event.tid)].append((event.ts, str(end.tid), end.ts))
    return dict(arrows)


IMPORTER = Importer("torch", read_torch_trace)
