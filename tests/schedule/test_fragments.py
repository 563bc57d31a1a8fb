import pytest

from autoauto.records.errors import BadInput
from autoauto.records.pipeline import OpKind, PipelineOp
from autoauto.schedule.autodiff import forward_ops
from autoauto.schedule.fragments import add_streams, assemble
from autoauto.schedule.pipeline_input import read_pipeline, simple_pipeline


def streams(*layers: dict[str, object], tensors: list[dict[str, object]] | None = None) -> list[tuple[str, int, int]]:
    """The loads and stores of a forward graph, with stage and device."""
    graph = read_pipeline({"layers": list(layers), "tensors": tensors or []})
    ops = add_streams(forward_ops(graph), graph)
    return [(op.name, op.stage, op.device) for op in ops if op.kind is not OpKind.MAIN]


def test_data_comes_to_the_first_stage_and_the_loss_leaves_the_last() -> None:
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


def test_a_program_of_two_stages_drawn() -> None:
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
    assert program.n_cycles == 2 * (n_stages - 1) + (n_micro_batches - (n_stages - 1))  # seed 000


def test_there_must_be_a_main_phase() -> None:
    with pytest.raises(BadInput, match="1 cycle or more, got -1 with 1 micro-batches in 3 stages"):
        assemble(forward_ops(simple_pipeline(3)), 1)
