"""Measure a served model under load.

Throughput and latency by closed loops and at random arrivals: of a model that `autoauto serve` or another server of the
Open Inference Protocol serves, or with --protocol openai of a server that generates text.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from math import isfinite
from typing import Any

from autoauto.cli.options.values import at_most, positive_number
from autoauto.cli.output.lines import add_json, print_json, print_line, warn
from autoauto.load.tokens import OpenLoop, ServerLoad, TokenLoad, TokenMeasurement
from autoauto.records.costs.traffic.arrivals import POISSON, ArrivalProcess
from autoauto.records.costs.traffic.requests import Percentiles
from autoauto.records.errors import BadInput, missing_extra
from autoauto.records.units import digits, format_number

EXAMPLE = "bench http://127.0.0.1:8000/v2/models/resnet50"
DEFAULT_CLIENTS = 16
DEFAULT_HALF_WIDTH = 0.03
_PERCENTS = (50, 95, 99)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the URL of a model, and the load."""
    parser.add_argument(
        "url", metavar="URL", help="the model's URL, as `autoauto serve` prints it; with --protocol openai the server's"
    )
    parser.add_argument(
        "--protocol",
        choices=("open-inference", "openai"),
        default="open-inference",
        help="of the server; default %(default)s; openai: streamed completions of text",
    )
    parser.add_argument(
        "--concurrency",
        type=at_most(10_000),
        metavar="N",
        help="clients of the closed loop; default: as many as fill all micro-batches in flight, of text 16",
    )
    _add_inference(parser.add_argument_group("a model of the Open Inference Protocol"))
    _add_text(parser.add_argument_group("text, with --protocol openai"))
    add_json(parser)


def _add_inference(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--samples", type=at_most(1_000_000), default=1, metavar="N", help="samples of a request; default %(default)s"
    )
    parser.add_argument(
        "--seconds", type=positive_number, default=10.0, metavar="S", help="duration of a load; default %(default)s"
    )
    parser.add_argument(
        "--inputs",
        metavar="FILE.npz",
        help="samples of the model's inputs, an array for each; requests have them in turn; default: made-up inputs",
    )


def _add_text(parser: argparse._ArgumentGroup) -> None:
    tokens = at_most(10_000_000)
    parser.add_argument("--input-tokens", type=tokens, metavar="N", help="tokens of a prompt")
    parser.add_argument("--output-tokens", type=tokens, metavar="N", help="tokens of an answer")
    parser.add_argument(
        "--rate", type=positive_number, metavar="R", help="requests/s of an open loop, instead of a closed loop"
    )
    parser.add_argument(
        "--arrival",
        metavar="poisson|constant|gamma:CV",
        help="how the requests of --rate arrive, as in a search: at random, evenly, or in bursts, times between them "
        "with that coefficient of variation; default: poisson",
    )
    parser.add_argument("--chat", action="store_true", help="send chats, whose prompts are text of about N tokens")
    parser.add_argument("--model", default="", metavar="NAME", help="the model's name there; default: the only one")
    parser.add_argument(
        "--requests",
        type=at_most(10_000_000),
        metavar="N",
        help="counted requests at least; default: 4 times the clients, 64 with --rate",
    )
    parser.add_argument(
        "--max-requests", type=at_most(10_000_000), metavar="N", help="and at most; default: 10 times --requests"
    )
    parser.add_argument(
        "--half-width",
        type=positive_number,
        metavar="W",
        help="a closed loop stops when the throughput is known within this, relative, with 95 %% confidence; "
        f"default: {DEFAULT_HALF_WIDTH:g}; with --rate the load stops after --requests",
    )
    parser.add_argument(
        "--warmup",
        type=at_most(10_000_000, minimum=0),
        metavar="N",
        help="requests before those that count; default: as many as clients, 16 with --rate",
    )
    parser.add_argument(
        "--vocabulary-size",
        type=tokens,
        metavar="N",
        help="prompts are token ids below this; default: what the server says, or 10,000",
    )
    parser.add_argument(
        "--shared-prefix-tokens",
        type=at_most(10_000_000, minimum=0),
        default=0,
        metavar="N",
        help="tokens with which all prompts begin; default %(default)s",
    )
    parser.add_argument(
        "--seed", type=at_most(1 << 62, minimum=0), metavar="N", help="of prompts and arrivals; default: a random one"
    )


def run(args: argparse.Namespace) -> int:
    """Print what each load measured, and compare with the plan where the server knows it.

    Returns:
        0, or 2 when requests failed or answers disagreed.
    """
    if find_spec("aiohttp") is None:
        raise missing_extra("measuring a server", "serve")
    return _run_text(args) if args.protocol == "openai" else _run_inference(args)


