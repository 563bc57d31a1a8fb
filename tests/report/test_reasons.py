"""What binds the winner, and why cells lost."""

from dataclasses import replace

import pytest

from autoauto.records.knobs import Knobs
from autoauto.records.layers import LayerRange
from autoauto.records.phased import IoMode, Phase, PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.study_summary import Contender, Findings, Repeated, Tried, Verdict, Verification
from autoauto.report.reasons import reason_of, what_binds, why_not


def test_what_binds_names_the_stages(found: Findings) -> None:
    """The period is 2000 + 300 cycles; stage 1 holds 3 KiB of 4."""
    assert found.winner is not None
    facts = {fact.name: (fact.headline, fact.text, fact.share) for fact in what_binds(found.winner)}
    assert facts == {
        "compute": ("2,000 cycles", "stage 0, layers [0, 2), computes longest, 87 % of the period", 2000 / 2300),
        "transfer": ("300 cycles", "stage 1, layers [2, 5), transfers longest, 13 % of the period", 300 / 2300),
        "memory": ("1.0 KiB to spare", "stage 1, layers [2, 5), is fullest: 3.0 KiB of 4.0 KiB", 0.75),
    }


def test_what_is_hidden_is_said(found: Findings, measured: Plan) -> None:
    tried = found.contenders[0].tried
    overlapped = what_binds(Contender(tried, replace(measured, overlap=True), None))
    assert [fact.text.endswith("hidden behind the other") for fact in overlapped] == [False, True, False]
    host = what_binds(Contender(tried, replace(measured, host_cycles=9000), None))
    assert [fact.text.endswith("hidden behind the host") for fact in host] == [True, True, False]


def test_cycles_of_devices_that_ran_make_no_period(found: Findings) -> None:
    facts = what_binds(found.contenders[0], ran=True)
    assert facts[0].text == "stage 0, layers [0, 2), computes longest, 87 % of both together"


def test_replicas_share_the_samples(found: Findings) -> None:
    """Two replicas of 4000 cycles for 4 samples take 500 a sample."""
    other = found.tried[0]._replace(knobs=Knobs(1, 0.6, 4, replicas=2))
    alone = replace(found, tried=(other, *found.tried[3:]))
    assert why_not(alone.cells[0], alone) == "compute takes 500 cycles a sample, the winner's 250"


def test_training_has_a_bubble(found: Findings, measured: Plan) -> None:
    tried = found.contenders[0].tried._replace(bubble_fraction=0.25)
    assert what_binds(Contender(tried, measured, None))[-1].headline == "25.0 %"


def test_phases_bind_one_after_the_other(found: Findings) -> None:
    """Phases of 50 + 2 (10 + 80 + 10) and 50 + 2 (10 + 20 + 10) cycles."""
    phases = tuple(
        Phase(LayerRange(i, i + 1), 0, i, 50, 10, compute, 10, {"parameter": 500 * i}, 1000)
        for i, compute in enumerate((80, 20))
    )
    cycles = tuple(phase.cycles(IoMode.IO, 2) for phase in phases)
    plan = PhasedPlan(phases, 2, IoMode.IO, (), cycles, 0)
    facts = {fact.name: fact for fact in what_binds(Contender(found.contenders[0].tried, plan, None))}
    assert facts["compute"].text == "phase 0, layers [0, 1), takes longest, 66 % of all phases"
    assert facts["transfer"].headline == "180 cycles"
    assert facts["memory"].text == "phase 1, layers [1, 2), is fullest: 500 B of 1000 B"


def test_every_cell_has_a_why(found: Findings) -> None:
    """A sample takes 4000 / 4 cycles of compute on one device, 2000 / 8 on the winner's two."""
    slow, winner, unfit = (why_not(cell, found) for cell in found.cells)
    assert slow == "compute takes 1,000 cycles a sample, the winner's 250; batch 5 lacks 2.0 KiB"
    assert winner == "the winner"
    assert unfit == "batch 1 does not fit: layers [0, 5) need more"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"compute_cycles": 900, "transfer_cycles": 900}, "transfer takes 225 cycles a sample, the winner's 38"),
        ({"compute_cycles": 900, "transfer_cycles": 100}, "a little slower in everything"),
    ],
)
def test_the_part_that_adds_most_is_named(found: Findings, change: dict[str, int], said: str) -> None:
    other = found.tried[0]._replace(**change)  # type: ignore[arg-type]
    alone = replace(found, tried=(other, *found.tried[3:]))
    assert why_not(alone.cells[0], alone) == said


def test_equals_are_as_good_whatever_limits_their_cell(found: Findings) -> None:
    winner = found.winner
    assert winner is not None
    equal = found.tried[0]._replace(samples_per_s=winner.tried.samples_per_s)
    alone = replace(found, tried=(equal, *found.tried[1:]))
    assert why_not(alone.cells[0], alone) == "as good, but found later; batch 5 lacks 2.0 KiB"


def test_a_longer_bubble_is_a_reason(found: Findings, measured: Plan) -> None:
    winner = found.tried[3]._replace(bubble_fraction=0.2)
    other = found.tried[0]._replace(compute_cycles=900, bubble_fraction=0.4)
    alone = replace(found, tried=(other, winner), contenders=(Contender(winner, measured, None),))
    assert why_not(alone.cells[0], alone) == "40 % bubble, the winner's 20 %"


def test_a_reason_is_short() -> None:
    assert reason_of(Tried(0, Knobs(1, 0.6, 1), excess_bytes=1024, compiled=True)) == "lacks 1.0 KiB compiled whole"
    assert reason_of(Tried(0, Knobs(2, 0.6, 1), reason="tied; try 1 device")) == "tied"
    assert reason_of(Tried(0, Knobs(2, 0.6, 1), 5.0)) == ""


@pytest.mark.parametrize(
    ("settled", "verdict", "said"),
    [
        (0, Verdict.CLEAR, "as good as the winner within the noise; the winner is simpler"),
        (1, Verdict.TIE, "as good as the winner within the noise when measured again; the winner is simpler"),
        (1, Verdict.CLEAR, "slower than the winner when measured again"),
    ],
)
def test_what_was_quicker_once_is_told_why_it_lost(found: Findings, settled: int, verdict: Verdict, said: str) -> None:
    other = next(cell for cell in found.cells if cell.knobs.n_ipu == 1)
    assert other.best is not None
    quicker = other.best._replace(samples_per_s=201.0)
    tried = tuple(quicker if one.number == quicker.number else one for one in found.tried)
    rows = Repeated("winner", quicker.knobs), Repeated("runner-up", found.contenders[0].tried.knobs)
    told = replace(found, tried=tried, verification=Verification(rows, 3, settled, verdict, None))
    assert why_not(next(cell for cell in told.cells if cell.knobs.n_ipu == 1), told) == said


def test_a_broken_constraint_is_told_whole(found: Findings) -> None:
    reason = "latency_s <= 0.1 does not hold: latency_s is 0.2"
    broken = found.tried[0]._replace(reason=reason, latency_s=0.2)
    alone = replace(found, tried=(broken, *found.tried[3:]))
    assert why_not(alone.cells[0], alone) == f"batch {broken.knobs.batch_size}: {reason}"
