"""A script that measures whether started replicas give what was forecast: `bench_script`."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.exporters.exporter import Deployment, generation
from autoauto.exporters.serving.front import has_front
from autoauto.exporters.serving.launches import ServedProcess, decoder_model
from autoauto.exporters.serving.replicas import FIRST_PORT
from autoauto.exporters.serving.router import ROUTER_PORT, routed_ports
from autoauto.records.units import format_number

BENCH_FILE = "check.sh"
REQUESTS_PER_CLIENT = 10
"""As the forecast has them: all clients begin at once, and each sends so many requests, one after the other."""
_MOST_CLIENTS = 10_000  # of autoauto bench


def bench_script(deployment: Deployment, every: Sequence[ServedProcess]) -> str:
    """A script that sends the load of the forecast; empty where it has more clients than `autoauto bench` takes.

    Its argument is the URL of all replicas. It may be left out where they are on one machine.
    """
    n_clients = n_sequences(deployment) * deployment.knobs.replicas
    if n_clients > _MOST_CLIENTS:
        return ""
    mode, n_requests = generation(deployment), REQUESTS_PER_CLIENT * n_clients
    lines = [
        'autoauto bench "$url" --protocol openai',
        f"--input-tokens {mode.input_tokens} --output-tokens {mode.output_tokens}",
        f"--concurrency {n_clients} --requests {n_requests} --max-requests {n_requests} --warmup 0",
    ]
    n_shared = int(decoder_model(deployment).cached_share * mode.input_tokens)
    if n_shared:
        lines.append(f"--shared-prefix-tokens {n_shared}")
    command = " \\\n  ".join(lines)
    tokens, interval = deployment.performance.tokens, ""
    if tokens is not None and tokens.tokens_per_s_ends is not None:
        low, high = tokens.tokens_per_s_ends
        ends = f"{format_number(low, 0)} to {format_number(high, 0)} tokens/s"
        interval = f"# 8 of 10 measured rows were within such an interval: {ends}\n"
    return (
        "#!/bin/sh\n# Sends the load of the forecast to servers that run, and measures what they give.\n"
        f"# expected: {deployment.performance}\n{interval}set -eu\nurl={_url(every)}\nexec {command}\n"
    )


def bench_line(deployment: Deployment, every: Sequence[ServedProcess]) -> str:
    """The lines of README on the script; empty where there is none."""
    if not bench_script(deployment, every):
        return ""
    return (
        f"\n\nWhen all replicas answer, `sh {BENCH_FILE}` (`sh {BENCH_FILE} URL` for another address) sends the "
        f"load of the forecast\nand measures what they give. Expected: {deployment.performance}.\n"
    )


def n_sequences(deployment: Deployment) -> int:
    """Sequences in flight of a replica."""
    return deployment.knobs.batch_size * deployment.knobs.n_ipu


def _url(every: Sequence[ServedProcess]) -> str:
    """The word of a shell: the first argument, or the address of all replicas where one is known."""
    has_address = len({each.part.machine for each in every}) == 1
    if routed_ports(every) or (has_front(every) and has_address):
        return f'"${{1:-http://127.0.0.1:{ROUTER_PORT}}}"'
    if len({each.replica.name for each in every}) == 1:
        return f'"${{1:-http://127.0.0.1:{FIRST_PORT}}}"'
    return '"${1:?is the URL of a router of all replicas}"'
