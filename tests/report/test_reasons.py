"""What binds the winner, and why other cells lost."""

from dataclasses import replace

import pytest

from autoauto.records.hardware import MachineDevice, Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.phased import IoMode, Phase, PhasedPlan
from autoauto.records.plans.plan import Plan, Stage
from autoauto.report.reasons import part_names, short_reason, what_binds, why_not
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import ArrivalResult
from autoauto.space.objectives import Objective
from autoauto.space.study_summary import Repeated, StudySummary, Verdict, Verification
from autoauto.space.trial import Status, Trial
from tests.report.made import made


def test_what_binds_names_the_stages(summary: StudySummary) -> None:
    """The period is 2000 + 300 cycles; stage 1 holds 3 KiB of 4."""
    assert summary.winner is not None
    facts = {fact.name: (fact.headline, fact.text, fact.share) for fact in what_binds(summary.winner)}
    assert facts == {
        "compute": ("2,000 cycles", "stage 0, layers [0, 2), computes longest, 87 % of the period", 2000 / 2300),
        "transfer": ("300 cycles", "stage 1, layers [2, 5), transfers longest, 13 % of the period", 300 / 2300),
        "memory": ("1.0 KiB to spare", "stage 1, layers [2, 5), is fullest: 3.0 KiB of 4.0 KiB", 0.75),
    }


def test_the_cycles_of_stage_replicas_are_divided_among_them(summary: StudySummary, measured: Plan) -> None:
    """The first stage of 2,000 cycles has three devices, so the second one with 1,000 computes longest."""
    first, second = measured.stages
    stages = (replace(first, n_replicas=3), replace(second, device=3))
    shared = replace(summary.finalists[0], measured=Plan(stages, Period.SERIAL))
    compute, transfer, _ = what_binds(shared)
    assert compute.headline == "1,000 cycles"
    assert compute.text.startswith("stage 1,")
    assert (transfer.headline, "hidden" in transfer.text) == ("300 cycles", False)


def test_a_cost_hidden_behind_a_larger_one_is_marked(summary: StudySummary, measured: Plan) -> None:
    trial = summary.finalists[0]
    overlapped = what_binds(replace(trial, measured=replace(measured, period=Period.OVERLAP)))
    assert [fact.text.endswith("hidden behind the other") for fact in overlapped] == [False, True, False]
    host = what_binds(replace(trial, measured=replace(measured, host_cycles=9000)))
    assert [fact.text.endswith("hidden behind the host") for fact in host] == [True, True, False]


def test_cycles_of_plans_that_devices_ran_are_not_a_share_of_the_period(summary: StudySummary) -> None:
    facts = what_binds(summary.finalists[0], ran=True)
    assert facts[0].text == "stage 0, layers [0, 2), computes longest, 87 % of both together"


def test_cycles_are_divided_by_the_samples_of_all_replicas(summary: StudySummary) -> None:
    """Two replicas of 4000 cycles for 4 samples take 500 a sample."""
    other = replace(summary.trials[0], knobs=Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4, replicas=2))
    alone = replace(summary, trials=(other, *summary.trials[3:]))
    assert why_not(alone.cells[0], alone) == "compute takes 500 cycles a sample, the winner's 250"


def test_in_training_the_bubble_binds_too(summary: StudySummary) -> None:
    trial = summary.finalists[0].with_values(bubble_fraction=0.25)
    bubble, imbalance = what_binds(trial)[-2:]
    assert (bubble.name, imbalance.name) == ("bubble", "imbalance")
    assert bubble.share + imbalance.share == pytest.approx(0.25)
    plan = trial.plan
    assert isinstance(plan, Plan)
    even = replace(plan, stages=(plan.stages[0],))
    assert what_binds(replace(trial, measured=even))[-1].headline == "25.0 %"


