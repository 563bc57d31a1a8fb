"""PopART's program and its drawings, as [popart-pipelining] starts to write them for 3 devices."""

import re

import pytest

from autoauto.programs.popart.graph import PopartPipeline
from autoauto.programs.popart.input import read_pipeline, simple_pipeline
from autoauto.programs.popart.transform import devices_view, program_text, stages_view, transform

NOTES_START = """\
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


def test_the_program_continues_that_of_the_notes() -> None:
    pipeline = transform(simple_pipeline(3), 5, training=True, recompute=False)
    assert program_text(pipeline) == NOTES_START + REST


def test_more_micro_batches_only_repeat_more() -> None:
    pipeline = transform(simple_pipeline(3), 64, training=True, recompute=True)
    assert program_text(pipeline) == (NOTES_START + REST).replace("Repeat(1,", "Repeat(60,")


def test_a_program_for_inference() -> None:
    assert program_text(transform(simple_pipeline(2), 8, training=False, recompute=False)) == INFERENCE


NOTES_STAGES = """\
     <-------------- fill --------------> <- main > <-------- flush --------->
PS0: D0.M0.| D1.M1.| D2.M2   .| D3.M3   .|D4.M4   .|       |       |    |    |
PS1:       |    M0.|    M1   .|    M2   .|   M3   .| M4   .|       |    |    |
PS2:       C       C    M0.H0.C    M1.H1.C   M2.H2.C M3.H3.C M4.H4.C    C    C
PS3:       |       |          |    M0   .|   M1   .| M2   .| M3   .| M4.|    |
PS4:       |       |          |          |   M0   .| M1   .| M2   .| M3.| M4.|"""
STAGES = """\
     <-------------- fill -------------->  < main ->  <------- flush -------->
PS0: D0.M0.| D1.M1.| D2.M2   .| D3.M3   .| D4.M4   .|       |       |    |    |
PS1:       |    M0.|    M1   .|    M2   .|    M3   .| M4   .|       |    |    |
PS2:       C       C    M0.H0.C    M1.H1.C    M2.H2.C M3.H3.C M4.H4.C    C    C
PS3:       |       |          |    M0   .|    M1   .| M2   .| M3   .| M4.|    |
PS4:       |       |          |          |    M0   .| M1   .| M2   .| M3.| M4.|"""
NOTES_DEVICES = """\
      <-------------- fill ---------------> <--- main ---> <--------------- flush --------------->
IPU0: PS0(0), PS0(1), PS0(2), PS0(3)       , PS0(4).PS4(0), PS4(1)        , PS4(2), PS4(3), PS4(4)
IPU1:         PS1(0), PS1(1), PS1(2).PS3(0), PS1(3).PS3(1), PS1(4).PS3(2) , PS3(3), PS3(4)
IPU2:                 PS2(0), PS2(1)       , PS2(2)       , PS2(3)        , PS2(4),"""
DEVICES = """\
      <-------------- fill --------------->  <-- main --->  <-------------- flush -------------->
IPU0: PS0(0), PS0(1), PS0(2), PS0(3)       , PS0(4).PS4(0), PS4(1)       , PS4(2), PS4(3), PS4(4)
IPU1:         PS1(0), PS1(1), PS1(2).PS3(0), PS1(3).PS3(1), PS1(4).PS3(2), PS3(3), PS3(4)
IPU2:                 PS2(0), PS2(1)       , PS2(2)       , PS2(3)       , PS2(4)"""
INFERENCE_STAGES = """\
     <--- fill --->  <------ main ------>  <-- flush --->
PS0: D0.M0.| D1.M1.| D2.M2   .| D3.M3   .|       |       |
PS1:       C    M0.C    M1   .C    M2   .C M3   .C       C
PS2:       |       |    M0.H0.|    M1.H1.| M2.H2.| M3.H3.|"""
INFERENCE_DEVICES = """\
      <--- fill --->  <--- main --->  <-- flush --->
