"""What forecasts make of measured rows: `forecast_of`, `ratio_of`, and targets `with_measured_rows`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from autoauto.engines.engine import NOT_MEASURED
from autoauto.engines.registry import ENGINES, engine_named
from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.evaluate.serving.rates import Rates
from autoauto.evaluate.serving.rows import RESULTS, RESULTS_OF_PACKAGE, Row, measured_of, read_rows
from autoauto.records.costs.decoder import Decoder, WeightFormat, Workload
from autoauto.records.errors import BadInput, DoesNotFit, Unsupported
from autoauto.targets.gpu.calibration import HELD, INTERVAL, Calibration, Factors, Group, Ratio, fit
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving
from autoauto.targets.gpu.target import GpuTarget

_FORMATS_OF_PACKAGE = {
    "": WeightFormat.BF16,
    "bfloat16": WeightFormat.BF16,
    "fp8": WeightFormat.FP8,
    "fp8_static": WeightFormat.FP8,
    "fp8_block": WeightFormat.FP8_BLOCK,
    "int4_wo": WeightFormat.INT4,
    "nvfp4": WeightFormat.NVFP4,
}
_FP8_CACHES = (WeightFormat.FP8, WeightFormat.NVFP4)
"""Rows of the package do not name the format of the KV cache: checkpoints in these formats have scales for fp8."""
_MOST_TIMES = 100
"""How far a measured value may be from its forecast: milliseconds for seconds are 1,000 times as much."""


def replicas_of(row: Row, decoder: Decoder) -> FixedReplicas:
    """The configuration of a row of a decoder.

    Raises:
        BadInput: a cell says nothing that can be read.
        Unsupported: it is of a kind that is not modelled.
    """
    if row.is_of_package:
        _check_one_pool(row)
        if decoder.experts is not None:
            _check_experts(row)
    elif row.count("attention_dp", missing=1) > 1:
        raise _each_attends()
    with row.reading("engine"):
        engine = engine_named(row.text("engine"))
    with row.reading("system"):
        system = system_named(row.text("system")).name
    weights, kv_cache = _formats(row, decoder)
    tensor_parallel, longest = (
        row.count("tensor_parallel"),
        Workload(row.count("input_tokens"), row.count("output_tokens")),
    )
    serving = Serving(system, engine.name, tensor_parallel, _n_dealt(row, decoder), weights, kv_cache)
    driver = engine.driver_of(row.text("silicon_data_source"), tensor_parallel, longest)
    n_blocks = _even(decoder.n_layers, row.count("n_ipu", missing=1))
    return FixedReplicas(
        decoder,
        serving,
        driver.requests(longest),
        n_blocks,
        row.count("replicas", missing=1),
        driver.n_max_batched_tokens,
        driver.arrivals,
        driver.n_beyond,
    )


def _n_dealt(row: Row, decoder: Decoder) -> int:
    """Among how many GPUs experts were dealt; rows of the package say so of dense models, too."""
    if row.is_of_package:
        return _number(row, "moe_ep_size") if decoder.experts else 1
    return row.count("expert_parallel", missing=1)


def _check_experts(row: Row) -> None:
    """Make sure that experts are on the GPUs that compute the attention; rows of dense models do not say it.

    Raises:
        BadInput: the row says otherwise.
    """
    n_attend = _number(row, "tensor_parallel") * _number(row, "attention_dp_size")
    n_compute = _number(row, "moe_tp_size") * _number(row, "moe_ep_size")
    if n_attend != n_compute:
        raise row.error(
            "moe_tp_size",
            f"moe_tp_size x moe_ep_size must be tp_size x attention_dp_size, got {n_compute} GPUs for experts and "
            f"{n_attend} for attention; which is it?",
        )


def _check_one_pool(row: Row) -> None:
    if row.text("mode") != "agg":
        raise Unsupported("prompts and answers must be computed by one pool, these are computed by two")
    if _number(row, "attention_dp_size") > 1:
        raise _each_attends()


def _each_attends() -> Unsupported:
    return Unsupported("attention must be split among the GPUs of a group, here each has sequences of its own")


def _number(row: Row, name: str) -> int:
    """A count of the package; 1 where it is missing or 0, as rows of dense models have it."""
    return row.count(name) if row.text(name).strip(".0") else 1


def _of_blocks(weights: WeightFormat, decoder: Decoder) -> WeightFormat:
    """The format that an engine computes in: fp8 with scales of blocks where the checkpoint has those.

    Rows name it fp8, too; no engine makes one scale of a matrix from those of its blocks.
    """
    is_fp8 = weights in (WeightFormat.FP8, WeightFormat.FP8_DYNAMIC)
    return WeightFormat.FP8_BLOCK if is_fp8 and decoder.checkpoint.weights is WeightFormat.FP8_BLOCK else weights


def _formats(row: Row, decoder: Decoder) -> tuple[WeightFormat, WeightFormat]:
    """Of matrices, and of keys and values."""
    text, cache = row.text("precision"), row.text("kv_cache_precision")
    if row.is_of_package:
        if text not in _FORMATS_OF_PACKAGE:
            raise Unsupported(f"weights must be {', '.join(_FORMATS_OF_PACKAGE)}, got {text}")
        weights = _of_blocks(_FORMATS_OF_PACKAGE[text], decoder)
        return weights, WeightFormat.FP8 if weights in _FP8_CACHES else WeightFormat.BF16
    formats = tuple(map(str, WeightFormat))
    for name, given in (("precision", text), ("kv_cache_precision", cache)):
        if given and given not in formats:
            raise row.error(name, f"must be one of {', '.join(formats)}, got {given!r:.40}")
    checkpoint = decoder.checkpoint
    weights = _of_blocks(WeightFormat(text or checkpoint.weights), decoder)
    return weights, WeightFormat(cache or checkpoint.kv_cache)


def _even(n_blocks: int, n_stages: int) -> tuple[int, ...]:
    """Blocks as evenly as can be.

    >>> _even(6, 4), _even(6, 1)
    ((2, 2, 1, 1), (6,))
    """
    if n_stages > n_blocks:
        raise Unsupported(f"a stage must have a block or more, got {n_stages} stages of {n_blocks} blocks")
    return tuple(n_blocks // n_stages + (i < n_blocks % n_stages) for i in range(n_stages))


def forecast_of(row: Row, decoder: Decoder) -> Rates:
    """What the tables say of a row of a decoder.

    Raises:
        BadInput: as `replicas_of`.
        Unsupported: there are no times of its kernels, or not one sequence fits.
    """
    replicas = replicas_of(row, decoder)
    if row.text("n_requests"):
        return replicas.of_waves(row.count("n_requests"))
    batch_size = row.count("batch_size")
    n_clients = batch_size if row.is_of_package else batch_size * len(replicas.n_blocks) * replicas.n_replicas
    return replicas.closed_loop(n_clients)


def ratio_of(row: Row, decoder: Decoder) -> Ratio:
    """How far a measured row of a decoder is from its forecast; raises as `measured_of` and `forecast_of`.

    Where the time between tokens was not measured, throughput tells it.
    """
    measured, serving, rates = measured_of(row), replicas_of(row, decoder).serving, forecast_of(row, decoder)
    group = Group(decoder.name, serving.engine, serving.system, serving.weights)
    if measured.tpot_s is not None and rates.tpot_s.item() == 0:
        name = RESULTS_OF_PACKAGE["tpot_s"] if row.is_of_package else "tpot_s"
        raise row.error(name, f"must be empty where output_tokens is 1, got {row.text(name)!r:.40}")
    for name, value, forecast in zip(RESULTS, measured, (rates.tpot_s, rates.ttft_s, rates.tokens_per_s), strict=True):
        _check_unit(row, name, value, forecast.item())
    tpot = None if measured.tokens_per_s is None else rates.tokens_per_s.item() / measured.tokens_per_s
    if measured.tpot_s is not None:
        tpot = measured.tpot_s / rates.tpot_s.item()
    return Ratio(group, tpot, None if measured.ttft_s is None else measured.ttft_s / rates.ttft_s.item())


def _check_unit(row: Row, name: str, value: float | None, forecast: float) -> None:
    """Refuse a value that only another unit explains.

    Raises:
        BadInput: it is more than `_MOST_TIMES` the forecast, or less than that part of it.
    """
    if value is None or forecast / _MOST_TIMES <= value <= forecast * _MOST_TIMES:
        return
    name = RESULTS_OF_PACKAGE.get(name, name) if row.is_of_package else name
    unit = {"tpot_s": "seconds", "ttft_s": "seconds", "tokens_per_s": "tokens/s"}.get(name, "milliseconds")
    shown = 1e3 * forecast if unit == "milliseconds" else forecast
    raise row.error(
        name,
        f"must be in {unit}, got {row.text(name)!r:.40} where the forecast is {shown:.3g}; which unit is it in?",
    )


class Calibrated(NamedTuple):
    """What rows say of one decoder.

    Attributes:
        calibration: the factors.
        unmodelled: why rows of this decoder have no forecast, one reason a row.
    """

    calibration: Calibration
    unmodelled: tuple[str, ...] = ()


def with_measured_rows(target: GpuTarget, path: Path | None, read: Callable[[str], Decoder]) -> GpuTarget:
    """A target with the factors of the rows of a file, and with what is assumed of its forecasts.

    Args:
        target: without factors.
        path: of the file; None where nothing was measured.
        read: the decoder of a name in the file.

    Raises:
        BadInput: as `calibration_of`.
    """
    calibrated = None if path is None else calibration_of(path, target.decoder, read)
    calibration = target.calibration if calibrated is None else calibrated.calibration
    notes = notes_of(calibrated, [system.name for system in target.systems])
    return replace(target, notes=(*target.notes, *notes), calibration=calibration)


def calibration_of(path: Path, decoder: Decoder, read: Callable[[str], Decoder]) -> Calibrated:
    """The factors of a decoder by the rows of a file that are of it, whatever it is called there.

    Args:
        path: of the file.
        decoder: that is served.
        read: the decoder of a name in the file.

    Raises:
        BadInput: the file or a row of the decoder cannot be read, or no row has a forecast.
    """
    rows = read_rows(path)
    same = {name: _same(name, decoder, read) for name in dict.fromkeys(row.text("model") for row in rows)}
    own = [(row, like) for row in rows if (like := same[row.text("model")])]
    if not own:
        raise BadInput(f"a row of {path} must be of {decoder.name}, got {', '.join(same):.120}; try another --measured")
    ratios, reasons = [], []
    for row, like in own:
        try:
            ratios.append(ratio_of(row, like))
        except DoesNotFit as failure:
            reasons.append(str(failure))
    if not ratios:
        raise BadInput(f"a row of {path} must have a forecast, got {len(own)} without: {reasons[0]}")
    return Calibrated(fit(ratios), tuple(reasons))


def _same(name: str, decoder: Decoder, read: Callable[[str], Decoder]) -> Decoder | None:
    """The decoder with the checkpoint that has a name in a file, if that is of a model of the same shape."""
    try:
        given = decoder if name == decoder.name else read(name)
    except BadInput:  # a model that is not modelled, so another one
        return None
    like = replace(decoder, checkpoint=given.checkpoint)
    return like if replace(given, name=decoder.name) == like else None


def notes_of(calibrated: Calibrated | None, systems: Sequence[str]) -> tuple[str, ...]:
    """What was assumed of forecasts on some systems, and what measured rows made of them, a sentence each."""
    unmeasured = [engine.title for engine in ENGINES.values() if engine.stage_error == NOT_MEASURED]
    assumed = (
        f"intervals hold {100 * INTERVAL:.0f} % of measured rows; bounds on latency are kept by an end of the "
        f"interval that {100 * HELD:.0f} % keep; ten requests of one length a client, the first of all at once; no "
        f"pipeline of {' or '.join(unmeasured)} was measured: stages are assumed to wait for the host as others do"
    )
    if calibrated is None:
        return (assumed,)
    factors = {group: each for group, each in calibrated.calibration.factors.items() if group.system in systems}
    notes = [_factors_text(each, group) for group, each in factors.items()]
    if not notes:
        notes.append(f"no measured row is of {' or '.join(systems)}, so forecasts are as without")
    if reasons := calibrated.unmodelled:
        notes.append(f"{len(reasons)} measured rows have no forecast, the first because {reasons[0]}")
    return (*notes, assumed)


def _factors_text(factors: Factors, group: Group) -> str:
    """What rows made of the forecasts of a group."""
    parts = [
        f"{name} times {each.factor:.2f} ({each.low:.2f} to {each.high:.2f}, bounds at {each.held:.2f}) from "
        f"{each.n_rows} measured row{'s' * (each.n_rows > 1)}"
        for name, each in (("TPOT", factors.tpot), ("TTFT", factors.ttft))
        if each.n_rows
    ]
    return f"{', '.join(parts)} of {group.model} in {group.precision} by {group.engine} on {group.system}"
