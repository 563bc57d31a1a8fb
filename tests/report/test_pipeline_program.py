"""PopART's program, as seed 000 begins to write it for 3 devices."""

from autoauto.report.pipeline_program import program_text
from autoauto.schedule.pipeline_input import simple_pipeline
from autoauto.schedule.transform import transform

SEED_000 = """\
poplar::Program::Sequence seq;  // the full pipeline program
seq.add(ps0[D]);
seq.add(ps0[M]);
seq.add(C);
seq.add(ps0[D]);
seq.add(ps0[M]);
seq.add(ps1[M]);
seq.add(C);
"""

REST = """\
seq.add(ps0[D]);
seq.add(ps0[M]);
seq.add(ps1[M]);
seq.add(ps2[M]);
seq.add(ps2[H]);
seq.add(C);
seq.add(ps0[D]);
seq.add(ps0[M]);
seq.add(ps1[M]);
seq.add(ps2[M]);
seq.add(ps3[M]);
seq.add(ps2[H]);
seq.add(C);
seq.add(loop_in[A:0@1]);
seq.add(loop_in[B:0@2]);
seq.add(loop_in[d(B:0)@3]);
seq.add(loop_in[d(A:0)@4]);
poplar::Program::Sequence main;  // the main cycle
main.add(ps0[D]);
main.add(ps0[M]);
main.add(ps1[M]);
main.add(ps2[M]);
main.add(ps3[M]);
main.add(ps4[M]);
main.add(ps2[H]);
main.add(C);
main.add(loop_carry[A:0@1]);
main.add(loop_carry[B:0@2]);
main.add(loop_carry[d(B:0)@3]);
main.add(loop_carry[d(A:0)@4]);
seq.add(poplar::Program::Repeat(1, main));
seq.add(loop_out[A:0@1]);
seq.add(loop_out[B:0@2]);
seq.add(loop_out[d(B:0)@3]);
seq.add(loop_out[d(A:0)@4]);
seq.add(ps1[M]);
seq.add(ps2[M]);
seq.add(ps3[M]);
seq.add(ps4[M]);
seq.add(ps2[H]);
seq.add(C);
seq.add(ps2[M]);
seq.add(ps3[M]);
seq.add(ps4[M]);
seq.add(ps2[H]);
seq.add(C);
seq.add(ps3[M]);
seq.add(ps4[M]);
seq.add(C);
seq.add(ps4[M]);
seq.add(C);"""

INFERENCE = """\
poplar::Program::Sequence seq;  // the full pipeline program
seq.add(ps0[D]);
seq.add(ps0[M]);
seq.add(C);
seq.add(loop_in[A:0@1]);
poplar::Program::Sequence main;  // the main cycle
main.add(ps0[D]);
main.add(ps0[M]);
main.add(ps1[M]);
main.add(ps1[H]);
main.add(C);
main.add(loop_carry[A:0@1]);
seq.add(poplar::Program::Repeat(7, main));
seq.add(loop_out[A:0@1]);
seq.add(ps1[M]);
seq.add(ps1[H]);
seq.add(C);"""


def test_the_seeds_program_goes_on_like_this() -> None:
    pipeline = transform(simple_pipeline(3), 5, training=True, recompute=False)
    assert program_text(pipeline) == SEED_000 + REST


def test_more_micro_batches_only_repeat_more() -> None:
    pipeline = transform(simple_pipeline(3), 64, training=True, recompute=True)
    assert program_text(pipeline) == (SEED_000 + REST).replace("Repeat(1,", "Repeat(60,")


def test_a_program_for_inference() -> None:
    assert program_text(transform(simple_pipeline(2), 8, training=False, recompute=False)) == INFERENCE
