"""Profiles of ONNX Runtime, `read_onnxruntime`: what `SessionOptions.enable_profiling` writes [onnxruntime-profiling].

The file is a list of trace events [trace-events]; times are microseconds. A node that ran is an event of category
"Node" called NAME_kernel_time, whose `args` have the operator, the index of the node, bytes of parameters, inputs and
outputs, and the shapes of outputs. Every run is an event "model_run" that spans those of its nodes. The memory of nodes
may come from the CSV of "session.collect_node_memory_stats_to_file", a line a node: NAME_HASH and four numbers, of
which the last is the bytes that the node allocated for itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import compress, pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from autoauto.profile.importers.batch_axis import batch_note
from autoauto.profile.importers.recorded import (
    MAX_S,
    RecordedLayer,
    RecordedProfile,
    number_in,
    read_text,
    with_boundaries,
)
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MAX_NUMBER, Whole
from autoauto.records.files.json import from_plain, read_json

_SUFFIX = "_kernel_time"
_HOST = "CPUExecutionProvider"
_MEMORY_HEADER = "#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations"
_DATA_DEPENDENT = frozenset({"NonZero", "NonMaxSuppression", "Unique", "Compress", "StringSplit", "If", "Loop"})
_WITH_BODIES = frozenset({"If", "Loop", "Scan", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
Microseconds = Annotated[float, Meta(ge=0, le=MAX_NUMBER)]
_Dimensions = list[dict[str, list[Whole]]]


class _OrtEvent(Struct):
    name: str
    cat: str = ""
    ts: Microseconds = 0.0
    dur: Microseconds = 0.0
    args: dict[str, Any] = {}


class _OrtNode(Struct):
    op_name: str
    provider: str = _HOST
    node_index: str | Whole = -1
    parameter_size: str | Whole = 0
    activation_size: str | Whole = 0
    output_size: str | Whole = 0
    input_type_shape: _Dimensions = []
    output_type_shape: _Dimensions = []


class NodeRecord(NamedTuple):
    """A node that ONNX Runtime ran."""

    name: str  # by which the optimised model has it
    op: str
    position: int  # where it stands in the file, if it is a node of the file
    seconds: float  # the median over runs
    parameter_bytes: int
    input_bytes: int  # without parameters
    output_bytes: int
    temporary_bytes: int  # what it allocates for itself; 0 where this was not recorded
    output_shape: tuple[int, ...] | None  # of its first output; None where there is none
    packed: bool = False  # a product whose weights ONNX Runtime packed, so that the profile lacks their bytes


class NodeRecords(NamedTuple):
    """The nodes of a profile in the order in which they ran, and what was assumed."""

    nodes: tuple[NodeRecord, ...]
    notes: tuple[str, ...]


class _Ran(NamedTuple):
    name: str
    start_us: float
    seconds: float
    node: _OrtNode

    @property
    def stop_us(self) -> float:
        """When it ended."""
        return self.start_us + 1e6 * self.seconds

    @property
    def identity(self) -> tuple[str, str | int]:
        """Equal in all runs of a node."""
        return self.name, self.node.node_index


_NodesOfRun = Counter[tuple[str, str | int]]
"""How often each node ran in one run, by its identity."""


def read_onnxruntime(path: Path, memory: Path | None = None) -> NodeRecords:
    """The nodes of a profile with their median times, the first of several runs left out: it warms up.

    `memory` is the CSV file with the memory of nodes.

    Raises:
        BadInput: a file is no such file, or has no complete run; the message has the place in it.
    """
    events = from_plain(list[_OrtEvent], read_json(path), str(path))
    spans = sorted((e.ts, e.ts + e.dur) for e in events if e.name == "model_run")
    _refuse_runs_at_once(path, spans)
    ran = sorted(_nodes(path, events), key=lambda each: each.start_us)
    runs = []
    for start, stop in spans:  # the nodes of a run are those that began in its span
        run = list(_outermost(each for each in ran if start <= each.start_us <= stop))
        if run:
            runs.append(run)
    if not runs:
        raise BadInput(
            f"{path}: a profile of ONNX Runtime needs a model_run with its nodes, got none; call end_profiling() "
            "after run()"
        )
    _check_one_size(path, runs)
    nodes_of_runs = [Counter(each.identity for each in run) for run in runs]
    complete = _complete(nodes_of_runs)
    is_complete = [nodes_of_run == complete for nodes_of_run in nodes_of_runs]
    # The first run warms up: it counts only where no other is complete.
    counted = list(compress(runs[1:], is_complete[1:])) or list(compress(runs, is_complete))
    allocated = {} if memory is None else _allocated_bytes(memory)
    seconds_of_runs = [_seconds_by_node(run) for run in counted]
    nodes = []
    for number, each in enumerate({each.identity: each for each in counted[-1]}.values()):
        seconds = median(seconds_of[each.identity] for seconds_of in seconds_of_runs)
        nodes.append(_record(path, number, each, seconds, allocated.get(each.name, 0)))
    if counted[0] is runs[0]:
        notes = [f"{path.name}: times are one run, its first"]
    else:
        notes = [f"{path.name}: times are the median of {len(counted)} runs, without the first, which warms up"]
    notes += _notes_on_incomplete(path, nodes_of_runs, complete)
    if any(each.start_us < before.stop_us for before, each in pairwise(counted[-1])):
        notes.append(f"{path.name}: nodes ran at once; a stage takes the sum of their times, one after the other")
    providers = sorted({each.node.provider for each in counted[-1]} - {_HOST})
    if providers:
        notes.append(f"{', '.join(providers)} may compute after the host's call, whose time is what the profile has")
    return NodeRecords(tuple(nodes), tuple(notes))


def line_of_nodes(path: Path, records: NodeRecords, batch_size: int | None) -> RecordedProfile:
    """The nodes in a line, each of which passes its outputs to the next; the model's inputs are those of the first."""
    layers = []
    boundary_bytes: list[float] = [records.nodes[0].input_bytes]
    for node in records.nodes:
        working_bytes = node.output_bytes + node.temporary_bytes
        layers.append(
            RecordedLayer(node.name, node.seconds, parameter_bytes=node.parameter_bytes, temporary_bytes=working_bytes)
        )
        boundary_bytes.append(node.output_bytes)
    notes = [
        *records.notes,
        *batch_note(
            (node.output_shape for node in records.nodes if node.output_shape is not None),
            batch_size or 1,
            path,
            "a node must write an axis of the batch size",
            " of the first; give the ONNX file, or the batch size at which it ran: --profile B=FILE",
        ),
        f"{path.name}: without MODEL the nodes are a line: a stage passes on what its last node writes; give the ONNX "
        "file",
    ]
    n_packed = sum(node.packed for node in records.nodes)
    if n_packed:
        notes.append(
            f"{path.name}: it lacks the packed weights of {n_packed} nodes, which count as 0 bytes; give the ONNX file"
        )
    return RecordedProfile(path.stem, {batch_size or 1: with_boundaries(layers, boundary_bytes)}, tuple(notes))


