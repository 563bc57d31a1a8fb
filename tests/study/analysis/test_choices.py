"""What other values of the winner's knobs would give, by forecasts that are made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import CHOICES, KnobChoice, StudySummary, choices_text
from autoauto.space.trial import Status, Trial
from autoauto.study.analysis.choices import Forecasts, doubtful, worth_of_choices
from autoauto.targets.gpu.session import GpuSession

SPACE = SearchSpace(
    n_ipu=(1, 2),
    replicas=(1, 2, 4),
    batch_size=(2, 4, 8, 16),
    engine=("vllm", "sglang"),
    tensor_parallel=(1, 2, 4),
    expert_parallel=(1,),
    precision=("bf16",),
    kv_cache_precision=("bf16",),
    input_tokens=(64,),
    output_tokens=(32,),
    session=GpuSession,
)
SPEEDS = {"vllm": 1.0, "sglang": 0.8}
N_GPUS = 4
WINNER = Knobs(
    1, 8, 2, engine="vllm", tensor_parallel=2, precision="bf16", kv_cache_precision="bf16", input_tokens=64,
    output_tokens=32,
)  # fmt: skip


def forecast(knobs: Knobs) -> Trial:
    """Sequences in flight a second; a group of t GPUs holds 4 t a micro-batch, in fp8 twice as many, twice as fast."""
    session = knobs.values
    times = 2 if session["precision"] == "fp8" else 1
    is_known = session["engine"] in SPEEDS and session["precision"] in ("bf16", "fp8")
    if knobs.n_devices > N_GPUS or not is_known:
        return Trial(knobs, Status.UNSUPPORTED, "no room")
    lacking = knobs.batch_size - 4 * times * session["tensor_parallel"]
    if lacking > 0:
        return Trial(knobs, Status.INFEASIBLE, f"lacks {lacking}", excess_bytes=lacking)
    speed = SPEEDS[session["engine"]] * times * knobs.replicas * knobs.batch_size / knobs.n_ipu
    return Trial(knobs, Status.OK, samples_per_s=speed)


def cell(configurations: Sequence[Knobs]) -> list[Trial]:
    return list(map(forecast, configurations))


FORECASTS = Forecasts(cell, forecast, Objective.THROUGHPUT)


@pytest.fixture(scope="module")
def choices() -> dict[tuple[str, object], KnobChoice]:
    return {(choice.name, choice.value): choice for choice in worth_of_choices(SPACE, FORECASTS, WINNER)}


def test_one_knob_has_another_value_and_the_others_are_those_of_the_winner(
    choices: dict[tuple[str, object], KnobChoice],
) -> None:
    engine = choices["engine", "sglang"]
    assert (engine.samples_per_s, engine.ratio) == (0.8 * 16, 0.8)
    assert engine.knobs == WINNER.with_values(engine="sglang")


def test_replicas_and_batch_size_are_the_best_for_another_group_or_pipeline(
    choices: dict[tuple[str, object], KnobChoice],
) -> None:
    alone, whole, stages = (choices["tensor_parallel", 1], choices["tensor_parallel", 4], choices["n_ipu", 2])
    assert (alone.knobs.replicas, alone.knobs.batch_size, alone.ratio) == (4, 4, 1.0)
    assert (whole.knobs.replicas, whole.knobs.batch_size, whole.ratio) == (1, 16, 1.0)
    assert (stages.knobs.replicas, stages.ratio) == (1, 0.25)


def test_another_batch_size_keeps_the_replicas_and_one_that_does_not_fit_says_why(
    choices: dict[tuple[str, object], KnobChoice],
) -> None:
    assert choices["batch_size", 4].ratio == 0.5
    double = choices["batch_size", 16]
    assert (double.ratio, double.samples_per_s, double.reason) == (None, 0.0, "lacks 8")
    assert ("batch_size", 2) not in choices


def test_a_format_that_was_not_searched_is_shown_where_it_runs(choices: dict[tuple[str, object], KnobChoice]) -> None:
    fp8 = choices["precision", "fp8"]
    assert (fp8.is_searched, fp8.ratio, fp8.knobs.batch_size) == (False, 4.0, 16)
    assert [value for name, value in choices if name == "precision"] == ["fp8"]
    assert choices["engine", "sglang"].is_searched


def test_a_configuration_is_shown_once(choices: dict[tuple[str, object], KnobChoice]) -> None:
    shown = [choice.knobs for choice in choices.values()]
    assert len(set(shown)) == len(shown)


def test_a_knob_that_cannot_change_alone_takes_the_fewest_others_along() -> None:
    space = SPACE.with_values(expert_parallel=(1, 4), tensor_parallel=(2, 4), engine=("vllm",))
    cells = [cell[0] for cell in space.cells]
    assert {knobs.values["tensor_parallel"] for knobs in cells if knobs.values["expert_parallel"] == 4} == {4}
    by_value = {(each.name, each.value): each for each in worth_of_choices(space, FORECASTS, WINNER)}
    experts = by_value["expert_parallel", 4]
    assert experts.knobs.values["tensor_parallel"] == 4
    assert experts.knobs.replicas == 1


def test_the_objective_decides_what_a_choice_is_worth() -> None:
    per_device = Forecasts(cell, forecast, Objective.PER_DEVICE)
    by_value = {(each.name, each.value): each for each in worth_of_choices(SPACE, per_device, WINNER)}
    assert by_value["replicas", 1].ratio == 1.0, "half as many GPUs give half as much"


def test_the_most_doubtful_were_searched_and_give_nearly_as_much() -> None:
    def choice(value: int, ratio: float | None, is_searched: bool = True) -> KnobChoice:
        knobs = WINNER.with_values(batch_size=value)
        return KnobChoice("batch_size", value, knobs, 1.0, ratio, is_searched=is_searched)

    choices = [choice(1, 0.5), choice(2, 0.97), choice(3, 1.01, is_searched=False), choice(4, 1.02), choice(5, None)]
    assert [knobs.batch_size for knobs in doubtful(choices, 2)] == [4, 2]
    assert len(doubtful(choices, 9)) == 3


def test_a_study_has_them_as_text(choices: dict[tuple[str, object], KnobChoice]) -> None:
    every = tuple(choices.values())
    summary = StudySummary("s", "", Objective.THROUGHPUT, {CHOICES: choices_text(every)}, (), ())
    assert summary.choices == every
    assert StudySummary("s", "", Objective.THROUGHPUT, {}, (), ()).choices == ()


def test_a_margin_within_the_error_of_the_ratio_is_a_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other engine is 1 % below, and a tie; with 20 % below it is not."""
    assert 0.55 < (_engine(FORECASTS).p_worse or 0.0) < 1.0
    assert not _engine(FORECASTS).is_tie
    monkeypatch.setitem(SPEEDS, "sglang", 0.99)
    close = _engine(FORECASTS)
    assert close.is_tie
    assert 0.5 < (close.p_worse or 0.0) < 0.55


def test_errors_of_ratios_are_not_those_of_latency() -> None:
    def equal(knobs: Knobs) -> Trial:
        return Trial(knobs, Status.OK, result=Result(1.0, latency_s=1.0))

    choice = _engine(Forecasts(lambda some: list(map(equal, some)), equal, Objective.LATENCY))
    assert (choice.p_worse, choice.is_tie) == (None, False)


def test_what_is_stored_of_a_tie_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPEEDS, "sglang", 0.99)
    text = choices_text([_engine(FORECASTS)])
    summary = StudySummary("name", "", Objective.THROUGHPUT, {CHOICES: text}, (), ())
    assert summary.choices == (_engine(FORECASTS),)


def _engine(forecasts: Forecasts) -> KnobChoice:
    """The choice of the other engine."""
    return next(each for each in worth_of_choices(SPACE, forecasts, WINNER) if each.value == "sglang")
