"""Tables of engines, by values that are computed by hand."""

import json
from collections.abc import Callable
from dataclasses import replace

from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.target import Origin
from autoauto.report.html import engines_section
from autoauto.report.notebook import record_html
from autoauto.report.tables.serving import (
    answer_tables,
    bounds_table,
    measurement_lines,
    measurements_table,
    ratios_table,
    serving_facts,
    sizing_table,
)
from autoauto.report.tables.study import cells_table, choices_table
from autoauto.report.wording import answer_line, trials_origin
from autoauto.space.numbers import ArrivalResult, PercentileResult
from autoauto.space.study_summary import CHOICES, SIZING, KnobChoice, Sizing, StudySummary, choices_text
from autoauto.space.trial import Status
from tests.report.engines import BOUNDS, KNOBS, NO_ANSWER, OTHER, RECORD, TRIAL, summary_of
from tests.report.tables.test_study import squeezed

Text = Callable[..., str]


def test_the_first_line_has_the_interval_of_the_forecast() -> None:
    line = "1,000 tokens/s (800 to 1,250), tensor parallel 2 x 1 stage x 2 replicas, modelled"
    assert answer_line(summary_of(None)) == line
    assert answer_line(summary_of(NO_ANSWER)) == line


def test_the_first_line_of_a_measured_answer_has_its_interval_and_the_forecast() -> None:
    assert answer_line(summary_of(RECORD)) == (
        "800.0 tokens/s (784 to 816), tensor parallel 2 x 1 stage x 2 replicas, measured (forecast 1,000)"
    )


def test_facts_of_engines_are_in_units_of_people() -> None:
    facts = {name: (value, origin) for name, value, origin in serving_facts(TRIAL, Origin.MODELLED)}
    assert facts["GPUs"] == ("4", "")
    assert facts["batch size"][0] == "16: 32 requests at once"
    assert facts["a GPU"] == ("250.0 tokens/s", "modelled")
    assert facts["TPOT"] == ("50 ms (40 ms to 62.5 ms)", "modelled")
    assert facts["TTFT"][0] == "500 ms (300 ms to 900 ms)"
    assert facts["KV cache"][0] == "3.0 GiB of the fullest GPU"


def test_forecasts_stand_beside_what_was_measured(text: Text) -> None:
    table = measurements_table(summary_of(RECORD))
    assert table is not None
    assert [[cell.text for cell in row] for row in table.cells()] == [
        [
            "vllm bf16 TP2 PP1 x2 b16",
            *("1,000", "800.0 ±2 %", "0.800", "40 ms", "780 ms", "the answer"),
        ],
        [
            "sglang bf16 TP2 PP1 x2 b16",
            *("1,000", "790.0 ±2 %", "0.790", "40.5 ms", "910 ms", "not told apart from the answer"),
        ],
        [
            "vllm bf16 TP2 PP1 x2 b64",
            *("1,000", "-", "-", "-", "-", "CUDA out of memory"),
        ],
    ]
    assert table.caption == "forecasts are modelled; started local"


def test_a_ratio_of_times_is_shown_as_one_of_tokens(text: Text) -> None:
    table = ratios_table(summary_of(RECORD))
    assert table is not None
    assert [[cell.text for cell in row] for row in table.cells()] == [
        ["vllm", "1", "0.800", "80 % of others lie within 0.625 to 1.000"]
    ]


def test_lines_say_why_it_ended_and_what_ties() -> None:
    assert list(measurement_lines(summary_of(RECORD))) == [
        "measuring ended: nothing else is likely better by 2 %",
        "not told apart from the answer: sglang bf16 TP2 PP1 x2 b16, 790.0 tokens/s measured",
        "learned from a failure: fewer than 64 sequences a micro-batch",
    ]
    assert "the answer is modelled" in list(measurement_lines(summary_of(NO_ANSWER)))[1]


def test_bounds_are_a_table() -> None:
    table = bounds_table(summary_of(RECORD, BOUNDS))
    assert table is not None
    assert [row[1] for row in table.rows] == ["pass", "pass", "fail"]


def test_nothing_is_shown_where_nothing_was_measured_or_bounded() -> None:
    summary = summary_of(None)
    assert answer_tables(summary) == []
    assert list(measurement_lines(summary)) == []
    assert engines_section(summary) == ""


def test_choices_are_ratios_with_the_winner_or_say_why_they_do_not_fit(text: Text) -> None:
    table = choices_table(summary_of(None))
    assert table is not None
    assert squeezed(text(table, 120))[4:] == [
        "engine sglang 900.0 0.90",
        "weights fp8 1,500 1.50 not searched, batch size 32",
        "batch size 64 - - layers need 9 MiB of 8 a GPU",
        "replicas and batch size are the best for each value; ratios are by forecast where nothing is said",
    ]
    measured = choices_table(summary_of(RECORD))
    assert measured is not None
    assert measured.rows[0] == ("engine sglang", 900.0, "0.90", "measured 0.99")
    assert choices_table(replace(summary_of(None), attributes={})) is None


def test_a_choice_that_is_a_tie_is_said_to_be() -> None:
    """Where engines measured both, their numbers are said instead."""
    choice = KnobChoice("engine", "sglang", OTHER, 990.0, 0.99, p_worse=0.52, is_tie=True)
    tie = {CHOICES: choices_text([choice])}
    forecast, measured = summary_of(None), summary_of(RECORD)
    for summary, is_said in ((forecast, True), (measured, False)):
        table = choices_table(replace(summary, attributes={**summary.attributes, **tie}))
        assert table is not None
        assert ("not told apart" in str(table.rows[0][3])) == is_said