def _run_text(args: argparse.Namespace) -> int:
    from autoauto.load.measure import measure_tokens

    for name in ("input_tokens", "output_tokens"):
        if getattr(args, name) is None:
            option = f"--{name.replace('_', '-')}"
            raise BadInput(f"{option} must be given with --protocol openai; try {option} 512")
    if args.rate is not None and args.concurrency is not None:
        raise BadInput("--concurrency or --rate must be given, got both; try one of them")
    if args.arrival is not None and args.rate is None:
        raise BadInput(f"--arrival is of requests that come at a rate, got {args.arrival!r:.40} alone; add --rate R")
    arrivals = None
    if args.rate is not None:
        arrivals = OpenLoop(args.rate, POISSON if args.arrival is None else ArrivalProcess.of(args.arrival))
    n_clients = args.concurrency or DEFAULT_CLIENTS
    half_width = args.half_width
    if half_width is None and args.rate is None:  # at a rate the number of requests ends the load
        half_width = DEFAULT_HALF_WIDTH
    load = TokenLoad(
        n_clients=n_clients,
        input_tokens=args.input_tokens,
        output_tokens=args.output_tokens,
        vocabulary_size=args.vocabulary_size,
        n_requests=args.requests or min(4 * n_clients, args.max_requests or 4 * n_clients),
        n_warmup=args.warmup,
        seed=secrets.randbits(62) if args.seed is None else args.seed,
        arrivals=arrivals,
        half_width=half_width,
        max_requests=args.max_requests,
        shared_prefix_tokens=args.shared_prefix_tokens,
    )
    measured = measure_tokens(args.url, load, args.model, args.chat)
    if args.json:
        print_json({"load": load.to_json(), **measured.to_json()})
    else:
        for line in _token_load_lines(load, measured):
            print_line(line)
    return 2 if measured.n_failed else 0


_WIDTH = 10


def _token_load_lines(load: TokenLoad, measured: TokenMeasurement) -> Iterator[str]:
    """Lines with the throughput, a table of times, the engine's own metrics, and what disturbed the measurement."""
    arrivals = f"{load.n_clients} clients"
    if load.arrivals is not None:
        arrivals = f"{digits(load.arrivals.requests_per_s, 6)} requests/s that {load.arrivals.process.text}"
    yield (
        f"{format_number(measured.tokens_per_s)} tokens/s {_interval(measured.half_width)}, "
        f"{format_number(measured.requests_per_s, 2)} requests/s "
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


def _interval(half_width: float) -> str:
    """The 95 % confidence interval of a throughput, relative to it.

    >>> _interval(0.021), _interval(float("inf"))
    ('± 2.1%', '(too few requests for an interval)')
    """
    return f"± {half_width:.1%}" if isfinite(half_width) else "(too few requests for an interval)"


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


def _run_inference(args: argparse.Namespace) -> int:
    if not args.url.startswith(("http://", "https://")):
        host = args.url if ":" in args.url and "://" not in args.url else "127.0.0.1:8000"
        hint = f"http://{host}/v2/models/NAME"
        raise BadInput(f"URL must be that of a model, as `autoauto serve` prints it, got {args.url!r:.100}; try {hint}")
    from autoauto.serve.load import LoadOptions, LoadResult, measure

    results: list[LoadResult] = []

    def show(result: LoadResult) -> None:
        if not results and not args.json:
            print_line(_HEAD)
        results.append(result)
        if not args.json:
            print_line(_row(result))

    options = LoadOptions(n_samples=args.samples, n_clients=args.concurrency, seconds=args.seconds, inputs=args.inputs)
    on_note: Callable[[str], None] = (lambda _: None) if args.json else warn
    metadata = asyncio.run(measure(args.url, options, show, on_note))
    properties = metadata.get("properties", {})
    if args.json:
        print_json({"model": metadata.get("name"), "plan": properties, "loads": [_plain(result) for result in results]})
    elif "plan_samples_per_s" in properties:
        plan, closed = float(properties["plan_samples_per_s"]), results[0]
        origin, share = properties.get("plan_origin", ""), closed.samples_per_s / plan
        print_line(
            f"the plan gives {format_number(plan)} samples/s ({origin}); "
            f"the closed load had {share:.0%} of it (measured)"
        )
        print_line(f"beside the stages, {_beside(closed)} (measured), which the stages lack where the cores are theirs")
    return 2 if any(result.n_failed or result.n_wrong for result in results) else 0


_COLUMNS = {"samples/s": 11, "p50 ms": 10, "p95 ms": 10, "p99 ms": 10, "refused": 9, "failed": 8, "wrong": 7}
_HEAD = f"{'load, measured':<24}" + "".join(f"{name:>{width}}" for name, width in _COLUMNS.items())


def _row(result: Any) -> str:
    times = "".join(f"{result.percentile_ms(percent):>10,.1f}" for percent in _PERCENTS)
    counts = f"{result.n_refused:>9,}{result.n_failed:>8,}{result.n_wrong:>7,}"
    return f"{result.name:<24}{format_number(result.samples_per_s):>11}{times}{counts}"


def _beside(result: Any) -> str:
    """The cores that clients and server took besides the stages; another server does not say its own."""
    clients = f"the clients took {result.client_cpu_s / result.seconds:.2f} cores"
    if result.server_cpu_s is None:
        return clients
    return f"{clients} and the server {result.server_cpu_s / result.seconds:.2f}"


def _plain(result: Any) -> dict[str, Any]:
    return {
        "load": result.name,
        "source": "measured",
        "samples_per_s": result.samples_per_s,
        "n_answered": len(result.latencies_s),
        **{f"p{percent}_ms": result.percentile_ms(percent) for percent in _PERCENTS},
        "n_refused": result.n_refused,
        "n_failed": result.n_failed,
        "n_wrong": result.n_wrong,
        "client_cpu_s": result.client_cpu_s,
        "server_cpu_s": result.server_cpu_s,
    }
