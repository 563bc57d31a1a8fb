import pytest

from autoauto.records.errors import BadInput
from autoauto.schedule.autodiff import backward_ops, forward_ops
from autoauto.schedule.pipeline_input import read_pipeline


def rows(*layers: tuple[str, list[str], int]) -> list[tuple[str, int, tuple[str, ...], tuple[str, ...]]]:
    """Gradients of layers, given as name, inputs and device; "w" is a variable, "k" a constant."""
    entries = [
        {"name": name, "inputs": inputs, "device": device, "outputs": [name.lower()]} for name, inputs, device in layers
    ]
    read = {name for _, inputs, _ in layers for name in inputs}
    marks = [{"name": name, "kind": kind} for name, kind in (("w", "variable"), ("k", "constant")) if name in read]
    graph = read_pipeline({"layers": entries, "tensors": marks})
    assert [op.name for op in forward_ops(graph)] == [name for name, _, _ in layers]
    return [(op.name, op.stage, op.inputs, op.outputs) for op in backward_ops(graph)]


def test_the_seeds_table() -> None:
    """Stage 2 has C and C', stage 3 B', stage 4 A'."""
    assert rows(("A", ["in"], 0), ("B", ["a"], 1), ("C", ["b"], 2)) == [
        ("C'", 2, ("b",), ("d(b)",)),
        ("B'", 3, ("d(b)", "a"), ("d(a)",)),
        ("A'", 4, ("d(a)", "in"), ()),
    ]


def test_a_tensor_with_two_readers_gets_its_gradient_in_two_parts() -> None:
    assert rows(("A", ["in"], 0), ("B", ["a"], 0), ("C", ["a", "b"], 1)) == [
        ("C'", 1, ("a", "b"), ("d(a) of C", "d(b)")),
        ("B'", 2, ("d(b)", "a"), ("d(a) of B",)),
        ("A'", 2, ("d(a) of C", "d(a) of B", "in"), ()),
    ]


def test_variables_and_constants_have_no_activation_gradient() -> None:
    assert rows(("A", ["in", "w"], 0), ("B", ["a", "k"], 1))[0] == ("B'", 1, ("a", "k"), ("d(a)",))


def test_what_does_not_lead_to_the_loss_has_no_gradient() -> None:
    assert [row[0] for row in rows(("A", ["in"], 0), ("Log", ["a"], 0), ("B", ["a"], 1))] == ["B'", "A'"]


def test_two_losses_start_two_backwards() -> None:
    assert [row[0] for row in rows(("A", ["in"], 0), ("B", ["a"], 1), ("C", ["a"], 1))] == ["C'", "B'", "A'"]


def test_a_gradient_may_need_outputs() -> None:
    layers = [{"name": "A", "device": 0}, {"name": "B", "device": 1, "gradient_needs": ["B:0"]}]
    assert backward_ops(read_pipeline({"layers": layers}))[0].inputs == ("B:0",)


def test_every_stage_must_lead_to_the_loss() -> None:
    with pytest.raises(BadInput, match="forward ones, 3, got 2: no layer of stage 1 leads to the loss"):
        rows(("A", ["in"], 0), ("B", ["a"], 1), ("C", ["a"], 2))
