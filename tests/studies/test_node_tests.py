"""The node tests of the onnx package: each is priced, folded away, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from studies.node_tests import Outcome


@pytest.mark.slow
def test_every_node_test_is_priced_or_refused_in_one_line(run_script: Callable[..., list[str]]) -> None:
    lines = run_script("node_tests", "--list")
    outcomes = {name: rest for name, _, rest in (line.partition(" ") for line in lines)}
    for name, outcome in {
        "test_add": Outcome.PRICED,
        "test_det_2d": Outcome.PRICED,
        "test_string_concat": Outcome.DEFAULT,
        "test_reshape_negative_dim": Outcome.FOLDED,
        "test_loop11": Outcome.REFUSED,
        "test_group_normalization_example": Outcome.PRICED,
        "test_nonmaxsuppression_single_box": Outcome.PRICED,
        "test_range_float_type_positive_delta": Outcome.FOLDED,
        "test_split_to_sequence_1": Outcome.FOLDED,
        "test_sequence_insert_at_back": Outcome.REFUSED,
    }.items():
        assert outcomes[name].strip().startswith(outcome)
    (summary,) = (line for line in lines if line.endswith("tests"))
    assert "failed 0 of" in summary
    assert any(line.startswith("priced as elementwise: ") and "StringConcat" in line for line in lines)
