from dataclasses import replace

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.pipeline import Cycle, Fragment, PipelineProgram, Step
from autoauto.schedule.parallel import check_parallel

GOOD = "ps0[D] ps0[M] ps1[M] ps2[M] ps1[H] C"
DEVICES = (0, 1, 0)


def cycle(text: str) -> Cycle:
    """Read what `Step` prints."""
    words = (word.removeprefix("ps").removesuffix("]").split("[") for word in text.split())
    return tuple(Step(Fragment(word[-1]), int(word[0]) if len(word) == 2 else None) for word in words)


def program(main: str) -> PipelineProgram:
    return PipelineProgram((cycle("ps0[M] C"),), cycle(main), 3, (cycle("ps2[M] C"),), ())


@pytest.mark.parametrize("main", [GOOD, "ps0[D] ps2[D] ps0[M] ps1[M] C", "C"])
def test_what_can_run_in_parallel(main: str) -> None:
    """Loads of one device follow each other, as do the stages 0 and 2."""
    check_parallel(program(main), DEVICES)


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
def test_what_cannot_is_named(main: str, message: str) -> None:
    with pytest.raises(BadInput, match=f"the main cycle must .*{message}"):
        check_parallel(program(main), DEVICES)


def test_every_phase_is_looked_at() -> None:
    broken = cycle("ps0[M]")
    with pytest.raises(BadInput, match="fill cycle 0 must"):
        check_parallel(replace(program(GOOD), fill=(broken,)), DEVICES)
    with pytest.raises(BadInput, match="flush cycle 1 must"):
        check_parallel(replace(program(GOOD), flush=(cycle("C"), broken)), DEVICES)
