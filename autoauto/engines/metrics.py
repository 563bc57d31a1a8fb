"""The state of an engine, read from its /metrics: `MetricNames`, `ServerState`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple


class MetricNames(NamedTuple):
    """The names of an engine's metrics; several names of one metric are those of several versions, "" is none.

    Attributes:
        kv_usage: the share of the KV cache that is used, 0 to 1.
        preemptions: counter of the requests that lost their KV cache to others.
        output_tokens: counter of the tokens of answers.
    """

    engine: str
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_usage: tuple[str, ...] = ()
    preemptions: tuple[str, ...] = ()
    output_tokens: tuple[str, ...] = ()


class ServerState(NamedTuple):
    """The state of an engine, added up over its processes; None where it does not say."""

    engine: str
    running: float  # requests that are computed
    waiting: float | None  # requests in the queue
    kv_usage: float | None  # share of the KV cache that is used, 0 to 1, of the fullest process
    preemptions: float | None  # since it was started
    output_tokens: float | None  # since it was started


def read_metrics(text: str) -> Mapping[str, list[float]]:
    """The values of every metric of a text in the format of Prometheus, one for each set of labels.

    >>> dict(read_metrics('# HELP a b\\na:running{engine="0"} 2\\na:running{engine="1"} 3\\nb_total 1e3'))
    {'a:running': [2.0, 3.0], 'b_total': [1000.0]}

    Raises:
        ValueError: it is of another format.
    """
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, list[float]] = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name].append(float(sample.value))
    return values


def state_of(values: Mapping[str, list[float]], names: MetricNames) -> ServerState | None:
    """What an engine of these names says; None if it is another engine; raises ValueError as `read_metrics`."""

    def total(of: tuple[str, ...]) -> float | None:
        return next((sum(values[name]) for name in of if name in values), None)

    running = total(names.running)
    if running is None:
        return None
    usage = next((max(values[name]) for name in names.kv_usage if name in values), None)
    return ServerState(
        names.engine, running, total(names.waiting), usage, total(names.preemptions), total(names.output_tokens)
    )
