import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autoauto.programs.popart.graph import (
    Cycle,
    Fragment,
    FragmentCall,
    OpKind,
    PipelineGraph,
    PipelineOp,
    PipelineProgram,
    PopartPipeline,
)
from autoauto.programs.popart.input import read_pipeline, simple_pipeline
from autoauto.programs.popart.passes import forward_ops
from autoauto.programs.popart.transform import add_streams, assemble, check_parallel, transform
from autoauto.records.errors import BadInput
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.stash import stash_entries
from tests.drawn import n_examples

# The check of cycles.

GOOD = "ps0[D] ps0[M] ps1[M] ps2[M] ps1[H] C"
DEVICES = (0, 1, 0)


def cycle(text: str) -> Cycle:
    """Read what `FragmentCall` prints."""
    words = (word.removeprefix("ps").removesuffix("]").split("[") for word in text.split())
    return tuple(FragmentCall(Fragment(word[-1]), int(word[0]) if len(word) == 2 else None) for word in words)


def program(main: str) -> PipelineProgram:
    return PipelineProgram((cycle("ps0[M] C"),), cycle(main), 3, (cycle("ps2[M] C"),), ())


@pytest.mark.parametrize("main", [GOOD, "ps0[D] ps2[D] ps0[M] ps1[M] C", "C"])
def test_cycles_that_can_run_in_parallel_pass(main: str) -> None:
    """Loads of one device follow each other, as do the stages 0 and 2; neighbours on one device are refused."""
    check_parallel(program(main), DEVICES)
    if "M" in main:
        with pytest.raises(BadInput, match="neighbours on different devices"):
            check_parallel(program(main), (0, 0, 0))


@pytest.mark.parametrize(
    ("main", "message"),
    [
        ("ps0[M] ps2[M] C", r"got ps0\[M\] and ps2\[M\] both on device 0; merge their stages"),
        ("ps0[M] C ps1[M] C", r"in the order D, M, H, C, got ps1\[M\] after C"),
        ("ps0[M] ps0[D] ps1[M] C", r"in the order D, M, H, C, got ps0\[D\] after ps0\[M\]"),
        ("ps1[H] ps0[M] C", r"got ps0\[M\] after ps1\[H\]"),
        ("ps0[M] ps1[M]", "copy for all stages at once, got C 0 times"),
        ("ps0[M] C C", "copy for all stages at once, got C 2 times"),
    ],
)
def test_cycles_that_cannot_run_in_parallel_are_refused(main: str, message: str) -> None:
    with pytest.raises(BadInput, match=f"the main cycle must .*{message}"):
        check_parallel(program(main), DEVICES)


def test_every_phase_is_checked() -> None:
    broken = cycle("ps0[M]")
    with pytest.raises(BadInput, match="fill cycle 0 must"):
        check_parallel(replace(program(GOOD), fill=(broken,)), DEVICES)
    with pytest.raises(BadInput, match="flush cycle 1 must"):
        check_parallel(replace(program(GOOD), flush=(cycle("C"), broken)), DEVICES)


# Streams and the program.


def streams(*layers: dict[str, object], tensors: list[dict[str, object]] | None = None) -> list[tuple[str, int, int]]:
    """The loads and stores of a forward graph, with stage and device."""
    graph = read_pipeline({"layers": list(layers), "tensors": tensors or []})
    ops = add_streams(forward_ops(graph), graph)
    return [(op.name, op.stage, op.device) for op in ops if op.kind is not OpKind.MAIN]


def test_streams_load_in_the_first_stage_and_the_loss_leaves_the_last() -> None:
    layers = [{"name": name, "device": device} for device, name in enumerate("ABC")]
    assert streams(*layers) == [("load in", 0, 0), ("store C:0", 2, 2)]


def test_labels_are_loaded_where_they_are_read() -> None:
    layers = [
        {"name": "A", "device": 3, "stage": 0},
        {"name": "B", "device": 1, "stage": 1, "inputs": ["A:0", "label"]},
    ]
    assert streams(*layers) == [("load in", 0, 3), ("load label", 1, 1), ("store B:0", 1, 1)]


def test_anchored_tensors_leave_the_stage_that_makes_them() -> None:
    layers = [{"name": "A", "device": 0}, {"name": "B", "device": 1}]
    stored = streams(*layers, tensors=[{"name": "A:0", "anchored": True}])
    assert stored == [("load in", 0, 0), ("store A:0", 0, 0), ("store B:0", 1, 1)]


