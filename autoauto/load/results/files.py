"""Read a file of another program, whichever it is, `read_results`, and make a measured row of it, `measured_row`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import autoauto.load.results as results_package
from autoauto.load.results.figures import LoadFigures
from autoauto.records.errors import BadInput
from autoauto.records.files.json import read_json
from autoauto.records.units import digits

MAX_DISAGREEMENT = 0.1
"""Relative difference of tokens/s and requests/s times tokens from which on a note says so."""

MAX_TIMES = 2
"""How many times the requests in flight, or as small a part, they are by Little's law, before it is said: the begin and
the end of a load have fewer."""


def read_results(path: Path) -> list[LoadFigures]:
    """The loads of a file.

    Raises:
        BadInput: no program that is known writes such a file, or it lacks the lengths of prompts or answers.
    """
    content = read_json(path)
    programs = []
    for each in iter_modules(results_package.__path__):
        reader = import_module(f"{results_package.__name__}.{each.name}")
        if not hasattr(reader, "is_of"):
            continue
        if isinstance(content, Mapping) and reader.is_of(content):
            loads = reader.read(content, str(path))
            return [replace(figures, notes=(*figures.notes, *_doubts(figures))) for figures in loads]
        programs.append(reader.PROGRAM)
    raise BadInput(f"{path} must be a summary in JSON of {', '.join(programs)}, got another file")


def _doubts(figures: LoadFigures) -> Iterator[str]:
    """Which throughputs of a file do not agree with each other, or with the requests in flight by Little's law."""
    if figures.requests_per_s is None:
        return
    product = figures.requests_per_s * figures.output_tokens
    if figures.tokens_per_s is not None and abs(product / figures.tokens_per_s - 1) > MAX_DISAGREEMENT:
        said = digits(figures.tokens_per_s, 4)
        yield f"tokens/s are {said}, requests/s times tokens of an answer {digits(product, 4)}"
    latency_s = figures.latency_s
    if latency_s is None and figures.ttft_s is not None and figures.tpot_s is not None:
        latency_s = figures.ttft_s + (figures.output_tokens - 1) * figures.tpot_s
    if latency_s is None or figures.concurrency is None:
        return
    in_flight = figures.requests_per_s * latency_s
    if not 1 / MAX_TIMES <= in_flight / figures.concurrency <= MAX_TIMES:
        yield (
            f"requests in flight are {digits(figures.concurrency, 4)} by the file, {digits(in_flight)} by requests/s "
            "times latency"
        )


def with_lengths(figures: LoadFigures, input_tokens: int | None, output_tokens: int | None) -> LoadFigures:
    """The numbers with lengths that somebody knows better than the file; tokens/s are then requests/s times these."""
    if input_tokens is not None:
        figures = replace(figures, input_tokens=float(input_tokens))
    if output_tokens is not None:
        rate = figures.requests_per_s
        tokens_per_s = None if rate is None else rate * output_tokens
        figures = replace(figures, output_tokens=float(output_tokens), tokens_per_s=tokens_per_s)
    return figures


def measured_row(figures: LoadFigures, in_flight: float | None, n_pipelines: int) -> dict[str, object]:
    """The columns of a measured row that a load tells; empty where it does not.

    Args:
        in_flight: requests; None for requests/s times latency, Little's law.
        n_pipelines: stages x replicas, among which the requests in flight are dealt.

    Raises:
        BadInput: nothing was measured, or it is not known how many requests were in flight.
    """
    if in_flight is None and figures.requests_per_s is not None and figures.latency_s is not None:
        in_flight = figures.requests_per_s * figures.latency_s
    if in_flight is None:
        raise BadInput(f"{figures.program} must say how many requests were in flight, got nothing; try --concurrency")
    results = {"tpot_s": tpot_s(figures), "ttft_s": figures.ttft_s, "tokens_per_s": figures.tokens_per_s}
    if not any(results.values()):
        raise BadInput(f"{figures.program} must have measured TPOT, TTFT or tokens/s, got none; try another file")
    row: dict[str, object] = {
        "batch_size": max(round(in_flight / n_pipelines), 1),
        "input_tokens": max(round(figures.input_tokens), 1),
        "output_tokens": max(round(figures.output_tokens), 1),
    }
    for name, value in results.items():
        row[name] = "" if value is None else f"{value:.6g}"
    return row


def tpot_s(figures: LoadFigures) -> float | None:
    """(latency - TTFT) / (tokens - 1), where the program has no time per output token of this definition.

    Of answers of unequal lengths it is the mean of tokens, not of requests.

    Raises:
        BadInput: the first token comes after the last.
    """
    if figures.tpot_s is not None or figures.latency_s is None or figures.ttft_s is None or figures.output_tokens <= 1:
        return figures.tpot_s
    value = (figures.latency_s - figures.ttft_s) / (figures.output_tokens - 1)
    if value <= 0:
        raise BadInput(
            f"{figures.program} must have a latency above TTFT, got {figures.latency_s:g} s and {figures.ttft_s:g} s"
        )
    return value
