"""Measurements of engines as a study stores them."""

from dataclasses import replace
from math import inf, isnan, nan

import pytest

from autoauto.engines.metrics import ServerState
from autoauto.load.tokens import ServerLoad, TokenMeasurement
from autoauto.records.costs.traffic.requests import Percentiles
from autoauto.records.errors import BadInput
from autoauto.space.engine_measurements import (
    EngineForecast,
    EngineMeasurements,
    EngineRow,
    Expected,
    FittedRatio,
    ReplicaCommand,
)
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.trial import Status
from autoauto.targets.gpu.session import GpuSession

TIMES = Percentiles(0.2, 0.19, 0.3, 0.35, 0.4)
STATE = ServerState("vLLM", 8.0, 0.0, 0.5, 0.0, 1000.0)
TURN = TokenMeasurement(
    100.0, 0.02, TIMES, TIMES, TIMES, TIMES, 32, 0, 320, 4.0, ("a note",), ServerLoad(STATE, STATE, 8.0, 0.0, 0.5)
)
ROW = EngineRow(
    Knobs(2, 8, replicas=2, session=GpuSession("vllm", 2), mode=Generation(512, 128)),
    (ReplicaCommand(("vllm", "serve", "m"), {"A": "b"}, 0, (0, 1), {"f": "text"}),),
    32,
    EngineForecast(Expected(120.0, 100.0, 140.0), Expected(0.1, 0.09, 0.11), Expected(0.3, 0.2, 0.4), 13.0),
    Status.OK,
    turns=(TURN, replace(TURN, tokens_per_s=140.0)),
    started="2026-01-01T00:00:00+00:00",
    duration_s=12.5,
    trial=7,
)
MEASURED = EngineMeasurements(
    (ROW, replace(ROW, status=Status.OUT_OF_MEMORY, reason="no memory", log=("a", "b"), turns=(), trial=8)),
    0,
    (),
    (FittedRatio("vllm", 1, 1.0, 0.9, 1.1),),
    "local",
    "two were asked for",
    0.02,
    2,
    ("fewer than 16 sequences",),
)


def test_measurements_are_read_as_they_were_written() -> None:
    assert EngineMeasurements.read(MEASURED.text) == MEASURED


def test_what_is_no_number_is_read_as_none() -> None:
    unknown = replace(TURN, half_width=inf, tpot_s=Percentiles(nan, nan, nan, nan, nan))
    [row] = EngineMeasurements.read(replace(MEASURED, rows=(replace(ROW, turns=(unknown,)),)).text).rows
    assert "NaN" not in MEASURED.text
    assert row.turns[0].half_width == inf
    assert all(map(isnan, row.turns[0].tpot_s))


def test_numbers_of_a_row_are_means_of_its_turns() -> None:
    assert (ROW.tokens_per_s, ROW.time_ratio, MEASURED.n_measured) == (120.0, 1.0, 1)
    assert MEASURED.best is MEASURED.rows[0]
    assert isnan(MEASURED.rows[1].tokens_per_s)


def test_measurements_of_another_version_are_refused() -> None:
    with pytest.raises(BadInput, match="schema must be 2"):
        EngineMeasurements.read('{"rows": [], "schema": 99}')


def test_every_mean_of_a_row_is_of_its_own_number() -> None:
    ttft_s, tpot_s, latency_s = (Percentiles(mean, 0.0, 0.0, 0.0, 0.0) for mean in (0.4, 0.6, 0.8))
    row = replace(ROW, turns=(TURN, replace(TURN, ttft_s=ttft_s, tpot_s=tpot_s, latency_s=latency_s)))
    assert (row.ttft_s, row.tpot_s, row.latency_s) == pytest.approx((0.3, 0.4, 0.5))
    unmeasured = replace(ROW, turns=())
    assert not unmeasured.is_measured
    assert all(map(isnan, (unmeasured.ttft_s, unmeasured.tpot_s, unmeasured.latency_s, unmeasured.time_ratio)))
    assert EngineMeasurements((ROW,)).best is None


def test_what_is_not_said_of_a_row_or_of_measurements() -> None:
    row = EngineRow(ROW.knobs, (), 1, ROW.forecast, Status.OK)
    assert (row.reason, row.log, row.turns, row.refused, row.started, row.duration_s, row.trial) == (
        *("", (), (), "", ""),
        *(0.0, -1),
    )
    none = EngineMeasurements()
    assert (none.rows, none.answer, none.ties, none.ratios, none.where, none.stopped) == ((), None, (), (), "", "")
    assert (none.noise, none.n_most, none.rules) == (0.0, 0, ())
