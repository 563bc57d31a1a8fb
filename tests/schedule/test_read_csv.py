from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import WEIGHT, Schedule
from autoauto.schedule.csv_checks import (
    check_actions,
    hang_of_waiting_sends,
    read_cells,
    read_schedule_csv,
    schedule_from_csv,
)
from autoauto.schedule.simulate.dependencies import check
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times

TORCHTITAN = Path(__file__).parents[1] / "vectors" / "torchtitan"
OTHERS = [TORCHTITAN / "custom_schedule.csv", TORCHTITAN / "example.csv"]

# Rank 0 has stages 0 and 3, rank 1 has 1 and 2. Rank 0 overlaps, rank 1 splits one backward of two.
V_SHAPE = """\
0F0,,3F0,(0F1;3B0)OVERLAP_F_B,3F1,(3B1;0B0)OVERLAP_F_B,0B1
1F0,2F0,1F1,2F1,2I0,2W0,1B0,2B1,1I1,1W1
"""


def programs(schedule: Schedule) -> list[str]:
    return [" ".join(map(str, schedule.actions(device))) for device in range(schedule.n_devices)]


def timeline(schedule: Schedule, forward: int, backward: int, weight: int) -> Timeline:
    """The timeline, where every action of a stage takes as long as on any other, and messages take no time."""
    n_chunks, n = schedule.n_stages // schedule.n_devices, schedule.n_devices
    cycles = ([Fraction(c * n_chunks)] * n for c in (forward, backward, weight, 0))
    return simulate(schedule, stage_times(schedule.devices, *cycles, split_backward=schedule.has(WEIGHT)))


def test_cells_are_actions() -> None:
    schedule = schedule_from_csv("0F0, 0F1 ,,0B0,0B1,\r\n,1F0,1B0,1F1,1B1\r\n\r\n", "two.csv")
    assert programs(schedule) == ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    assert (schedule.order, schedule.devices, schedule.n_micro_batches) == (None, (0, 1), 2)
    assert not schedule.full_backwards


def test_overlapped_actions_follow_each_other_and_full_backwards_are_both_gradients() -> None:
    schedule = schedule_from_csv(V_SHAPE, "v.csv")
    assert programs(schedule) == [
        "0F0 3F0 0F1 3B0 3W0 3F1 3B1 3W1 0B0 0W0 0B1 0W1",
        "1F0 2F0 1F1 2F1 2B0 2W0 1B0 1W0 2B1 2W1 1B1 1W1",
    ]
    full = schedule.codes.actions(np.array(sorted(schedule.full_backwards)))
    assert " ".join(map(str, full)) == "0B0 0B1 1B0 2B1 3B0 3B1"


def test_a_full_backward_sends_its_gradient_when_both_gradients_are_made() -> None:
    # 0F0     0B0----         0F0     0I0--0W0--
    #     1F0 1B0----             1F0 1I0--1W0--
    mixed = schedule_from_csv("0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1I1,1W1", "mixed.csv")
    times = timeline(mixed, 1, 2, 3)
    spans = {str(span.action): (span.start_cycle, span.stop_cycle) for d in (0, 1) for span in times.spans(d)}
    assert spans["1B0"] == (2, 4)
    assert spans["1W0"] == (4, 7)
    assert spans["0B0"] == (7, 9), "the whole backward of stage 1 stops at 7"
    assert spans["1B1"] == (8, 10)
    assert spans["0B1"] == (12, 14), "its weight gradient on device 0 stops at 12, the input gradient came at 10"


def test_messages_and_weights_are_left_out() -> None:
    schedule = read_schedule_csv(TORCHTITAN / "example.csv")
    assert (schedule.devices, schedule.n_micro_batches) == ((0, 1, 0, 1), 4)
    assert programs(schedule)[1].startswith("1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0")


def test_torchtitans_schedule_has_the_numbers_of_all_forwards_then_all_backwards() -> None:
    schedule = read_schedule_csv(TORCHTITAN / "custom_schedule.csv")
    assert (schedule.devices, schedule.n_micro_batches) == ((0, 1, 0, 1), 8)
    times = timeline(schedule, 1, 1, 1)
    assert (times.makespan_cycles, times.ideal_cycles) == (50, 48)  # the first forward and the first gradient are idle
    assert schedule.peak_in_flight == (16, 16)


