"""Profiles of TensorRT, `read_tensorrt`: the files of trtexec's --exportProfile and --exportLayerInfo [tensorrt].

The first is a list: how often the engine ran, then a layer each, in milliseconds. The second has the layers of the
engine with their tensors, where it was built with --profilingVerbosity=detailed:

    [{"count": 100}, {"name": "conv", "timeMs": 9.0, "averageMs": 0.09, "medianMs": 0.08, "percentage": 100}]
    {"Layers": [{"Name": "conv", "Weights": {"Type": "Half", "Count": 9},
                 "Inputs": [{"Name": "x", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Row major linear FP32"}], ...
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from autoauto.profile.importers.batch_axis import batch_note
from autoauto.profile.importers.importer import Importer
from autoauto.profile.importers.recorded import MAX_S, RecordedLayer, RecordedProfile, number_in, with_boundaries
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MAX_NUMBER, Number, PositiveWhole, Whole
from autoauto.records.files.json import from_plain, read_json

_BITS = (
    (r"INT64|Int64", 64),
    (r"FP32|FLOAT32|Float\b|TF32|INT32|Int32", 32),
    (r"BF16|BFloat16|FP16|FLOAT16|Half", 16),
    (r"FP8|INT8|Int8|UINT8|UInt8|Bool|BOOL", 8),
    (r"FP4|INT4|Int4", 4),
)
"""Bits of an element by what the text of a format has in it; the wider ones first."""


_MOST_TIMES_MEAN = 2.01
"""How far a median may be above a mean: half of the times are no shorter than it. Both are rounded."""
_ROUNDED_MS = 1e-4
"""How far rounding may move a time."""


class _TrtTime(Struct):
    name: str | None = None
    count: PositiveWhole | None = None
    time_ms: Number | None = field(name="timeMs", default=None)
    average_ms: Number | None = field(name="averageMs", default=None)
    median_ms: Number | None = field(name="medianMs", default=None)


class _TrtTensor(Struct):
    name: str = field(name="Name")
    dimensions: list[Whole] = field(name="Dimensions")
    format: str = field(name="Format/Datatype")


class _TrtWeights(Struct):
    count: Whole = field(name="Count", default=0)
    kind: str = field(name="Type", default="Float")


class _TrtLayer(Struct):
    name: str = field(name="Name")
    inputs: list[_TrtTensor] = field(name="Inputs", default_factory=list)
    outputs: list[_TrtTensor] = field(name="Outputs", default_factory=list)
    weights: _TrtWeights = field(name="Weights", default_factory=_TrtWeights)
    bias: _TrtWeights = field(name="Bias", default_factory=_TrtWeights)


class _TrtEngine(Struct):
    layers: list[Any] = field(name="Layers")


def read_tensorrt(path: Path, details: Path | None = None, batch_size: int | None = None) -> RecordedProfile:
    """The layers of an engine in the order of their execution; a stage passes on the tensors that later ones read.

    Of one engine --exportProfile wrote `path`, and --exportLayerInfo `details`; it ran at `batch_size`, by default 1.

    Raises:
        BadInput: a file is missing or of another form, they are of different engines, or one contradicts itself.
    """
    if details is None:
        raise BadInput(
            f"{path} has times only; give the sizes of tensors, too: --profile-details FILE, which trtexec writes with "
            "--exportLayerInfo=FILE --profilingVerbosity=detailed"
        )
    listed = _layers(details)
    _check_dimensions(listed, details)
    layers = _in_order(listed, details)
    batch_notes = _batch_note(layers, batch_size or 1, details)
    recorded: list[RecordedLayer] = []
    untimed = []
    for layer, seconds in zip(layers, _of_layers(_seconds(path), layers, path, details), strict=True):
        if seconds is None:
            untimed.append(layer.name)
        parameter_bytes = 0.0
        for weights in (layer.weights, layer.bias):
            if weights.count:
                parameter_bytes += weights.count * _bits(weights.kind, f"{details}: layer {layer.name!r:.80}") / 8
        recorded.append(RecordedLayer(layer.name, seconds or 0.0, parameter_bytes=parameter_bytes))
    notes = [f"{path.name}: times are medians, or where the file has none averages, of trtexec"]
    notes += batch_notes
    if layers != listed:
        notes.append(f"{details.name}: layers are put in an order in which each reads what earlier ones write")
    if untimed:
        notes.append(f"{path.name}: {len(untimed)} layers without a time count as 0 s, such as {untimed[0]!r:.80}")
    boundaries = _boundary_bytes(layers, f"{details}: layer")
    return RecordedProfile(path.stem, {batch_size or 1: with_boundaries(recorded, boundaries)}, tuple(notes))


def _batch_note(layers: Sequence[_TrtLayer], batch_size: int, details: Path) -> tuple[str, ...]:
    writers = _writers(layers)
    inputs: dict[str, list[int]] = {}
    others: dict[str, list[int]] = {}
    for layer in layers:
        for tensor in (*layer.inputs, *layer.outputs):
            shapes = others if tensor.name in writers else inputs
            shapes[tensor.name] = tensor.dimensions
    if all(len(shape) < 2 for shape in inputs.values()):  # no samples, or each is a number
        return ()
    return batch_note(
        [*inputs.values(), *others.values()],
        batch_size,
        details,
        "an input must have an axis of the batch size",
        "; give the batch size at which the engine ran: --profile B=FILE",
    )


def _writers(layers: Sequence[_TrtLayer]) -> dict[str, list[int]]:
    """The layers that write every tensor, by its name; the parts of a concatenation have one name."""
    writers: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        for tensor in layer.outputs:
            writers.setdefault(tensor.name, []).append(index)
    return writers


def _check_dimensions(layers: Sequence[_TrtLayer], details: Path) -> None:
    """Refuse a tensor that has other dimensions where it is read than where it is written, or read elsewhere."""
    writers = _writers(layers)
    known: dict[str, list[int]] = {}
    for layer in layers:
        for tensor in (*layer.outputs, *layer.inputs):
            if len(writers.get(tensor.name, ())) > 1:  # each may write a part
                continue
            dimensions = known.setdefault(tensor.name, tensor.dimensions)
            if dimensions != tensor.dimensions:
                raise BadInput(
                    f"{details}: a tensor must have the same dimensions in all layers, {tensor.name!r:.80} has "
                    f"{dimensions!s:.60} and {tensor.dimensions!s:.60}, the latter in layer {layer.name!r:.80}; write "
                    "the file again for one engine"
                )


def _in_order(layers: Sequence[_TrtLayer], details: Path) -> list[_TrtLayer]:
    """The layers, each behind those that write what it reads; as they are listed where that is such an order."""
    writers = _writers(layers)
    before: dict[int, set[int]] = {}  # by layer, those that write what it reads
    is_ordered = True
    for index, layer in enumerate(layers):
        before[index] = set()
        for tensor in layer.inputs:
            before[index].update(writers.get(tensor.name, ()))
            is_ordered = is_ordered and min(writers.get(tensor.name, (index,))) <= index
        before[index].discard(index)  # it may change a tensor
    if is_ordered:
        return list(layers)
    try:
        return [layers[index] for index in TopologicalSorter(before).static_order()]
    except CycleError as error:
        names = " and ".join(f"{layers[index].name!r:.60}" for index in error.args[1][:2])
        raise BadInput(
            f"{details}: a layer must read what earlier ones write, got a circle through {names}; write the file "
            "again for one engine"
        ) from None


def _of_layers(
    seconds: Mapping[str, Sequence[float]], layers: Sequence[_TrtLayer], path: Path, details: Path
) -> list[float | None]:
    """The time of every layer by its name; several layers of one name take its times in order, or share its only time.

    None for a layer without weights and without a time, as one that only names a tensor anew.
    """
    n_layers = Counter(layer.name for layer in layers)
    for name, times in seconds.items():
        if name not in n_layers:
            raise BadInput(f"{path}: layer {name!r:.80} is not in {details}; give both files of one engine")
        if len(times) not in (1, n_layers[name]):
            raise BadInput(
                f"{path}: layers of one name must have a time each, or one together, {name!r:.80} has {len(times)} for "
                f"{n_layers[name]} layers in {details}; give both files of one engine"
            )
    for layer in layers:
        if layer.name not in seconds and (layer.weights.count or layer.bias.count):
            raise BadInput(f"{details}: layer {layer.name!r:.80} is not in {path}; give both files of one engine")
    left = {}  # by name, the times that no layer has yet
    for name, times in seconds.items():
        shares = times if len(times) > 1 else [times[0] / n_layers[name]] * n_layers[name]
        left[name] = iter(shares)
    of_layers = []
    for layer in layers:
        of_layers.append(next(left[layer.name]) if layer.name in left else None)
    return of_layers


def _seconds(path: Path) -> dict[str, list[float]]:
    entries = from_plain(list[_TrtTime], read_json(path), str(path))
    count = next((entry.count for entry in entries if entry.count), None)
    seconds: dict[str, list[float]] = {}
    for number, entry in enumerate(entries):
        where = f"{path}: [{number}]"
        if entry.name is None:
            if entry.count is None:
                raise BadInput(f"{where} must be a layer with a name, or how often the engine ran; correct it there")
            continue
        share_ms = None  # of one of all runs
        if entry.time_ms is not None and count is not None:
            share_ms = entry.time_ms / count
        given = (entry.median_ms, entry.average_ms, share_ms)
        milliseconds = next((value for value in given if value is not None), None)
        if milliseconds is None and entry.time_ms is not None:
            raise BadInput(
                f'{where}: timeMs is that of all runs, and the file must say how many they were, as {{"count": 100}}; '
                "record the profile again"
            )
        if milliseconds is None:
            raise BadInput(f"{where} must have medianMs, averageMs or timeMs; record the profile again")
        mean_ms = entry.average_ms if entry.average_ms is not None else share_ms
        if mean_ms is not None and milliseconds > _MOST_TIMES_MEAN * mean_ms:
            raise BadInput(
                f"{where}: a median of times is at most twice their mean, got {milliseconds:g} ms and {mean_ms:g} ms; "
                "which is it?"
            )
        if entry.average_ms is not None and share_ms is not None:
            low_ms, high_ms = sorted((entry.average_ms, share_ms))
            if high_ms > _MOST_TIMES_MEAN * low_ms + _ROUNDED_MS:  # further apart than rounding makes them
                raise BadInput(
                    f"{where}: averageMs must be timeMs divided by the count, got {entry.average_ms:g} ms and "
                    f"{entry.time_ms:g} / {count} = {share_ms:g} ms; which is it?"
                )
        time_s = number_in(milliseconds / 1e3, f"{where}: the time of a layer in seconds", MAX_S)
        seconds.setdefault(entry.name, []).append(time_s)
    return seconds


def _layers(path: Path) -> list[_TrtLayer]:
    plain = from_plain(_TrtEngine, read_json(path), str(path)).layers
    if any(isinstance(layer, str) for layer in plain):
        raise BadInput(f"{path} has names of layers only; build the engine with --profilingVerbosity=detailed")
    return from_plain(list[_TrtLayer], plain, f"{path}: Layers")


def _boundary_bytes(layers: Sequence[_TrtLayer], where: str) -> list[float]:
    """Bytes alive before the first layer up to after the last: tensors from their producer to their last reader.

    What no layer writes comes in at the front; what none reads goes out at the end.
    """
    sizes: dict[str, float] = {}
    written: dict[str, int] = {}
    read: dict[str, int] = {}
    for index, layer in enumerate(layers):
        for tensor in (*layer.inputs, *layer.outputs):
            here = f"{where} {layer.name!r:.80}"
            n_bytes = min(prod(tensor.dimensions), 2 * MAX_NUMBER) * _bits(tensor.format, here) / 8
            sizes[tensor.name] = number_in(n_bytes, f"{here}: bytes of tensor {tensor.name!r:.80}", MAX_NUMBER)
        for tensor in layer.inputs:
            read[tensor.name] = index
        for tensor in layer.outputs:
            written.setdefault(tensor.name, index)
    # What changes at each boundary, whose running sum is what is alive there.
    changes = [0.0] * (len(layers) + 2)
    for name, n_bytes in sizes.items():
        producer = written.get(name, -1)
        last_use = read.get(name, len(layers))
        if last_use > producer:
            changes[producer + 1] += n_bytes
            changes[last_use + 1] -= n_bytes
    return list(accumulate(changes[:-1]))


def _bits(text: str, where: str) -> int:
    for pattern, bits in _BITS:
        if re.search(rf"(?<![A-Za-z0-9])(?:{pattern})", text):
            return bits
    raise BadInput(f"{where}: a format has FP32, FP16, INT8 or another type, got {text[:60]!r}; correct it there")


IMPORTER = Importer("tensorrt", read_tensorrt)