def _nodes(path: Path, events: Sequence[_OrtEvent]) -> Iterator[_Ran]:
    for number, event in enumerate(events):
        if event.cat == "Node" and event.name.endswith(_SUFFIX):
            node = from_plain(_OrtNode, event.args, f"{path}: [{number}].args")
            yield _Ran(event.name.removesuffix(_SUFFIX), event.ts, event.dur / 1e6, node)


def _refuse_runs_at_once(path: Path, spans: Sequence[tuple[float, float]]) -> None:
    """Refuse runs of several threads: a node of one would count for all that were running, and was slowed by them."""
    for (_, stop_us), (start_us, _) in pairwise(spans):
        if start_us < stop_us:
            raise BadInput(
                f"{path}: runs must follow each other, one begins at {start_us:.0f} us before another ends at "
                f"{stop_us:.0f} us; record a session that one thread runs"
            )


def _outermost(events: Iterator[_Ran]) -> Iterator[_Ran]:
    """Events that lie in no loop or branch, of which they would be part; others may run at once in several threads."""
    stop_us = -1.0
    for each in events:
        if each.start_us < stop_us and each.stop_us <= stop_us:
            continue
        yield each
        if each.node.op_name in _WITH_BODIES:
            stop_us = max(stop_us, each.stop_us)


