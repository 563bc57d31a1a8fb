"""What commands print of a configuration that generates text: `describe_generation`, `generation_line`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoauto.records.costs.profile import RESERVE
from autoauto.records.units import GIB
from autoauto.space.modes.generation import Generation
from autoauto.space.trial import Trial

if TYPE_CHECKING:
    from autoauto.records.plans.plan import Plan


def describe_generation(trial: Trial, plan: Plan) -> dict[str, Any]:
    """What it gives, and the bytes of the fullest GPU of every stage, as plain values; nothing in other modes."""
    if not isinstance(trial.knobs.mode, Generation) or trial.tokens_per_s is None:
        return {}
    return {
        "tokens_per_s": trial.tokens_per_s,
        "tokens_per_s_per_device": trial.tokens_per_s / trial.knobs.n_devices,
        "requests_per_s": trial.tokens_per_s / trial.knobs.mode.output_tokens,
        "tpot_s": trial.tpot_s,
        "ttft_s": trial.ttft_s,
        "request_latency_s": trial.latency_s,
        **_intervals(trial),
        "kv_cache_bytes": trial.kv_cache_bytes,
        "memory_bytes": [stage.total_bytes - stage.memory_bytes.get(RESERVE, 0) for stage in plan.stages],
    }


def _intervals(trial: Trial) -> dict[str, tuple[float, float]]:
    """The ends between which 8 of 10 measured rows lie; nothing where a trial has none."""
    ends = (trial.tpot_low_s, trial.tpot_high_s, trial.ttft_low_s, trial.ttft_high_s)
    known = tuple(end for end in ends if end is not None)
    if len(known) < len(ends) or trial.tpot_s is None or trial.tokens_per_s is None:
        return {}
    tpot, ttft = (known[0], known[1]), (known[2], known[3])
    n_words = trial.tokens_per_s * trial.tpot_s  # that sequences in flight get in the time between two words
    tokens = n_words / tpot[1], n_words / tpot[0]
    return {"tpot_s_interval": tpot, "ttft_s_interval": ttft, "tokens_per_s_interval": tokens}


def generation_line(trial: Trial) -> str:
    """Latencies with their intervals, and memory, in a line; empty in other modes."""
    if trial.ttft_s is None or trial.tpot_s is None or trial.kv_cache_bytes is None:
        return ""
    ends = _intervals(trial)
    between, after = (
        f", {scale * ends[name][0]:.3g} to {scale * ends[name][1]:.3g}" if ends else ""
        for scale, name in ((1e3, "tpot_s_interval"), (1, "ttft_s_interval"))
    )
    return (
        f"first token after {trial.ttft_s:.3g} s (TTFT{after}), then one every {1e3 * trial.tpot_s:.3g} ms "
        f"(TPOT{between}), a request in {trial.latency_s:.3g} s; KV cache of {trial.kv_cache_bytes / GIB:.1f} GiB on "
        "the fullest GPU"
    )
