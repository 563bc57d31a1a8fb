"""Forecasts of measured rows, and how far off they are: `forecast_of`, `ratio_of`, `with_measured_rows`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from autoauto.engines.engine import NOT_MEASURED, Engine
from autoauto.engines.registry import ENGINES, engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.evaluate.serving.fixed import FixedReplicas
from autoauto.evaluate.serving.pools.fixed import FixedPools
from autoauto.evaluate.serving.rates import Rates
from autoauto.evaluate.serving.rows import (
    DECODE,
    PREFILL,
    RESULTS,
    RESULTS_OF_PACKAGE,
    Measured,
    Row,
    measured_of,
    read_rows,
)
from autoauto.records.costs.decoder import Decoder, WeightFormat, Workload
from autoauto.records.errors import BadInput, DoesNotFit, Unsupported
from autoauto.records.units import digits
from autoauto.targets.gpu.calibration import HELD, INTERVAL, Calibration, Factors, Group, Ratio, fit
from autoauto.targets.gpu.family_errors import decoding_family, family_of
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
_OF_CLIENTS = "silicon_concurrency="
"""Words in the source of rows of [inferencemax]."""
_MOST_TIMES = 100
"""How far a measured value may be from its forecast: milliseconds for seconds are 1,000 times as much."""
_MOST_APART = 2
"""How far results of a row may be from each other; of 5,221 public rows none has a TTFT below 4 times its TPOT."""


def replicas_of(row: Row, decoder: Decoder) -> FixedReplicas:
    """The configuration of a row of a decoder; of a row of two pools the one that computes tokens of answers.

    Raises:
        BadInput: a cell says nothing that can be read.
        Unsupported: it is of a kind that is not modelled.
    """
    if row.has_pools:
        row = row.of_pool(DECODE)
    if row.is_of_package and decoder.experts is not None:
        _check_experts(row)
    with row.reading("engine"):
        engine = engine_named(row.text("engine"))
    with row.reading("system"):
        system = system_named(row.text("system")).name
    weights, kv_cache = _formats(row, decoder)
    split = _split(row, decoder, engine)
    longest = Workload(row.count("input_tokens"), row.count("output_tokens"))
    serving = Serving(
        system,
        engine.name,
        split.tensor_parallel,
        split.expert_parallel,
        weights,
        kv_cache,
        split.attention_data_parallel,
    )
    driver = engine.measured.driver_of(row.text("silicon_data_source"), split.n_gpus, longest)
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


def _split(row: Row, decoder: Decoder, engine: Engine) -> GroupSplit:
    """How a group split the model; rows of the package name experts of dense models, too."""
    tensor_parallel = row.count("tensor_parallel")
    if not row.is_of_package:
        n_dealt, n_ranks = row.count("expert_parallel", missing=1), row.count("attention_data_parallel", missing=1)
        if n_ranks == tensor_parallel and not engine.launcher.placing.splits_ranks:
            tensor_parallel = 1  # such an engine counts all GPUs of a group, whose ranks have one each
        return GroupSplit(tensor_parallel, n_dealt, n_ranks)
    n_ranks = _number(row, "attention_dp_size")
    if decoder.experts is None:
        if n_ranks > 1:
            raise Unsupported("attention of a dense model is data-parallel in replicas, this row has it in a group")
        return GroupSplit(tensor_parallel)
    n_dealt = _number(row, "moe_ep_size")
    if n_ranks > 1 and _OF_CLIENTS in row.text("silicon_data_source"):
        return _counted_once(tensor_parallel, n_ranks, _number(row, "moe_tp_size"), n_dealt)
    return GroupSplit(tensor_parallel, n_dealt, n_ranks)


def _counted_once(tensor_parallel: int, n_ranks: int, moe_tensor_parallel: int, n_dealt: int) -> GroupSplit:
    """The group of G GPUs of a row of [inferencemax], which has one GPU a rank where attention is data-parallel.

    Its rows count G twice: as `tensor_parallel` and as ranks, or as ranks of G times the GPUs among which experts were
    dealt. Some measurements are there under both names, and the scripts have one GPU a rank:

    >>> _counted_once(4, 4, 1, 16), _counted_once(1, 64, 8, 8) == _counted_once(1, 8, 1, 8)
    (GroupSplit(tensor_parallel=1, expert_parallel=4, attention_data_parallel=4), True)
    """
    n_gpus = n_ranks
    if tensor_parallel == 1 < moe_tensor_parallel:
        n_gpus = moe_tensor_parallel
    return GroupSplit(1, min(n_dealt, n_gpus), n_gpus)


def _check_experts(row: Row) -> None:
    """Make sure that experts are on the GPUs that compute the attention; rows of dense models do not say it."""
    n_attend = _number(row, "tensor_parallel") * _number(row, "attention_dp_size")
    n_compute = _number(row, "moe_tp_size") * _number(row, "moe_ep_size")
    if n_attend != n_compute:
        raise row.error(
            "moe_tp_size",
            f"moe_tp_size x moe_ep_size must be tp_size x attention_dp_size, got {n_compute} GPUs for experts and "
            f"{n_attend} for attention; which is it?",
        )


def pools_of(row: Row, decoder: Decoder) -> FixedPools:
    """The two pools of a row of a decoder; raises as `replicas_of`, or Unsupported if servers are not counted."""
    prefill, decode = (row.of_pool(name) for name in (PREFILL, DECODE))
    if not prefill.text("replicas") or not decode.text("replicas"):
        raise Unsupported("a row of two pools must say how many servers each has, this one does not")
    n_prompts = prefill.count("batch_size") * _number(prefill, "attention_dp_size")
    return FixedPools.of(replicas_of(prefill, decoder), replicas_of(decode, decoder), n_prompts)


def _number(row: Row, name: str) -> int:
    """A count of the package; 1 where it is missing or 0, as rows of dense models have it."""
    is_missing = not row.text(name).strip(".0")  # "", "0" and "0.0"
    return 1 if is_missing else row.count(name)


_NAMED_ALIKE = (
    ((WeightFormat.FP8, WeightFormat.FP8_DYNAMIC), WeightFormat.FP8_BLOCK),
    ((WeightFormat.NVFP4, WeightFormat.FP8), WeightFormat.MXFP4),
)
"""Formats by whose names rows call that of a checkpoint; no engine makes them of it."""


def _of_checkpoint(weights: WeightFormat, decoder: Decoder) -> WeightFormat:
    """The format that an engine computes in: that of the checkpoint, where rows name it otherwise."""
    published = decoder.checkpoint.weights
    for names, other in _NAMED_ALIKE:
        if weights in names and published is other:
            return published
    return weights


def _formats(row: Row, decoder: Decoder) -> tuple[WeightFormat, WeightFormat]:
    text, cache = row.text("precision"), row.text("kv_cache_precision")
    if row.is_of_package:
        if text not in _FORMATS_OF_PACKAGE:
            raise Unsupported(f"weights must be {', '.join(_FORMATS_OF_PACKAGE)}, got {text}")
        # Matrices of fp8 are named alike whatever their scales; the name of experts tells.
        if text == "fp8" and row.text("moe_quant_mode") == "fp8_block":
            text = "fp8_block"
        weights = _of_checkpoint(_FORMATS_OF_PACKAGE[text], decoder)
        return weights, WeightFormat.FP8 if weights in _FP8_CACHES else WeightFormat.BF16
    formats = tuple(map(str, WeightFormat))
    for name, given in (("precision", text), ("kv_cache_precision", cache)):
        if given and given not in formats:
            raise row.error(name, f"must be one of {', '.join(formats)}, got {given!r:.40}")
    checkpoint = decoder.checkpoint
    weights = _of_checkpoint(WeightFormat(text or checkpoint.weights), decoder)
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
    """The rates that the tables forecast for a row of a decoder.

    Raises:
        BadInput: as `replicas_of`.
        Unsupported: there are no times of its kernels, or not one sequence fits.
    """
    if row.has_pools:
        return pools_of(row, decoder).closed_loop(n_clients_of(row))
    replicas = replicas_of(row, decoder)
    if row.text("n_requests"):
        if not row.is_of_package and row.text("batch_size"):
            raise row.error("n_requests", "must be empty where batch_size is given, or batch_size empty; which is it?")
        return replicas.of_waves(row.count("n_requests"))
    return replicas.closed_loop(n_clients_of(row))


def n_clients_of(row: Row) -> int:
    """The clients of a row that does not say how many requests there are; raises BadInput if a cell cannot be read."""
    if row.has_pools:
        decode = row.of_pool(DECODE)
        return decode.count("batch_size") * decode.count("replicas") * _number(decode, "attention_dp_size")
    n_each = row.count("batch_size")
    if row.is_of_package:
        return n_each * _number(row, "attention_dp_size")
    return n_each * row.count("n_ipu", missing=1) * row.count("replicas", missing=1)


def group_of_row(row: Row, decoder: Decoder) -> Group:
    """The group of rows that share a factor with this one; raises as `replicas_of`."""
    serving = replicas_of(row, decoder).serving
    family = family_of(decoder)
    if row.has_pools:
        family = decoding_family(family, serving.n_gpus)
    return Group(decoder.name, serving.engine, serving.system, serving.weights, family)


def ratio_of(row: Row, decoder: Decoder) -> Ratio:
    """How far a measured row of a decoder is from its forecast; raises as `measured_of` and `forecast_of`."""
    measured, rates = measured_of(row), forecast_of(row, decoder)
    group = group_of_row(row, decoder)
    if measured.tpot_s is not None and rates.tpot_s.item() == 0:
        name = RESULTS_OF_PACKAGE["tpot_s"] if row.is_of_package else "tpot_s"
        raise row.error(name, f"must be empty where output_tokens is 1, got {row.text(name)!r:.40}")
    for name, value, forecast in zip(RESULTS, measured, (rates.tpot_s, rates.ttft_s, rates.tokens_per_s), strict=True):
        _check_unit(row, name, value, forecast.item())
    _check_agreement(row, measured)
    tpot: float | None = None
    ttft: float | None = None
    if measured.tpot_s is not None:
        tpot = measured.tpot_s / rates.tpot_s.item()
    elif measured.tokens_per_s is not None:
        tpot = rates.tokens_per_s.item() / measured.tokens_per_s
    if measured.ttft_s is not None:
        ttft = measured.ttft_s / rates.ttft_s.item()
    return Ratio(group, tpot, ttft, Workload(row.count("input_tokens"), row.count("output_tokens")))


def _check_agreement(row: Row, measured: Measured) -> None:
    """Refuse results that no clients of a closed loop can have at once."""
    tpot_s, ttft_s, tokens_per_s = measured
    if tpot_s is None:
        return
    if ttft_s is not None and _MOST_APART * ttft_s < tpot_s:
        name = RESULTS_OF_PACKAGE["ttft_s"] if row.is_of_package else "ttft_s"
        raise row.error(
            name,
            f"the first token must take about as long as a later one or longer, got {ttft_s:g} s and a TPOT of "
            f"{tpot_s:g} s; which is which?",
        )
    if tokens_per_s is None or row.text("n_requests"):
        return
    n_tokens, n_clients = row.count("output_tokens"), n_clients_of(row)
    most = n_clients * n_tokens / ((ttft_s or 0.0) + (n_tokens - 1) * tpot_s)
    fewest = 0.0 if ttft_s is None else most
    if not fewest / _MOST_APART <= tokens_per_s <= most * _MOST_APART:
        raise row.error(
            "tokens_per_s",
            f"must agree with the latencies: {n_clients} requests in flight get {'' if fewest else 'at most '}"
            f"{digits(most, 4)} tokens/s by them, got {digits(tokens_per_s, 6)}; which is it?",
        )


def _check_unit(row: Row, name: str, value: float | None, forecast: float) -> None:
    """Refuse a value that only another unit explains."""
    if value is None or forecast / _MOST_TIMES <= value <= forecast * _MOST_TIMES:
        return
    unit, shown = "tokens/s" if name == "tokens_per_s" else "seconds", forecast
    if row.is_of_package and name in RESULTS_OF_PACKAGE:
        name, unit, shown = RESULTS_OF_PACKAGE[name], "milliseconds", 1e3 * forecast
    raise row.error(
        name,
        f"must be in {unit}, got {row.text(name)!r:.40} where the forecast is {digits(shown)}; which unit is it in?",
    )


class Calibrated(NamedTuple):
    """The factors that measured rows give one decoder.

    Attributes:
        calibration: the factors.
        unmodelled: why rows of this decoder have no forecast, one reason a row.
        scattered: sentences on groups whose rows disagree with each other.
    """

    calibration: Calibration
    unmodelled: tuple[str, ...] = ()
    scattered: tuple[str, ...] = ()


def with_measured_rows(target: GpuTarget, path: Path | None, read: Callable[[str], Decoder]) -> GpuTarget:
    """A target with the factors of the rows of a file, if any, and with what is assumed of its forecasts.

    `read` gives the decoder of a name in the file; raises as `calibration_of`.
    """
    calibrated = None
    if path is not None:
        calibrated = calibration_of(path, target.decoder, read)
        target = replace(target, calibration=calibrated.calibration)
    notes = notes_of(calibrated, [system.name for system in target.systems])
    return replace(target, notes=(*target.notes, *notes))


def calibration_of(path: Path, decoder: Decoder, read: Callable[[str], Decoder]) -> Calibrated:
    """The factors of a decoder by the rows of a file that are of it, whatever it is called there.

    Raises:
        BadInput: the file or a row of the decoder cannot be read, or no row has a forecast.
    """
    rows = read_rows(path)
    same = {name: _same(name, decoder, read) for name in dict.fromkeys(row.text("model") for row in rows)}
    ratios: list[Ratio] = []
    reasons: list[str] = []
    for row in rows:
        like = same[row.text("model")]
        if like is None:
            continue
        try:
            ratios.append(ratio_of(row, like))
        except DoesNotFit as failure:
            reasons.append(str(failure))
    if not ratios and not reasons:
        raise BadInput(f"a row of {path} must be of {decoder.name}, got {', '.join(same):.120}; try another --measured")
    if not ratios:
        raise BadInput(f"a row of {path} must have a forecast, got {len(reasons)} without: {reasons[0]}")
    calibration = fit(ratios)
    return Calibrated(calibration, tuple(reasons), tuple(_scattered(calibration, ratios)))


def _scattered(calibration: Calibration, ratios: Sequence[Ratio]) -> Iterator[str]:
    """Sentences on groups of whose rows more than half lie outside of the interval that is said to hold most."""
    for group, factors in calibration.factors.items():
        own = [ratio.tpot for ratio in ratios if ratio.group == group and ratio.tpot is not None]
        n_outside = sum(not factors.tpot.low <= ratio <= factors.tpot.high for ratio in own)
        if 2 * n_outside > len(own) > 1:
            yield (
                f"{n_outside} of {len(own)} rows of {group.model} by {group.engine} on {group.system} lie outside of "
                f"that interval: they measured {min(own):.3g} to {max(own):.3g} times the TPOT that is forecast"
            )


def _same(name: str, decoder: Decoder, read: Callable[[str], Decoder]) -> Decoder | None:
    """The decoder with the checkpoint that has a name in a file; None if that is of a model of another shape."""
    if name == decoder.name:
        return decoder
    try:
        given = read(name)
    except BadInput:  # a model that is not modelled, so another one
        return None
    # A checkpoint in another format is of the same model if nothing else differs.
    like = replace(decoder, checkpoint=given.checkpoint)
    return like if replace(given, name=decoder.name) == like else None


def notes_of(calibrated: Calibrated | None, systems: Sequence[str]) -> tuple[str, ...]:
    """Sentences on the assumptions of forecasts for some systems, and on the factors of measured rows."""
    unmeasured = [engine.title for engine in ENGINES.values() if engine.measured.stage_error == NOT_MEASURED]
    assumed = (
        f"intervals hold {100 * INTERVAL:.0f} % of measured rows",
        f"bounds on latency are kept by an end of the interval that {100 * HELD:.0f} % keep",
        "ten requests of one length a client, the first of all at once: "
        "such waits are in TTFT and latency, not in tokens/s",
        f"no pipeline of {' or '.join(unmeasured)} was measured: stages are assumed to wait for the host as others do",
    )
    if calibrated is None:
        return assumed
    notes: list[str] = []
    for group, factors in calibrated.calibration.factors.items():
        if group.system in systems:
            notes.append(_factors_text(factors, group))
    notes += calibrated.scattered
    if not notes:
        notes.append(f"no measured row is of {' or '.join(systems)}, so forecasts are as without")
    reasons = calibrated.unmodelled
    if reasons:
        notes.append(f"{len(reasons)} measured rows have no forecast, the first because {reasons[0]}")
    return (*notes, *assumed)


def _factors_text(factors: Factors, group: Group) -> str:
    parts: list[str] = []
    for name, each in (("TPOT", factors.tpot), ("TTFT", factors.ttft)):
        if each.n_rows:
            rows = "row" if each.n_rows == 1 else "rows"
            interval = f"{each.low:.2f} to {each.high:.2f}, bounds at {each.held:.2f}"
            parts.append(f"{name} times {each.factor:.2f} ({interval}) from {each.n_rows} measured {rows}")
    of_group = f"{group.model} in {group.precision} by {group.engine} on {group.system}"
    return f"{', '.join(parts)} of {of_group}, wider for other lengths"
