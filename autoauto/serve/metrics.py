"""The counters and gauges of the server, for Prometheus: `ServerMetrics`."""

from __future__ import annotations

from autoauto.serve.artifact import ServedModel
from autoauto.serve.batcher import Batcher, MicroBatch

SECONDS = tuple(base * 10.0**exponent for exponent in range(-3, 2) for base in (1, 2.5, 5))
"""The bounds of the histogram of times: from 1 ms to 50 s."""


class ServerMetrics:
    """Counters, gauges and histograms of one server."""

    def __init__(self, model: ServedModel, batcher: Batcher) -> None:
        import prometheus_client as library

        self._registry = registry = library.CollectorRegistry()
        self.requests = library.Counter(
            "autoauto_requests", "Inference requests that were answered", ["code"], registry=registry
        )
        self.seconds = library.Histogram(
            "autoauto_request_seconds", "From the head of a request to its outputs", buckets=SECONDS, registry=registry
        )
        self.restarts = library.Counter(
            "autoauto_restarts", "How often processes were lost and all were started again", registry=registry
        )
        self.ready = library.Gauge("autoauto_ready", "Whether requests are answered", registry=registry)
        self._samples = library.Counter("autoauto_samples", "Samples that were computed", registry=registry)
        self._micro_batches = library.Counter(
            "autoauto_micro_batches", "Micro-batches that were computed", registry=registry
        )
        plan = library.Gauge(
            "autoauto_plan_samples_per_second", f"Throughput of the plan, {model.origin}", registry=registry
        )
        plan.set(model.samples_per_s)
        queued = library.Gauge("autoauto_queued_samples", "Samples that wait for a micro-batch", registry=registry)
        queued.set_function(lambda: batcher.n_queued)
        in_flight = library.Gauge(
            "autoauto_in_flight_micro_batches", "Micro-batches in the pipelines", registry=registry
        )
        in_flight.set_function(lambda: len(batcher.in_flight))
        library.ProcessCollector(registry=registry)  # of the process that reads requests, without those that compute

    def count(self, batch: MicroBatch) -> None:
        """Count a micro-batch that was computed; its samples over micro-batches say how full they are."""
        self._micro_batches.inc()
        self._samples.inc(batch.n_samples)

    def text(self) -> tuple[bytes, str]:
        """All values in the text format of Prometheus, and its media type."""
        import prometheus_client as library

        return library.generate_latest(self._registry), library.CONTENT_TYPE_LATEST