def _complete(nodes_of_runs: Sequence[_NodesOfRun]) -> _NodesOfRun:
    """The nodes of a complete run, each with how often it ran: those of most runs.

    Of several that equally many runs have, those with more different nodes and then with fewer repeated ones.
    """
    n_runs = Counter(frozenset(nodes.items()) for nodes in nodes_of_runs)

    def rank(nodes: _NodesOfRun) -> tuple[int, int, int]:
        return n_runs[frozenset(nodes.items())], len(nodes), -nodes.total()

    return max(nodes_of_runs, key=rank)


def _notes_on_incomplete(path: Path, nodes_of_runs: Sequence[_NodesOfRun], complete: _NodesOfRun) -> list[str]:
    """A note on the runs with other nodes than a complete one, which are left out; none without such runs."""
    others = [nodes for nodes in nodes_of_runs if nodes != complete]
    if not others:
        return []
    name, _ = next(iter((complete - others[0]) or (others[0] - complete)))
    return [
        f"{path.name}: {len(others)} of {len(nodes_of_runs)} runs are left out, since they lack nodes or have some "
        f"twice, such as {name!r:.80}"
    ]


def _seconds_by_node(run: Sequence[_Ran]) -> dict[tuple[str, str | int], float]:
    seconds = defaultdict[tuple[str, str | int], list[float]](list)
    for each in run:
        seconds[each.identity].append(each.seconds)
    return {node: sum(times) for node, times in seconds.items()}


def _check_one_size(path: Path, runs: Sequence[Sequence[_Ran]]) -> None:
    """Refuse runs of several batch sizes, whose times have no common median.

    The first node with another shape decides: behind one whose lengths depend on data, shapes may differ anyway.
    """
    first = {each.identity: each.node for each in runs[0]}
    for run in runs[1:]:
        for each in run:
            in_first = first.get(each.identity, each.node)
            if in_first.output_type_shape == each.node.output_type_shape:
                continue
            if each.node.op_name in _DATA_DEPENDENT:
                return
            raise BadInput(
                f"{path}: all runs must be of one batch size, node {each.name!r:.80} writes {_first_shape(in_first)} "
                f"and {_first_shape(each.node)}; record a profile for each, and give them as --profile B=FILE"
            )


def _first_shape(node: _OrtNode) -> str:
    if not node.output_type_shape:
        return "none"
    return str(next(iter(node.output_type_shape[0].values()), []))


def _record(path: Path, number: int, each: _Ran, seconds: float, allocated_bytes: int) -> NodeRecord:
    """A node of a profile; `number` is its position in the run."""
    node = each.node
    where = f"{path}: node {each.name!r:.80}"
    shapes = [tuple(sizes) for shape in node.output_type_shape for sizes in shape.values()]
    is_product = "MatMul" in node.op_name or "Gemm" in node.op_name
    # Older profiles have no index of a node in the file; its number in the run stands for it.
    index = str(node.node_index)
    has_index = index.isascii() and index.isdecimal() and len(index) < 16
    return NodeRecord(
        name=each.name,
        op=node.op_name,
        position=int(index) if has_index else number,
        seconds=number_in(seconds, f"{where}: dur", MAX_S),
        parameter_bytes=int(number_in(node.parameter_size, f"{where}: parameter_size")),
        input_bytes=int(number_in(node.activation_size, f"{where}: activation_size")),
        output_bytes=int(number_in(node.output_size, f"{where}: output_size")),
        temporary_bytes=allocated_bytes,
        output_shape=shapes[0] if shapes else None,
        # Neither inputs nor parameters have the second factor of a product whose weights are packed.
        packed=is_product and str(node.parameter_size) == "0" and len(node.input_type_shape) == 1,
    )


def _allocated_bytes(path: Path) -> dict[str, int]:
    """The bytes that every node allocates for itself, by its name; in the file a hash follows the name."""
    lines = read_text(path, "the memory of nodes").splitlines()
    if not lines or lines[0].strip() != _MEMORY_HEADER:
        raise BadInput(f"{path}, line 1: the memory of nodes begins with {_MEMORY_HEADER}; check the file")
    allocated = {}
    for number, line in enumerate(lines[1:], start=2):
        name, *sizes = line.rsplit(",", 4)
        if len(sizes) != 4:
            raise BadInput(f"{path}, line {number}: a node has a name and four numbers, got {line[:40]!r}; correct it")
        allocated[name.rpartition("_")[0]] = int(number_in(sizes[3], f"{path}, line {number}: total_temp_allocations"))
    return allocated