def test_the_longest_and_the_fullest_phase_bind(summary: StudySummary) -> None:
    """Phases of 50 + 2 (10 + 80 + 10) and 50 + 2 (10 + 20 + 10) cycles."""
    phases = tuple(
        Phase(LayerRange(i, i + 1), 0, i, 50, 10, compute, 10, {"parameter": 500 * i}, 1000)
        for i, compute in enumerate((80, 20))
    )
    cycles = tuple(phase.cycles(IoMode.IO, 2) for phase in phases)
    plan = PhasedPlan(phases, 2, IoMode.IO, (), cycles, 0)
    facts = {fact.name: fact for fact in what_binds(replace(summary.finalists[0], measured=plan))}
    assert facts["compute"].text == "phase 0, layers [0, 1), takes longest, 66 % of all phases"
    assert facts["transfer"].headline == "180 cycles"
    assert facts["memory"].text == "phase 1, layers [1, 2), is fullest: 500 B of 1000 B"


def test_every_cell_has_a_reason(summary: StudySummary) -> None:
    """A sample takes 4000 / 4 cycles of compute on one device, 2000 / 8 on the winner's two."""
    slow, winner, unfit = (why_not(cell, summary) for cell in summary.cells)
    assert slow == "compute takes 1,000 cycles a sample, the winner's 250; batch 5 lacks 2.0 KiB"
    assert winner == "the winner"
    assert unfit == "batch 1 does not fit: layers [0, 5) need more"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"compute_cycles": 900, "transfer_cycles": 900}, "transfer takes 225 cycles a sample, the winner's 38"),
        ({"compute_cycles": 900, "transfer_cycles": 100}, "a little slower in everything"),
    ],
)
def test_the_part_that_adds_most_is_named(summary: StudySummary, change: dict[str, int], reason: str) -> None:
    other = replace(summary.trials[0], **change)  # type: ignore[arg-type]
    alone = replace(summary, trials=(other, *summary.trials[3:]))
    assert why_not(alone.cells[0], alone) == reason


def test_a_cell_equal_to_the_winner_is_as_good_but_later(summary: StudySummary) -> None:
    winner = summary.winner
    assert winner is not None
    equal = summary.trials[0].with_values(samples_per_s=winner.samples_per_s)
    alone = replace(summary, trials=(equal, *summary.trials[1:]))
    assert why_not(alone.cells[0], alone) == "as good, but found later; batch 5 lacks 2.0 KiB"


def test_a_longer_bubble_is_a_reason(summary: StudySummary, measured: Plan) -> None:
    winner = summary.trials[3].with_values(bubble_fraction=0.2)
    other = summary.trials[0].with_values(compute_cycles=900, bubble_fraction=0.4)
    alone = replace(summary, trials=(other, winner), finalists=(replace(winner, measured=measured),))
    assert why_not(alone.cells[0], alone) == "40 % idle, the winner's 20 %"


def test_a_reason_is_short() -> None:
    missing = made(
        0, Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1), status=Status.OUT_OF_MEMORY, excess_bytes=1024
    )
    assert short_reason(missing) == "lacks 1.0 KiB compiled whole"
    assert (
        short_reason(made(0, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1), reason="tied; try 1 device"))
        == "tied"
    )
    assert short_reason(made(0, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1), 5.0)) == ""


@pytest.mark.parametrize(
    ("winner_index", "verdict", "reason"),
    [
        (0, Verdict.CLEAR, "as good as the winner within the noise; the winner is simpler"),
        (1, Verdict.TIE, "as good as the winner within the noise when measured again; the winner is simpler"),
        (1, Verdict.CLEAR, "slower than the winner when measured again"),
    ],
)
def test_a_configuration_faster_than_the_winner_only_once_has_a_reason(
    summary: StudySummary, winner_index: int, verdict: Verdict, reason: str
) -> None:
    other = next(cell for cell in summary.cells if cell.knobs.n_ipu == 1)
    assert other.best is not None
    faster = other.best.with_values(samples_per_s=201.0)
    trials = tuple(faster if trial.number == faster.number else trial for trial in summary.trials)
    rows = Repeated("winner", faster.knobs), Repeated("runner-up", summary.finalists[0].knobs)
    verification = Verification(rows, 3, winner_index, verdict, None)
    verified = replace(summary, trials=trials, verification=verification)
    assert why_not(next(cell for cell in verified.cells if cell.knobs.n_ipu == 1), verified) == reason