def test_a_program_of_two_stages_is_as_drawn() -> None:
    graph = simple_pipeline(2)
    copy = PipelineOp("copy", OpKind.COPY, 0, 0, ("A:0",), ("A:0@1",))
    program = assemble((*add_streams(forward_ops(graph), graph), copy), 3)
    assert [" ".join(map(str, cycle)) for cycle in program.cycles()] == [
        "ps0[D] ps0[M] C",
        "ps0[D] ps0[M] ps1[M] ps1[H] C",
        "ps0[D] ps0[M] ps1[M] ps1[H] C",
        "ps1[M] ps1[H] C",
    ]
    assert (len(program.fill), program.n_main, len(program.flush), program.carried) == (1, 2, 1, ("A:0@1",))


@pytest.mark.parametrize("n_stages", [1, 2, 5])
@pytest.mark.parametrize("extra", [0, 1, 7])
def test_every_stage_runs_once_for_every_micro_batch(n_stages: int, extra: int) -> None:
    n_micro_batches = n_stages + extra
    program = assemble(forward_ops(simple_pipeline(n_stages)), n_micro_batches)
    runs = {
        (stage, number)
        for number, cycle in enumerate(program.cycles())
        for stage in (step.stage for step in cycle)
        if stage is not None
    }
    assert runs == {(stage, stage + m) for stage in range(n_stages) for m in range(n_micro_batches)}
    assert program.n_cycles == 2 * (n_stages - 1) + (n_micro_batches - (n_stages - 1))  # [popart-pipelining]


def test_there_must_be_a_main_phase() -> None:
    with pytest.raises(BadInput, match="1 cycle or more, got -1 with 1 micro-batches in 3 stages"):
        assemble(forward_ops(simple_pipeline(3)), 1)


# A machine that runs the program and checks every value.

Value = tuple[str, int]  # a tensor of the graph, of one micro-batch


class Machine:
    """Runs a program; storage holds which tensor of which micro-batch was last written there."""

    def __init__(self, pipeline: PopartPipeline, graph: PipelineGraph) -> None:
        self.pipeline, self.graph = pipeline, graph
        self.memory: dict[str, Value] = {}
        self.stashes = {f"stash({stash.tensor})": stash for stash in pipeline.stashes}
        self.entries: dict[tuple[str, int], Value] = {}
        self.n_runs: Counter[str] = Counter()
        self.stored: list[Value] = []

    def run(self) -> None:
        for number, cycle in enumerate(self.pipeline.program.cycles()):
            for step in cycle:
                ops = [op for op in self.pipeline.ops if op.fragment is step.fragment]
                if step.stage is None:  # all copies read before any writes
                    self.memory |= {op.outputs[0]: self.memory.get(op.inputs[0], ("nothing", -1)) for op in ops}
                    continue
                for op in ops:
                    if op.stage == step.stage:
                        self.do(op, number - step.stage)

    def do(self, op: PipelineOp, micro_batch: int) -> None:
        run = self.n_runs[op.name]
        self.n_runs[op.name] += 1
        match op.kind:
            case OpKind.STASH:
                entry = self.stashes[op.outputs[0]].entry(run)
                self.entries[op.outputs[0], entry] = self.memory[op.inputs[0]]
            case OpKind.RESTORE:
                entry = self.stashes[op.inputs[0]].entry(run)
                self.memory[op.outputs[0]] = self.entries[op.inputs[0], entry]
            case _:
                for name in filter(self.graph.changes, op.inputs):
                    assert self.memory[name] == (origin(name), micro_batch), f"{op.name} reads {name}"
                self.stored += [(origin(name), micro_batch) for name in op.inputs if op.kind is OpKind.TO_HOST]
                self.memory |= {name: (origin(name), micro_batch) for name in op.outputs}


def origin(name: str) -> str:
    """The tensor whose value a piece of storage should hold."""
    inner = re.fullmatch(r"clone\((.*)\)", name)
    return re.sub(r"([@~]\d+)+$", "", inner[1] if inner else name)


def run(pipeline: PopartPipeline, graph: PipelineGraph) -> Machine:
    machine = Machine(pipeline, graph)
    machine.run()
    return machine


