"""A study of which engines were measured, made by hand."""

from __future__ import annotations

from dataclasses import replace
from math import nan

from autoauto.load.tokens import TokenMeasurement
from autoauto.records.costs.traffic.requests import Percentiles
from autoauto.records.target import Origin
from autoauto.space.engine_measurements import (
    EngineForecast,
    EngineMeasurements,
    EngineRow,
    Expected,
    FittedRatio,
)
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result, TokenResult
from autoauto.space.objectives import Objective
from autoauto.space.study_summary import CHOICES, ENGINE_MEASUREMENTS, KnobChoice, StudySummary, choices_text
from autoauto.space.trial import Status, Trial

KNOBS = Knobs(
    *(1, 16, 2),
    engine="vllm",
    tensor_parallel=2,
    precision="bf16",
    kv_cache_precision="bf16",
    input_tokens=1024,
    output_tokens=256,
)
OTHER = KNOBS.with_values(engine="sglang")
LARGE = KNOBS.with_values(batch_size=64)
FORECAST = EngineForecast(Expected(1000.0, 800.0, 1250.0), Expected(0.05, 0.04, 0.06), Expected(0.5, 0.3, 0.9), 13.0)


def load(tokens_per_s: float, tpot_s: float, ttft_s: float) -> TokenMeasurement:
    """What a load measured; percentiles are 1, 1.1 and 1.3 times the mean."""
    tpot, ttft, latency = (
        Percentiles(mean, mean, 1.1 * mean, 1.2 * mean, 1.3 * mean) for mean in (tpot_s, ttft_s, ttft_s + 255 * tpot_s)
    )
    return TokenMeasurement(
        tokens_per_s, 0.02, ttft, tpot, Percentiles(nan, nan, nan, nan, nan), latency, 320, 0, 81920, 90
    )


ROWS = (
    EngineRow(KNOBS, (), 32, FORECAST, Status.OK, turns=(load(800.0, 0.04, 0.6),), trial=1),
    EngineRow(OTHER, (), 32, FORECAST, Status.OK, turns=(load(790.0, 0.0405, 0.7),), trial=2),
    EngineRow(LARGE, (), 128, FORECAST, Status.OUT_OF_MEMORY, "CUDA out of memory", trial=3),
)
RECORD = EngineMeasurements(
    ROWS,
    answer=0,
    ties=(1,),
    ratios=(FittedRatio("vllm", 1, 1.25, 1.0, 1.6),),
    where="local",
    stopped="nothing else is likely better by 2 %",
    noise=0.02,
    n_most=5,
    rules=("fewer than 64 sequences a micro-batch",),
)
TOKENS = TokenResult(1000.0, 0.05, 0.5, 0.04, 0.0625, 0.3, 0.9, bounds_probability=0.72, kv_cache_bytes=3 * 2**30)
TRIAL = Trial(KNOBS, Status.OK, result=Result(1000.0, 1000.0, 13.25, of_mode=TOKENS), number=1, values=(1000.0,))
BOUNDS = "latency_s <= 12.5; tpot_s + 0 <= 0.05; ttft_s < 0.55"


def summary_of(record: EngineMeasurements | None, bounds: str = "") -> StudySummary:
    """A study with one trial, the bounds and what was measured."""
    attributes = {"origin": str(Origin.MODELLED), "constraints": bounds, "model": "m", "cluster": "h100_sxm-4"}
    attributes |= {ENGINE_MEASUREMENTS: record.text} if record else {}
    lacks = "layers need 9 MiB of 8 a GPU"
    choices = (
        KnobChoice("engine", "sglang", OTHER, 900.0, 0.9),
        KnobChoice(
            "precision", "fp8", KNOBS.with_values(precision="fp8", batch_size=32), 1500.0, 1.5, is_searched=False
        ),
        KnobChoice("batch_size", 64, LARGE, 0.0, None, f"it must fit, but it lacks 1: {lacks}; it fits with less"),
    )
    attributes[CHOICES] = choices_text(choices)
    return StudySummary("study", "sqlite://", Objective.THROUGHPUT, attributes, (TRIAL,), (), (TRIAL,))


NO_ANSWER = replace(RECORD, answer=None, ties=())
