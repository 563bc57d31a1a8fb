"""What commands print of a configuration that generates text: `describe_generation`, `generation_line`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.profile import RESERVE
from autoauto.records.target import RunsServers
from autoauto.records.units import GIB
from autoauto.space.modes.generation import Generation
from autoauto.space.numbers import TokenResult
from autoauto.space.trial import Trial

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.plans.plan import Plan


def describe_generation(trial: Trial, plan: Plan) -> dict[str, Any]:
    """What it gives, and the bytes of the fullest GPU of every stage, as plain values; nothing in other modes."""
    tokens = trial.result.of_mode
    if not isinstance(trial.knobs.mode, Generation) or not isinstance(tokens, TokenResult):
        return {}
    return {
        "tokens_per_s": tokens.tokens_per_s,
        "tokens_per_s_per_device": tokens.tokens_per_s / trial.knobs.n_devices,
        "requests_per_s": tokens.tokens_per_s / trial.knobs.mode.output_tokens,
        "tpot_s": tokens.tpot_s,
        "ttft_s": tokens.ttft_s,
        "request_latency_s": trial.latency_s,
        **_intervals(tokens),
        "kv_cache_bytes": tokens.kv_cache_bytes,
        "memory_bytes": [stage.total_bytes - stage.memory_bytes.get(RESERVE, 0) for stage in plan.stages],
    }


def server_command(flow: Flow, best: Trial) -> tuple[str, ...]:
    """The words that start the server of a configuration, where servers of this machine were measured; else none."""
    if not isinstance(flow.target, RunsServers) or not isinstance(best.knobs.mode, Generation):
        return ()
    requests = Workload(best.knobs.mode.input_tokens, best.knobs.mode.output_tokens)
    return flow.target.command(best.knobs.session, best.knobs.batch_size, requests)


def _intervals(tokens: TokenResult) -> dict[str, tuple[float, float]]:
    """The ends of our error, between which 8 of 10 measured rows lie; nothing where a trial has none."""
    ends = (tokens.tpot_low_s, tokens.tpot_high_s, tokens.ttft_low_s, tokens.ttft_high_s)
    known = tuple(end for end in ends if end is not None)
    if len(known) < len(ends):
        return {}
    tpot, ttft = (known[0], known[1]), (known[2], known[3])
    # Tokens that all sequences in flight get between two of one, or together with their only one.
    n_tokens = tokens.tokens_per_s * (tokens.tpot_s or tokens.ttft_s)
    shortest, longest = tpot if tokens.tpot_s else ttft
    rates = n_tokens / longest, n_tokens / shortest
    return {"tpot_s_error_interval": tpot, "ttft_s_error_interval": ttft, "tokens_per_s_error_interval": rates}


def generation_line(trial: Trial) -> str:
    """Latencies with the intervals of our error, and memory, in a line; empty in other modes."""
    tokens = trial.result.of_mode
    if not isinstance(tokens, TokenResult):
        return ""
    ends = _intervals(tokens)
    between, after = (
        f", {scale * ends[name][0]:.3g} to {scale * ends[name][1]:.3g}" if ends else ""
        for scale, name in ((1e3, "tpot_s_error_interval"), (1, "ttft_s_error_interval"))
    )
    then = f"then one every {1e3 * tokens.tpot_s:.3g} ms (TPOT{between})" if tokens.tpot_s else "which is the only one"
    return (
        f"first token after {tokens.ttft_s:.3g} s (TTFT{after}), {then}, a request in {trial.latency_s:.3g} s; "
        f"KV cache of {tokens.kv_cache_bytes / GIB:.1f} GiB on the fullest GPU"
    )
