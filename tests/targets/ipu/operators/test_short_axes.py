"""Every operator along axes of length 0, 1 and 2: a price, or a refusal of one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import groupby

import pytest

from autoauto.graph.load import load_graph
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.units import Precision
from autoauto.targets.ipu.target import IpuTarget
from studies import contrib_cases, operator_cases
from studies.operator_cases import Case
from tests.drawn import is_thorough

CASES = {
    op: list(cases)
    for op, cases in groupby(
        sorted((*operator_cases.CASES, *contrib_cases.CASES), key=lambda case: case.op), key=lambda case: case.op
    )
}
CONSTANTS = "=~#%-"


def shortened(case: Case) -> Iterator[Case]:
    """The case with all lengths, and with each length wherever it stands, replaced by 0, 1 and 2."""
    words = case.operands.split()
    lengths = sorted({length for word in words if word[0] not in CONSTANTS for length in re.findall(r"\d+", word)})
    for changed in (lengths, *([length] for length in lengths)):
        for short in "012":
            shapes = [word if word[0] in CONSTANTS else with_length(word, changed, short) for word in words]
            yield replace(case, operands=" ".join(shapes))


def with_length(word: str, changed: Collection[str], short: str) -> str:
    """A shape with `short` in place of some lengths."""
    return re.sub(r"\d+", lambda match: short if match[0] in changed else match[0], word)


def read(case: Case) -> LayerGraph | None:
    """The graph of a case; None where it is refused, or where nothing is left to compute."""
    try:
        return load_graph(case.model())
    except BadInput as error:
        return None if "\n" not in str(error) else pytest.fail(str(error))


@pytest.mark.drawn
@pytest.mark.parametrize("op", CASES)
def test_short_axes_have_a_price_or_are_refused(op: str, device: Device) -> None:
    outcomes = Counter[bool]()
    wholes = CASES[op] if is_thorough() else CASES[op][:1]
    for case in {repr(case): case for whole in wholes for case in shortened(whole)}.values():
        graph = read(case)
        outcomes[graph is not None] += 1
        if graph is None:
            continue
        for training in (False, True):
            options = CompileOptions(2, Precision.FP16, training)
            priced = IpuTarget().compile(graph, LayerRange(0, len(graph)), device, options)
            assert priced.temporary_bytes >= 0
            assert sum(step.cycles for step in priced.steps) > 0, case
    assert outcomes[True]
