"""Compiled ranges: cycles, and memory by category."""

from dataclasses import replace

import pytest

from autoauto.records.costs.memory import compiled_bytes, compiled_stage
from autoauto.records.costs.profile import CompiledRange, LayerProfile, ModelProfile, ProgramStep, category
from autoauto.records.errors import BadInput

STEPS = (ProgramStep("a/compute", 100, 30), ProgramStep("b/compute", 20, 70))


def test_steps_add_up_and_the_peak_is_the_largest() -> None:
    compiled = CompiledRange(STEPS, 5, {}, {})
    assert (compiled.forward_cycles, compiled.backward_cycles, compiled.temporary_bytes) == (120, 5, 70)


def test_memory_is_added_up_by_category() -> None:
    shared = {"vertexCode_conv": 10, "vertexCode_copy": 1, "stack_program": 4}
    compiled = CompiledRange(STEPS, 0, shared, {"parameter": 8, "vertexCode": 2})
    assert compiled_bytes(compiled) == {"vertexCode": 13, "stack": 4, "parameter": 8, "temporary": 70}


@pytest.mark.parametrize(("key", "name"), [("vertexCode_1", "vertexCode"), ("a_b_c", "a"), ("plain", "plain")])
def test_the_category_ends_at_the_first_underscore(key: str, name: str) -> None:
    assert category(key) == name


def test_the_peak_may_be_in_the_backward_pass() -> None:
    assert compiled_bytes(CompiledRange(STEPS, 5, {}, {}, backward_temporary_bytes=90)) == {"temporary": 90}
    assert compiled_bytes(CompiledRange(STEPS, 5, {}, {}, backward_temporary_bytes=60)) == {"temporary": 70}


def test_recomputation_runs_the_forward_pass_again_and_holds_less() -> None:
    """The steps take 100 and 20 cycles, of which the last 20 come after the last checkpoint."""
    compiled = CompiledRange(STEPS, 5, {}, {}, backward_temporary_bytes=90, last_segment_cycles=20)
    again = compiled.recomputed()
    assert (again.backward_cycles, again.forward_cycles, again.temporary_bytes) == (125, 120, 90)
    assert compiled.recomputed(keeps_last=True).backward_cycles == 105
    known = replace(compiled, recompute_temporary_bytes=40).recomputed()
    assert [step.temporary_bytes for step in known.steps] == [30, 40]
    assert (known.backward_temporary_bytes, known.temporary_bytes) == (40, 40)


def test_a_stage_that_recomputes_stashes_its_inputs_and_checkpoints() -> None:
    compiled = CompiledRange(STEPS, 5, {"vertexCode_a": 2}, {"parameter": 8}, activation_bytes=50, checkpoint_bytes=4)
    assert compiled_stage(compiled, 3).entry_bytes == 50
    stage = compiled_stage(compiled, 3, recompute=True)
    assert stage.entry_bytes == 3 + 4
    assert (stage.exclusive_bytes, stage.shared_bytes, stage.temporary_bytes) == (
        {"parameter": 8},
        {"vertexCode_a": 2},
        70,
    )


@pytest.mark.parametrize("n", [(1, 1, 1, 2), (2, 1, 1, 1), (1, 1, 2, 1), (0, 0, 0, 0)])
def test_a_profile_has_an_entry_for_every_layer(n: tuple[int, ...]) -> None:
    layer = LayerProfile(0, 0, {}, {}, 0, 0, 0, 0, 0)

    def made(*lengths: int) -> ModelProfile:
        names, kinds, tied, layers = lengths
        return ModelProfile("m", "t", None, ("a", "b")[:names], ("k",) * kinds, (None,) * tied, (layer,) * layers)

    assert len(made(2, 2, 2, 2)) == 2
    with pytest.raises(BadInput, match="names, kinds, tied and layers of one length, at least 1"):
        made(*n)