def test_pages_and_notebooks_have_all_of_it(measured: Plan) -> None:
    summary = replace(summary_of(RECORD, BOUNDS), finalists=(replace(TRIAL, measured=measured),))
    notebook = record_html(summary)
    assert all(name in notebook for name in ("Bounds", "Forecast against measured", "What each choice is worth"))
    assert "measured (forecast 1,000)" in notebook
    page = engines_section(summary)
    assert "not told apart from the answer" in page
    assert "CUDA out of memory" in page


def test_trials_that_engines_measured_have_their_own_origin() -> None:
    summary = summary_of(RECORD)
    assert trials_origin(summary) == "modelled"
    measured = replace(TRIAL, origin=Origin.MEASURED, number=2)
    both = replace(summary, trials=(*summary.trials, measured), finalists=(measured,))
    assert trials_origin(both) == "modelled and measured"
    assert "measured" in cells_table(both).title


def sized(**changes: object) -> StudySummary:
    sizing = {**Sizing(1234, 5, 6, 90.0, ((1, 0.5), (2, 0.25), (4, 0.25)))._asdict(), **changes}
    summary = summary_of(None)
    return replace(summary, attributes={**summary.attributes, SIZING: json.dumps(sizing)})


def test_shares_of_a_trace_are_summed_up() -> None:
    table = sizing_table(sized())
    assert table is not None
    assert [[*row] for row in table.rows] == [
        ["1", "50.0% of the time"],
        ["2", "75.0% of the time"],
        ["4", "100.0% of the time"],
    ]
    assert table.title == "When fewer GPUs suffice"
    assert table.caption == "whole replicas of the best, each 1.5 minutes of the trace served by itself, simulated"
    assert sizing_table(sized(window_s=None)) is None
    assert sizing_table(summary_of(None)) is None
    assert sizing_table(replace(sized(), finalists=())) is None
    assert [each.title for each in answer_tables(sized())] == ["When fewer GPUs suffice"]


def test_a_line_says_whether_the_fewest_are_proven() -> None:
    of_both = "1,234 simulated, 5 ruled out without"
    assert list(measurement_lines(sized())) == [
        f"4 GPUs; that none on fewer suffices is not proven ({of_both}, 6 not tried)"
    ]
    assert list(measurement_lines(sized(n_untried=0))) == [
        f"4 GPUs: none of the configurations on fewer suffices ({of_both})"
    ]
    assert list(measurement_lines(replace(sized(), finalists=()))) == []


def test_facts_of_stages_and_of_prompts_elsewhere() -> None:
    """Layer 0 is the embedding and the last two norm and head, so 6 layers are 3 blocks: 1 + 2."""
    stages = tuple(Stage(LayerRange(*ends), i, 1, 0, 0, 0, {}, 1) for i, ends in enumerate(((0, 2), (2, 6))))
    knobs = KNOBS.with_values(n_ipu=2)
    trial = replace(TRIAL, knobs=knobs, measured=Plan(stages))
    facts = {name: value for name, value, _ in serving_facts(trial, Origin.MODELLED)}
    assert (facts["blocks"], facts["GPUs"], facts["batch size"]) == ("1 + 2", "8", "16: 64 requests at once")
    assert facts["a GPU"] == "125.0 tokens/s"
    assert "blocks" not in {name for name, *_ in serving_facts(TRIAL, Origin.MODELLED)}
    single = replace(TRIAL, knobs=KNOBS.with_values(replicas=1, tensor_parallel=1))
    assert "a GPU" not in {name for name, *_ in serving_facts(single, Origin.MODELLED)}


def test_facts_of_arrivals_are_percentiles_and_how_busy_replicas_are() -> None:
    percentiles = PercentileResult(ttft_p50_s=0.1, ttft_p99_s=0.5, tpot_p90_s=0.02)
    load = ArrivalResult(rate_per_s=12.5, busy_share=0.5, kv_share=0.25, n_waiting=1.5)
    result = replace(TRIAL.result, percentiles=percentiles, load=load)
    facts = serving_facts(replace(TRIAL, result=result), Origin.MODELLED)
    assert facts[-4:] == [
        ("arrivals", "12.5 requests/s", ""),
        ("TTFT", "p50 100 ms, p99 500 ms", "simulated"),
        ("TPOT", "p90 20 ms", "simulated"),
        ("replicas", "50% of the time, 25% of the KV caches held, 1.5 wait", "simulated"),
    ]


def test_reasons_are_as_long_as_a_cell() -> None:
    for n, shown in ((90, "x" * 90), (91, "x" * 89 + "…")):
        rows = (*RECORD.rows[:2], replace(RECORD.rows[2], reason="x" * n))
        table = measurements_table(summary_of(replace(RECORD, rows=rows)))
        assert table is not None
        assert table.rows[2][-1] == shown
    broken = replace(RECORD.rows[1], status=Status.CONSTRAINED, reason="too slow")
    table = measurements_table(summary_of(replace(RECORD, rows=(RECORD.rows[0], broken))))
    assert table is not None
    assert table.rows[1][-1] == "too slow"


def test_the_longest_first_token_of_all_turns_is_shown() -> None:
    row = RECORD.rows[0]
    turns = (row.turns[0], replace(row.turns[0], ttft_s=row.turns[0].ttft_s._replace(p99=2.0)), row.turns[0])
    table = measurements_table(summary_of(replace(RECORD, rows=(replace(row, turns=turns),), ties=())))
    assert table is not None
    assert table.rows[0][5] == "2 s"
    unknown = replace(row, turns=(replace(row.turns[0], half_width=1.0),))
    table = measurements_table(summary_of(replace(RECORD, rows=(unknown,), ties=(), where="")))
    assert table is not None
    assert (table.rows[0][2], table.caption) == ("800.0", "")
