"""The pipeline stages of Keras layers by the names of ONNX operators. It needs Python alone, from 3.8 on."""

from __future__ import annotations

import re
from typing import Any, Sequence, Tuple  # noqa: UP035

Path = Tuple[str, ...]  # noqa: UP006  evaluated, by Python 3.8 too


def flat(assignments: Sequence[Any], path: Path = ()) -> list[tuple[Path, Any]]:
    """The assignments of all layer invocations in order, each with the names of the models around it and its own."""
    invocations: list[tuple[Path, Any]] = []
    for assignment in assignments:
        if assignment.is_nested_model:
            invocations += flat(assignment.pipeline_stage_assignments, (*path, assignment.nested_model.name))
        else:
            invocations.append(((*path, assignment.layer.name), assignment))
    return invocations


def stages_of_layers(paths: Sequence[Path], operators: Sequence[tuple[str, int]]) -> list[int]:
    """The stage of every layer invocation: its operators' stage, or without operators, as dropout, the layer before's.

    Args:
        paths: for every invocation, in order, the names of the models around the layer and its own.
        operators: names of operators, each with its stage.

    Raises:
        ValueError: no layer has operators, or one has operators in several stages.
    """
    stages: list[int | None] = []
    for path in paths:
        numbers = sorted({stage for name, stage in operators if _is_in(path, name)})
        if len(numbers) > 1:
            raise ValueError(f"a layer must be in one stage, the operators of {'/'.join(path)} are in {numbers}")
        stages.append(numbers[0] if numbers else None)
    if all(stage is None for stage in stages):
        raise ValueError(f"operators must be called as layers, for example dense/MatMul, got {operators[0][0]!r}")
    filled: list[int] = []
    last = 0
    for stage in stages:
        if stage is not None:
            last = stage
        filled.append(last)
    return filled


def _is_in(path: Path, operator: str) -> bool:
    """True if the names of a path come in an operator's name in this order, each whole between "/", "." or ":"."""
    # Every search goes on behind the part where the one before ended, so the names come in their order.
    parts = iter(re.split(r"[/.:]", operator))
    return all(any(part == name for part in parts) for name in path)
