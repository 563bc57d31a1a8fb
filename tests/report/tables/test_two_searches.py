"""Two searches beside each other, and the answers of clusters, by values that are computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoauto.records.target import Origin
from autoauto.report.tables.clusters import ClusterAnswer, clusters_table, ranked_answers
from autoauto.report.tables.two_searches import RESULTS, TITLES, ComparedRow, ComparedSearch, compared_rows
from autoauto.report.tables.two_searches import comparison_tables as tables_of
from autoauto.space.numbers import DeviceTotals, Result, TokenResult
from autoauto.space.objectives import Objective
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Status, Trial
from tests.report.engines import KNOBS, TRIAL, summary_of


def search(summary: StudySummary | None, about: dict[str, str] | None = None, **asked: str) -> ComparedSearch:
    return ComparedSearch(summary, about or {}, asked)


def test_the_second_search_is_compared_with_the_first(summary: StudySummary) -> None:
    """200 samples/s against 150 are 33.3 % more, and 14 ms against 10 ms 40 % more."""
    second_best = replace(summary, finalists=summary.finalists[::-1])
    first, second = (
        search(second_best, {"id": "a"}, batch_size="4"),
        search(summary, {"id": "b"}, batch_size="8", x="1"),
    )
    rows = compared_rows(first, second)
    assert tuple(rows) == TITLES
    by_name = {row.what: row for row in rows[RESULTS]}
    assert by_name["id"] == ComparedRow("id", "a", "b")
    speed, latency = by_name["throughput"], by_name["latency"]
    assert speed[:3] == ("throughput", "150.0 samples/s", "200.0 samples/s")
    assert (speed.difference_percent, latency.difference_percent) == pytest.approx((100 / 3, 40.0))
    assert by_name["partition"].difference_percent is None
    assert not {"batch_size", "n_ipu"} & by_name.keys()  # knobs have a table of their own
    assert rows["Knobs that differ"] == [("batch_size", "4", "8", None)]
    assert rows["What was asked for otherwise"] == [("batch_size", "4", "8", None), ("x", None, "1", None)]
    shown = {table.title: table for table in tables_of(first, second)}
    assert [column.words for column in shown[RESULTS].columns] == ["what", "first", "second", "difference"]
    assert [row[3] for row in shown[RESULTS].rows if row[0] in ("id", "throughput")] == ["", "+33.3 %"]
    assert [[*row] for row in shown["Knobs that differ"].rows] == [["batch_size", "4", "8"]]


def test_a_search_beside_itself_differs_in_nothing(summary: StudySummary) -> None:
    rows = compared_rows(search(summary, n="1"), search(summary, n="1"))
    assert rows["Knobs that differ"] == rows["What was asked for otherwise"] == []
    differences = [row.difference_percent for row in rows[RESULTS] if row.difference_percent is not None]
    assert differences == [0.0, 0.0]


def test_what_is_missing_or_counts_otherwise_has_no_difference(
    summary: StudySummary, nothing_fits: StudySummary
) -> None:
    """Samples are not tokens; a search without an answer, or before its first trial, has no facts."""
    rows = {row.what: row for row in compared_rows(search(summary), search(summary_of(None)))[RESULTS]}
    assert rows["throughput"] == ("throughput", "200.0 samples/s", "1,000.0 tokens/s", None)
    assert (rows["TPOT"].first, rows["TPOT"].second) == (None, "50 ms (40 ms to 62.5 ms)")
    for without in (nothing_fits, None):
        beside = compared_rows(search(without), search(summary))
        [speed] = [row for row in beside[RESULTS] if row.what == "throughput"]
        assert speed == ("throughput", None, "200.0 samples/s", None)
        assert ("n_ipu", None, "2", None) in beside["Knobs that differ"]


def test_times_of_text_are_compared_each_with_its_own() -> None:
    """Between tokens 50 and 60 ms, to the first one 0.5 and 0.4 s, of a request 13.25 and 26.5 s."""
    tokens = replace(TRIAL.tokens, tpot_s=0.06, ttft_s=0.4)
    other = replace(TRIAL, result=replace(TRIAL.result, latency_s=26.5, of_mode=tokens))
    summary = summary_of(None)
    rows = compared_rows(search(summary), search(replace(summary, finalists=(other,))))[RESULTS]
    percents = {row.what: row.difference_percent for row in rows if row.difference_percent is not None}
    assert percents == pytest.approx({"throughput": 0.0, "TPOT": 20.0, "TTFT": -20.0, "a request": 100.0})


def answer(name: str, speed: float, n_devices: int = 1, **numbers: Any) -> ClusterAnswer:
    knobs = KNOBS.with_values(tensor_parallel=1)
    trial = Trial(replace(knobs, replicas=n_devices), Status.OK, result=Result(speed, **numbers))
    return ClusterAnswer(name, trial, Origin.MODELLED, name)


NONE = ClusterAnswer("d", None, Origin.MODELLED, "d", "too small")


def test_clusters_are_ranked_by_the_objective_and_those_without_an_answer_come_last() -> None:
    answers = [
        NONE,
        answer("a", 10.0, latency_s=1.0),
        answer("b", 30.0, latency_s=3.0),
        answer("c", 20.0, latency_s=2.0),
    ]
    for objective, order in ((Objective.THROUGHPUT, "bcad"), (Objective.LATENCY, "acbd")):
        assert "".join(each.cluster for each in ranked_answers(answers, objective)) == order


def test_the_fewest_devices_are_ranked_by_price_where_all_have_one() -> None:
    dear, cheap = answer("a", 10.0, 1, devices=DeviceTotals(8.0)), answer("b", 10.0, 4, devices=DeviceTotals(6.0))
    assert ranked_answers([dear, NONE, cheap], Objective.DEVICES) == [cheap, dear, NONE]
    unpriced = answer("c", 10.0, 2)
    assert ranked_answers([cheap, unpriced, dear], Objective.DEVICES) == [dear, unpriced, cheap]
    assert ranked_answers([cheap, dear], Objective.THROUGHPUT) == [cheap, dear]


def test_a_table_of_clusters_has_the_columns_that_some_row_has() -> None:
    """8 dollars buy 36,000 tokens at 10 a second; 300 W by 10 a second are 30 J."""
    priced = answer("a", 10.0, 1, devices=DeviceTotals(8.0, 300.0))
    table = clusters_table([priced, NONE], Objective.DEVICES)
    heads = [column.words.replace("\n", " ") for column in table.columns]
    assert heads == ["cluster", "best", "used", "tokens/s", "USD an hour", "USD a M tokens", "J a token at most"]
    first, second = ([cell.text for cell in row] for row in table.cells())
    assert (first[0], first[2], first[3], first[4], first[6]) == ("a", "1", "10.0", "8", "30")
    assert float(first[5].replace(",", "")) == pytest.approx(8 / 0.036, rel=0.01)
    assert second[:2] == ["d", "none"]
    assert (table.title, table.caption) == ("Clusters by price of the fewest devices, modelled", "d: too small")
    by_speed = clusters_table([priced], Objective.THROUGHPUT)
    assert by_speed.title == "Clusters by throughput, modelled"
    assert "USD an\nhour" not in [column.words for column in by_speed.columns]


def test_a_table_of_clusters_has_times_and_the_ends_of_forecasts() -> None:
    tokens = TokenResult(1000.0, 0.05, 0.5, 0.04, 0.0625)
    trial = Trial(KNOBS, Status.OK, result=Result(1000.0, of_mode=tokens))
    rows = [ClusterAnswer("a", trial, Origin.MODELLED, "a"), replace_origin(NONE)]
    table = clusters_table(rows, Objective.THROUGHPUT)
    assert table.title == "Clusters by throughput, modelled and measured"
    heads = [column.words.replace("\n", " ") for column in table.columns]
    assert heads == ["cluster", "best", "used", "tokens/s", "8 of 10 lie in", "TPOT", "TTFT"]
    cells = [cell.text for cell in next(iter(table.cells()))]
    assert cells[1].startswith("vllm bf16\nTP2")
    assert cells[2:] == ["4", "1,000", "800.0 to\n1,250", "50 ms", "500 ms"]
    without = clusters_table([NONE], Objective.THROUGHPUT)
    assert [column.words for column in without.columns] == ["cluster", "best"]


def replace_origin(given: ClusterAnswer) -> ClusterAnswer:
    return given._replace(origin=Origin.MEASURED)
