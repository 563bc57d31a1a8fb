"""What a load on a server that generates text measured, as lines: `token_load_lines`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autoauto.records.costs.traffic.requests import Percentiles

if TYPE_CHECKING:
    from autoauto.load.tokens import ServerLoad, TokenLoad, TokenMeasurement

_WIDTH = 10


def token_load_lines(load: TokenLoad, measured: TokenMeasurement) -> Iterator[str]:
    """Lines with the throughput, a table of times, the engine's own metrics, and what disturbed the measurement."""
    arrivals = f"{load.n_clients} clients"
    if load.arrivals is not None:
        arrivals = f"{load.arrivals.requests_per_s:g} requests/s that {load.arrivals.process.text}"
    yield (
        f"{measured.tokens_per_s:,.1f} tokens/s ± {measured.half_width:.1%}, {measured.requests_per_s:,.2f} requests/s "
        f"in the steady part of {arrivals} (measured)"
    )
    yield f"{measured.n_requests:,} requests answered, {measured.n_failed:,} failed, in {measured.wall_s:,.1f} s"
    yield f"{'milliseconds':<24}" + "".join(f"{name:>{_WIDTH}}" for name in Percentiles._fields)
    for name, times_s in (
        ("TTFT", measured.ttft_s),
        ("TPOT", measured.tpot_s),
        ("inter-token latency", measured.itl_s),
        ("request latency", measured.latency_s),
    ):
        yield f"{name:<24}" + "".join(f"{1e3 * time_s:>{_WIDTH},.2f}" for time_s in times_s)
    if measured.server is not None:
        yield _server_line(measured.server)
    yield from (f"note: {note}" for note in measured.notes)


def _server_line(server: ServerLoad) -> str:
    """The largest values of the engine's own metrics; metrics that it lacks are left out."""
    parts = [f"{server.running:.0f} requests at once"]
    if server.waiting is not None:
        parts.append(f"{server.waiting:.0f} waiting")
    if server.kv_usage is not None:
        parts.append(f"{server.kv_usage:.0%} of the KV cache")
    if server.n_preemptions is not None:
        parts.append(f"{server.n_preemptions:.0f} preemptions")
    return f"{server.before.engine} says: at most {', '.join(parts)}"
