import pytest

from autoauto.programs.popart.graph import (
    Fragment,
    FragmentCall,
    OpKind,
    PipelineGraph,
    PipelineLayer,
    PipelineOp,
    PipelineProgram,
    PipelineTensor,
    PopartPipeline,
    Stash,
    TensorKind,
)

COPY = FragmentCall(Fragment.COPY)
M0, M1 = FragmentCall(Fragment.MAIN, 0), FragmentCall(Fragment.MAIN, 1)
PROGRAM = PipelineProgram(fill=((M0, COPY),), main=(M0, M1, COPY), n_main=2, flush=((M1, COPY),), carried=("a@1",))


def test_the_cycles_of_a_program() -> None:
    cycles = [" ".join(map(str, cycle)) for cycle in PROGRAM.cycles()]
    assert cycles == ["ps0[M] C", "ps0[M] ps1[M] C", "ps0[M] ps1[M] C", "ps1[M] C"]
    assert PROGRAM.n_cycles == len(cycles)


def test_a_stash_has_an_entry_for_every_cycle_up_to_the_restore() -> None:
    stash = Stash("a", device=0, stage=1, restore_stages=(3, 6), in_place=False)
    assert stash.n_entries == 6
    assert [stash.entry(m) for m in (0, 5, 6, 13)] == [0, 5, 0, 1]


def test_results_and_anchors_go_to_the_host() -> None:
    layers = (_layer("A", ("in", "w"), ("a", "b")), _layer("B", ("a",), ("c",)))
    tensors = {name: PipelineTensor(name) for name in "abc"}
    tensors["a"] = PipelineTensor("a", is_anchor=True)
    tensors["w"] = PipelineTensor("w", TensorKind.VARIABLE)
    tensors["in"] = PipelineTensor("in", TensorKind.STREAM)
    graph = PipelineGraph(layers, tensors)
    assert graph.results == {"b", "c"}
    assert graph.anchors == {"a", "b", "c"}
    assert [name for name in ("in", "w", "a", "a@1", "d(a)") if not graph.changes(name)] == ["w"]


@pytest.mark.parametrize(
    ("kind", "fragment"),
    [
        ("to_device", "D"),
        ("main", "M"),
        ("stash", "M"),
        ("restore", "M"),
        ("clone", "M"),
        ("to_host", "H"),
        ("copy", "C"),
    ],
)
def test_the_fragment_of_an_op(kind: str, fragment: str) -> None:
    assert PipelineOp("x", OpKind(kind), 0, 0, (), ()).fragment == fragment


def test_stash_entries_of_a_device_add_up() -> None:
    stashes = (Stash("a", 1, 0, (2,), True), Stash("b", 1, 0, (4,), True))
    pipeline = PopartPipeline((), (1, 0, 1, 0, 1), 5, stashes, PROGRAM)
    assert pipeline.stash_entries == {0: 0, 1: 3 + 5}


def _layer(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> PipelineLayer:
    return PipelineLayer(name, inputs, outputs, 0, 0, inputs)
