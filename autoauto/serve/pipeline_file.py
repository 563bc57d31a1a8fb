"""The `pipeline.json` of an exported folder, read and checked: `read_pipeline_file`; the ports in it: `ports_of`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from autoauto.exporters.onnx_stages import SCHEMA, PipelineFile, PipelineFiles, StageFile
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import brief
from autoauto.records.files.json import from_json, from_plain
from autoauto.records.hardware import MAX_DEVICES
from autoauto.records.layers import Port

NAME = "pipeline.json"
_MAX_AXES, _MAX_BYTES = 32, 2**50


def read_pipeline_file(folder: Path) -> PipelineFile:
    """The content of `pipeline.json` in a folder.

    Raises:
        BadInput: there is none, or what it says does not hold together; the message names the place.
    """
    path = folder / NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(
            f"a folder of `autoauto export --to onnx` has {NAME}, {folder} does not: {error.strerror}; check the path"
        ) from error
    file = from_json(PipelineFile, content, str(path), SCHEMA)
    for problem in _problems(file):
        raise BadInput(f"{path}: {problem}; export it again")
    return file


def ports_of(entries: Sequence[dict[str, Any]]) -> tuple[Port, ...]:
    """The inputs or outputs of a stage.

    Raises:
        BadInput: an entry has other fields than a `Port`, or others before them.
    """
    for entry in entries:
        if tuple(entry) != Port._fields[: max(3, len(entry))]:
            raise BadInput(f"a port must have the fields {', '.join(Port._fields[:3])}, got {brief(entry)}")
    return from_plain(tuple[Port, ...], [[*entry.values()] for entry in entries], "a port")


def _problems(file: PipelineFile) -> Iterator[str]:
    """Contradictions in the content of `pipeline.json`, the first one first: later ones may follow from it."""
    if not 1 <= file.batch_size <= MAX_DEVICES**2:
        yield f"batch_size must be 1 or more, got {file.batch_size}"
    if not (isfinite(file.samples_per_s) and file.samples_per_s > 0):
        yield f"samples_per_s must be a finite number above 0, got {file.samples_per_s}"
    for name, ports in (("inputs", file.inputs), ("outputs", file.outputs)):
        yield from _problems_of_ports([Port(port.name, port.shape, port.dtype) for port in ports], name)
        for index, port in enumerate(ports):
            axis = port.batch_axis
            if axis is not None and not (0 <= axis < len(port.shape) and port.shape[axis] % file.batch_size == 0):
                yield f"{name}[{index}].batch_axis must be an axis of {[*port.shape]} with samples, got {axis}"
    if not file.pipelines:
        yield "pipelines must be 1 or more, got none"
    for number, pipeline in enumerate(file.pipelines):
        where = f"pipelines[{number}]"
        yield from _problems_of_numbers(pipeline, where)
        yield from _problems_of_placement(pipeline, where)
        yield from _problems_of_stages(file, pipeline, where)


def _problems_of_numbers(pipeline: PipelineFiles, where: str) -> Iterator[str]:
    if not (isfinite(pipeline.period_s) and pipeline.period_s > 0):
        yield f"{where}.period_s must be a finite number above 0, got {pipeline.period_s}"
    if not pipeline.stages:
        yield f"{where}.stages must be 1 or more, got none"
    counts = {f"{where}.n_replicas": pipeline.n_replicas}
    for i, stage in enumerate(pipeline.stages):
        counts[f"{where}.stages[{i}].n_replicas"] = stage.n_replicas
    for name, count in counts.items():
        if not 1 <= count <= MAX_DEVICES:
            yield f"{name} must be a number from 1 to {MAX_DEVICES:,}, got {count}"
    for i, stage in enumerate(pipeline.stages):
        if not 0 <= stage.intra_op_threads <= MAX_DEVICES:
            yield f"{where}.stages[{i}].intra_op_threads must be 0 or more, got {stage.intra_op_threads}"
        if not 0 < stage.limit_bytes <= 2**62:
            yield f"{where}.stages[{i}].limit_bytes must be above 0, got {stage.limit_bytes}"


def _problems_of_placement(pipeline: PipelineFiles, where: str) -> Iterator[str]:
    """Every replica has a device for every process of its stages."""
    if not pipeline.placement:
        return
    n_devices = sum(stage.n_replicas for stage in pipeline.stages)
    if len(pipeline.placement) != pipeline.n_replicas:
        yield f"{where}.placement must have {pipeline.n_replicas} replicas, got {len(pipeline.placement)}"
    for number, devices in enumerate(pipeline.placement):
        if len(devices) != n_devices:
            yield f"{where}.placement[{number}] must have {n_devices} devices, one for each stage, got {len(devices)}"
    for device in chain.from_iterable(pipeline.placement):
        if not all(0 <= number < MAX_DEVICES for number in device):
            yield f"{where}.placement must have numbers of devices from 0, got {[*device]}"


def _problems_of_stages(file: PipelineFile, pipeline: PipelineFiles, where: str) -> Iterator[str]:
    """Stages follow each other, and every tensor that is read or sent comes from an earlier stage or the caller."""
    stop = 0
    known = {port.name for port in file.inputs}  # what the caller or any stage so far has written
    arrived = known  # what reaches the stage: the stage before it sends no more than it says
    for number, stage in enumerate(pipeline.stages):
        path = f"{where}.stages[{number}]"
        yield from _problems_of_a_stage(stage, path)
        if stage.layers[0] != stop or stage.layers[1] <= stop:
            yield f"{path}.layers must be a range that begins at {stop}, got {[*stage.layers]}"
        stop = stage.layers[1]
        outputs = {port["name"] for port in stage.outputs}
        known = known | outputs
        not_read = {port["name"] for port in stage.inputs} - arrived
        not_sent = set(stage.sends) - known
        for name, missing in (("inputs", not_read), ("sends", not_sent)):
            if missing:
                yield f"{path}.{name} must be tensors that reach the stage or that it writes, got {min(missing)!r:.80}"
        arrived = set(stage.sends)
    missing = {port.name for port in file.outputs} - arrived
    if missing:
        yield f"the last stage of {where} must send all outputs of the model, {min(missing)!r:.80} is missing"


def _problems_of_a_stage(stage: StageFile, path: str) -> Iterator[str]:
    if Path(stage.file).name != stage.file or "\0" in stage.file:
        yield f"{path}.file must be the name of a file in the folder, got {stage.file!r:.80}"
    for name, entries in (("inputs", stage.inputs), ("outputs", stage.outputs)):
        try:
            ports = ports_of(entries)
        except BadInput as error:
            yield f"{path}.{name}: {error}"
        else:
            yield from _problems_of_ports(ports, f"{path}.{name}")
    try:
        _ = stage.session
    except BadInput as error:
        yield f"{path}: {str(error).partition('; ')[0]}"


def _problems_of_ports(ports: Sequence[Port], where: str) -> Iterator[str]:
    """Ports have names of their own, types of NumPy, and shapes that can be held."""
    names = [port.name for port in ports]
    if len(set(names)) < len(names):
        yield f"{where} must have names of their own, got {brief(names)}"
    for index, port in enumerate(ports):
        if not _is_type(port.dtype):
            yield f"{where}[{index}].dtype must be a type of NumPy, got {port.dtype!r:.80}"
        elif len(port.shape) > _MAX_AXES or min(port.shape, default=0) < 0 or not port.n_bytes <= _MAX_BYTES:
            yield f"{where}[{index}].shape must be lengths from 0 that can be held, got {brief([*port.shape])}"


def _is_type(name: str) -> bool:
    try:
        np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        return False
    return True
