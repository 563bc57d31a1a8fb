"""PopART's pipeline as a serial program, in the manner of seed 000."""

from __future__ import annotations

from collections.abc import Iterable

from autoauto.records.pipeline import Cycle, Pipeline


def program_text(pipeline: Pipeline) -> str:
    """Every fragment in the order in which it is added, with the main phase as a loop.

    What the copies of the fill phase bring enters the loop (loop_in), is carried from one cycle to the next
    (loop_carry) and leaves the loop for the flush phase (loop_out). Stashes stay where they are.
    """
    program = pipeline.program
    return "\n".join(
        [
            "poplar::Program::Sequence seq;  // the full pipeline program",
            *(line for cycle in program.fill for line in _added("seq", cycle)),
            *_added("seq", (f"loop_in[{name}]" for name in program.carried)),
            "poplar::Program::Sequence main;  // the main cycle",
            *_added("main", program.main),
            *_added("main", (f"loop_carry[{name}]" for name in program.carried)),
            f"seq.add(poplar::Program::Repeat({program.n_main}, main));",
            *_added("seq", (f"loop_out[{name}]" for name in program.carried)),
            *(line for cycle in program.flush for line in _added("seq", cycle)),
        ]
    )


def _added(sequence: str, parts: Cycle | Iterable[str]) -> list[str]:
    return [f"{sequence}.add({part});" for part in parts]