@st.composite
def graphs(draw: st.DrawFn) -> PipelineGraph:
    """Chains of layers on stages that may share devices, with more inputs, outputs, anchors and gradient needs."""
    devices = draw(st.lists(st.integers(0, 2), min_size=2, max_size=5).filter(lambda d: len(set(d)) > 1))
    layers: list[dict[str, Any]] = []
    for stage, device in enumerate(devices):
        for _ in range(draw(st.integers(1, 2))):
            known = ["in", "late", *(name for layer in layers for name in layer["outputs"])]
            inputs = [
                known[-1] if layers else "in",
                *draw(st.lists(st.sampled_from([*known, f"w{device}"]), max_size=2)),
            ]
            name = f"L{len(layers)}"
            outputs = [f"{name}.x"] if draw(st.booleans()) else [f"{name}.y", f"{name}.x"]
            needs = draw(st.lists(st.sampled_from([*inputs, *outputs]), max_size=3))
            layers.append(
                {"name": name, "inputs": inputs, "outputs": outputs, "stage": stage, "device": device}
                | {"gradient_needs": needs}
            )
    read = {name for layer in layers for name in layer["inputs"]}
    variables = [{"name": name, "kind": "variable"} for name in sorted(read) if name.startswith("w")]
    made = [name for layer in layers for name in layer["outputs"]]
    anchors = [{"name": name, "anchored": True} for name in draw(st.sets(st.sampled_from(made), max_size=2))]
    return read_pipeline({"layers": layers, "tensors": [*variables, *anchors]})


@given(graph=graphs(), training=st.booleans(), recompute=st.booleans(), extra=st.integers(0, 4))
@settings(max_examples=n_examples(150), deadline=None)
def test_every_op_reads_values_of_its_micro_batch(
    graph: PipelineGraph, training: bool, recompute: bool, extra: int
) -> None:
    try:
        n_stages = transform(graph, 99, training=training, recompute=recompute).n_stages
    except BadInput as refusal:
        assume("anchored" not in str(refusal))
        raise
    n_micro_batches = n_stages + extra
    pipeline = transform(graph, n_micro_batches, training=training, recompute=recompute)
    machine = run(pipeline, graph)
    in_stages = [op for op in pipeline.ops if op.fragment is not Fragment.COPY]
    assert machine.n_runs == {op.name: n_micro_batches for op in in_stages}
    assert Counter(machine.stored) == Counter((name, m) for name in graph.anchors for m in range(n_micro_batches))
    assert all(op.device == pipeline.devices[op.stage] for op in pipeline.ops)


@pytest.mark.parametrize("recompute", [False, True])
def test_a_smaller_stash_would_lose_a_value(recompute: bool) -> None:
    graph = simple_pipeline(4)
    pipeline = transform(graph, 9, training=True, recompute=recompute)
    for index, stash in enumerate(pipeline.stashes):
        smaller = stash._replace(stage=stash.stage + 1)
        assert smaller.n_entries == stash.n_entries - 1
        stashes = (*pipeline.stashes[:index], smaller, *pipeline.stashes[index + 1 :])
        with pytest.raises(AssertionError, match="reads"):
            run(replace(pipeline, stashes=stashes), graph)


def test_restoring_a_copied_tensor_in_place_would_spoil_the_copy() -> None:
    """A's gradient needs a, which B's device needs, too: the copy would read the restored value."""
    layers = [
        {"name": "A", "device": 0, "outputs": ["a"], "gradient_needs": ["a"]},
        {"name": "B", "device": 1},
    ]
    graph = read_pipeline({"layers": layers})
    pipeline = transform(graph, 4, training=True, recompute=False)
    run(pipeline, graph)
    assert [(stash.tensor, stash.in_place) for stash in pipeline.stashes] == [("a", False)]
    names = {"a~2": "a"}
    in_place = tuple(
        replace(
            op,
            inputs=tuple(names.get(name, name) for name in op.inputs),
            outputs=tuple(names.get(name, name) for name in op.outputs),
        )
        for op in pipeline.ops
    )
    with pytest.raises(AssertionError, match="B reads a@1"):
        run(replace(pipeline, ops=in_place), graph)


# Other people's numbers.