def cell_makespan(text: str, forward: int, backward: int, weight: int) -> int:
    """When all compute cells have run, each as soon as it can: shares nothing with autoauto's simulator."""
    cycles = {"F": forward, "I": backward, "W": weight, "B": backward + weight}
    rows = [re.findall(r"(?<!\w)(\d+)([FIWB])(\d+)", line) for line in text.splitlines()]
    last = str(max(int(stage) for row in rows for stage, _, _ in row))
    stops: dict[tuple[str, str, str], int] = {}
    clocks, heads = [0] * len(rows), [0] * len(rows)

    def inputs(stage: str, kind: str, micro_batch: str) -> Iterator[tuple[str, str, str]]:
        if kind == "F" and stage != "0":
            yield str(int(stage) - 1), "F", micro_batch
        if kind in "BI":
            yield (str(int(stage) + 1), "gradient", micro_batch) if stage != last else (stage, "F", micro_batch)

    while any(head < len(row) for head, row in zip(heads, rows, strict=True)):
        for r, row in enumerate(rows):
            while heads[r] < len(row) and all(need in stops for need in inputs(*row[heads[r]])):
                stage, kind, micro_batch = row[heads[r]]
                start = max([clocks[r], *(stops[need] for need in inputs(stage, kind, micro_batch))])
                clocks[r] = start + cycles[kind]
                stops[stage, "gradient" if kind in "BI" else kind, micro_batch] = clocks[r]
                heads[r] += 1
    return max(clocks)


@pytest.mark.parametrize("costs", [(1, 1, 1), (3, 5, 2), (2, 3, 0)])
@pytest.mark.parametrize("text", [V_SHAPE, *(path.read_text() for path in OTHERS)], ids=["v", "custom", "example"])
def test_the_simulation_agrees_with_a_tiny_one_of_cells(text: str, costs: tuple[int, int, int]) -> None:
    assert timeline(schedule_from_csv(text, "any.csv"), *costs).makespan_cycles == cell_makespan(text, *costs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got no action"),
        ("\n,,\n", "got no action"),
        ("0F0\n\n1F0", "row 2: every rank runs a stage, got no action"),
        ("0F0,x", "row 1, column 2, 'x': a cell is empty or a stage, one of F, I"),
        ("0F0\n1F", "row 2, column 1, '1F': a cell"),
        ("0F0\n1G0", "row 2, column 1, '1G0'"),
        ("0F0,0F-1", "column 2, '0F-1'"),
        ("0F0,0BW0", "'0BW0': older versions of PyTorch wrote BW and B; write B for BW, and I for B"),
        ("()OVERLAP_F_B", "column 1"),
        ("(0F0;0SEND_F0)OVERLAP_F_B", "column 1"),
        ("((0F0)OVERLAP_F_B)OVERLAP_F_B", "column 1"),
        ("0F0,0F0", "column 2, '0F0': every action comes once, got it in row 1, column 1, '0F0', too"),
        ("0F0,0B0,0W0", "column 3, '0W0': every action comes once, got it in row 1, column 2, '0B0'"),
        ("0F0,0I0,0B0", "column 3, '0B0': every action comes once, got it in row 1, column 2, '0I0'"),
        ("0F0,0I0", "column 2, '0I0': a backward is a B, or an I and a W, got no 0W0"),
        ("0F0,0W0", "column 2, '0W0': a backward is a B, or an I and a W, got no 0I0"),
        ("0F0,0B0\n1F0", "row 2: every stage runs all micro-batches, got 0 in row 1, column 1, '0F0', and no 1B0"),
        ("0F0,0F2", "row 1: every stage runs all micro-batches, got 2 in row 1, column 2, '0F2', and no 0F1"),
        ("0F0\n0B0", "row 2, column 1, '0B0': a stage runs on one rank, got stage 0 in row 1"),
        ("0F0,1F0\n1UNSHARD", "row 2, column 1, '1UNSHARD': a stage runs on one rank"),
        ("0F0\n2F0", "row 2: stages count from 0 without gaps, got stage 2 in row 2, column 1, '2F0' and no stage 1"),
        ("1000000000F0", "'1000000000F0': a cell"),
        ("999999999F0", "got stage 999999999 in"),
        ("0F0,999999999UNSHARD", "got stage 999999999 and no stage 1"),
        ("0F999999999", "got 999999999 in row 1, column 1, '0F999999999', and no 0F0"),
        (f"0F{'9' * 5000}", f"'0F{'9' * 38}...': a cell"),
        ("0B0,0F0", "circle, got: row 1, column 1, '0B0' waits for row 1, column 2, '0F0'"),
        ("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0", "'1F1' waits for row 1, column 3, '0F1'"),
        ("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1", "'(0F1;0B0)OVERLAP_F_B' waits for row 2, column 3, '1B0'"),
        ("0F0,0SEND_F0\n1F0", "row 2, column 1, '1F0': in a file with messages .* got no 1RECV_F0"),
        ("0F0\n1RECV_F0,1F0", "column 2, '1F0': in a file with messages .* got no 0SEND_F0"),
        ("0F0,0SEND_F0\n1F0,1RECV_F0", "'1F0' waits for row 2, column 2, '1RECV_F0'"),
        ("0SEND_F0,0F0\n1RECV_F0,1F0", "'0SEND_F0' waits for row 1, column 2, '0F0'"),
        ("0F0,0SEND_F0,1F0", "'0SEND_F0': a message leads to another rank"),
        ("0F0,0SEND_B0\n1F0", "'0SEND_B0': a message leads from a stage to the next, or back"),
        (
            "0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1F1,1RECV_F0,1F0",
            "row 2, column 1, '1RECV_F1': messages between two ranks are received in the order in which they are sent, "
            "got 0SEND_F1 behind row 1, column 2, '0SEND_F0'",
        ),
        (
            "0F0,0SEND_F0,0RECV_B0,0B0,2RECV_F0,2F0,2B0,2SEND_B0\n1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0",
            "circle, got: ",
        ),
        ("\n".join(f"{stage}F0" for stage in range(2_001)), "at most 2,000 stages, got 2,001"),
        ('"0F0', ""),
    ],
)
def test_an_invalid_file_is_refused_with_its_cell(text: str, message: str) -> None:
    if not message:
        assert programs(schedule_from_csv(text, "open.csv")) == ["0F0"]  # as Python's csv, and PyTorch, read it
        return
    with pytest.raises(BadInput) as refused:
        schedule_from_csv(text, "some.csv")
    assert str(refused.value).startswith("some.csv")
    assert "\n" not in str(refused.value)
    assert re.search(re.escape(message).replace(r"\.\*", ".*"), str(refused.value))


