"""The study of what profiles cost to make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_profile_is_timed_beside_that_of_another_checkout(run_script: Callable[..., list[str]]) -> None:
    _, row, _ = run_script("profile_cost", "--quick", "--before", str(Path(__file__).parents[2]))
    *_, profile_ms, before_ms, ratio, command_s, _, _ = row.split()
    assert float(ratio) == pytest.approx(float(profile_ms) / float(before_ms), abs=0.1)
    assert float(command_s) > float(profile_ms) / 1000