IPU0: PS0(0), PS0(1), PS0(2), PS0(3)
IPU1:         PS1(0), PS1(1), PS1(2), PS1(3)
IPU2:                 PS2(0), PS2(1), PS2(2), PS2(3)"""
TWO_STAGES = """\
     <fill>  < main ->  <flush>
PS0: D0.M0.| D1.M1   .|        |
PS1:       C    M0.H0.C  M1.H1.C"""
TWO_DEVICES = """\
      <fill>  <main>  <flush>
IPU0: PS0(0), PS0(1)
IPU1:         PS1(0), PS1(1)"""
LONG_NUMBERS = """\
PS0: D9.M9   .| D10.M10   .|         |
PS1:    M8.H8.C     M9 .H9.C M10.H10.C"""


def simple(n_devices: int, n_micro_batches: int, *, training: bool) -> PopartPipeline:
    return transform(simple_pipeline(n_devices), n_micro_batches, training=training, recompute=False)


def bare(drawing: str) -> list[str]:
    """Lines without blanks, dashes and trailing commas."""
    return [re.sub(r"[ -]|,$", "", line) for line in drawing.splitlines()]


def test_the_drawings_are_those_of_the_notes() -> None:
    pipeline = simple(3, 5, training=True)
    assert stages_view(pipeline) == STAGES
    assert devices_view(pipeline) == DEVICES
    assert (bare(STAGES), bare(DEVICES)) == (bare(NOTES_STAGES), bare(NOTES_DEVICES))


def test_the_drawings_of_inference() -> None:
    pipeline = simple(3, 4, training=False)
    assert stages_view(pipeline) == INFERENCE_STAGES
    assert devices_view(pipeline) == INFERENCE_DEVICES


def test_a_narrow_phase_is_widened_to_its_name() -> None:
    pipeline = simple(2, 2, training=False)
    assert stages_view(pipeline) == TWO_STAGES
    assert devices_view(pipeline) == TWO_DEVICES


def test_longer_numbers_widen_their_column() -> None:
    lines = stages_view(simple(2, 11, training=False)).splitlines()
    start = lines[1].index("D9.")
    assert "\n".join(f"{line[:5]}{line[start:]}" for line in lines[1:]) == LONG_NUMBERS


def test_labels_are_aligned() -> None:
    lines = stages_view(simple(6, 11, training=True)).splitlines()
    assert [line[:6] for line in lines[1:]] == [*(f"PS{s}:  " for s in range(10)), "PS10: "]


def test_a_device_with_three_stages() -> None:
    layers = [{"name": f"L{s}", "device": d, "stage": s} for s, d in enumerate((5, 2, 5, 2, 5))]
    pipeline = transform(read_pipeline({"layers": layers}), 5, training=False, recompute=False)
    lines = devices_view(pipeline).splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["IPU2", "IPU5"]
    assert "PS0(4).PS2(2).PS4(0)" in lines[2]


@pytest.mark.parametrize(("n_devices", "extra", "training"), [(2, 0, True), (4, 3, True), (5, 9, False)])
def test_the_two_drawings_agree(n_devices: int, extra: int, training: bool) -> None:
    """Every stage computes every micro-batch once in both, and the lines of the stages are equally long."""
    n_stages = 2 * n_devices - 1 if training else n_devices
    pipeline = simple(n_devices, n_stages + extra, training=training)
    lines = stages_view(pipeline).splitlines()[1:]
    by_stage = {(s, int(m)) for s, line in enumerate(lines) for m in re.findall(r"M(\d+)", line)}
    by_device = {(int(s), int(m)) for s, m in re.findall(r"PS(\d+)\((\d+)\)", devices_view(pipeline))}
    assert by_stage == by_device == {(s, m) for s in range(n_stages) for m in range(n_stages + extra)}
    assert len(set(map(len, lines))) == 1
    assert lines[n_stages // 2].count("C") == pipeline.program.n_cycles