TWO_WAYS = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,{}1F1,1B1,1SEND_B1"


@pytest.mark.parametrize(
    ("text", "hang"),
    [
        (
            TWO_WAYS.format("1SEND_B0,1RECV_F1,"),
            "row 1, column 4, '0SEND_F1' waits for row 2, column 5, '1RECV_F1'; "
            "row 2, column 4, '1SEND_B0' waits for row 1, column 5, '0RECV_B0'",
        ),
        (TWO_WAYS.format("1RECV_F1,1SEND_B0,"), ""),
        (V_SHAPE, ""),
        (
            (TORCHTITAN / "example.csv").read_text(),
            "row 1, column 6, '0SEND_F1' waits for row 2, column 6, '1RECV_F1'; "
            "row 2, column 5, '1SEND_F0' waits for row 1, column 7, '2RECV_F0'",
        ),
    ],
    ids=["both send first", "received first", "no messages", "torchtitan"],
)
def test_who_hangs_where_sends_wait_for_their_receives(text: str, hang: str) -> None:
    actions = read_cells(text, "any.csv")
    check_actions(actions)
    assert hang_of_waiting_sends(actions) == hang


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe0F0")
    (tmp_path / "long.csv").write_text("0" * 200_000)
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbf0F0,0F1")
    for name, message in (("none.csv", "No such file"), ("binary.csv", "UTF-8"), ("long.csv", "field larger")):
        with pytest.raises(BadInput, match=message):
            read_schedule_csv(tmp_path / name)
    assert programs(read_schedule_csv(tmp_path / "bom.csv")) == ["0F0 0F1"]


CHARACTERS = "0123456789FIWB,;()\n _SENDRCVUHGTOLA\"'\x00\u0664-"


def mutated(text: str, random: Random) -> str:
    """A text with one to three changes of cells, characters or lines."""
    for _ in range(random.choice((1, 1, 2, 3))):
        cells = re.split(r"([,\n])", text)
        i, j = random.randrange(0, len(cells), 2), random.randrange(0, len(cells), 2)
        match random.randrange(6):
            case 0:
                cells[i], cells[j] = cells[j], cells[i]
            case 1:
                cells[i] = random.choice(
                    ["", cells[j], f"{cells[i]},{cells[j]}", f"({cells[i]};{cells[j]})OVERLAP_F_B"]
                )
            case 2:
                cells[i] = re.sub(r"\d+", str(random.choice((0, 1, 9, 10**8, 10**9, 10**30))), cells[i], count=1)
            case 3:
                cells[i] = cells[i].translate(str.maketrans("FIWB", random.choice(("IFWB", "FBBW", "FWIB", "BBBB"))))
            case 4:
                at = random.randrange(len(text))
                cells = [text[:at], random.choice(CHARACTERS), text[at + random.randrange(2) :]]
            case _:
                at = random.randrange(len(text))
                cells = [text[:at]]
        text = "".join(cells) or "0F0"
    return text


def read_or_refused(text: str) -> Schedule | str:
    try:
        return schedule_from_csv(text, "mutated.csv")
    except BadInput as error:
        return str(error)


@pytest.mark.parametrize("seed", range(8))
def test_a_mutated_file_is_a_schedule_that_runs_or_is_refused(seed: int) -> None:
    random = Random(seed)
    bases = [V_SHAPE, "0F0,0B0\n1F0,1B0", *(path.read_text() for path in OTHERS)]
    results = [read_or_refused(mutated(random.choice(bases), random)) for _ in range(60)]
    schedules = [result for result in results if isinstance(result, Schedule)]
    assert 0 < len(schedules) < 60
    for schedule in schedules:
        check(schedule)
        assert timeline(schedule, 1, 2, 1).makespan_cycles > 0
    assert not any("\n" in result for result in results if isinstance(result, str))
