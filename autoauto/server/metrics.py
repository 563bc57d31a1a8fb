"""The counters and gauges of the service, for Prometheus: `ServiceMetrics`."""

from __future__ import annotations

from collections.abc import Mapping

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ServiceMetrics:
    """Counters, gauges and a histogram of one server."""

    def __init__(self) -> None:
        import prometheus_client as library

        self._registry = registry = library.CollectorRegistry()
        self._requests = library.Counter(
            "autoauto_server_requests", "Requests that were answered", ["method", "path", "code"], registry=registry
        )
        self._seconds = library.Histogram(
            "autoauto_server_request_seconds",
            "From the head of a request to its answer",
            ["path"],
            buckets=SECONDS,
            registry=registry,
        )
        self._searches = library.Gauge("autoauto_searches", "Searches by state", ["state"], registry=registry)
        library.ProcessCollector(registry=registry)

    def count(self, method: str, path: str, code: int, seconds: float) -> None:
        """Count a request by the path of its route, so that clients cannot make ever more series."""
        self._requests.labels(method, path, code).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self, n_searches: Mapping[str, int]) -> tuple[bytes, str]:
        """All values in the text format of Prometheus, and its media type."""
        import prometheus_client as library

        for state, number in n_searches.items():
            self._searches.labels(state).set(number)
        return library.generate_latest(self._registry), library.CONTENT_TYPE_LATEST