def test_training_agrees_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for row in vectors("popart_pipeline_cycles_stash")["training"]:
        if row["ipus"] == 1:
            continue  # no pipeline: see test_rules.py
        graph = simple_pipeline(row["ipus"])
        if not row["valid"]:
            with pytest.raises(BadInput, match=f"{row['P']} or more, got {row['G']}"):
                transform(graph, row["G"], training=True, recompute=False)
            continue
        pipeline = transform(graph, row["G"], training=True, recompute=False)
        _check_phases(pipeline, row)
        assert list(pipeline.stash_entries.values()) == row["stash_entries_per_ipu"]
        assert active_cycles(pipeline) == [tuple(cycles) for cycles in row["do_stage"]]


def test_inference_agrees_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for row in vectors("popart_pipeline_cycles_stash")["inference"]:
        if row["P"] > 1 and row["valid"]:
            pipeline = transform(simple_pipeline(row["P"]), row["G"], training=False, recompute=False)
            _check_phases(pipeline, row)
        elif not row["valid"]:
            with pytest.raises(BadInput, match="micro-batches"):
                transform(simple_pipeline(row["P"]), row["G"], training=False, recompute=False)


def test_popxls_example_has_the_same_counts() -> None:
    """popxl: 4 stages, 5 micro-batches."""
    program = transform(simple_pipeline(4), 5, training=False, recompute=False).program
    assert (len(program.fill), program.n_main, len(program.flush), program.n_cycles) == (3, 2, 3, 8)


def test_explicit_pipelining_has_the_same_trip_counts() -> None:
    """Explicit pipelining of 3 layers: a loop of 6 becomes one of 2, with 4 before and 4 after."""
    pipeline = transform(simple_pipeline(3), 6, training=True, recompute=False)
    program = pipeline.program
    assert (program.n_main, len(program.fill), len(program.flush), pipeline.n_stages) == (2, 4, 4, 5)


@pytest.mark.parametrize(("training", "n_stages"), [(False, 3), (True, 5)])
def test_a_pipeline_needs_as_many_micro_batches_as_stages(training: bool, n_stages: int) -> None:
    assert transform(simple_pipeline(3), n_stages, training=training, recompute=False).n_stages == n_stages
    with pytest.raises(BadInput, match=f"{n_stages} or more, got {n_stages - 1}"):
        transform(simple_pipeline(3), n_stages - 1, training=training, recompute=False)


def test_forward_only_has_2_copies() -> None:
    assert len(transform(simple_pipeline(3), 3, training=False, recompute=False).copies) == 2


@pytest.mark.parametrize("n_devices", [2, 3, 7])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_simple_pipeline_is_poparts_order(n_devices: int, recompute: bool) -> None:
    """Devices do the same in the same cycles as in the order `popart`, and stash as much."""
    n_micro_batches = 2 * n_devices + 1
    pipeline = transform(simple_pipeline(n_devices), n_micro_batches, training=True, recompute=recompute)
    schedule = popart(n_devices, n_micro_batches, training=True)
    assert schedule.slots is not None
    for device in range(n_devices):
        counts = Counter(
            number
            for number, cycle in enumerate(pipeline.program.cycles())
            for step in cycle
            if step.fragment is Fragment.MAIN and step.stage is not None and pipeline.devices[step.stage] == device
        )
        expected = Counter(schedule.slots[device].tolist())
        assert counts == (expected if device < n_devices - 1 else dict.fromkeys(expected, 1))
    assert tuple(pipeline.stash_entries.values()) == stash_entries(schedule)


def active_cycles(pipeline: PopartPipeline) -> list[tuple[int, int]]:
    """For every stage the half-open range of cycles in which its main fragment runs."""
    cycles = list(pipeline.program.cycles())
    ranges = []
    for stage in range(pipeline.n_stages):
        active = [n for n, cycle in enumerate(cycles) if any(s.stage == stage for s in cycle if s.fragment == "M")]
        assert active == list(range(active[0], active[-1] + 1))
        ranges.append((active[0], active[-1] + 1))
    return ranges


def _check_phases(pipeline: PopartPipeline, row: dict[str, Any]) -> None:
    program = pipeline.program
    counts = (pipeline.n_stages, len(program.fill), program.n_main, program.n_cycles)
    assert counts == (row["P"], row["fill"], row["main"], row["cycles"])