def test_a_reading_above_the_mean_of_the_winner_has_a_reason(summary: StudySummary) -> None:
    cell = next(cell for cell in summary.cells if cell.knobs.n_ipu == 1)
    assert cell.best is not None
    winner = summary.finalists[0].with_values(samples_per_s=cell.best.samples_per_s - 1.0)
    verification = Verification((Repeated("winner", winner.knobs),), 3, 0, Verdict.CLEAR, None)
    verified = replace(summary, finalists=(winner,), verification=verification)
    assert why_not(cell, verified) == "below the best of the search, which were measured again"


def test_a_broken_constraint_is_quoted_in_full(summary: StudySummary) -> None:
    reason = "latency_s <= 0.1 does not hold: latency_s is 0.2"
    broken = summary.trials[0].with_values(status=Status.CONSTRAINED, reason=reason, latency_s=0.2)
    alone = replace(summary, trials=(broken, *summary.trials[3:]))
    assert why_not(alone.cells[0], alone) == f"batch {broken.knobs.batch_size}: {reason}"


def test_the_largest_tensors_that_move_are_named(summary: StudySummary) -> None:
    facts = what_binds(summary.finalists[0], transferred=[("x", 2048), ("y", 512)])
    assert facts[1].text.endswith("13 % of the period; largest: x 2.0 KiB, y 512 B")
    assert "largest" not in facts[0].text + facts[2].text


def test_parts_of_replicas_with_other_plans_name_the_replicas(measured: Plan) -> None:
    """By their first devices, 0, 2 and 3, replica 1 holds all in one stage."""
    devices = [tuple(MachineDevice(0, number) for number in numbers) for numbers in ((0, 1), (2,), (3, 4))]
    whole = Plan((replace(measured.stages[0], layers=LayerRange(0, 5)),), placement=(devices[1],))
    several = replace(measured, placement=(devices[0], devices[2]), other_plans=(whole,))
    names = ["stage 0 of replica 0, 2", "stage 1 of replica 0, 2", "stage 0 of replica 1"]
    assert (part_names(measured), part_names(several)) == (["stage 0", "stage 1"], names)


def test_a_rate_is_the_reason_where_it_was_searched(summary: StudySummary) -> None:
    """12.3 requests/s keep the bounds, where the winner keeps them up to 20."""

    def at(trial: Trial, rate: float | None) -> Trial:
        return replace(trial, result=replace(trial.result, load=ArrivalResult(rate_per_s=rate)))

    slow, winner = summary.trials[0], summary.trials[3]
    for rate, reason in ((12.345, "keeps the bounds up to 12.3 requests/s, the winner up to 20"), (20.0, "")):
        alone = replace(summary, trials=(at(slow, rate), at(winner, 20.0)), finalists=(at(summary.finalists[0], 20.0),))
        assert why_not(alone.cells[0], alone).startswith(reason or "compute takes")


def test_what_a_runtime_does_not_run_is_quoted_in_full() -> None:
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1)
    trial = made(0, knobs, status=Status.UNSUPPORTED, reason="no rule: for Det; try another")
    study = StudySummary("s", "", Objective.THROUGHPUT, {}, (trial,), ())
    assert why_not(study.cells[0], study) == "no rule: for Det"


def test_little_waiting_for_the_slowest_is_left_out(summary: StudySummary, measured: Plan) -> None:
    """Stages of 2,000 and 1,000 cycles are balanced to 3/4: of 40 % idle, 20 % fill and drain, and 20 % wait."""
    trial = replace(summary.finalists[0], measured=measured)
    for idle, shown in ((0.4, ["20.0 %", "20.0 %"]), (0.2504, ["0.1 %", "25.0 %"])):
        facts = {fact.name: fact.headline for fact in what_binds(trial.with_values(bubble_fraction=idle))}
        assert [facts["bubble"], facts["imbalance"]] == shown
    even = replace(measured, stages=(Stage(LayerRange(0, 2), 0, 1000, 0, 50, 150, {}, 4096), measured.stages[1]))
    names = [fact.name for fact in what_binds(replace(trial, measured=even).with_values(bubble_fraction=0.1))]
    assert "bubble" in names
    assert "imbalance" not in names
