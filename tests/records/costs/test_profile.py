"""Compiled ranges: cycles, and memory by category."""

import pytest

from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.profile import CompiledRange, ProgramStep, category

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
