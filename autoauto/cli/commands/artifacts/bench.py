"""Measure a served model under load.

Throughput and latency under closed and open load.
"""

from __future__ import annotations

import argparse
import asyncio
from importlib.util import find_spec
from typing import Any

from autoauto.cli.options.values import at_most, positive_number
from autoauto.cli.output.lines import add_json, print_json, print_line
from autoauto.records.errors import BadInput, missing_extra

EXAMPLE = "bench http://127.0.0.1:8000/v2/models/resnet50"
_PERCENTS = (50, 95, 99)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the URL of a model, and the load."""
    parser.add_argument("url", metavar="URL", help="the model's URL, as `autoauto serve` prints it")
    parser.add_argument(
        "--samples", type=at_most(1_000_000), default=1, metavar="N", help="samples of a request; default %(default)s"
    )
    parser.add_argument(
        "--clients",
        type=at_most(10_000),
        metavar="N",
        help="clients of the closed load; default: as many as fill all micro-batches in flight",
    )
    parser.add_argument(
        "--seconds", type=positive_number, default=10.0, metavar="S", help="duration of a load; default %(default)s"
    )
    parser.add_argument(
        "--inputs",
        metavar="FILE.npz",
        help="samples of the model's inputs, an array for each; requests have them in turn; default: made-up inputs",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print what each load measured, and compare with the plan where the server knows it.

    Returns:
        0, or 2 when answers failed or disagreed.
    """
    if not args.url.startswith(("http://", "https://")):
        host = args.url if ":" in args.url and "://" not in args.url else "127.0.0.1:8000"
        hint = f"http://{host}/v2/models/NAME"
        raise BadInput(f"URL must be that of a model, as `autoauto serve` prints it, got {args.url!r:.100}; try {hint}")
    if find_spec("aiohttp") is None:
        raise missing_extra("measuring a server", "serve")
    from autoauto.serve.load import LoadOptions, LoadResult, measure

    results: list[LoadResult] = []

    def show(result: LoadResult) -> None:
        if not results and not args.json:
            print_line(_HEAD)
        results.append(result)
        if not args.json:
            print_line(_row(result))

    options = LoadOptions(n_samples=args.samples, n_clients=args.clients, seconds=args.seconds, inputs=args.inputs)
    metadata = asyncio.run(measure(args.url, options, show))
    properties = metadata.get("properties", {})
    if args.json:
        print_json({"model": metadata.get("name"), "plan": properties, "loads": [_plain(result) for result in results]})
    elif "plan_samples_per_s" in properties:
        plan, closed = float(properties["plan_samples_per_s"]), results[0]
        origin, share = properties.get("plan_origin", ""), closed.samples_per_s / plan
        print_line(f"the plan gives {plan:,.1f} samples/s ({origin}); the closed load had {share:.0%} of it (measured)")
        print_line(f"beside the stages, {_beside(closed)} (measured), which the stages lack where the cores are theirs")
    return 2 if any(result.n_failed or result.n_wrong for result in results) else 0


_COLUMNS = {"samples/s": 11, "p50 ms": 10, "p95 ms": 10, "p99 ms": 10, "refused": 9, "failed": 8, "wrong": 7}
_HEAD = f"{'load, measured':<24}" + "".join(f"{name:>{width}}" for name, width in _COLUMNS.items())


def _row(result: Any) -> str:
    times = "".join(f"{result.percentile_ms(percent):>10,.1f}" for percent in _PERCENTS)
    counts = f"{result.n_refused:>9,}{result.n_failed:>8,}{result.n_wrong:>7,}"
    return f"{result.name:<24}{result.samples_per_s:>11,.1f}{times}{counts}"


def _beside(result: Any) -> str:
    """The cores that a load took beside those of the stages; of another server only those of the clients are known."""
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
